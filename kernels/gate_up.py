"""The gated half of a feed-forward layer in one launch: out = activation(gate) · up, without storing gate and up.

gate(i, j) = Σₖ x(i, k) · weight(2j, k) and up(i, j) = Σₖ x(i, k) · weight(2j + 1, k), two chains over k, stay in
float32 from the chain to the activation. The rows of the two weights alternate (`interleaved`), so that one product
yields both in one tile:

    SiLU          gate / (1 + e^−gate) · up
    GELU (tanh)   ½ gate (1 + tanh(√(2/π) (gate + 0.044715 gate³))) · up

As in `vosti.kernels.linear`, one kernel serves few rows and one many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.tools.tensor_descriptor import TensorDescriptor

from vosti.kernels.contract import Access, Buffer, Constant, Contract, Descriptor, Integer, Output
from vosti.kernels.launch import Kernel, distinct
from vosti.kernels.linear import STREAM_DEFINITIONS, STREAM_WRITER
from vosti.kernels.tile import Tile
from vosti.spec.numerics import activations

if TYPE_CHECKING:
    import torch

SILU, GELU_TANH = 0, 1
"""Values of the compile-time parameter ACTIVATION."""

_GELU_SCALE = tl.constexpr(activations.GELU_SCALE)
_GELU_CUBIC = tl.constexpr(activations.GELU_CUBIC)


@triton.jit
def _gated(gate, up, ACTIVATION: tl.constexpr):
    """The activation, in the row program's order of operations."""
    if ACTIVATION == 0:
        return tl.math.div_rn(gate, tl.exp(-gate) + 1.0) * up
    else:
        inner = (gate + (gate * gate * gate) * _GELU_CUBIC) * _GELU_SCALE
        return gate * 0.5 * (libdevice.tanh(inner) + 1.0) * up


@triton.jit(do_not_specialize=["rows"])
def gate_up_kernel(
    x,
    weight,
    out,
    rows,
    N: tl.constexpr,
    K: tl.constexpr,
    ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """See `GATE_UP`."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    weight_column = tl.program_id(1) * 2 * BLOCK_N + tl.arange(0, 2 * BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    x_row = x + row.to(tl.int64)[:, None] * K
    weight_row = weight + weight_column.to(tl.int64)[None, :] * K
    accumulator = tl.zeros((BLOCK_M, 2 * BLOCK_N), tl.float32)
    for begin in range(0, K, BLOCK_K):
        a = tl.load(x_row + (begin + k)[None, :], mask=row[:, None] < rows, other=0.0)
        if N % BLOCK_N == 0:
            b = tl.load(weight_row + (begin + k)[:, None])
        else:
            b = tl.load(weight_row + (begin + k)[:, None], mask=weight_column[None, :] < 2 * N, other=0.0)
        accumulator = tl.dot(a, b, accumulator, input_precision="ieee")
    gate, up = tl.split(tl.reshape(accumulator, (BLOCK_M, BLOCK_N, 2)))
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    live = (row[:, None] < rows) & (column[None, :] < N)
    result = _gated(gate, up, ACTIVATION).to(out.dtype.element_ty)
    tl.store(out + row.to(tl.int64)[:, None] * N + column[None, :], result, mask=live)


@triton.jit(do_not_specialize=["rows"])
def gate_up_stream_kernel(
    x,
    weight,
    out,
    rows,
    N: tl.constexpr,
    K: tl.constexpr,
    ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """See `GATE_UP_STREAM`."""
    row_tiles = tl.cdiv(rows, BLOCK_M)
    column_tiles: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    for tile in tl.range(tl.program_id(0), row_tiles * column_tiles, PROGRAMS, flatten=True):
        group = tile // (GROUP_M * column_tiles)
        height = tl.minimum(row_tiles - group * GROUP_M, GROUP_M)
        within = tile % (GROUP_M * column_tiles)
        m = (group * GROUP_M + within % height) * BLOCK_M
        n = (within // height) * BLOCK_N
        accumulator = tl.zeros((BLOCK_M, 2 * BLOCK_N), tl.float32)
        for begin in range(0, K, BLOCK_K):
            accumulator = tl.dot(x.load([m, begin]), weight.load([2 * n, begin]).T, accumulator, input_precision="ieee")
        gate, up = tl.split(tl.reshape(accumulator, (BLOCK_M, BLOCK_N, 2)))
        out.store([m, n], _gated(gate, up, ACTIVATION).to(out.dtype))


_ROW_INPUTS = ("x[i, :]", "weight[:, :]")
_VALUE = (
    "(silu_mul if ACTIVATION == 0 else gelu_tanh_mul)"
    "(join(linear(x[i, :], weight[0::2, :].T), linear(x[i, :], weight[1::2, :].T)))[j]"
)
_CONCLUSION = (
    "For 0 <= i < rows and 0 <= j < N, out[i, j] is the activation of the chain over k of x[i, k] · weight[2j, k], "
    "times the chain over k of x[i, k] · weight[2j + 1, k]."
)

GATE_UP = Kernel(
    gate_up_kernel,
    Contract(
        kernel="gate_up",
        row_program="projections.linear, then activations.silu_mul or activations.gelu_tanh_mul",
        parameters=(
            Buffer("x", "bf16", ("rows", "K")),
            Buffer("weight", "bf16", ("2 * N", "K")),
            Buffer("out", "bf16", ("rows", "N"), Access.WRITE),
            Integer("rows"),
            Constant("N"),
            Constant("K"),
            Constant("ACTIVATION"),
            Constant("BLOCK_M"),
            Constant("BLOCK_N"),
            Constant("BLOCK_K"),
        ),
        grid=("cdiv(rows, BLOCK_M)", "cdiv(N, BLOCK_N)", "1"),
        premises=("K % BLOCK_K == 0", "BLOCK_K % 16 == 0", "BLOCK_M >= 16", "0 <= ACTIVATION <= 1", "rows <= 2**30"),
        row_inputs=_ROW_INPUTS,
        outputs=(
            Output(
                "out",
                ("i", "j"),
                _VALUE,
                program=("i // BLOCK_M", "j // BLOCK_N", "0"),
                lanes=("i % BLOCK_M", "j % BLOCK_N"),
            ),
        ),
        conclusion=_CONCLUSION,
    ),
)

GATE_UP_STREAM = Kernel(
    gate_up_stream_kernel,
    Contract(
        kernel="gate_up_stream",
        row_program=GATE_UP.contract.row_program,
        parameters=(
            Descriptor("x", "bf16", ("rows", "K"), ("BLOCK_M", "BLOCK_K")),
            Descriptor("weight", "bf16", ("2 * N", "K"), ("2 * BLOCK_N", "BLOCK_K")),
            Descriptor("out", "bf16", ("rows", "N"), ("BLOCK_M", "BLOCK_N"), Access.WRITE),
            Integer("rows"),
            Constant("N"),
            Constant("K"),
            Constant("ACTIVATION"),
            Constant("BLOCK_M"),
            Constant("BLOCK_N"),
            Constant("BLOCK_K"),
            Constant("GROUP_M"),
            Constant("PROGRAMS"),
        ),
        grid=("min(PROGRAMS, cdiv(rows, BLOCK_M) * cdiv(N, BLOCK_N))", "1", "1"),
        premises=("K % BLOCK_K == 0", "BLOCK_K % 16 == 0", "K % 8 == 0", "N % 8 == 0", "rows <= 2**20"),
        row_inputs=_ROW_INPUTS,
        outputs=(Output("out", ("i", "j"), _VALUE, **STREAM_WRITER),),
        conclusion=_CONCLUSION,
        definitions=STREAM_DEFINITIONS,
    ),
)


def gate_up(
    x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, activation: int, tile: Tile, *, stream: bool = False
) -> Any:
    """[rows, k], [2n, k] → out [rows, n]: the activation is `SILU` or `GELU_TANH`.

    `weight` is as by `interleaved`. Raises `PremiseError` if a premise of
    the contract fails.
    """
    (rows, k), n = x.shape, weight.shape[0] // 2
    distinct("gate_up", out, x, weight)
    shared = {"rows": rows, "N": n, "K": k, "ACTIVATION": activation}
    if not stream:
        return GATE_UP.launch({"x": x, "weight": weight, "out": out, **shared}, tile)
    arguments = {
        "x": TensorDescriptor.from_tensor(x, [tile.block("BLOCK_M"), tile.block("BLOCK_K")]),
        "weight": TensorDescriptor.from_tensor(weight, [2 * tile.block("BLOCK_N"), tile.block("BLOCK_K")]),
        "out": TensorDescriptor.from_tensor(out, [tile.block("BLOCK_M"), tile.block("BLOCK_N")]),
        **shared,
    }
    return GATE_UP_STREAM.launch(arguments, tile)


def interleaved(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """[n, k] twice → [2n, k]: the two weights' rows in turn, as `gate_up` takes them."""
    import torch

    return torch.stack([gate, up], 1).view(2 * gate.shape[0], gate.shape[1])
