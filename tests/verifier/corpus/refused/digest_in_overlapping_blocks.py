"""Words are counted twice: blocks overlap."""

import triton
import triton.language as tl

from corpus import DIGEST

CONTRACT = DIGEST
CONSTANTS = {"WIDTH": 100, "BLOCK": 32}
TWIN = "digest"
FINDING = r"Two integers differ"


@triton.jit(do_not_specialize=["rows"])
def kernel(words, out, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.uint64)
    for begin in range(0, WIDTH, BLOCK // 2):
        lane = begin + tl.arange(0, BLOCK)
        word = tl.load(words + row * WIDTH + lane, mask=lane < WIDTH, other=0).to(tl.uint32, bitcast=True)
        x = (lane.to(tl.uint64) << 32 | word.to(tl.uint64)) ^ 0x9E3779B97F4A7C15
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB
        total += tl.where(lane < WIDTH, x ^ (x >> 31), 0)
    tl.store(out + row, tl.sum(total, 0).to(tl.int64, bitcast=True))
