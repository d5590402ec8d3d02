"""A conversion there and back loses bits."""

import triton
import triton.language as tl

from corpus import STORE

CONTRACT = STORE
CONSTANTS = {"WIDTH": 32}
TWIN = "store"
FINDING = r"The kernel computes something else than the row program"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, slots, cache, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    slot = tl.load(slots + row).to(tl.int64)
    present = (slot >= 0) & (column >= 0)
    value = tl.load(x + row * WIDTH + column).to(tl.float16).to(tl.bfloat16)  # found here
    tl.store(cache + slot * WIDTH + column, value, mask=present)
