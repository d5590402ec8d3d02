"""A number less itself is added: not 0, if it is infinite."""

import triton
import triton.language as tl

from corpus import SUM

CONTRACT = SUM
CONSTANTS = {"WIDTH": 32}
TWIN = "sum"
FINDING = r"The kernel computes something else than the row program"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, y, out, rows, WIDTH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    total = tl.load(x + place) + tl.load(y + place) + (tl.load(y + place) - tl.load(y + place))  # found here
    tl.store(out + place, total)
