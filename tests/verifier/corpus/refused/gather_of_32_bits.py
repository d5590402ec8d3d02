"""The offset is computed in 32 bits, and the table may be longer."""

import triton
import triton.language as tl

from corpus import GATHER

CONTRACT = GATHER
CONSTANTS = {"WIDTH": 32}
TWIN = "gather"
FINDING = r"An integer leaves its type, or is not divided exactly"


@triton.jit(do_not_specialize=["rows"])
def kernel(tokens, table, out, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    token = tl.load(tokens + row)
    tl.store(out + row * WIDTH + column, tl.load(table + token * WIDTH + column))  # found here
