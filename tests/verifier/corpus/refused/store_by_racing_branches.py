"""Branches that exclude each other in a program do not among programs."""

import triton
import triton.language as tl

from corpus import STORE

CONTRACT = STORE
CONSTANTS = {"WIDTH": 32}
TWIN = "store_by_branch"
FINDING = r"An access to cache is out of bounds"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, slots, cache, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    slot = tl.load(slots + row).to(tl.int64)
    value = tl.load(x + row * WIDTH + column)
    if slot >= 0:
        tl.store(cache + slot * WIDTH + column, value)
    else:
        tl.store(cache + column, value)  # found here
