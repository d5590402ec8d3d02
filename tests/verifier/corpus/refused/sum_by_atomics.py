"""Added to what is there, in the order of arrival."""

import triton
import triton.language as tl

from corpus import SUM

CONTRACT = SUM
CONSTANTS = {"WIDTH": 32}
TWIN = "sum"
FINDING = r"the operation tt\.atomic_rmw is not understood"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, y, out, rows, WIDTH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    total = tl.load(x + place) + tl.load(y + place)
    tl.atomic_add(out + place, total)  # found here
