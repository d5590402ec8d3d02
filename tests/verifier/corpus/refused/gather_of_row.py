"""The number of the row is taken for that of the token."""

import triton
import triton.language as tl

from corpus import GATHER

CONTRACT = GATHER
CONSTANTS = {"WIDTH": 32}
TWIN = "gather"
FINDING = r"An access to table is out of bounds"


@triton.jit(do_not_specialize=["rows"])
def kernel(tokens, table, out, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    token = row
    tl.store(out + row * WIDTH + column, tl.load(table + token * WIDTH + column))  # found here
