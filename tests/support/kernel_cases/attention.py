"""Attention in both forms."""

from __future__ import annotations

import math
import random
from typing import Any

from kernel_cases import OPS, case, close, int32, tile
from vosti.spec.numerics import attention as program
from vosti.spec.numerics.floats import Array, array, indices


def _attention_row(
    query: Array, keys: Any, values: Any, slots: list[int], position: int, window: int | None, scale: float
) -> Array:
    """The row program for one row; `slots` in order of position."""
    splits: dict[int, list[program.Lanes[Array]]] = {}
    for number in program.visible_tiles(position, window):
        at = [number * program.KEY_TILE + lane for lane in range(program.KEY_TILE)]
        live = [j <= position and bool(program.visible(position, j, window)) for j in at]
        places = [slots[j] if seen else 0 for j, seen in zip(at, live, strict=True)]
        lanes = program.Lanes(indices(places, program.KEY_TILE), indices(live, 1, 1, program.KEY_TILE))
        splits.setdefault(number // program.SPLIT_TILES, []).append(lanes)
    return program.attention(OPS, query, (keys, values), splits.values(), scale, query.shape[-1])


def _attention(
    sequences: list[tuple[int, int]],
    page: int,
    window: int | None = None,
    heads: int = 4,
    kv_heads: int = 2,
    d: int = 32,
    block_d: int | None = None,
) -> None:
    """Both forms, for sequences of (rows, keys), on shuffled pages; what no sequence owns is NaN."""
    import torch

    from vosti.kernels.attention import Sequences, attention
    from vosti.kernels.attention_split import Scratch, attention_split, splits_needed

    source = random.Random(5)
    needed = [-(-keys // page) for _, keys in sequences]
    pages = list(range(sum(needed) + 2))
    source.shuffle(pages)
    width = max(needed) + 1
    tables = torch.full((len(sequences), width), -1, dtype=torch.int32)
    cache = (
        torch.full((len(pages) * page, kv_heads, d), math.nan),
        torch.full((len(pages) * page, kv_heads, d), math.nan),
    )
    generator = torch.Generator().manual_seed(1)
    owned = []
    for number, (_, length) in enumerate(sequences):
        mine = [pages.pop() for _ in range(needed[number])]
        tables[number, : len(mine)] = torch.tensor(mine, dtype=torch.int32)
        owned.append([mine[j // page] * page + j % page for j in range(length)])
        for part in cache:
            part[owned[number]] = torch.randn(length, kv_heads, d, generator=generator)
    counts = [count for count, _ in sequences]
    starts = [1 + sum(counts[:number]) for number in range(len(counts))]
    rows = sum(counts) + 2
    queries = torch.randn(rows, heads, d, generator=generator)
    queries[0], queries[-1] = math.nan, math.nan
    packed = Sequences(
        tables, int32(starts), int32(counts), int32([length for _, length in sequences]), max(counts), page
    )
    stored = [torch.nan_to_num(part) for part in cache]
    keys, values = (array(part.reshape(-1).tolist(), *part.shape) for part in stored)
    scale, most = 0.3, max(counts)
    group = heads // kv_heads
    results = []
    for form in ("extend", "split"):
        out, flags = torch.full((rows, heads, d), math.nan), torch.zeros(rows, heads, 4, dtype=torch.int32)
        shape = tile(BLOCK_R=16 * max(1, -(-most * group // 16)) if form == "split" else 16, BLOCK_D=block_d or d)
        if shape.block("BLOCK_R") == 48:
            shape = tile(BLOCK_R=64, BLOCK_D=block_d or d)
        if form == "extend":
            attention(queries, cache, packed, out, flags, scale, shape, window=window)
        else:
            splits = splits_needed(max(length for _, length in sequences), most, window)
            scratch = Scratch.allocate(len(sequences), kv_heads, splits, shape.block("BLOCK_R"), d, "cpu")
            attention_split(queries, cache, packed, scratch, splits, out, flags, scale, shape, tile(), window=window)
        assert not flags.any(), form
        assert bool(torch.isnan(out[[0, -1]]).all()), f"{form} wrote a row of nobody"
        results.append(out)
    for number, (count, length) in enumerate(sequences):
        for i in sorted({0, count // 2, count - 1} if count else set()):
            query = queries[starts[number] + i].reshape(kv_heads, group, d)
            wanted = _attention_row(
                array(query.reshape(-1).tolist(), kv_heads, group, d),
                keys,
                values,
                owned[number],
                length - count + i,
                window,
                scale,
            )
            for out in results:
                close(wanted, out[starts[number] + i])


@case
def attention_of_mixed_sequences() -> None:
    """Prefill, a chunk on a cached prefix, one decoded row, an idle sequence; a page holds a tile."""
    _attention([(6, 6), (5, 70), (1, 130), (0, 3)], page=64)


@case
def attention_with_small_pages() -> None:
    """A tile spans pages, of any size."""
    _attention([(3, 66), (1, 5)], page=1)
    _attention([(3, 66), (2, 9)], page=24)


@case
def attention_with_large_pages() -> None:
    """A page holds several tiles."""
    _attention([(2, 200), (1, 129)], page=128)


@case
def attention_with_a_window() -> None:
    """Tiles before the window, at its edges, and fully inside."""
    _attention([(4, 300), (2, 30), (1, 200)], page=64, window=150)
    _attention([(3, 140), (7, 70)], page=16, window=9)


@case
def attention_with_a_group_of_three() -> None:
    """A group that does not divide the rows of a tile."""
    _attention([(7, 20), (1, 65)], page=16, heads=6, kv_heads=2)


@case
def attention_in_blocks_of_columns() -> None:
    """A program computes half of a head's columns."""
    _attention([(2, 20), (1, 65)], page=64, d=64, block_d=32)


@case
def attention_over_several_splits() -> None:
    """More than one split, merged in order; with a window, the first split is not the first of the sequence."""
    _attention([(2, 1030)], page=64, heads=2, kv_heads=1)
    _attention([(1, 2100)], page=256, heads=2, kv_heads=1, window=200)


@case
def attention_flags_what_is_not_finite() -> None:
    """A NaN among the values that a row sees raises the row's flags."""
    import torch

    from vosti.kernels.attention import Sequences, attention

    cache = torch.ones(64, 1, 32), torch.ones(64, 1, 32)
    cache[1][1, 0, 7] = math.nan
    flags, out = torch.zeros(2, 2, 4, dtype=torch.int32), torch.empty(2, 2, 32)
    packed = Sequences(torch.zeros(2, 1, dtype=torch.int32), int32([0, 1]), int32([1, 1]), int32([1, 2]), 1, 64)
    attention(torch.ones(2, 2, 32), cache, packed, out, flags, 1.0, tile(BLOCK_R=16, BLOCK_D=32))
    assert [[0, 0], [1, 1]] == flags[:, :, 0].tolist(), flags.tolist()
