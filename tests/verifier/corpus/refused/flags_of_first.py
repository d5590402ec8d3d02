"""A reduction that keeps the first of two lanes."""

import triton
import triton.language as tl

from corpus import FLAGS
from vosti.kernels.finite import not_finite

CONTRACT = FLAGS
CONSTANTS = {"WIDTH": 32}
TWIN = "flags"
FINDING = r"a reduction is not one operation of the two lanes"


@triton.jit
def first(left, right):
    return left


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    found = not_finite(tl.load(x + row * WIDTH + tl.arange(0, WIDTH)))
    tl.store(out + row, tl.reduce(found, 0, first))  # found here
