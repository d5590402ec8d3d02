"""No number is a row of the table, so that anything could be said of what is read."""

from dataclasses import replace

import triton
import triton.language as tl

from corpus import GATHER
from vosti.kernels.contract import Buffer

CONTRACT = replace(GATHER, parameters=(Buffer("tokens", "i32", ("rows",), within=("0", "0")), *GATHER.parameters[1:]))
CONSTANTS = {"WIDTH": 32}
TWIN = "gather"
FINDING = r"The premises contradict one another"


@triton.jit(do_not_specialize=["rows"])
def kernel(tokens, table, out, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    token = tl.load(tokens + row).to(tl.int64)
    tl.store(out + row * WIDTH + column, tl.load(table + token * WIDTH + column))  # found here
