"""Rows with their elements in reverse."""

import triton
import triton.language as tl

from corpus import REVERSED

CONTRACT = REVERSED
CONSTANTS = {"WIDTH": 64}


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    value = tl.load(x + row * WIDTH + WIDTH - 1 - column)
    tl.store(out + row * WIDTH + column, value)
