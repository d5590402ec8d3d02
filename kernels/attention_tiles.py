"""What both forms of attention do with a tile of keys, and with the states of splits.

The functions here are the text of `vosti.spec.numerics.attention` for many rows at once: `attend` is `attend`, `merge`
is `merge`, and `finished` is the last line of `attention`. The row's sums of weights and of weighted values are chains
that start from the decayed state.
"""

from __future__ import annotations

import triton
import triton.language as tl

from vosti.spec.numerics import attention as program

ROW_PROGRAM = {"TILE": program.KEY_TILE, "SPLIT": program.KEY_TILE * program.SPLIT_TILES}
"""Compile-time parameters that the row program fixes: keys of a tile, and of a split."""

MOST_BLOCKS = tl.constexpr(4)
"""Flags of one head of one row: a program raises the one of its block of columns."""


ONES = tl.constexpr(16)
"""Lanes in which a row's total stands."""


@triton.jit
def visible_tiles(first_tile, last_tile, first_position, end, TILE: tl.constexpr, WINDOW: tl.constexpr):
    """The range, among the key tiles from first_tile to last_tile − 1, in which every row sees every key.

    The rows stand at the positions from first_position to end − 1.
    """
    every_first = first_tile
    if WINDOW > 0:
        every_first = tl.minimum(last_tile, tl.maximum(first_tile, tl.cdiv(tl.maximum(0, end - WINDOW), TILE)))
    every_last = tl.minimum(last_tile, (first_position + 1) // TILE)
    return every_first, tl.maximum(every_first, every_last)


@triton.jit
def attend(
    query,
    keys,
    values,
    table,
    tile,
    length,
    position,
    maximum,
    total,
    output,
    kv_head,
    first_column,
    scale,
    PAGE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WINDOW: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    EVERY: tl.constexpr,
):
    """The states of all rows after one more key tile; of a row that sees nothing in it, the state before.

    The total of a row stands in several equal lanes, as the product with ones yields it.

    EVERY says that every row that is present sees every key of the tile, so that nothing needs to be masked.
    """
    lane = tl.arange(0, TILE)
    key_position = tile * TILE + lane
    cached = key_position < length
    if PAGE % TILE == 0:
        page = tl.load(table + (tile * TILE) // PAGE).to(tl.int64)
        slot = page * PAGE + (tile * TILE) % PAGE + lane
    else:
        page = tl.load(table + key_position // PAGE, mask=cached, other=0).to(tl.int64)
        slot = page * PAGE + key_position % PAGE
    place = (slot * KV_HEADS + kv_head) * HEAD_DIM
    key_place = place[None, :] + tl.arange(0, HEAD_DIM)[:, None]
    value_place = place[:, None] + (first_column + tl.arange(0, BLOCK_D))[None, :]
    if EVERY:
        key = tl.load(keys + key_place)
        value = tl.load(values + value_place)
    else:
        key = tl.load(keys + key_place, mask=cached[None, :], other=0.0)
        value = tl.load(values + value_place, mask=cached[:, None], other=0.0)

    scores = tl.dot(query, key, input_precision="ieee") * scale
    if not EVERY:
        live = key_position[None, :] <= position[:, None]
        if WINDOW > 0:
            live = live & (position[:, None] - key_position[None, :] < WINDOW)
        scores = tl.where(live, scores, float("-inf"))
    new_maximum = tl.maximum(maximum, tl.max(scores, 1))
    decay = tl.exp(maximum - new_maximum)
    weights = tl.exp(scores - new_maximum[:, None])
    if not EVERY:
        weights = tl.where(live, weights, 0.0)
    weights = weights.to(value.dtype)
    ones = tl.full((TILE, total.shape[1]), 1.0, value.dtype)
    new_total = tl.dot(weights, ones, total * decay[:, None], input_precision="ieee")
    new_output = tl.dot(weights, value, output * decay[:, None], input_precision="ieee")
    if not EVERY:
        seen = tile * TILE <= position
        if WINDOW > 0:
            seen = seen & (position - (tile * TILE + TILE - 1) < WINDOW)
        new_maximum = tl.where(seen, new_maximum, maximum)
        new_total = tl.where(seen[:, None], new_total, total)
        new_output = tl.where(seen[:, None], new_output, output)
    return new_maximum, new_total, new_output


@triton.jit
def attend_range(
    query,
    keys,
    values,
    table,
    first_tile,
    last_tile,
    length,
    position,
    maximum,
    total,
    output,
    kv_head,
    first_column,
    scale,
    PAGE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WINDOW: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    EVERY: tl.constexpr,
):
    """The states after the key tiles from first_tile to last_tile − 1."""
    for tile in range(first_tile, last_tile):
        maximum, total, output = attend(
            query,
            keys,
            values,
            table,
            tile,
            length,
            position,
            maximum,
            total,
            output,
            kv_head,
            first_column,
            scale,
            PAGE,
            KV_HEADS,
            HEAD_DIM,
            WINDOW,
            TILE,
            BLOCK_D,
            EVERY,
        )
    return maximum, total, output


@triton.jit
def merge(maximum, total, output, right_maximum, right_total, right_output):
    """The states after two consecutive ranges of keys; exactly the other one if either saw nothing."""
    both = tl.maximum(maximum, right_maximum)
    left_decay = tl.exp(maximum - both)
    right_decay = tl.exp(right_maximum - both)
    both_total = total * left_decay + right_total * right_decay
    both_output = output * left_decay[:, None] + right_output * right_decay[:, None]
    no_left = total == 0.0
    no_right = right_total == 0.0
    return (
        tl.where(no_right, maximum, tl.where(no_left, right_maximum, both)),
        tl.where(no_right, total, tl.where(no_left, right_total, both_total)),
        tl.where(no_right[:, None], output, tl.where(no_left[:, None], right_output, both_output)),
    )


@triton.jit
def finished(total, output):
    """The softmax-weighted mean; 0 for a row that saw nothing."""
    return tl.where((total == 0.0)[:, None], 0.0, tl.math.div_rn(output, tl.broadcast_to(total[:, None], output.shape)))
