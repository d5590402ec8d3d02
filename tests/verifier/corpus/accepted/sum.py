"""Sums of two rows."""

import triton
import triton.language as tl

from corpus import SUM

CONTRACT = SUM
CONSTANTS = {"WIDTH": 32}


@triton.jit(do_not_specialize=["rows"])
def kernel(x, y, out, rows, WIDTH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    total = tl.load(x + place) + tl.load(y + place)
    tl.store(out + place, total)
