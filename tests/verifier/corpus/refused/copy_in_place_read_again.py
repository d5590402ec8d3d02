"""The second half of a row is read after the first was written."""

import triton
import triton.language as tl

from corpus import COPY_IN_PLACE

CONTRACT = COPY_IN_PLACE
CONSTANTS = {"WIDTH": 48, "BLOCK": 32}
TWIN = "copy_in_place"
FINDING = r"out may be read after it is written"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * WIDTH + column, mask=column < WIDTH)
    tl.store(out + row * WIDTH + column, value, mask=column < 16)
    again = tl.load(x + row * WIDTH + column, mask=column < WIDTH)  # found here
    tl.store(out + row * WIDTH + column, again, mask=(column >= 16) & (column < WIDTH))
