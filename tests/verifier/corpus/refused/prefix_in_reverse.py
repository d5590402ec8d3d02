"""A scan from the last lane to the first."""

import triton
import triton.language as tl

from corpus import PREFIX

CONTRACT = PREFIX
CONSTANTS = {"WIDTH": 32}
TWIN = "prefix"
FINDING = r"a scan by addi in reverse is not understood"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    tl.store(out + place, tl.cumsum(tl.load(x + place), 0, reverse=True))  # found here
