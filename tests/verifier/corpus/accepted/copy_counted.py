"""Blocks are counted while they are copied, and stored if the count is right."""

import triton
import triton.language as tl

from corpus import COPY_COUNTED

CONTRACT = COPY_COUNTED
CONSTANTS = {"WIDTH": 96, "BLOCK": 32}


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, steps, words, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    mixed = 0
    done = 0
    for begin in range(0, WIDTH, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        value = tl.load(x + row * WIDTH + column, mask=column < WIDTH)
        counted = (done == 0) | (done * BLOCK == begin)
        tl.store(out + row * WIDTH + column, value, mask=counted & (column < WIDTH))
        done = done + 1
        mixed ^= tl.load(words + row * WIDTH + begin)
