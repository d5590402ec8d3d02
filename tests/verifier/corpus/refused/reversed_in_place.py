"""What a lane reads, another one of the program writes: no order of the two is known."""

import triton
import triton.language as tl

from corpus import REVERSED_IN_PLACE

CONTRACT = REVERSED_IN_PLACE
CONSTANTS = {"WIDTH": 64}
TWIN = "reversed"
FINDING = r"A lane reads what another one writes to out"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    value = tl.load(x + row * WIDTH + WIDTH - 1 - column)  # found here
    tl.store(out + row * WIDTH + column, value)
