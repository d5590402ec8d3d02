"""An odd row reads a slot that an even row may write."""

import triton
import triton.language as tl

from corpus import EXCHANGE_OF_EVEN

CONTRACT = EXCHANGE_OF_EVEN
CONSTANTS = {"WIDTH": 64}
TWIN = "exchange"
FINDING = r"A program reads what another one writes to cache"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, slots, cache, old, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    slot = tl.load(slots + row).to(tl.int64)
    before = tl.load(cache + slot * WIDTH + column, mask=slot >= 0)  # found here
    tl.store(old + row * WIDTH + column, before, mask=slot >= 0)
    even = (slot >= 0) & (row % 2 == 0)
    tl.store(cache + slot * WIDTH + column, tl.load(x + row * WIDTH + column), mask=even)
