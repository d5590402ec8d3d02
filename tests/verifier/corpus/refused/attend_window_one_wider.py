"""The window is one position wider."""

import triton
import triton.language as tl

from corpus import ATTEND_WINDOW

CONTRACT = ATTEND_WINDOW
CONSTANTS = {"HEADS": 16, "WIDTH": 32, "PAGE": 16, "TILE": 64, "WINDOW": 100}
TWIN = "attend_window"
FINDING = r"The kernel computes something else than the row program"


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
    WINDOW: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + row)
    column = tl.arange(0, WIDTH)
    place = (row * HEADS + tl.arange(0, HEADS)[:, None]) * WIDTH + column[None, :]
    query = tl.load(queries + place)
    maximum = tl.full((HEADS,), float("-inf"), tl.float32)
    total = tl.zeros((HEADS, 16), tl.float32)
    output = tl.zeros((HEADS, WIDTH), tl.float32)
    for tile in range(tl.maximum(0, length - WINDOW) // TILE, tl.cdiv(length, TILE)):
        position = tile * TILE + tl.arange(0, TILE)
        cached = position < length
        live = cached & (position >= length - WINDOW - 1)
        page = tl.load(tables + row * table_width + position // PAGE, mask=cached, other=0).to(tl.int64)
        slot = (page * PAGE + position % PAGE) * WIDTH
        key = tl.load(keys + slot[None, :] + column[:, None], mask=cached[None, :], other=0.0)
        value = tl.load(values + slot[:, None] + column[None, :], mask=cached[:, None], other=0.0)
        scores = tl.dot(query, key, input_precision="ieee") * scale  # found here
        scores = tl.where(live[None, :], scores, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, 1))
        decay = tl.exp(maximum - new_maximum)[:, None]
        weights = tl.where(live[None, :], tl.exp(scores - new_maximum[:, None]), 0.0).to(tl.bfloat16)
        ones = tl.full((TILE, 16), 1.0, tl.bfloat16)
        total = tl.dot(weights, ones, total * decay, input_precision="ieee")
        output = tl.dot(weights, value, output * decay, input_precision="ieee")
        maximum = new_maximum
    result = tl.math.div_rn(output, tl.broadcast_to(tl.max(total, 1)[:, None], output.shape))
    tl.store(out + place, result.to(tl.bfloat16))
