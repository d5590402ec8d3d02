"""Up to the lane before."""

import triton
import triton.language as tl

from corpus import RUNNING

CONTRACT = RUNNING
CONSTANTS = {"WIDTH": 512}
TWIN = "running"
FINDING = r"Two integers differ"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    number = tl.load(x + place).to(tl.int64)
    tl.store(out + place, tl.cumsum(number, 0) - number)  # found here
