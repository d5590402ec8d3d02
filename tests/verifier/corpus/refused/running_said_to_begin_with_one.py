"""What the contract defines begins with 1, and the kernel's sums with 0."""

import triton
import triton.language as tl

from corpus import RUNNING_FROM_ONE

CONTRACT = RUNNING_FROM_ONE
CONSTANTS = {"WIDTH": 512}
TWIN = "running"
FINDING = r"a sum of integers is not shown to be one that the contract names"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    tl.store(out + place, tl.cumsum(tl.load(x + place).to(tl.int64), 0))
