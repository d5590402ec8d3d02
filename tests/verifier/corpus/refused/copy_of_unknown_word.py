"""The contract uses a word that is none."""

from dataclasses import replace

import triton
import triton.language as tl

from corpus import COPY

CONTRACT = replace(COPY, outputs=(replace(COPY.outputs[0], value="copied(x)[i, j]"),))
CONSTANTS = {"WIDTH": 48, "BLOCK": 32}
TWIN = "copy"
FINDING = r"The contract's expression 'copied\(x\)\[i, j\]' is not understood: name 'copied' is not defined"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, out, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * WIDTH + column, mask=column < WIDTH)
    tl.store(out + row * WIDTH + column, value, mask=column < WIDTH)
