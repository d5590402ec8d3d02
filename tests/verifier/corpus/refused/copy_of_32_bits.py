"""Offsets are computed in 32 bits, and a buffer may be longer."""

import triton
import triton.language as tl

from corpus import COPY

CONTRACT = COPY
CONSTANTS = {"WIDTH": 48, "BLOCK": 32}
TWIN = "copy"
FINDING = r"An integer leaves its type, or is not divided exactly"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * WIDTH + column, mask=column < WIDTH)  # found here
    tl.store(out + row * WIDTH + column, value, mask=column < WIDTH)
