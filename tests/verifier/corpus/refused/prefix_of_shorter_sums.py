"""Sums of half the lanes."""

import triton
import triton.language as tl

from corpus import PREFIX

CONTRACT = PREFIX
CONSTANTS = {"WIDTH": 32}
TWIN = "prefix"
FINDING = r"The kernel reads another element of x"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    tl.store(out + place, tl.cumsum(tl.load(x + place - tl.arange(0, WIDTH) // 2), 0))
