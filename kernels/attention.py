"""Attention of packed rows over paged keys and values: the extend form, for prefill, chunks and drafts.

For a row at position p, over the positions j that it sees (j ≤ p, and p − j < WINDOW if there is a window):

    out = Σⱼ e^(sⱼ − m) vⱼ / Σⱼ e^(sⱼ − m),    sⱼ = (query · keyⱼ) · scale,    m = maxⱼ sⱼ

computed tile by tile of TILE keys and split by split of SPLIT keys, at absolute positions, as
`vosti.spec.numerics.attention` says; `vosti.kernels.attention_split` computes the same row program split by split.

A program's rows are the query heads of one kv head, of several consecutive positions: row r is head r % GROUP of
position r // GROUP. It may compute a block of a head's columns only. A tile of keys that a row does not see leaves the
row's state alone, bit for bit, by selection; within a tile, lanes that it does not see have weight +0 and add 0 · v,
which changes no bit if v is finite. Weights are rounded to the element type of values before they are summed, and their
sum is a product with ones: both sums then have the order of `tl.dot`, and both start from the decayed state as their
accumulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from vosti.kernels.contract import Access, Buffer, Constant, Contract, Integer, Output, Real
from vosti.kernels.finite import not_finite
from vosti.kernels.launch import Kernel, distinct
from vosti.kernels.tile import Tile
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


@triton.jit(do_not_specialize=["tiles", "table_width"])
def attention_kernel(
    queries,
    keys,
    values,
    tables,
    starts,
    counts,
    lengths,
    out,
    flags,
    tiles,
    table_width,
    scale,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    WINDOW: tl.constexpr,
    TILE: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """See `ATTENTION`."""
    GROUP: tl.constexpr = HEADS // KV_HEADS
    BLOCK_Q: tl.constexpr = BLOCK_R // GROUP
    kv_head = tl.program_id(0) % KV_HEADS
    block = tl.program_id(0) // KV_HEADS
    # Later positions see more keys: they start first.
    tile = tiles - 1 - tl.program_id(1)
    sequence = tl.program_id(2).to(tl.int64)
    count = tl.load(counts + sequence)
    if tile * BLOCK_Q < count:
        start = tl.load(starts + sequence).to(tl.int64)
        length = tl.load(lengths + sequence)
        table = tables + sequence * table_width
        lane = tl.arange(0, BLOCK_R)
        index = tile * BLOCK_Q + lane // GROUP
        head = kv_head * GROUP + lane % GROUP
        present = (index < count) & (lane < BLOCK_Q * GROUP)
        place = ((start + index) * HEADS + head) * HEAD_DIM
        query = tl.load(queries + place[:, None] + tl.arange(0, HEAD_DIM)[None, :], mask=present[:, None], other=0.0)
        first_column = block * BLOCK_D
        first_position = length - count
        position = tl.where(present, first_position + index, -1)
        end = first_position + tl.minimum(count, (tile + 1) * BLOCK_Q)
        begin = 0
        if WINDOW > 0:
            begin = tl.maximum(0, first_position + tile * BLOCK_Q - WINDOW + 1)
        maximum = tl.full((BLOCK_R,), float("-inf"), tl.float32)
        total = tl.zeros((BLOCK_R,), tl.float32)
        output = tl.zeros((BLOCK_R, BLOCK_D), tl.float32)
        for split in range(begin // SPLIT, tl.cdiv(end, SPLIT)):
            part_maximum = tl.full((BLOCK_R,), float("-inf"), tl.float32)
            part_total = tl.zeros((BLOCK_R, ONES), tl.float32)
            part_output = tl.zeros((BLOCK_R, BLOCK_D), tl.float32)
            first_tile = tl.maximum(split * (SPLIT // TILE), begin // TILE)
            last_tile = tl.minimum((split + 1) * (SPLIT // TILE), tl.cdiv(end, TILE))
            every_first, every_last = visible_tiles(
                first_tile, last_tile, first_position + tile * BLOCK_Q, end, TILE, WINDOW
            )
            if WINDOW > 0:
                part_maximum, part_total, part_output = attend_range(
                    query,
                    keys,
                    values,
                    table,
                    first_tile,
                    every_first,
                    length,
                    position,
                    part_maximum,
                    part_total,
                    part_output,
                    kv_head,
                    first_column,
                    scale,
                    PAGE,
                    KV_HEADS,
                    HEAD_DIM,
                    WINDOW,
                    TILE,
                    BLOCK_D,
                    False,
                )
            part_maximum, part_total, part_output = attend_range(
                query,
                keys,
                values,
                table,
                every_first,
                every_last,
                length,
                position,
                part_maximum,
                part_total,
                part_output,
                kv_head,
                first_column,
                scale,
                PAGE,
                KV_HEADS,
                HEAD_DIM,
                WINDOW,
                TILE,
                BLOCK_D,
                True,
            )
            part_maximum, part_total, part_output = attend_range(
                query,
                keys,
                values,
                table,
                every_last,
                last_tile,
                length,
                position,
                part_maximum,
                part_total,
                part_output,
                kv_head,
                first_column,
                scale,
                PAGE,
                KV_HEADS,
                HEAD_DIM,
                WINDOW,
                TILE,
                BLOCK_D,
                False,
            )
            maximum, total, output = merge(maximum, total, output, part_maximum, tl.max(part_total, 1), part_output)
        result = finished(total, output).to(out.dtype.element_ty)
        column = first_column + tl.arange(0, BLOCK_D)
        tl.store(out + place[:, None] + column[None, :], result, mask=present[:, None])
        flag = flags + ((start + index) * HEADS + head) * MOST_BLOCKS + block
        bad = tl.max(not_finite(result), 1)
        tl.store(flag, tl.load(flag, mask=present, other=0) | bad, mask=present)


def shared_parameters(*, writes: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """The buffers of both forms of attention."""
    return (
        Buffer("queries", "bf16", ("rows", "HEADS", "HEAD_DIM")),
        Buffer("keys", "bf16", ("pages * PAGE", "KV_HEADS", "HEAD_DIM")),
        Buffer("values", "bf16", ("pages * PAGE", "KV_HEADS", "HEAD_DIM")),
        Buffer("tables", "i32", ("sequences", "table_width"), within=("-1", "pages")),
        Buffer("starts", "i32", ("sequences",), within=("0", "rows + 1")),
        Buffer("counts", "i32", ("sequences",), within=("0", "rows + 1")),
        Buffer("lengths", "i32", ("sequences",), within=("0", "table_width * PAGE + 1")),
        *writes,
    )


SHARED_PREMISES = (
    f"TILE == {ROW_PROGRAM['TILE']}",
    f"SPLIT == {ROW_PROGRAM['SPLIT']}",
    "HEADS % KV_HEADS == 0",
    "HEADS // KV_HEADS <= BLOCK_R",
    "BLOCK_R >= 16",
    "HEAD_DIM in (32, 64, 128, 256, 512)",
    "1 <= PAGE <= 256",
    "WINDOW >= 0",
    "HEAD_DIM % BLOCK_D == 0",
    "HEAD_DIM // BLOCK_D <= 4",
)

ROW_INPUTS = (
    "queries[i, h, :]",
    "the row's position p = lengths[b] - counts[b] + i - starts[b]",
    "keys and values of kv head h // GROUP at slot tables[b, j // PAGE] * PAGE + j % PAGE, for each j that p sees",
    "scale",
)

MEMORY_PREMISES = (
    "rows starts[b] to starts[b] + counts[b] - 1 are the last counts[b] positions of sequence b, in order; the ranges "
    "of different sequences are disjoint; counts[b] <= lengths[b]",
    "for j < lengths[b], tables[b, j // PAGE] is a page, and the keys and values at j's slot are finite",
)
"""Premises on the contents of integer buffers and of the cache, which no launch can check at its own cost: the engine
guarantees them where a batch is made, and flags values that are not finite where they are stored."""

ATTENTION = Kernel(
    attention_kernel,
    Contract(
        kernel="attention",
        row_program="attention.attention",
        parameters=(
            *shared_parameters(
                writes=(
                    Buffer("out", "bf16", ("rows", "HEADS", "HEAD_DIM"), Access.WRITE),
                    Buffer("flags", "i32", ("rows", "HEADS", "4"), Access.UPDATE),
                )
            ),
            Integer("tiles"),
            Integer("table_width"),
            Real("scale"),
            Constant("HEADS"),
            Constant("KV_HEADS"),
            Constant("HEAD_DIM"),
            Constant("PAGE"),
            Constant("WINDOW"),
            Constant("TILE"),
            Constant("SPLIT"),
            Constant("BLOCK_R"),
            Constant("BLOCK_D"),
        ),
        grid=("KV_HEADS * (HEAD_DIM // BLOCK_D)", "tiles", "sequences"),
        premises=SHARED_PREMISES,
        row_inputs=ROW_INPUTS,
        outputs=(
            Output(
                "out",
                ("starts[b] + i", "h", "d"),
                "program (h // GROUP + d // BLOCK_D * KV_HEADS, tiles - 1 - i // BLOCK_Q, b), lane "
                "((i % BLOCK_Q) * GROUP + h % GROUP, d % BLOCK_D), if i < counts[b]; with GROUP = HEADS // KV_HEADS, "
                "BLOCK_Q = BLOCK_R // GROUP",
                "attention(queries[i, h, :], the keys and values that position p sees, scale)",
            ),
            Output(
                "flags",
                ("starts[b] + i", "h", "d // BLOCK_D"),
                "as out",
                "its value before, or 1 if some out[starts[b] + i, h, d] of the block is not finite",
            ),
        ),
        conclusion=(
            "For each sequence b and 0 <= i < counts[b], with tiles * BLOCK_Q >= counts[b]: out[starts[b] + i] is the "
            f"attention of that row over the keys it sees. Given: {'; '.join(MEMORY_PREMISES)}."
        ),
    ),
)


@dataclass(frozen=True)
class Sequences:
    """The sequences of one launch: their rows among the packed rows, and their pages.

    Sequence b has the rows from starts[b], counts[b] of them: the last of its lengths[b] positions.
    """

    tables: torch.Tensor
    """[sequences, width] int32: page ids in order of position; −1 where no page stands."""

    starts: torch.Tensor
    """[sequences] int32."""

    counts: torch.Tensor
    """[sequences] int32; 0 for a sequence that is padding."""

    lengths: torch.Tensor
    """[sequences] int32: keys of each sequence, those of its rows included."""

    most_rows: int
    """At least each of `counts`."""

    page_size: int

    def metadata(self) -> dict[str, torch.Tensor]:
        """The arrays, as kernels name them."""
        return {"starts": self.starts, "counts": self.counts, "lengths": self.lengths}


def attention(
    queries: torch.Tensor,
    cache: tuple[torch.Tensor, torch.Tensor],
    sequences: Sequences,
    out: torch.Tensor,
    flags: torch.Tensor,
    scale: float,
    tile: Tile,
    *,
    window: int | None = None,
) -> Any:
    """Attention of packed rows: `queries` and `out` are [rows, heads, d], `flags` is [rows, heads, 4].

    `cache` is keys and values, [slots, kv heads, d] each. Rows that belong to no sequence are left alone. Raises
    `PremiseError` if a premise of the contract fails that does not need the contents of a buffer.
    """
    _, heads, head_dim = queries.shape
    kv_heads = cache[0].shape[1]
    distinct("attention", out, queries, *cache)
    block_q = tile.block("BLOCK_R") // (heads // kv_heads)
    arguments = {
        "queries": queries,
        "keys": cache[0],
        "values": cache[1],
        "tables": sequences.tables,
        **sequences.metadata(),
        "out": out,
        "flags": flags,
        "tiles": -(-sequences.most_rows // block_q),
        "table_width": sequences.tables.shape[1],
        "scale": scale,
        "HEADS": heads,
        "KV_HEADS": kv_heads,
        "HEAD_DIM": head_dim,
        "PAGE": sequences.page_size,
        "WINDOW": window or 0,
        **ROW_PROGRAM,
    }
    return ATTENTION.launch(arguments, tile, sequences=sequences.tables.shape[0])
