"""One is added to an integer and subtracted: nothing has changed."""

import triton
import triton.language as tl

from corpus import COPY

CONTRACT = COPY
CONSTANTS = {"WIDTH": 48, "BLOCK": 32}


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK) + 1 - 1
    value = tl.load(x + row * WIDTH + column, mask=column < WIDTH)
    tl.store(out + row * WIDTH + column, value, mask=column < WIDTH)
