"""For few rows, each tile's products are added up by themselves."""

import triton
import triton.language as tl

from corpus import LINEAR

CONTRACT = LINEAR
CONSTANTS = {"N": 96, "K": 64, "BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32}
TWIN = "linear"
FINDING = r"The loop's iterations are not products like the row program's chain"


@triton.jit(do_not_specialize=["rows"])
def kernel(
    x,
    weight,
    out,
    rows,
    N: tl.constexpr,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    k = tl.arange(0, BLOCK_K)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for begin in range(0, K, BLOCK_K):
        a = tl.load(x + row.to(tl.int64) * K + (begin + k)[None, :], mask=row < rows, other=0.0)
        b = tl.load(weight + column.to(tl.int64) * K + (begin + k)[:, None])
        if rows > 16:  # found here
            accumulator = tl.dot(a, b, accumulator)
        else:
            accumulator += tl.dot(a, b)
    result = accumulator.to(tl.bfloat16)
    tl.store(out + row.to(tl.int64) * N + column, result, mask=row < rows)
