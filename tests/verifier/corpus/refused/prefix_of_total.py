"""The whole sum in each lane."""

import triton
import triton.language as tl

from corpus import PREFIX

CONTRACT = PREFIX
CONSTANTS = {"WIDTH": 32}
TWIN = "prefix"
FINDING = r"The kernel computes something else than the row program"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    tl.store(out + place, tl.sum(tl.load(x + place), 0) + place * 0)
