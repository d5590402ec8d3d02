"""An odd row reads a slot that an even row may write, and makes no use of it."""

import triton
import triton.language as tl

from corpus import EXCHANGE

CONTRACT = EXCHANGE
CONSTANTS = {"WIDTH": 64}
TWIN = "exchange"
FINDING = r"What cache holds is read by a lane that does not write it"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, slots, cache, old, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    slot = tl.load(slots + row).to(tl.int64)
    even = (slot >= 0) & (row % 2 == 0)
    before = tl.load(cache + slot * WIDTH + column, mask=slot >= 0)  # found here
    tl.store(old + row * WIDTH + column, before, mask=even)
    tl.store(cache + slot * WIDTH + column, tl.load(x + row * WIDTH + column), mask=even)
