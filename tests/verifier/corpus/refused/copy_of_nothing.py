"""Nothing is stored."""

import triton
import triton.language as tl

from corpus import COPY

CONTRACT = COPY
CONSTANTS = {"WIDTH": 48, "BLOCK": 32}
TWIN = "copy"
FINDING = r"A store never takes place"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * WIDTH + column, mask=column < WIDTH)
    tl.store(out + row * WIDTH + column, value, mask=column < 0)  # found here
