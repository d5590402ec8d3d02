"""Even rows stored, and what was in the slots of all rows; the slots differ."""

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
    before = tl.load(cache + slot * WIDTH + column, mask=slot >= 0)
    tl.store(old + row * WIDTH + column, before, mask=slot >= 0)
    even = (slot >= 0) & (row % 2 == 0)
    tl.store(cache + slot * WIDTH + column, tl.load(x + row * WIDTH + column), mask=even)
