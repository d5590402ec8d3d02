"""Of equal sums the last one is taken: the next place with a share is counted from behind."""

import triton
import triton.language as tl

from corpus import DRAWN

CONTRACT = DRAWN
CONSTANTS = {"BLOCK": 1024}
TWIN = "draw"
FINDING = r"a sum of integers is not shown to be one that the contract names"


@triton.jit(do_not_specialize=["rows", "width"])
def kernel(shares, bits, out, rows, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    share = tl.load(shares + row * width + lane, mask=lane < width, other=0).to(tl.int64)
    reached = tl.cumsum(share, 0)
    total = tl.sum(share, 0)
    draw = tl.math.umulhi(tl.load(bits + row).to(tl.uint64, bitcast=True), total.to(tl.uint64)).to(tl.int64)
    tl.store(out + row, BLOCK - 1 - tl.sum((reached > draw).to(tl.int32), 0))  # found here
