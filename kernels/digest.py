"""Digests of values where they lie: the word sum of `vosti.spec.digests`, one per row, of words on the GPU.

A row is a slot of the key/value pool over all layers, or a row of logits. Its words lie in parts: of a slot, each
layer's key and value; of a row of logits, stretches of it. One program adds up the terms of one part of one row, and
`digest_merge` adds up the parts. Sums of integers have no order, so that any tile and any division into parts give
the same digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import triton
import triton.language as tl

from vosti.kernels.contract import Access, Buffer, Constant, Contract, Fact, Integer, Output
from vosti.kernels.errors import PremiseError
from vosti.kernels.launch import Kernel
from vosti.kernels.tables import Entry
from vosti.spec import digests

if TYPE_CHECKING:
    import torch

_FIRST = tl.constexpr(digests.STREAMS[0])
_SECOND = tl.constexpr(digests.STREAMS[1])
_LENGTH_TERM = tl.constexpr(digests.LENGTH_POSITION << 32)

STRETCH = 1024
"""Words of one part of a row of logits."""

FIELDS = 4
"""Of a part: where it begins, from one row to the next, its number of words, and its first word's position."""


@triton.jit
def _mixed(x, STREAM: tl.constexpr):
    """`digests.mix` of each element, uint64."""
    x = x ^ STREAM[0]
    x = (x ^ (x >> STREAM[1])) * STREAM[2]
    x = (x ^ (x >> STREAM[3])) * STREAM[4]
    return x ^ (x >> STREAM[5])


@triton.jit(do_not_specialize=["rows", "parts"])
def digest_kernel(words, layout, sources, sums, rows, parts, BLOCK: tl.constexpr):
    """See `DIGEST`."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    source = tl.load(sources + row).to(tl.int64)
    begin = tl.load(layout + part * 4)
    stride = tl.load(layout + part * 4 + 1)
    count = tl.load(layout + part * 4 + 2).to(tl.int32)
    position = tl.load(layout + part * 4 + 3)
    first = tl.zeros((BLOCK,), tl.uint64)
    second = tl.zeros((BLOCK,), tl.uint64)
    if source >= 0:
        for place in range(0, count, BLOCK):
            lane = place + tl.arange(0, BLOCK)
            live = lane < count
            word = tl.load(words + begin + source * stride + lane, mask=live, other=0)
            term = ((position + lane).to(tl.uint64) << 32) | word.to(tl.uint32, bitcast=True).to(tl.uint64)
            first += tl.where(live, _mixed(term, _FIRST), 0)
            second += tl.where(live, _mixed(term, _SECOND), 0)
    place = sums + (row * parts + part) * 2
    tl.store(place, tl.sum(first, 0).to(tl.int64, bitcast=True))
    tl.store(place + 1, tl.sum(second, 0).to(tl.int64, bitcast=True))


@triton.jit(do_not_specialize=["rows", "parts", "length"])
def digest_merge_kernel(sums, out, rows, parts, length, BLOCK: tl.constexpr):
    """See `DIGEST_MERGE`."""
    row = tl.program_id(0).to(tl.int64)
    first = tl.zeros((BLOCK,), tl.uint64)
    second = tl.zeros((BLOCK,), tl.uint64)
    for begin in range(0, parts, BLOCK):
        part = begin + tl.arange(0, BLOCK)
        place = sums + (row * parts + part) * 2
        first += tl.load(place, mask=part < parts, other=0).to(tl.uint64, bitcast=True)
        second += tl.load(place + 1, mask=part < parts, other=0).to(tl.uint64, bitcast=True)
    term = length.to(tl.uint64) | _LENGTH_TERM
    tl.store(out + row * 2, (tl.sum(first, 0) + _mixed(term, _FIRST)).to(tl.int64, bitcast=True))
    tl.store(out + row * 2 + 1, (tl.sum(second, 0) + _mixed(term, _SECOND)).to(tl.int64, bitcast=True))


_SHARE = (
    "within(sources[i] >= 0, share(stretch(words, layout[p, 0] + sources[i] * layout[p, 1], layout[p, 2]), "
    "layout[p, 3], stream(t)))"
)
"""What part p of the row that is asked for in place i adds to stream t; 0 if none is."""

_INPUTS = (
    Buffer("words", "i32", ("words_known",), words=True),
    Buffer("layout", "i64", ("parts", "4")),
    Buffer("sources", "i32", ("rows",)),
)

DIGEST = Kernel(
    digest_kernel,
    Contract(
        kernel="digest",
        row_program="digests.share: the words of one part",
        parameters=(
            *_INPUTS,
            Buffer("sums", "i64", ("rows", "parts", "2"), Access.WRITE, words=True),
            Integer("rows"),
            Integer("parts"),
            Constant("BLOCK"),
        ),
        grid=("rows", "parts", "1"),
        premises=("parts < 2**16", "words_known < 2**60", "BLOCK <= 2**16"),
        row_inputs=("words[b + s * d + j] for j < n, with (b, d, n, q) = layout[p, :] for each p, s = sources[i]",),
        outputs=(Output("sums", ("i", "p", "t"), _SHARE, program=("i", "p", "0")),),
        conclusion=(
            "For 0 <= i < rows and 0 <= p < parts, sums[i, p, :] are the two streams' sums over part p of row "
            "sources[i]: of n words from b + sources[i] * d on, the first of which is the row's word q, with "
            "(b, d, n, q) = layout[p, :]; 0 if sources[i] < 0."
        ),
        facts=(
            Fact(
                ("p",),
                "0 <= layout[p, 0] and 0 <= layout[p, 2] <= 2**30 and 0 <= layout[p, 3] "
                "and layout[p, 3] + layout[p, 2] < 2**32",
                kept="by `layout`, which refuses others",
            ),
            Fact(
                ("i", "p"),
                "sources[i] < 0 or (0 <= sources[i] * layout[p, 1] "
                "and layout[p, 0] + sources[i] * layout[p, 1] + layout[p, 2] <= words_known)",
                kept="by the caller: the rows that are asked for lie in the memory",
            ),
        ),
    ),
)

DIGEST_MERGE = Kernel(
    digest_merge_kernel,
    Contract(
        kernel="digest_merge",
        row_program="digests.stream_sum: the shares of the parts, and the length",
        parameters=(
            Buffer("sums", "i64", ("rows", "parts", "2"), words=True),
            Buffer("out", "i64", ("rows", "2"), Access.WRITE, words=True),
            Integer("rows"),
            Integer("parts"),
            Integer("length"),
            Constant("BLOCK"),
        ),
        grid=("rows", "1", "1"),
        premises=("parts < 2**16", "BLOCK <= 2**16"),
        row_inputs=("sums[i, :, :]", "length"),
        outputs=(
            Output(
                "out",
                ("i", "t"),
                f"stream_sum(parts, lambda p: {_SHARE}, length, stream(t))",
                program=("i", "0", "0"),
            ),
        ),
        conclusion=(
            "For 0 <= i < rows, out[i, :] is digests.word_sum of row sources[i], whose words stand part after part and "
            "are `length` bytes, if sums is what `digest` computed."
        ),
        context=_INPUTS,
    ),
)


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the words of a row lie."""

    parts: torch.Tensor
    """[parts, FIELDS] int64, on the GPU."""

    words: int
    """Of one row."""


def layout(parts: Iterable[tuple[int, int, int]], device: torch.device | str) -> Layout:
    """The layout of rows made of parts, in order: (where row 0's begins, from one row to the next, words of it).

    Raises `PremiseError` for a part that begins before the memory does, and for rows of 2³⁰ words or more.
    """
    import torch

    parts = list(parts)
    if any(begin < 0 or count < 0 for begin, _, count in parts) or sum(count for _, _, count in parts) >= 2**30:
        raise PremiseError("Digests are of parts of memory, and of rows of fewer than 2^30 words.")
    positions = [0, *accumulate(count for _, _, count in parts)]
    fields = [(*part, position) for part, position in zip(parts, positions, strict=False)]
    return Layout(torch.tensor(fields, dtype=torch.int64, device=device), positions[-1])


def matrix_layout(width: int, device: torch.device | str) -> Layout:
    """The layout of a matrix's rows of `width` words, in stretches."""
    return layout(((begin, width, min(STRETCH, width - begin)) for begin in range(0, width, STRETCH)), device)


def digest(words: torch.Tensor, rows: Layout, sources: torch.Tensor, entries: tuple[Entry, Entry]) -> torch.Tensor:
    """Digests [n, 2] int64 of the rows whose numbers `sources` [n] int32 holds, of memory `words` [...] int32.

    Of a negative number, the digest is without meaning. `entries` are the table's, of "digest" and "digest_merge".
    Raises `PremiseError` if a premise of the contracts fails.
    """
    import torch

    count, parts = sources.shape[0], rows.parts.shape[0]
    sums = torch.empty(count, parts, 2, dtype=torch.int64, device=words.device)
    out = torch.empty(count, 2, dtype=torch.int64, device=words.device)
    tiles = [entry.choice(count).tile for entry in entries]
    sizes = {"rows": count, "parts": parts}
    inputs = {"words": words, "layout": rows.parts, "sources": sources}
    DIGEST.launch({**inputs, "sums": sums, **sizes}, tiles[0], words_known=words.numel())
    DIGEST_MERGE.launch({"sums": sums, "out": out, "length": 4 * rows.words, **sizes}, tiles[1])
    return out


def fetched(out: torch.Tensor) -> Callable[[], list[str]]:
    """Begin to copy digests [n, 2] from the GPU; a call waits for them, and gives them as a trace writes them."""
    import torch

    host = torch.empty(out.shape, dtype=out.dtype, pin_memory=True)
    host.copy_(out, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()

    def wait() -> list[str]:
        copied.synchronize()
        return hexadecimal(host)

    return wait


def hexadecimal(out: torch.Tensor) -> list[str]:
    """Digests [n, 2] int64, as a trace writes them."""
    text = out.numpy().astype(">i8").tobytes().hex()
    return [text[begin : begin + 32] for begin in range(0, len(text), 32)]
