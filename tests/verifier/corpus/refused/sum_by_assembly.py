"""Assembly, which nobody reads."""

import triton
import triton.language as tl

from corpus import SUM

CONTRACT = SUM
CONSTANTS = {"WIDTH": 32}
TWIN = "sum"
FINDING = r"the operation tt\.elementwise_inline_asm is not understood"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, y, out, rows, WIDTH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    asm: tl.constexpr = "add.f32 $0, $1, $2;"
    pair = [tl.load(x + place), tl.load(y + place)]
    total = tl.inline_asm_elementwise(asm, "=f,f,f", pair, tl.float32, True, 1)  # found here
    tl.store(out + place, total)
