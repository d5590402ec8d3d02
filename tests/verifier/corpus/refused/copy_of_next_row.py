"""Each row is written one row too far."""

import triton
import triton.language as tl

from corpus import COPY

CONTRACT = COPY
CONSTANTS = {"WIDTH": 48, "BLOCK": 32}
TWIN = "copy"
FINDING = r"An access to out is out of bounds"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * WIDTH + column, mask=column < WIDTH)
    tl.store(out + (row + 1) * WIDTH + column, value, mask=column < WIDTH)  # found here
