"""Even rows stored in slots of their own, and what was there before."""

import triton
import triton.language as tl

from corpus import EXCHANGE

CONTRACT = EXCHANGE
CONSTANTS = {"WIDTH": 64}


@triton.jit(do_not_specialize=["rows"])
def kernel(x, slots, cache, old, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    slot = tl.load(slots + row).to(tl.int64)
    even = (slot >= 0) & (row % 2 == 0)
    before = tl.load(cache + slot * WIDTH + column, mask=even)
    tl.store(old + row * WIDTH + column, before, mask=even)
    tl.store(cache + slot * WIDTH + column, tl.load(x + row * WIDTH + column), mask=even)
