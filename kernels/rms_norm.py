"""RMSNorm of rows: plain or with Gemma's unit offset, with or without a residual stream.

    total = x + y                                          (with a residual; else total = x)
    total = (x + y) · scale                                (scaled, as at the end of a layer of Gemma 4)
    out   = total · (1 / √(mean(total²) + ε)) · weight      (with the unit offset: · (1 + weight))

in float32 throughout; the mean's sum is the tree of `vosti.kernels.trees`. A program computes one row. The norm reads
the sum before it is rounded to the residual stream's element type. With a row map, output row i is computed from row
`row_map[i]` of the inputs (the rows whose logits are wanted). The norm of each head stands in
`vosti.kernels.rotary_store`, where its result is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from vosti.kernels.contract import Access, Buffer, Constant, Contract, Integer, Output, Real
from vosti.kernels.launch import Kernel
from vosti.kernels.tile import Tile
from vosti.kernels.trees import tree_sum

if TYPE_CHECKING:
    import torch


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
    scale,
    row_map,
    total_out,
    out,
    rows,
    epsilon,
    WIDTH: tl.constexpr,
    RESIDUAL: tl.constexpr,
    SCALED: tl.constexpr,
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
        if SCALED:
            # Lanes beyond the width stay +0, also where the scale is not finite.
            total = tl.where(live, total * tl.load(scale).to(tl.float32), 0.0)
        tl.store(total_out + row * WIDTH + column, total.to(total_out.dtype.element_ty), mask=live)
    factor = tl.load(weight + column, mask=live, other=0.0).to(tl.float32)
    if UNIT_OFFSET:
        factor = factor + 1.0
    result = total * inverse_rms(total, epsilon, WIDTH) * factor
    tl.store(out + row * WIDTH + column, result.to(out.dtype.element_ty), mask=live)


_SOURCE = "row_map[i] if MAPPED else i"
_REST = "weight, WIDTH, epsilon)"
_ALONE = f"(rms_norm_unit_offset if UNIT_OFFSET else rms_norm)(x[{_SOURCE}, :], {_REST}"
_WITH_RESIDUAL = (
    f"(residual_rms_norm_unit_offset if UNIT_OFFSET else residual_rms_norm)(x[{_SOURCE}, :], y[{_SOURCE}, :], {_REST}"
)
_SCALED = f"scaled_residual_rms_norm(x[{_SOURCE}, :], y[{_SOURCE}, :], weight, scale, WIDTH, epsilon)"
_WITH_RESIDUAL = f"({_SCALED} if SCALED else {_WITH_RESIDUAL})"
_WRITER: Mapping[str, Any] = {"program": ("i", "0", "0"), "lanes": ("0", "j")}
_SOURCE_ROWS = "source_rows if MAPPED else rows"

RMS_NORM = Kernel(
    rms_norm_kernel,
    Contract(
        kernel="rms_norm",
        row_program="norms.rms_norm, residual_rms_norm, norms.scaled_residual_rms_norm, and with the unit offset",
        parameters=(
            Buffer("x", "bf16", (_SOURCE_ROWS, "WIDTH")),
            Buffer("y", "bf16", (_SOURCE_ROWS, "WIDTH")),
            Buffer("weight", "bf16", ("WIDTH",)),
            Buffer("scale", "bf16", ("1",)),
            Buffer("row_map", "i32", ("rows",), within=("0", "source_rows")),
            Buffer("total_out", "bf16", ("rows", "WIDTH"), Access.WRITE),
            Buffer("out", "bf16", ("rows", "WIDTH"), Access.WRITE),
            Integer("rows"),
            Real("epsilon"),
            Constant("WIDTH"),
            Constant("RESIDUAL"),
            Constant("SCALED"),
            Constant("UNIT_OFFSET"),
            Constant("MAPPED"),
            Constant("BLOCK"),
        ),
        grid=("rows", "1", "1"),
        premises=(
            "WIDTH <= BLOCK < 2 * WIDTH",
            "0 <= RESIDUAL <= 1",
            "0 <= SCALED <= RESIDUAL",
            "0 <= UNIT_OFFSET <= 1 - SCALED",
            "0 <= MAPPED <= 1",
        ),
        row_inputs=(
            "x[s, :]",
            "y[s, :] if RESIDUAL",
            "scale[0] if SCALED",
            "weight[:]",
            "epsilon",
            "with s = row_map[i] if MAPPED else i",
        ),
        outputs=(
            Output("total_out", ("i", "j"), f"{_WITH_RESIDUAL}[0][j]", when="RESIDUAL", **_WRITER),
            Output("out", ("i", "j"), f"({_WITH_RESIDUAL}[1] if RESIDUAL else {_ALONE})[j]", **_WRITER),
        ),
        conclusion=(
            "For 0 <= i < rows, out[i, :] is the norm of the row s of x (of x + y with a residual, times the scale if "
            "SCALED, which total_out[i, :] then holds). total_out may be x or y itself if the rows are not mapped."
        ),
        in_place=(("total_out", "x", "not MAPPED"), ("total_out", "y", "not MAPPED")),
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
    scale: torch.Tensor | None = None,
    row_map: torch.Tensor | None = None,
) -> Any:
    """[source rows, width] → out [rows, width].

    `residual` is (y, where x + y goes); the latter may be x or y where there is no row map; with `scale` [1], the sum
    is multiplied by it first. Raises `PremiseError` if a premise of the contract fails.
    """
    import torch

    y, total_out = residual if residual is not None else (x, out)
    arguments = {
        "x": x,
        "y": y,
        "weight": weight,
        "scale": scale if scale is not None else weight,
        # A pointer that is not read still has to be of its type.
        "row_map": row_map if row_map is not None else weight.view(torch.int32),
        "total_out": total_out,
        "out": out,
        "rows": out.shape[0],
        "epsilon": epsilon,
        "WIDTH": x.shape[1],
        "RESIDUAL": int(residual is not None),
        "SCALED": int(scale is not None),
        "UNIT_OFFSET": int(unit_offset),
        "MAPPED": int(row_map is not None),
    }
    return RMS_NORM.launch(arguments, tile)
