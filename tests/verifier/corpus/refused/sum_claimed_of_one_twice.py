"""The contract speaks of one row twice."""

from dataclasses import replace

import triton
import triton.language as tl

from corpus import SUM

CONTRACT = replace(SUM, outputs=(replace(SUM.outputs[0], value="residual_add(x[i, :], x[i, :])[j]"),))
CONSTANTS = {"WIDTH": 32}
TWIN = "sum"
FINDING = r"The kernel reads another buffer"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, y, out, rows, WIDTH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    total = tl.load(x + place) + tl.load(y + place)  # found here
    tl.store(out + place, total)
