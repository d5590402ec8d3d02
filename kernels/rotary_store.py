"""Rotary embedding of queries and keys, with the norm of each head, and the store of keys and values, in one launch.

A row of `qkv` holds the heads of queries, then of keys, then of values (without the latter where values are the keys'
projection). Each head of queries and keys is normalised (if the model does), then rotated by its position's angles:

    y(i)       = x(i) · cos(i) − x(i + d/2) · sin(i)
    y(i + d/2) = x(i + d/2) · cos(i) + x(i) · sin(i)

in float32 from the load to the store. Queries go to their own buffer; keys and values go to the row's slot of the
cache, [slots, kv heads, d] each. A negative slot stores nothing. Each kv head of each row has a flag, raised if what
was stored is not finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from vosti.kernels.contract import Access, Buffer, Constant, Contract, Integer, Output, Real
from vosti.kernels.finite import not_finite
from vosti.kernels.kv_store import DIFFERENT_SLOTS
from vosti.kernels.launch import Kernel, distinct
from vosti.kernels.tile import Tile
from vosti.kernels.trees import tree_sum

if TYPE_CHECKING:
    import torch

NO_NORM, PLAIN, UNIT_OFFSET = 0, 1, 2
"""Values of the compile-time parameter NORM."""


@triton.jit
def _head_factor(first, second, epsilon, HEAD_DIM: tl.constexpr):
    """[heads, d/2] twice → [heads, 1]: 1 / √(mean of squares + ε); the tree's first level adds the two halves."""
    total = tree_sum(first * first + second * second)
    mean = tl.math.div_rn(total, tl.full((1, 1), HEAD_DIM, tl.float32))
    return tl.math.div_rn(tl.full((1, 1), 1.0, tl.float32), tl.math.sqrt_rn(mean + epsilon))


@triton.jit(do_not_specialize=["rows"])
def rotary_store_kernel(
    qkv,
    cosines,
    sines,
    positions,
    slots,
    norm_weight,
    queries,
    keys,
    values,
    flags,
    rows,
    epsilon,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    NORM: tl.constexpr,
    VALUE_NORM: tl.constexpr,
    SHARED: tl.constexpr,
    BLOCK_H: tl.constexpr,
):
    """See `ROTARY_STORE`."""
    HALF: tl.constexpr = HEAD_DIM // 2
    WIDTH: tl.constexpr = (HEADS + KV_HEADS * (1 if SHARED else 2)) * HEAD_DIM
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)[:, None]
    kv_head = head - HEADS
    column = tl.arange(0, HALF)[None, :]
    position = tl.load(positions + row).to(tl.int64)
    slot = tl.load(slots + row).to(tl.int64)
    cosine = tl.load(cosines + position * HALF + column)
    sine = tl.load(sines + position * HALF + column)

    present = head < HEADS + KV_HEADS
    source = qkv + row * WIDTH + head * HEAD_DIM + column
    first = tl.load(source, mask=present, other=0.0).to(tl.float32)
    second = tl.load(source + HALF, mask=present, other=0.0).to(tl.float32)
    raw_first = first
    raw_second = second
    if NORM != 0:
        factor = _head_factor(first, second, epsilon, HEAD_DIM)
        weight_first = tl.load(norm_weight + head * HEAD_DIM + column, mask=present, other=0.0).to(tl.float32)
        weight_second = tl.load(norm_weight + head * HEAD_DIM + HALF + column, mask=present, other=0.0).to(tl.float32)
        if NORM == 2:
            weight_first = weight_first + 1.0
            weight_second = weight_second + 1.0
        first = first * factor * weight_first
        second = second * factor * weight_second
    rotated_first = (first * cosine - second * sine).to(queries.dtype.element_ty)
    rotated_second = (second * cosine + first * sine).to(queries.dtype.element_ty)

    is_query = head < HEADS
    destination = queries + (row * HEADS + head) * HEAD_DIM + column
    tl.store(destination, rotated_first, mask=is_query)
    tl.store(destination + HALF, rotated_second, mask=is_query)

    stored = (head >= HEADS) & present & (slot >= 0)
    place = (slot * KV_HEADS + kv_head) * HEAD_DIM + column
    tl.store(keys + place, rotated_first, mask=stored)
    tl.store(keys + place + HALF, rotated_second, mask=stored)
    value_first = raw_first
    value_second = raw_second
    if not SHARED:
        source = qkv + row * WIDTH + (head + KV_HEADS) * HEAD_DIM + column
        value_first = tl.load(source, mask=stored, other=0.0).to(tl.float32)
        value_second = tl.load(source + HALF, mask=stored, other=0.0).to(tl.float32)
    if VALUE_NORM:
        value_factor = _head_factor(value_first, value_second, epsilon, HEAD_DIM)
        value_first = value_first * value_factor
        value_second = value_second * value_factor
    stored_first = value_first.to(values.dtype.element_ty)
    stored_second = value_second.to(values.dtype.element_ty)
    tl.store(values + place, stored_first, mask=stored)
    tl.store(values + place + HALF, stored_second, mask=stored)

    bad = tl.max(not_finite(rotated_first) | not_finite(rotated_second), 1, keep_dims=True)
    bad = bad | tl.max(not_finite(stored_first) | not_finite(stored_second), 1, keep_dims=True)
    flag = flags + row * KV_HEADS + kv_head
    tl.store(flag, tl.load(flag, mask=stored, other=0) | bad, mask=stored)


_HALF = "HEAD_DIM // 2"
_ANGLES = "cosines[positions[i], :], sines[positions[i], :]"


def _rotated(head: str) -> str:
    """A head of queries or keys, normalised and rotated."""
    row, norm = f"qkv[i, {head}, :]", "(rms_norm if NORM == 1 else rms_norm_unit_offset)"
    return f"rotate({row} if NORM == 0 else {norm}({row}, norm_weight[{head}, :], HEAD_DIM, epsilon), {_ANGLES})[d]"


_KEY_HEAD = "(HEADS + g)"
_VALUE_ROW = "qkv[i, HEADS + g + (0 if SHARED else KV_HEADS), :]"
_NAMES = (("i", "x"), ("g", "y * BLOCK_H + l0 - HEADS"))
_STORED: Mapping[str, Any] = {
    "program": ("i", f"{_KEY_HEAD} // BLOCK_H", "0"),
    "lanes": (f"{_KEY_HEAD} % BLOCK_H", f"d % ({_HALF})"),
    "names": _NAMES,
    "when": "0 <= i < rows and slots[i] >= 0",
}


def _raised(buffer: str) -> str:
    """Whether a number that is stored for row i and kv head g is not finite, as a flag."""
    lower, upper = (f"not_finite(stored('{buffer}', i=i, g=g, d={d}))" for d in ("k", f"k + {_HALF}"))
    return f"over({_HALF}, lambda k: flag({lower} | {upper}))"


ROTARY_STORE = Kernel(
    rotary_store_kernel,
    Contract(
        kernel="rotary_store",
        row_program="norms.rms_norm or rms_norm_unit_offset per head (NORM), then rotary.rotate; values: rms_norm",
        parameters=(
            Buffer("qkv", "bf16", ("rows", "HEADS + KV_HEADS * (1 if SHARED else 2)", "HEAD_DIM")),
            Buffer("cosines", "fp32", ("positions_known", "HEAD_DIM // 2")),
            Buffer("sines", "fp32", ("positions_known", "HEAD_DIM // 2")),
            Buffer("positions", "i32", ("rows",), within=("0", "positions_known")),
            Buffer("slots", "i32", ("rows",), within=("-1", "slots_known")),
            Buffer("norm_weight", "bf16", ("HEADS + KV_HEADS", "HEAD_DIM")),
            Buffer("queries", "bf16", ("rows", "HEADS", "HEAD_DIM"), Access.WRITE),
            Buffer("keys", "bf16", ("slots_known", "KV_HEADS", "HEAD_DIM"), Access.WRITE),
            Buffer("values", "bf16", ("slots_known", "KV_HEADS", "HEAD_DIM"), Access.WRITE),
            Buffer("flags", "i32", ("rows", "KV_HEADS"), Access.UPDATE),
            Integer("rows"),
            Real("epsilon"),
            Constant("HEADS"),
            Constant("KV_HEADS"),
            Constant("HEAD_DIM"),
            Constant("NORM"),
            Constant("VALUE_NORM"),
            Constant("SHARED"),
            Constant("BLOCK_H"),
        ),
        grid=("rows", "cdiv(HEADS + KV_HEADS, BLOCK_H)", "1"),
        premises=(
            "0 <= NORM <= 2",
            "0 <= VALUE_NORM <= 1",
            "0 <= SHARED <= 1",
        ),
        row_inputs=(
            "qkv[i, :]",
            "cosines[positions[i], :]",
            "sines[positions[i], :]",
            "norm_weight[:, :] if NORM",
            "epsilon if NORM or VALUE_NORM",
        ),
        outputs=(
            Output(
                "queries",
                ("i", "h", "d"),
                _rotated("h"),
                program=("i", "h // BLOCK_H", "0"),
                lanes=("h % BLOCK_H", f"d % ({_HALF})"),
            ),
            Output("keys", ("slots[i]", "g", "d"), _rotated(_KEY_HEAD), **_STORED),
            # The row's head of values (of keys, before norm and rotation, if SHARED).
            Output(
                "values",
                ("slots[i]", "g", "d"),
                f"({_VALUE_ROW} if VALUE_NORM == 0 else unweighted_rms_norm({_VALUE_ROW}, HEAD_DIM, epsilon))[d]",
                **_STORED,
            ),
            # Its value before, or 1 if a number stored for (i, g) is not finite.
            Output(
                "flags",
                ("i", "g"),
                f"either(flags[i, g], {_raised('keys')}, {_raised('values')})",
                program=("i", f"{_KEY_HEAD} // BLOCK_H", "0"),
                lanes=(f"{_KEY_HEAD} % BLOCK_H", "0"),
                names=_NAMES,
                when="slots[i] >= 0",
            ),
        ),
        conclusion=(
            "For 0 <= i < rows, queries[i] holds the row's rotated queries; if slots[i] >= 0, that slot of keys and "
            "values holds its rotated keys and its values. No other slot changes. The slots that are not negative "
            "differ pairwise."
        ),
        facts=(DIFFERENT_SLOTS,),
    ),
)


def rotary_store(
    qkv: torch.Tensor,
    angles: tuple[torch.Tensor, torch.Tensor],
    positions: torch.Tensor,
    slots: torch.Tensor,
    queries: torch.Tensor,
    cache: tuple[torch.Tensor, torch.Tensor],
    flags: torch.Tensor,
    tile: Tile,
    *,
    norm: tuple[int, torch.Tensor, float] | None = None,
    value_norm: bool = False,
    shared: bool = False,
) -> Any:
    """Rotate the queries and keys of each row of `qkv`, and store keys and values in the row's slot.

    `angles` are the tables of cosines and sines [positions, d/2]; `queries` is [rows, heads, d]; `cache` is keys and
    values, [slots, kv heads, d] each; `norm` is (`PLAIN` or `UNIT_OFFSET`, weights [heads + kv heads, d], ε); with
    `shared`, values are the keys' projection. Raises `PremiseError` if a premise of the contract fails.
    """
    (rows, heads, head_dim), kv_heads = queries.shape, cache[0].shape[1]
    kind, weight, epsilon = norm if norm is not None else (NO_NORM, qkv, 0.0)
    for written in (queries, *cache):
        distinct("rotary_store", written, qkv)
    arguments = {
        "qkv": qkv,
        "cosines": angles[0],
        "sines": angles[1],
        "positions": positions,
        "slots": slots,
        "norm_weight": weight,
        "queries": queries,
        "keys": cache[0],
        "values": cache[1],
        "flags": flags,
        "rows": rows,
        "epsilon": epsilon,
        "HEADS": heads,
        "KV_HEADS": kv_heads,
        "HEAD_DIM": head_dim,
        "NORM": kind,
        "VALUE_NORM": int(value_norm),
        "SHARED": int(shared),
    }
    return ROTARY_STORE.launch(arguments, tile)
