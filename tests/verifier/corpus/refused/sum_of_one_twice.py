"""One row is added to itself."""

import triton
import triton.language as tl

from corpus import SUM

CONTRACT = SUM
CONSTANTS = {"WIDTH": 32}
TWIN = "sum"
FINDING = r"The kernel reads another buffer"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, y, out, rows, WIDTH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    total = tl.load(x + place) + tl.load(x + place)  # found here
    tl.store(out + place, total)
