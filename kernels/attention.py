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
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from vosti.kernels.attention_tiles import MOST_BLOCKS, ONES, ROW_PROGRAM, attend_range, finished, merge, visible_tiles
from vosti.kernels.contract import Access, Buffer, Constant, Contract, Fact, Integer, Output, Real
from vosti.kernels.finite import not_finite
from vosti.kernels.launch import Kernel, distinct
from vosti.kernels.tile import Tile

if TYPE_CHECKING:
    import torch


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
    "table_width * PAGE <= 2**30",
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

FACTS = (
    Fact(("b",), "0 <= counts[b] <= lengths[b]", kept="where a batch is made"),
    Fact(("b",), "starts[b] + counts[b] <= rows", kept="where a batch is made"),
    Fact(
        ("b", "c"),
        "b == c or starts[b] + counts[b] <= starts[c] or starts[c] + counts[c] <= starts[b]",
        kept="where a batch is made",
    ),
    Fact(("b", "c"), "tables[b, c] >= 0 or lengths[b] <= c * PAGE", kept="by the page pool, for each position cached"),
)
"""`MEMORY_PREMISES`, as far as they are about integers."""

DEFINITIONS = (("GROUP", "HEADS // KV_HEADS"), ("BLOCK_Q", "BLOCK_R // GROUP"))

IS_ROW = "0 <= b < sequences and 0 <= i < counts[b]"
"""Whether there is a row i of sequence b."""

POSITION = "lengths[b] - counts[b] + i"
"""Of the row i of sequence b."""

QUERY = "grouped(queries[starts[b] + i, :, :], KV_HEADS), cache(keys, values)"
KEYS = f"{POSITION}, WINDOW, lambda j: tables[b, j // PAGE] * PAGE + j % PAGE, lengths[b]"
"""What the row sees."""

VALUE = f"attention({QUERY}, visible_splits({KEYS}), scale, HEAD_DIM)[h // GROUP, h % GROUP, d]"

_ROW = (("b", "z"), ("i", "(tiles - 1 - y) * BLOCK_Q + l0 // GROUP"), ("h", "x % KV_HEADS * GROUP + l0 % GROUP"))

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
                VALUE,
                program=("h // GROUP + d // BLOCK_D * KV_HEADS", "tiles - 1 - i // BLOCK_Q", "b"),
                lanes=("(i % BLOCK_Q) * GROUP + h % GROUP", "d % BLOCK_D"),
                names=(*_ROW, ("d", "x // KV_HEADS * BLOCK_D + l1")),
                when=IS_ROW,
            ),
            # Its value before, or 1 if some out[starts[b] + i, h, d] of the block of columns is not finite.
            Output(
                "flags",
                ("starts[b] + i", "h", "e"),
                "either(flags[starts[b] + i, h, e], over(BLOCK_D, lambda k: "
                "flag(not_finite(stored('out', b=b, i=i, h=h, d=e * BLOCK_D + k)))))",
                program=("h // GROUP + e * KV_HEADS", "tiles - 1 - i // BLOCK_Q", "b"),
                lanes=("(i % BLOCK_Q) * GROUP + h % GROUP",),
                names=(*_ROW, ("e", "x // KV_HEADS")),
                when=f"{IS_ROW} and e < HEAD_DIM // BLOCK_D",
            ),
        ),
        conclusion=(
            "For each sequence b and 0 <= i < counts[b], with tiles * BLOCK_Q >= counts[b]: out[starts[b] + i] is the "
            f"attention of that row over the keys it sees. Given: {'; '.join(MEMORY_PREMISES)}."
        ),
        definitions=DEFINITIONS,
        facts=(*FACTS, Fact(("b",), "counts[b] <= tiles * BLOCK_Q", kept="where a batch is made")),
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
