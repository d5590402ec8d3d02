"""Attention: prefill, chunks, drafts and decode have the same bits, on any pages, by any tile, beside any others."""

from __future__ import annotations

import math
import random

import torch
from common import DEVICE, Difference, entries_of, entry, equal, integers, none_of, poisoned, randn, settle
from torch import Tensor

from vosti.kernels.attention import Sequences, attention
from vosti.kernels.attention_split import Scratch, attention_split, splits_needed
from vosti.kernels.candidates import make_tile
from vosti.kernels.catalogue import PAGE_SIZES
from vosti.kernels.hostile import wide
from vosti.kernels.tables import load
from vosti.kernels.tile import Tile

PAGES = (1, 16, 17, 64, 100, 256)


class Paged:
    """Sequences of one model's layer on pages of a pool that is NaN wherever no sequence has written."""

    def __init__(
        self, lengths: list[int], page: int, kv_heads: int, d: int, data: list[tuple[Tensor, Tensor]], seed: int
    ):
        source = random.Random(seed)
        needed = [-(-length // page) for length in lengths]
        pages = list(range(sum(needed) + 3))
        source.shuffle(pages)
        self.page = page
        width = max(needed) + source.randrange(3)
        self.cache = poisoned(len(pages) * page, kv_heads, d), poisoned(len(pages) * page, kv_heads, d)
        tables = torch.full((len(lengths), width), -1, dtype=torch.int32)
        for number, length in enumerate(lengths):
            mine = torch.tensor([pages.pop() for _ in range(needed[number])])
            tables[number, : len(mine)] = mine.to(torch.int32)
            at = torch.arange(length)
            slots = (mine[at // page] * page + at % page).to(DEVICE)
            for part, stored in zip(self.cache, data[number], strict=True):
                part[slots] = stored[:length]
        self.tables = tables.to(DEVICE)


def run_attention(
    form: str,
    paged: Paged,
    parts: list[tuple[Tensor, int]],
    scale: float,
    window: int | None,
    tile: Tile | None = None,
) -> list[Tensor]:
    """Attention of one launch: per sequence (queries of its last rows, keys); NaN rows around and between."""
    _, heads, d = parts[0][0].shape
    kv_heads = paged.cache[0].shape[1]
    gap = poisoned(2, heads, d)
    queries = torch.cat([block for query, _ in parts for block in (gap, query)] + [gap])
    starts, row = [], 2
    for query, _ in parts:
        starts.append(row)
        row += len(query) + 2
    counts, lengths = [len(query) for query, _ in parts], [length for _, length in parts]
    sequences = Sequences(paged.tables, integers(starts), integers(counts), integers(lengths), max(counts), paged.page)
    out = poisoned(*queries.shape)
    flags = torch.zeros(len(queries), heads, 4, dtype=torch.int32, device=DEVICE)
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_dim": d, "window": window or 0}
    if form == "extend":
        tile = tile or entry("attention", **sizes).choice(max(counts)).tile
        attention(queries, paged.cache, sequences, out, flags, scale, tile, window=window)
    else:
        tile = tile or entry("attention_split", **sizes).choice(max(counts)).tile
        splits = splits_needed(max(lengths), max(counts), window)
        scratch = Scratch.allocate(len(parts), kv_heads, splits, tile.block("BLOCK_R"), d, DEVICE)
        for part in (scratch.maxima, scratch.totals, scratch.outputs):
            part.fill_(math.nan)
        attention_split(
            queries, paged.cache, sequences, scratch, splits, out, flags, scale, tile, make_tile(1, 1), window=window
        )
    results = [out[start : start + count] for start, count in zip(starts, counts, strict=True)]
    owned = torch.zeros(len(queries), dtype=torch.bool)
    for start, count in zip(starts, counts, strict=True):
        owned[start : start + count] = True
    written = owned.to(DEVICE)
    # A row of nobody stays NaN in every element; every other is written.
    none_of(f"{form}: rows written and not", torch.isnan(out) == written[:, None, None])
    none_of(f"{form}: flags on finite data", flags != 0)
    return results


SHAPES = {32: (8, 2), 64: (4, 2), 128: (32, 8), 256: (8, 4), 512: (16, 1)}
"""Heads and kv heads, by head dim."""


def attention_section(d: int, window: int | None, cases: int = 200) -> None:
    """Prefill, chunks, drafts and decode have the same bits, on any pages, beside any others."""
    heads, kv_heads = SHAPES[d]
    source = random.Random(d * 7 + (window or 0))
    longest = 2600 if d <= 128 else 1800
    scale = d**-0.5
    pool = [(randn(longest, kv_heads, d, seed=i), randn(longest, kv_heads, d, seed=10 + i)) for i in range(3)]
    query = [randn(longest, heads, d, seed=20 + i) * 2 for i in range(3)]
    # Of every row, the bits that it has in a prefill of the longest sequence, on pages of 64.
    whole = Paged([longest] * 3, 64, kv_heads, d, pool, 1)
    base = run_attention("extend", whole, [(query[i], longest) for i in range(3)], scale, window)
    most_draft = 16 // (heads // kv_heads)
    for number in range(cases):
        page = source.choice(PAGES)
        lengths = [source.choice((source.randrange(1, 80), source.randrange(1, longest + 1))) for _ in range(3)]
        paged = Paged(lengths, page, kv_heads, d, pool, number)
        for form in ("extend", "split"):
            most = most_draft if form == "split" else longest
            counts = [min(length, source.choice((1, 2, 3, source.randrange(1, longest))), most) for length in lengths]
            parts = [(query[i][lengths[i] - counts[i] : lengths[i]], lengths[i]) for i in range(3)]
            for i, result in enumerate(run_attention(form, paged, parts, scale, window)):
                what = f"d {d} window {window} {form} rows {counts[i]} of {lengths[i]} keys, pages of {page}"
                equal(what, result, base[i][lengths[i] - counts[i] : lengths[i]])
    settle()
    print(f"attention: d {d}, window {window}: {cases} cases x 3 sequences, extend = split = prefill", flush=True)


def zeros_section() -> None:
    """The sign of a zero does not tell what masked lanes hold: a row's later keys, which a decoded row has not.

    What the row saw before is a negative number that decays to −0, its own value is −0, and each product of a masked
    lane is −0 or +0 by the sign of the value there. By IEEE 754 the sum is −0 where all of them are, and +0 elsewhere;
    matrix units make +0 of every sum that is a zero.
    """
    own, length = 64, 128
    minus = torch.tensor([-1.0])
    if not torch.signbit(minus * 0.0 + minus * 0.0 + 0.0 * minus).all():
        raise Difference("the processor does not add zeros as IEEE 754 says, and the data show nothing")
    for d in (32, 128, 256):
        heads, kv_heads = SHAPES[d]
        query, scale = torch.ones(length, heads, d, device=DEVICE, dtype=torch.bfloat16), d**-0.5
        keys = torch.zeros(length, kv_heads, d, device=DEVICE, dtype=torch.bfloat16)
        keys[own:] = 400 / (d * scale)
        values = -torch.ones_like(keys)
        values[own] = -0.0
        plain, results = make_tile(4, 1, BLOCK_R=16, BLOCK_D=d), []
        for later in (-1.0, 1.0, 0.0, -0.0):
            values[own + 1 :] = later
            whole = Paged([length], 64, kv_heads, d, [(keys, values)], 1)
            for tile in (None, plain):
                results.append(run_attention("extend", whole, [(query, length)], scale, None, tile)[0][own])
            draft = Paged([own + 2], 16, kv_heads, d, [(keys, values)], 2)
            results.append(run_attention("split", draft, [(query[:2], own + 2)], scale, None)[0][0])
        alone = Paged([own + 1], 16, kv_heads, d, [(keys, values)], 3)
        results.append(run_attention("split", alone, [(query[:1], own + 1)], scale, None)[0][0])
        for result in results:
            equal(f"d {d}: the sign of a zero", result, torch.zeros_like(result))
    settle()
    print(f"zeros: attention of {len(results)} forms for each of 3 head dims: +0 whatever later keys hold", flush=True)


def attention_tiles_section() -> None:
    """Every tile of attention gives the same bits, on data of wide range too."""
    for d, window in ((64, None), (128, None), (128, 700), (256, None), (256, 300)):
        heads, kv_heads = SHAPES[d]
        length = 1500
        for kind in ("random", "wide"):
            spread = kind == "wide"
            data = [
                wide(length, kv_heads * d, -6, 2 if spread else -6, DEVICE).view(length, kv_heads, d) for _ in range(3)
            ]
            values = wide(length, kv_heads * d, -30, 30, DEVICE).view(length, kv_heads, d) if spread else data[1]
            query = wide(length, heads * d, -3, 3, DEVICE).view(length, heads, d)
            paged = Paged([length], 64, kv_heads, d, [(data[0], values)], 3)
            results = []
            tiles = [make_tile(4, 2, BLOCK_R=64, BLOCK_D=d), make_tile(8, 2, BLOCK_R=128, BLOCK_D=min(d, 128))]
            tiles += [make_tile(4, 1, BLOCK_R=32, BLOCK_D=d), make_tile(4, 2, BLOCK_R=16, BLOCK_D=d // 2)]
            tiles += [make_tile(2, 3, BLOCK_R=16, BLOCK_D=d // 2)]
            for tile in tiles:
                results.append(run_attention("extend", paged, [(query, length)], 0.2, window, tile)[0])
            for tile, result in zip(tiles, results, strict=True):
                equal(f"attention d {d} window {window} {kind} {tile}", result, results[0])
            most = 16 // (heads // kv_heads)
            for tile in (make_tile(w, s, BLOCK_R=16, BLOCK_D=b) for w, s, b in ((1, 1, d), (4, 3, d), (8, 2, d // 2))):
                (result,) = run_attention("split", paged, [(query[-most:], length)], 0.2, window, tile)
                equal(f"attention_split d {d} window {window} {kind} {tile}", result, results[0][-most:])
        settle()
        print(f"tiles: attention d {d} window {window}: {len(tiles)} + 3 tiles, equal", flush=True)


def table_attention_section(model: str) -> None:
    """For each of the model's attention entries: extend, split and a plain tile have the same bits."""
    entries = entries_of(model, "attention")
    for one in entries:
        sizes = dict(one.dimensions)
        heads, kv_heads, d, window = (sizes[name] for name in ("heads", "kv_heads", "head_dim", "window"))
        group, length = heads // kv_heads, min(window + 300, 2300) if window else 1300
        keys, values = (randn(length, kv_heads, d, seed=i) for i in range(2))
        query = randn(length, heads, d) * 2
        scale, plain = d**-0.5, make_tile(4, 1, BLOCK_R=16, BLOCK_D=min(d, 256))
        base = torch.empty(0)
        for page in PAGE_SIZES:
            paged = Paged([length], page, kv_heads, d, [(keys, values)], 6)
            for tile in (None, plain):
                (result,) = run_attention("extend", paged, [(query, length)], scale, window or None, tile)
                base = base if base.numel() else result
                equal(f"{one.dimensions} extend {tile} pages of {page}", result, base)
            for choice in load("sm_90").entry("attention_split", **sizes).choices:
                rows = choice.tile.block("BLOCK_R") // group
                parts_ = [(query[length - rows :], length)]
                (result,) = run_attention("split", paged, parts_, scale, window or None, choice.tile)
                equal(f"{one.dimensions} split {choice} pages of {page}", result, base[length - rows :])
    settle()
    print(f"table: {model}: {len(entries)} attention entries, extend = split = plain tile", flush=True)
