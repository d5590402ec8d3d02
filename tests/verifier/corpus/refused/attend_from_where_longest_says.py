"""Where the loop starts depends on the longest sequence."""

import triton
import triton.language as tl

from corpus import ATTEND

CONTRACT = ATTEND
CONSTANTS = {"HEADS": 16, "WIDTH": 32, "PAGE": 16, "TILE": 64}
TWIN = "attend"
FINDING = r"Loop tile starts after the row program's loop"


@triton.jit(do_not_specialize=["longest", "table_width"])
def kernel(
    queries,
    keys,
    values,
    tables,
    lengths,
    out,
    longest,
    table_width,
    scale,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    PAGE: tl.constexpr,
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + row)
    column = tl.arange(0, WIDTH)
    place = (row * HEADS + tl.arange(0, HEADS)[:, None]) * WIDTH + column[None, :]
    query = tl.load(queries + place)
    maximum = tl.full((HEADS,), float("-inf"), tl.float32)
    total = tl.zeros((HEADS, 16), tl.float32)
    output = tl.zeros((HEADS, WIDTH), tl.float32)
    for tile in range(longest // 1024, tl.cdiv(longest, TILE)):  # found here
        position = tile * TILE + tl.arange(0, TILE)
        live = position < length
        page = tl.load(tables + row * table_width + position // PAGE, mask=live, other=0).to(tl.int64)
        slot = (page * PAGE + position % PAGE) * WIDTH
        key = tl.load(keys + slot[None, :] + column[:, None], mask=live[None, :], other=0.0)
        value = tl.load(values + slot[:, None] + column[None, :], mask=live[:, None], other=0.0)
        scores = tl.dot(query, key, input_precision="ieee") * scale
        scores = tl.where(live[None, :], scores, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, 1))
        decay = tl.exp(maximum - new_maximum)[:, None]
        weights = tl.where(live[None, :], tl.exp(scores - new_maximum[:, None]), 0.0).to(tl.bfloat16)
        ones = tl.full((TILE, 16), 1.0, tl.bfloat16)
        new_total = tl.dot(weights, ones, total * decay, input_precision="ieee")
        new_output = tl.dot(weights, value, output * decay, input_precision="ieee")
        seen = tile * TILE < length
        maximum = tl.where(seen, new_maximum, maximum)
        total = tl.where(seen, new_total, total)
        output = tl.where(seen, new_output, output)
    result = tl.math.div_rn(output, tl.broadcast_to(tl.max(total, 1)[:, None], output.shape))
    tl.store(out + place, result.to(tl.bfloat16))
