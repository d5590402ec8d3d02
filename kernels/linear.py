"""Linear layers: out(i, j) = Σₖ x(i, k) · weight(j, k), one chain over k per output element.

The fused projection of queries, keys and values is this operation too, with the three weights stacked.

Two kernels with one row program. `linear_kernel` gives each program one output tile; it serves small numbers of rows,
where the weights' bytes are the cost. `linear_stream_kernel` reads and writes through tensor descriptors and keeps
each program busy with one output tile after another; it serves large numbers of rows. A chain is one `tl.dot` after
another with the running sum as its accumulator: ascending groups of 16 along k, whatever the tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from vosti.kernels.contract import Access, Buffer, Constant, Contract, Descriptor, Integer, Output
from vosti.kernels.launch import Kernel, distinct
from vosti.kernels.tile import Tile

if TYPE_CHECKING:
    import torch


@triton.jit(do_not_specialize=["rows"])
def linear_kernel(
    x,
    weight,
    out,
    rows,
    N: tl.constexpr,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """See `LINEAR`."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    x_row = x + row.to(tl.int64)[:, None] * K
    weight_row = weight + column.to(tl.int64)[None, :] * K
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for begin in range(0, K, BLOCK_K):
        a = tl.load(x_row + (begin + k)[None, :], mask=row[:, None] < rows, other=0.0)
        if N % BLOCK_N == 0:
            b = tl.load(weight_row + (begin + k)[:, None])
        else:
            b = tl.load(weight_row + (begin + k)[:, None], mask=column[None, :] < N, other=0.0)
        accumulator = tl.dot(a, b, accumulator, input_precision="ieee")
    live = (row[:, None] < rows) & (column[None, :] < N)
    tl.store(out + row.to(tl.int64)[:, None] * N + column[None, :], accumulator.to(out.dtype.element_ty), mask=live)


@triton.jit(do_not_specialize=["rows"])
def linear_stream_kernel(
    x,
    weight,
    out,
    rows,
    N: tl.constexpr,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """See `LINEAR_STREAM`."""
    row_tiles = tl.cdiv(rows, BLOCK_M)
    column_tiles: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    for tile in tl.range(tl.program_id(0), row_tiles * column_tiles, PROGRAMS, flatten=True):
        # Tiles in groups of GROUP_M rows of tiles, so that those in flight share weights in the cache.
        group = tile // (GROUP_M * column_tiles)
        height = tl.minimum(row_tiles - group * GROUP_M, GROUP_M)
        within = tile % (GROUP_M * column_tiles)
        m = (group * GROUP_M + within % height) * BLOCK_M
        n = (within // height) * BLOCK_N
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for begin in range(0, K, BLOCK_K):
            accumulator = tl.dot(x.load([m, begin]), weight.load([n, begin]).T, accumulator, input_precision="ieee")
        out.store([m, n], accumulator.to(out.dtype))


_ROW_INPUTS = ("x[i, :]", "weight[:, :]")
_VALUE = "linear(x[i, :], weight.T)[j]"

STREAM_DEFINITIONS = (("ROW_TILES", "cdiv(rows, BLOCK_M)"), ("COLUMN_TILES", "cdiv(N, BLOCK_N)"))
"""Of the persistent kernels: the number of tiles along each axis."""

_GROUP = "i // BLOCK_M // GROUP_M * GROUP_M"
_TILE = f"({_GROUP} * COLUMN_TILES + j // BLOCK_N * min(ROW_TILES - {_GROUP}, GROUP_M) + i // BLOCK_M % GROUP_M)"
STREAM_WRITER: Mapping[str, Any] = {
    "program": (f"{_TILE} % PROGRAMS", "0", "0"),
    "lanes": ("i % BLOCK_M", "j % BLOCK_N"),
    "iterations": (f"{_TILE} // PROGRAMS",),
}
"""Of the persistent kernels: which program writes the cell (i, j), and when."""

LINEAR = Kernel(
    linear_kernel,
    Contract(
        kernel="linear",
        row_program="projections.linear",
        parameters=(
            Buffer("x", "bf16", ("rows", "K")),
            Buffer("weight", "bf16", ("N", "K")),
            Buffer("out", "bf16", ("rows", "N"), Access.WRITE, or_element="fp32"),
            Integer("rows"),
            Constant("N"),
            Constant("K"),
            Constant("BLOCK_M"),
            Constant("BLOCK_N"),
            Constant("BLOCK_K"),
        ),
        grid=("cdiv(rows, BLOCK_M)", "cdiv(N, BLOCK_N)", "1"),
        premises=("K % BLOCK_K == 0", "BLOCK_K % 16 == 0", "BLOCK_M >= 16", "BLOCK_N >= 8", "rows <= 2**30"),
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
        conclusion="For 0 <= i < rows and 0 <= j < N, out[i, j] is the chain over k of x[i, k] · weight[j, k].",
    ),
)

LINEAR_STREAM = Kernel(
    linear_stream_kernel,
    Contract(
        kernel="linear_stream",
        row_program="projections.linear",
        parameters=(
            Descriptor("x", "bf16", ("rows", "K"), ("BLOCK_M", "BLOCK_K")),
            Descriptor("weight", "bf16", ("N", "K"), ("BLOCK_N", "BLOCK_K")),
            Descriptor("out", "bf16", ("rows", "N"), ("BLOCK_M", "BLOCK_N"), Access.WRITE),
            Integer("rows"),
            Constant("N"),
            Constant("K"),
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
        conclusion="For 0 <= i < rows and 0 <= j < N, out[i, j] is the chain over k of x[i, k] · weight[j, k].",
        definitions=STREAM_DEFINITIONS,
    ),
)


def linear(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, tile: Tile, *, stream: bool = False) -> Any:
    """[rows, k], [n, k] → out [rows, n], by the tile given; `stream` chooses the kernel that it is a tile of.

    Raises `PremiseError` if a premise of the contract fails.
    """
    (rows, k), (n, _) = x.shape, weight.shape
    distinct("linear", out, x, weight)
    if not stream:
        return LINEAR.launch({"x": x, "weight": weight, "out": out, "rows": rows, "N": n, "K": k}, tile)
    arguments = {
        "x": TensorDescriptor.from_tensor(x, [tile.block("BLOCK_M"), tile.block("BLOCK_K")]),
        "weight": TensorDescriptor.from_tensor(weight, [tile.block("BLOCK_N"), tile.block("BLOCK_K")]),
        "out": TensorDescriptor.from_tensor(out, [tile.block("BLOCK_M"), tile.block("BLOCK_N")]),
        "rows": rows,
        "N": n,
        "K": k,
    }
    return LINEAR_STREAM.launch(arguments, tile)
