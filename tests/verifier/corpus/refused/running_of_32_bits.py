"""Sums leave 32 bits before they are widened."""

import triton
import triton.language as tl

from corpus import RUNNING

CONTRACT = RUNNING
CONSTANTS = {"WIDTH": 512}
TWIN = "running"
FINDING = r"An integer leaves its type"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    tl.store(out + place, tl.cumsum(tl.load(x + place), 0).to(tl.int64))  # found here
