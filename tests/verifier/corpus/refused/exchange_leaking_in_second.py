"""Of two outputs, one depends on the number of the row."""

import triton
import triton.language as tl

from corpus import EXCHANGE

CONTRACT = EXCHANGE
CONSTANTS = {"WIDTH": 64}
TWIN = "exchange"
FINDING = r"The kernel computes something else than the row program"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, slots, cache, old, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    slot = tl.load(slots + row).to(tl.int64)
    even = (slot >= 0) & (row % 2 == 0)
    before = tl.load(cache + slot * WIDTH + column, mask=even)
    tl.store(old + row * WIDTH + column, tl.where(row > 4, before, 0.0), mask=even)  # found here
    tl.store(cache + slot * WIDTH + column, tl.load(x + row * WIDTH + column), mask=even)
