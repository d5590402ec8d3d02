"""The count moves if the larger of two numbers is positive, which are others in each iteration."""

import triton
import triton.language as tl

from corpus import COPY_COUNTED

CONTRACT = COPY_COUNTED
CONSTANTS = {"WIDTH": 96, "BLOCK": 32}
TWIN = "copy_counted"
FINDING = r"a carried integer does not move by the same amount in each iteration"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, steps, words, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    mixed = 0
    done = 0
    for begin in range(0, WIDTH, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        value = tl.load(x + row * WIDTH + column, mask=column < WIDTH)
        counted = (done == 0) | (done * BLOCK == begin)  # found here
        tl.store(out + row * WIDTH + column, value, mask=counted & (column < WIDTH))
        done += (tl.max(tl.load(steps + row * WIDTH + begin + tl.arange(0, 2)), 0) > 0).to(tl.int32)
        mixed ^= tl.load(words + row * WIDTH + begin)
