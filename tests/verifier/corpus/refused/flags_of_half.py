"""Only the first half of a row is looked at."""

import triton
import triton.language as tl

from corpus import FLAGS
from vosti.kernels.finite import not_finite

CONTRACT = FLAGS
CONSTANTS = {"WIDTH": 32}
TWIN = "flags"
FINDING = r"The kernel reads another element of x"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    found = not_finite(tl.load(x + row * WIDTH + tl.arange(0, WIDTH) % (WIDTH // 2)))  # found here
    tl.store(out + row, tl.max(found, 0))
