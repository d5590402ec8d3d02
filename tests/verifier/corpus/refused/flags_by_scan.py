"""The largest of running sums of flags: how many there are, and not whether there is one."""

import triton
import triton.language as tl

from corpus import FLAGS
from vosti.kernels.finite import not_finite

CONTRACT = FLAGS
CONSTANTS = {"WIDTH": 32}
TWIN = "flags"
FINDING = r"The kernel computes something else than the row program"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    found = not_finite(tl.load(x + row * WIDTH + tl.arange(0, WIDTH)))
    tl.store(out + row, tl.max(tl.cumsum(found, 0), 0))
