"""What the contract defines is nothing that there can be."""

import triton
import triton.language as tl

from corpus import RUNNING_AND_MORE

CONTRACT = RUNNING_AND_MORE
CONSTANTS = {"WIDTH": 512}
TWIN = "running"
FINDING = r"what the contract says of a sum of integers contradicts itself"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    tl.store(out + place, tl.cumsum(tl.load(x + place).to(tl.int64), 0))
