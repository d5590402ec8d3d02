"""RMSNorm of rows: plain or with Gemma's unit offset, with or without a residual stream.

    total = x + y                                          (with a residual; else total = x)
    out   = total · (1 / √(mean(total²) + ε)) · weight      (with the unit offset: · (1 + weight))

in float32 throughout; the mean's sum is the tree of `vosti.kernels.trees`. A program computes one row. The norm reads
the sum before it is rounded to the residual stream's element type. With a row map, output row i is computed from row
`row_map[i]` of the inputs (the rows whose logits are wanted). The norm of each head stands in
`vosti.kernels.rotary_store`, where its result is used.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from vosti.kernels.contract import Access, Buffer, Constant, Contract, Integer, Output, Real
from vosti.kernels.launch import Kernel
from vosti.kernels.tile import Tile
from vosti.kernels.trees import tree_sum


@triton.jit
def inverse_rms(x, epsilon, WIDTH: tl.constexpr):
    """[rows, n] → [rows, 1]: 1 / √(Σ x² / WIDTH + ε); elements beyond the width are +0."""
    mean = tl.math.div_rn(tree_sum(x * x), tl.full((1, 1), WIDTH, tl.float32))
    return tl.math.div_rn(tl.full((1, 1), 1.0, tl.float32), tl.math.sqrt_rn(mean + epsilon))


@triton.jit(do_not_specialize=["rows"])
def rms_norm_kernel(
    x,
    y,
    weight,
    row_map,
    total_out,
    out,
    rows,
    epsilon,
    WIDTH: tl.constexpr,
    RESIDUAL: tl.constexpr,
    UNIT_OFFSET: tl.constexpr,
    MAPPED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """See `RMS_NORM`."""
    row = tl.program_id(0).to(tl.int64)
    source = row
    if MAPPED:
        source = tl.load(row_map + row).to(tl.int64)
    column = tl.arange(0, BLOCK)[None, :]
    live = column < WIDTH
    total = tl.load(x + source * WIDTH + column, mask=live, other=0.0).to(tl.float32)
    if RESIDUAL:
        total = total + tl.load(y + source * WIDTH + column, mask=live, other=0.0).to(tl.float32)
        tl.store(total_out + row * WIDTH + column, total.to(total_out.dtype.element_ty), mask=live)
    factor = tl.load(weight + column, mask=live, other=0.0).to(tl.float32)
    if UNIT_OFFSET:
        factor = factor + 1.0
    result = total * inverse_rms(total, epsilon, WIDTH) * factor
    tl.store(out + row * WIDTH + column, result.to(out.dtype.element_ty), mask=live)


_NORM = "rms_norm_unit_offset if UNIT_OFFSET else rms_norm"

RMS_NORM = Kernel(
    rms_norm_kernel,
    Contract(
        kernel="rms_norm",
        row_program="norms.rms_norm, rms_norm_unit_offset, residual_rms_norm, residual_rms_norm_unit_offset",
        parameters=(
            Buffer("x", "bf16", ("source_rows", "WIDTH")),
            Buffer("y", "bf16", ("source_rows", "WIDTH")),
            Buffer("weight", "bf16", ("WIDTH",)),
            Buffer("row_map", "i32", ("rows",), within=("0", "source_rows")),
            Buffer("total_out", "bf16", ("rows", "WIDTH"), Access.WRITE),
            Buffer("out", "bf16", ("rows", "WIDTH"), Access.WRITE),
            Integer("rows"),
            Real("epsilon"),
            Constant("WIDTH"),
            Constant("RESIDUAL"),
            Constant("UNIT_OFFSET"),
            Constant("MAPPED"),
            Constant("BLOCK"),
        ),
        grid=("rows", "1", "1"),
        premises=(
            "WIDTH <= BLOCK < 2 * WIDTH",
            "0 <= RESIDUAL <= 1",
            "0 <= UNIT_OFFSET <= 1",
            "0 <= MAPPED <= 1",
        ),
        row_inputs=("x[s, :]", "y[s, :] if RESIDUAL", "weight[:]", "epsilon", "with s = row_map[i] if MAPPED else i"),
        outputs=(
            Output("total_out", ("i", "j"), "if RESIDUAL: program i, lane j < WIDTH", "add(x[s, :], y[s, :])"),
            Output("out", ("i", "j"), "program i, lane j < WIDTH", f"{_NORM} of x[s, :], or of the sum if RESIDUAL"),
        ),
        conclusion=(
            "For 0 <= i < rows, out[i, :] is the norm of the row s of x (of x + y with a residual, which "
            "total_out[i, :] then holds). total_out may be x or y itself if the rows are not mapped."
        ),
    ),
)


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    epsilon: float,
    tile: Tile,
    *,
    unit_offset: bool = False,
    residual: tuple[torch.Tensor, torch.Tensor] | None = None,
    row_map: torch.Tensor | None = None,
) -> Any:
    """[source rows, width] → out [rows, width].

    `residual` is (y, where x + y goes); the latter may be x or y where there is no row map. Raises `PremiseError` if a
    premise of the contract fails.
    """
    y, total_out = residual if residual is not None else (x, out)
    arguments = {
        "x": x,
        "y": y,
        "weight": weight,
        # A pointer that is not read still has to be of its type.
        "row_map": row_map if row_map is not None else weight.view(torch.int32),
        "total_out": total_out,
        "out": out,
        "rows": out.shape[0],
        "epsilon": epsilon,
        "WIDTH": x.shape[1],
        "RESIDUAL": int(residual is not None),
        "UNIT_OFFSET": int(unit_offset),
        "MAPPED": int(row_map is not None),
    }
    return RMS_NORM.launch(arguments, tile)
