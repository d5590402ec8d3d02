"""Rows of a table, by the numbers in another buffer."""

import triton
import triton.language as tl

from corpus import GATHER

CONTRACT = GATHER
CONSTANTS = {"WIDTH": 32}


@triton.jit(do_not_specialize=["rows"])
def kernel(tokens, table, out, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    token = tl.load(tokens + row).to(tl.int64)
    tl.store(out + row * WIDTH + column, tl.load(table + token * WIDTH + column))
