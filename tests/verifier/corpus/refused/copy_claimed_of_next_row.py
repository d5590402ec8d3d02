"""The contract speaks of the next row."""

from dataclasses import replace

import triton
import triton.language as tl

from corpus import COPY

CONTRACT = replace(COPY, outputs=(replace(COPY.outputs[0], value="x[i + 1, j]"),))
CONSTANTS = {"WIDTH": 48, "BLOCK": 32}
TWIN = "copy"
FINDING = r"The kernel reads another element of x"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * WIDTH + column, mask=column < WIDTH)  # found here
    tl.store(out + row * WIDTH + column, value, mask=column < WIDTH)
