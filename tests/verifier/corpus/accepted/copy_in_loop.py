"""Rows copied, block by block in one program."""

import triton
import triton.language as tl

from corpus import COPY_IN_LOOP

CONTRACT = COPY_IN_LOOP
CONSTANTS = {"WIDTH": 48, "BLOCK": 32}


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for begin in range(0, WIDTH, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        value = tl.load(x + row * WIDTH + column, mask=column < WIDTH)
        tl.store(out + row * WIDTH + column, value, mask=column < WIDTH)
