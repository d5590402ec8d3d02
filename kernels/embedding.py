"""Embedding of tokens: out(i, :) = table(token(i), :), and for Gemma the same times a scale, in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from vosti.kernels.contract import Access, Buffer, Constant, Contract, Integer, Output, Real
from vosti.kernels.launch import Kernel, distinct
from vosti.kernels.tile import Tile

if TYPE_CHECKING:
    import torch


@triton.jit(do_not_specialize=["rows"])
def embedding_kernel(tokens, table, out, rows, scale, WIDTH: tl.constexpr, SCALED: tl.constexpr, BLOCK: tl.constexpr):
    """See `EMBEDDING`."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(tokens + row).to(tl.int64)
    value = tl.load(table + token * WIDTH + column, mask=column < WIDTH, other=0.0)
    if SCALED:
        value = (value.to(tl.float32) * scale).to(out.dtype.element_ty)
    tl.store(out + row * WIDTH + column, value, mask=column < WIDTH)


EMBEDDING = Kernel(
    embedding_kernel,
    Contract(
        kernel="embedding",
        row_program="projections.scaled_embedding if SCALED else projections.embedding",
        parameters=(
            Buffer("tokens", "i32", ("rows",), within=("0", "vocabulary")),
            Buffer("table", "bf16", ("vocabulary", "WIDTH")),
            Buffer("out", "bf16", ("rows", "WIDTH"), Access.WRITE),
            Integer("rows"),
            Real("scale"),
            Constant("WIDTH"),
            Constant("SCALED"),
            Constant("BLOCK"),
        ),
        grid=("rows", "cdiv(WIDTH, BLOCK)", "1"),
        premises=("0 <= SCALED <= 1",),
        row_inputs=("tokens[i]", "table[:, :]", "scale if SCALED"),
        outputs=(
            Output(
                "out",
                ("i", "j"),
                "(scaled_embedding(table, tokens[i], scale) if SCALED else embedding(table, tokens[i]))[j]",
                program=("i", "j // BLOCK", "0"),
                lanes=("j % BLOCK",),
            ),
        ),
        conclusion="For 0 <= i < rows, out[i, :] is row tokens[i] of the table, times the scale if SCALED.",
    ),
)


def embedding(
    tokens: torch.Tensor, table: torch.Tensor, out: torch.Tensor, tile: Tile, *, scale: float | None = None
) -> Any:
    """[rows] → out [rows, width]: rows of the table, times `scale` if given.

    Token ids must lie below the table's length: that is checked where a batch is made, not here. Raises
    `PremiseError` if another premise of the contract fails.
    """
    distinct("embedding", out, tokens, table)
    arguments = {
        "tokens": tokens,
        "table": table,
        "out": out,
        "rows": tokens.shape[0],
        "scale": 1.0 if scale is None else scale,
        "WIDTH": table.shape[1],
        "SCALED": int(scale is not None),
    }
    return EMBEDDING.launch(arguments, tile)
