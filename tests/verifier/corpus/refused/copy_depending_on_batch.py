"""What is written depends on the number of rows."""

import triton
import triton.language as tl

from corpus import COPY

CONTRACT = COPY
CONSTANTS = {"WIDTH": 48, "BLOCK": 32}
TWIN = "copy"
FINDING = r"The kernel computes something else than the row program"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * WIDTH + column, mask=column < WIDTH)
    value = tl.where(rows > 64, value, value + value)  # found here
    tl.store(out + row * WIDTH + column, value, mask=column < WIDTH)
