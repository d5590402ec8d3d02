"""Attention for few rows and many keys: one program per split of keys, then a merge in ascending order.

The row program is that of `vosti.kernels.attention`, to the bit: each split starts from the empty state at its absolute
position, and the merge is the same formula applied to the same states in the same order. A sequence has at most
BLOCK_R // GROUP rows (one when decoding, a few with a draft). The launch covers `splits` splits of each sequence, from
the first that its first row sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import triton
import triton.language as tl

from vosti.kernels.attention import (
    DEFINITIONS,
    FACTS,
    IS_ROW,
    KEYS,
    MEMORY_PREMISES,
    QUERY,
    ROW_INPUTS,
    SHARED_PREMISES,
    VALUE,
    Sequences,
    shared_parameters,
)
from vosti.kernels.attention_tiles import MOST_BLOCKS, ONES, ROW_PROGRAM, attend_range, finished, merge, visible_tiles
from vosti.kernels.contract import Access, Buffer, Constant, Contract, Fact, Integer, Output, Real
from vosti.kernels.finite import not_finite
from vosti.kernels.launch import Kernel, distinct
from vosti.kernels.tile import Tile

if TYPE_CHECKING:
    import torch


@triton.jit
def _first_split(length, count, WINDOW: tl.constexpr, SPLIT: tl.constexpr):
    """The first split in which the sequence's first row sees anything."""
    if WINDOW > 0:
        return tl.maximum(0, length - count - WINDOW + 1) // SPLIT
    else:
        return 0


@triton.jit(do_not_specialize=["splits", "table_width"])
def attention_split_kernel(
    queries,
    keys,
    values,
    tables,
    starts,
    counts,
    lengths,
    maxima,
    totals,
    outputs,
    splits,
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
    """See `ATTENTION_SPLIT`."""
    GROUP: tl.constexpr = HEADS // KV_HEADS
    BLOCK_Q: tl.constexpr = BLOCK_R // GROUP
    kv_head = tl.program_id(0) % KV_HEADS
    block = tl.program_id(0) // KV_HEADS
    part = tl.program_id(1)
    sequence = tl.program_id(2).to(tl.int64)
    count = tl.load(counts + sequence)
    length = tl.load(lengths + sequence)
    split = _first_split(length, count, WINDOW, SPLIT) + part
    if (count > 0) & (split * SPLIT < length):
        start = tl.load(starts + sequence).to(tl.int64)
        table = tables + sequence * table_width
        lane = tl.arange(0, BLOCK_R)
        index = lane // GROUP
        head = kv_head * GROUP + lane % GROUP
        present = (index < count) & (lane < BLOCK_Q * GROUP)
        place = ((start + index) * HEADS + head) * HEAD_DIM
        query = tl.load(queries + place[:, None] + tl.arange(0, HEAD_DIM)[None, :], mask=present[:, None], other=0.0)
        first_column = block * BLOCK_D
        position = tl.where(present, length - count + index, -1)
        begin = 0
        if WINDOW > 0:
            begin = tl.maximum(0, length - count - WINDOW + 1)
        maximum = tl.full((BLOCK_R,), float("-inf"), tl.float32)
        total = tl.zeros((BLOCK_R, ONES), tl.float32)
        output = tl.zeros((BLOCK_R, BLOCK_D), tl.float32)
        first_tile = tl.maximum(split * (SPLIT // TILE), begin // TILE)
        last_tile = tl.minimum((split + 1) * (SPLIT // TILE), tl.cdiv(length, TILE))
        every_first, every_last = visible_tiles(first_tile, last_tile, length - count, length, TILE, WINDOW)
        if WINDOW > 0:
            maximum, total, output = attend_range(
                query,
                keys,
                values,
                table,
                first_tile,
                every_first,
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
                False,
            )
        maximum, total, output = attend_range(
            query,
            keys,
            values,
            table,
            every_first,
            every_last,
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
            True,
        )
        maximum, total, output = attend_range(
            query,
            keys,
            values,
            table,
            every_last,
            last_tile,
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
            False,
        )
        cell = ((sequence * KV_HEADS + kv_head) * splits + part) * BLOCK_R + lane
        # Each block of columns finds the same maximum and total; the first one stores them.
        tl.store(maxima + cell, maximum, mask=(lane >= 0) & (block == 0))
        tl.store(totals + cell, tl.max(total, 1), mask=(lane >= 0) & (block == 0))
        column = first_column + tl.arange(0, BLOCK_D)
        tl.store(outputs + cell[:, None] * HEAD_DIM + column[None, :], output)


@triton.jit(do_not_specialize=["splits"])
def attention_merge_kernel(
    maxima,
    totals,
    outputs,
    starts,
    counts,
    lengths,
    out,
    flags,
    splits,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WINDOW: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK_R: tl.constexpr,
):
    """See `ATTENTION_MERGE`."""
    GROUP: tl.constexpr = HEADS // KV_HEADS
    head = tl.program_id(0)
    index = tl.program_id(1)
    sequence = tl.program_id(2).to(tl.int64)
    count = tl.load(counts + sequence)
    if index < count:
        start = tl.load(starts + sequence).to(tl.int64)
        length = tl.load(lengths + sequence)
        row = tl.arange(0, 1)
        column = tl.arange(0, HEAD_DIM)
        maximum = tl.full((1,), float("-inf"), tl.float32)
        total = tl.zeros((1,), tl.float32)
        output = tl.zeros((1, HEAD_DIM), tl.float32)
        first = _first_split(length, count, WINDOW, SPLIT)
        for split in tl.range(first, tl.cdiv(length, SPLIT), num_stages=4):
            part = (sequence * KV_HEADS + head // GROUP) * splits + split - first
            cell = part * BLOCK_R + index * GROUP + head % GROUP + row
            maximum, total, output = merge(
                maximum,
                total,
                output,
                tl.load(maxima + cell),
                tl.load(totals + cell),
                tl.load(outputs + cell[:, None] * HEAD_DIM + column[None, :]),
            )
        result = finished(total, output).to(out.dtype.element_ty)
        place = (start + index) * HEADS + head + row
        tl.store(out + place[:, None] * HEAD_DIM + column[None, :], result)
        flag = flags + place * MOST_BLOCKS
        tl.store(flag, tl.load(flag) | tl.max(not_finite(result), 1))


_SCRATCH = ("sequences", "KV_HEADS", "splits", "BLOCK_R")
_CELLS = "sequences * KV_HEADS * splits * BLOCK_R"
_FIRST = "max(0, lengths[b] - counts[b] - WINDOW + 1) // SPLIT if WINDOW > 0 else 0"
_SPLIT = f"({_FIRST}) + s"
_SPLITS = Fact(
    ("b",),
    f"splits >= cdiv(lengths[b], SPLIT) - ({_FIRST}) or counts[b] == 0",
    kept="by `splits_needed`, for the longest sequence of the batch",
)
_MOST_SPLITS = "splits <= 2**20"
_FEW = Fact(("b",), "counts[b] <= BLOCK_Q", kept="by the launcher, of most_rows")
_COVERED = (
    "splits >= cdiv(lengths[b], SPLIT) - first(b), first(b) being the first split that sequence b's first row sees"
)

ATTENTION_SPLIT = Kernel(
    attention_split_kernel,
    Contract(
        kernel="attention_split",
        row_program="attention.attend, over the tiles of one split",
        parameters=(
            *shared_parameters(
                writes=(
                    Buffer("maxima", "fp32", _SCRATCH, Access.WRITE),
                    Buffer("totals", "fp32", _SCRATCH, Access.WRITE),
                    Buffer("outputs", "fp32", (*_SCRATCH, "HEAD_DIM"), Access.WRITE),
                )
            ),
            Integer("splits"),
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
        grid=("KV_HEADS * (HEAD_DIM // BLOCK_D)", "splits", "sequences"),
        premises=(*SHARED_PREMISES, _MOST_SPLITS, f"{_CELLS} <= cells", "most_rows * (HEADS // KV_HEADS) <= BLOCK_R"),
        row_inputs=ROW_INPUTS,
        outputs=(
            *(
                Output(
                    buffer,
                    ("b", "g", "s", "r", *column),
                    # The state after split first(b) + s, from the empty state.
                    f"over_split({QUERY}, split_of({_SPLIT}, {KEYS}), scale, HEAD_DIM).{part}"
                    f"[g, r % GROUP, {column[0] if column else 0}]".replace("+ i", "+ r // GROUP"),
                    program=("g + d // BLOCK_D * KV_HEADS" if column else "g", "s", "b"),
                    lanes=("r", *(f"{name} % BLOCK_D" for name in column)),
                    when=f"counts[b] > 0 and ({_SPLIT}) * SPLIT < lengths[b]",
                    stated="r // GROUP < counts[b] and r < BLOCK_Q * GROUP",
                )
                for buffer, part, column in (
                    ("maxima", "maximum", ()),
                    ("totals", "total", ()),
                    ("outputs", "output", ("d",)),
                )
            ),
        ),
        conclusion=(
            "Each cell of the scratch that the merge reads holds the state of one row after one split. "
            f"Given: {_COVERED}; counts[b] <= BLOCK_R // GROUP; {'; '.join(MEMORY_PREMISES)}."
        ),
        definitions=DEFINITIONS,
        facts=(*FACTS, _FEW),
    ),
)

ATTENTION_MERGE = Kernel(
    attention_merge_kernel,
    Contract(
        kernel="attention_merge",
        row_program="attention.attention, from the states of splits",
        parameters=(
            Buffer("maxima", "fp32", _SCRATCH),
            Buffer("totals", "fp32", _SCRATCH),
            Buffer("outputs", "fp32", (*_SCRATCH, "HEAD_DIM")),
            Buffer("starts", "i32", ("sequences",), within=("0", "rows + 1")),
            Buffer("counts", "i32", ("sequences",), within=("0", "rows + 1")),
            Buffer("lengths", "i32", ("sequences",)),
            Buffer("out", "bf16", ("rows", "HEADS", "HEAD_DIM"), Access.WRITE),
            Buffer("flags", "i32", ("rows", "HEADS", "4"), Access.UPDATE),
            Integer("splits"),
            Constant("HEADS"),
            Constant("KV_HEADS"),
            Constant("HEAD_DIM"),
            Constant("WINDOW"),
            Constant("SPLIT"),
            Constant("BLOCK_R"),
        ),
        grid=("HEADS", "most_rows", "sequences"),
        premises=("HEADS % KV_HEADS == 0", _MOST_SPLITS),
        row_inputs=("the states of row (b, i, h) after each split, in ascending order",),
        outputs=(
            Output(
                "out",
                ("starts[b] + i", "h", "d"),
                VALUE,
                program=("h", "i", "b"),
                lanes=("0", "d"),
                names=(("b", "z"), ("i", "y")),
                when=IS_ROW,
            ),
            # Its value before, or 1 if some out[starts[b] + i, h, d] is not finite.
            Output(
                "flags",
                ("starts[b] + i", "h", "0"),
                "either(flags[starts[b] + i, h, 0], over(HEAD_DIM, lambda d: "
                "flag(not_finite(stored('out', b=b, i=i, h=h, d=d)))))",
                program=("h", "i", "b"),
                lanes=("0",),
                names=(("b", "z"), ("i", "y"), ("h", "x")),
                when=IS_ROW,
            ),
        ),
        conclusion=(
            "After attention_split of the same metadata, out[starts[b] + i] is the attention of that row over the keys "
            f"it sees, for each sequence b and 0 <= i < counts[b] <= most_rows. Given: {_COVERED}."
        ),
        definitions=DEFINITIONS,
        facts=(
            *FACTS,
            _FEW,
            _SPLITS,
            Fact(("b",), "counts[b] <= most_rows", kept="by the launcher"),
            Fact(("b",), "lengths[b] <= 2**30", kept="by attention_split, whose premise it is"),
        ),
        context=(*shared_parameters(writes=())[:4], Integer("table_width"), Real("scale"), Constant("PAGE")),
    ),
)


@dataclass(frozen=True)
class Scratch:
    """Where the splits' states wait for the merge. One serves all layers of a forward."""

    maxima: torch.Tensor
    totals: torch.Tensor
    outputs: torch.Tensor

    @staticmethod
    def allocate(sequences: int, kv_heads: int, splits: int, block_r: int, head_dim: int, device: str) -> Scratch:
        """Enough for the given sizes."""
        import torch

        cells = sequences * kv_heads * splits * block_r
        maxima, totals = torch.empty(2, cells, dtype=torch.float32, device=device)
        return Scratch(maxima, totals, torch.empty(cells, head_dim, dtype=torch.float32, device=device))


def splits_needed(longest: int, rows: int, window: int | None) -> int:
    """The number of splits to launch for sequences of up to `longest` keys, of which up to `rows` rows run."""
    split = ROW_PROGRAM["SPLIT"]
    every = -(-longest // split)
    # A window of w positions, widened by the rows before the last, touches at most this many splits.
    return every if window is None else min(every, (window + rows - 2) // split + 2)


def attention_split(
    queries: torch.Tensor,
    cache: tuple[torch.Tensor, torch.Tensor],
    sequences: Sequences,
    scratch: Scratch,
    splits: int,
    out: torch.Tensor,
    flags: torch.Tensor,
    scale: float,
    tile: Tile,
    merge_tile: Tile,
    *,
    window: int | None = None,
) -> None:
    """As `vosti.kernels.attention.attention`, in two launches over splits of keys; `splits` as by `splits_needed`.

    Raises `PremiseError` if a premise of the contract fails that does not need the contents of a buffer.
    """
    _, heads, head_dim = queries.shape
    count, width = sequences.tables.shape
    distinct("attention_split", out, queries, *cache)
    metadata = {**sequences.metadata(), "splits": splits}
    states = {"maxima": scratch.maxima, "totals": scratch.totals, "outputs": scratch.outputs}
    shape = {"HEADS": heads, "KV_HEADS": cache[0].shape[1], "HEAD_DIM": head_dim, "WINDOW": window or 0}
    shape["SPLIT"] = ROW_PROGRAM["SPLIT"]
    paged = {"keys": cache[0], "values": cache[1], "tables": sequences.tables, "table_width": width}
    paged |= {"PAGE": sequences.page_size, "TILE": ROW_PROGRAM["TILE"]}
    ATTENTION_SPLIT.launch(
        {"queries": queries, **paged, **metadata, **states, **shape, "scale": scale},
        tile,
        sequences=count,
        cells=scratch.maxima.numel(),
        most_rows=sequences.most_rows,
    )
    ATTENTION_MERGE.launch(
        {**metadata, **states, **shape, "out": out, "flags": flags, "BLOCK_R": tile.block("BLOCK_R")},
        merge_tile,
        sequences=count,
        most_rows=sequences.most_rows,
    )
