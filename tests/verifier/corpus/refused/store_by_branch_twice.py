"""A branch that one row takes stores again."""

import triton
import triton.language as tl

from corpus import STORE

CONTRACT = STORE
CONSTANTS = {"WIDTH": 32}
TWIN = "store_by_branch"
FINDING = r"Two stores write one cell of cache"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, slots, cache, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    slot = tl.load(slots + row).to(tl.int64)
    value = tl.load(x + row * WIDTH + column)
    if slot >= 0:
        tl.store(cache + slot * WIDTH + column, value)
        if row == 7:
            tl.store(cache + slot * WIDTH + column, 0.0)  # found here
