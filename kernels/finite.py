"""Flags for rows that hold a number that is not finite, and the soft cap on logits.

A flag is an integer that a kernel only ever raises from 0 to 1; the engine reads the flags with a forward's results
and fails the requests of flagged rows. Whether a number is finite is decided on its bits, in the element type in
which it is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl
from triton.language.extra import libdevice

from vosti.kernels.contract import Access, Buffer, Constant, Contract, Integer, Output, Real
from vosti.kernels.launch import Kernel
from vosti.kernels.tile import Tile

if TYPE_CHECKING:
    import torch

_EXPONENT = tl.constexpr(0x7F800000)


@triton.jit
def not_finite(x):
    """Whether each number is ±∞ or NaN, as 0 or 1."""
    return ((x.to(tl.float32).to(tl.int32, bitcast=True) & _EXPONENT) == _EXPONENT).to(tl.int32)


@triton.jit(do_not_specialize=["rows"])
def logits_kernel(x, out, flags, rows, cap, WIDTH: tl.constexpr, CAPPED: tl.constexpr, BLOCK: tl.constexpr):
    """See `LOGITS`."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    column = block * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * WIDTH + column, mask=column < WIDTH, other=0.0)
    if CAPPED:
        value = libdevice.tanh(tl.math.div_rn(value, tl.full((BLOCK,), 1.0, tl.float32) * cap)) * cap
        tl.store(out + row * WIDTH + column, value, mask=column < WIDTH)
    tl.store(flags + row * tl.cdiv(WIDTH, BLOCK) + block, tl.max(not_finite(value), 0))


_PADDED = "within(b * BLOCK + k < WIDTH, x[i, b * BLOCK + k])"

LOGITS = Kernel(
    logits_kernel,
    Contract(
        kernel="logits",
        row_program="activations.softcap if CAPPED; no arithmetic otherwise",
        parameters=(
            Buffer("x", "fp32", ("rows", "WIDTH")),
            Buffer("out", "fp32", ("rows", "WIDTH"), Access.WRITE),
            Buffer("flags", "i32", ("rows", "cdiv(WIDTH, BLOCK)"), Access.WRITE),
            Integer("rows"),
            Real("cap"),
            Constant("WIDTH"),
            Constant("CAPPED"),
            Constant("BLOCK"),
        ),
        grid=("rows", "cdiv(WIDTH, BLOCK)", "1"),
        premises=("0 <= CAPPED <= 1",),
        row_inputs=("x[i, :]", "cap if CAPPED"),
        outputs=(
            Output(
                "out",
                ("i", "j"),
                "softcap(x[i, :], cap)[j]",
                program=("i", "j // BLOCK", "0"),
                lanes=("j % BLOCK",),
                when="CAPPED",
            ),
            # 1 if some out[i, j] with j // BLOCK = b is not finite, else 0.
            Output(
                "flags",
                ("i", "b"),
                f"over(BLOCK, lambda k: flag(not_finite(softcap({_PADDED}, cap)[()] if CAPPED else {_PADDED})))",
                program=("i", "b", "0"),
            ),
        ),
        conclusion=(
            "For 0 <= i < rows, out[i, :] is the soft cap of x[i, :] if CAPPED, and flags[i, b] tells whether block b "
            "of the row's logits holds a number that is not finite. out may be x itself."
        ),
        in_place=(("out", "x", "True"),),
    ),
)


def flag_logits(x: torch.Tensor, flags: torch.Tensor, tile: Tile, *, cap: float | None = None) -> Any:
    """[rows, width] float32: apply the soft cap in place, if given, and write flags [rows, ⌈width / BLOCK⌉].

    Raises `PremiseError` if a premise of the contract fails.
    """
    arguments = {
        "x": x,
        "out": x,
        "flags": flags,
        "rows": x.shape[0],
        "cap": 1.0 if cap is None else cap,
        "WIDTH": x.shape[1],
        "CAPPED": int(cap is not None),
    }
    return LOGITS.launch(arguments, tile)
