"""Of the numbers' squares."""

import triton
import triton.language as tl

from corpus import RUNNING

CONTRACT = RUNNING
CONSTANTS = {"WIDTH": 512}
TWIN = "running"
FINDING = r"a sum of integers is not shown to be one that the contract names"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    number = tl.load(x + place).to(tl.int64)
    tl.store(out + place, tl.cumsum(number * number, 0))  # found here
