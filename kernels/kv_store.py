"""The store of keys and values alone, for rows that need neither norm nor rotation.

Row i of `new_keys` and `new_values` is copied to slot slots[i] of the cache; a negative slot stores nothing.
`vosti.kernels.rotary_store` does this together with the rotation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from vosti.kernels.contract import Access, Buffer, Constant, Contract, Fact, Integer, Output
from vosti.kernels.finite import not_finite
from vosti.kernels.launch import Kernel, distinct
from vosti.kernels.tile import Tile

if TYPE_CHECKING:
    import torch


@triton.jit(do_not_specialize=["rows"])
def kv_store_kernel(
    new_keys, new_values, slots, keys, values, flags, rows, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr
):
    """See `KV_STORE`."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    slot = tl.load(slots + row).to(tl.int64)
    column = tl.arange(0, HEAD_DIM)
    stored = (slot >= 0) & (column >= 0)
    source = (row * KV_HEADS + head) * HEAD_DIM + column
    place = (slot * KV_HEADS + head) * HEAD_DIM + column
    key = tl.load(new_keys + source, mask=stored, other=0.0)
    value = tl.load(new_values + source, mask=stored, other=0.0)
    tl.store(keys + place, key, mask=stored)
    tl.store(values + place, value, mask=stored)
    flag = flags + row * KV_HEADS + head
    tl.store(flag, tl.load(flag) | tl.max(not_finite(key) | not_finite(value), 0))


DIFFERENT_SLOTS = Fact(
    ("i", "k"),
    "i == k or slots[i] < 0 or slots[i] != slots[k]",
    kept="by the page pool: a position that is computed has a slot of its own",
)
"""No two rows are stored in one slot."""

_WRITER: Mapping[str, Any] = {
    "program": ("i", "g", "0"),
    "lanes": ("d",),
    "names": (("i", "x"),),
    "when": "0 <= i < rows and slots[i] >= 0",
}

KV_STORE = Kernel(
    kv_store_kernel,
    Contract(
        kernel="kv_store",
        row_program="no arithmetic",
        parameters=(
            Buffer("new_keys", "bf16", ("rows", "KV_HEADS", "HEAD_DIM")),
            Buffer("new_values", "bf16", ("rows", "KV_HEADS", "HEAD_DIM")),
            Buffer("slots", "i32", ("rows",), within=("-1", "slots_known")),
            Buffer("keys", "bf16", ("slots_known", "KV_HEADS", "HEAD_DIM"), Access.WRITE),
            Buffer("values", "bf16", ("slots_known", "KV_HEADS", "HEAD_DIM"), Access.WRITE),
            Buffer("flags", "i32", ("rows", "KV_HEADS"), Access.UPDATE),
            Integer("rows"),
            Constant("KV_HEADS"),
            Constant("HEAD_DIM"),
        ),
        grid=("rows", "KV_HEADS", "1"),
        premises=("HEAD_DIM in (32, 64, 128, 256, 512)",),
        row_inputs=("new_keys[i]", "new_values[i]"),
        outputs=(
            Output("keys", ("slots[i]", "g", "d"), "new_keys[i, g, d]", **_WRITER),
            Output("values", ("slots[i]", "g", "d"), "new_values[i, g, d]", **_WRITER),
            # Its value before, or 1 if a number stored is not finite.
            Output(
                "flags",
                ("i", "g"),
                "either(flags[i, g], over(HEAD_DIM, lambda d: "
                "flag(not_finite(within(slots[i] >= 0, new_keys[i, g, d]))"
                " | not_finite(within(slots[i] >= 0, new_values[i, g, d])))))",
                program=("i", "g", "0"),
            ),
        ),
        conclusion=(
            "For 0 <= i < rows with slots[i] >= 0, that slot of keys and values holds row i of new_keys and "
            "new_values. No other slot changes. The slots that are not negative differ pairwise."
        ),
        facts=(DIFFERENT_SLOTS,),
    ),
)


def kv_store(
    new: tuple[torch.Tensor, torch.Tensor],
    slots: torch.Tensor,
    cache: tuple[torch.Tensor, torch.Tensor],
    flags: torch.Tensor,
    tile: Tile,
) -> Any:
    """Copy keys and values [rows, kv heads, d] to the rows' slots of the cache, [slots, kv heads, d] each.

    Raises `PremiseError` if a premise of the contract fails.
    """
    for part in cache:
        distinct("kv_store", part, *new)
    rows, kv_heads, head_dim = new[0].shape
    arguments = {
        "new_keys": new[0],
        "new_values": new[1],
        "slots": slots,
        "keys": cache[0],
        "values": cache[1],
        "flags": flags,
        "rows": rows,
        "KV_HEADS": kv_heads,
        "HEAD_DIM": head_dim,
    }
    return KV_STORE.launch(arguments, tile)
