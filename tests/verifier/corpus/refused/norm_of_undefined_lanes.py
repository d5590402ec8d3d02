"""Lanes beyond the row hold what nobody defined."""

import triton
import triton.language as tl

from corpus import NORM

CONTRACT = NORM
CONSTANTS = {"WIDTH": 48, "BLOCK": 64}
TWIN = "norm"
FINDING = r"The kernel computes something else than the row program"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, weight, out, rows, epsilon, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)[None, :]
    live = column < WIDTH
    value = tl.load(x + row * WIDTH + column, mask=live).to(tl.float32)
    square = value * value  # found here
    for _ in tl.static_range(20):
        if square.shape[1] > 1:
            square = tl.sum(tl.reshape(square, (1, 2, square.shape[1] // 2)), 1)
    mean = tl.math.div_rn(square, tl.full((1, 1), WIDTH, tl.float32))
    inverse = tl.math.div_rn(tl.full((1, 1), 1.0, tl.float32), tl.math.sqrt_rn(mean + epsilon))
    result = value * inverse * tl.load(weight + column, mask=live, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + column, result.to(tl.bfloat16), mask=live)
