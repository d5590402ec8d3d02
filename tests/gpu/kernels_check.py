"""What has to hold of the kernels on a GPU, in sections; `python kernels_check.py SECTION ...` runs some of them.

Each section prints its findings and fails by an exception. Bits are compared as integers; where data is hostile, a NaN
may be any NaN.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import OutOfResources

from vosti.kernels.attention import ATTENTION, Sequences, attention
from vosti.kernels.attention_split import Scratch, attention_split, splits_needed
from vosti.kernels.candidates import candidates, make_tile, starting_entry
from vosti.kernels.catalogue import PAGE_SIZES
from vosti.kernels.embedding import embedding
from vosti.kernels.finite import flag_logits
from vosti.kernels.gate_up import GELU_TANH, SILU, gate_up, interleaved
from vosti.kernels.hostile import KINDS, bits, pair, wide
from vosti.kernels.kv_store import kv_store
from vosti.kernels.linear import LINEAR, linear
from vosti.kernels.rms_norm import rms_norm
from vosti.kernels.rotary_store import PLAIN, UNIT_OFFSET, rotary_store
from vosti.kernels.tables import Choice, Entry, load
from vosti.kernels.tile import Tile
from vosti.kernels.tuning import TIMED, differing_bits

DEVICE = "cuda"
ROWS = (1, 2, 15, 16, 17, 127, 128, 129, 255, 256, 257, 512, 4096)
INTEGERS = (1, 2, 3, 15, 16, 17, 32, 1024)
PAGES = (1, 16, 17, 64, 100, 256)


class Difference(Exception):
    """Two results that must agree do not."""


_PENDING: list[tuple[str, Tensor]] = []
"""Counts of differences that the device has yet to deliver: waiting for each in turn would take most of the time."""


def none_of(what: str, differences: Tensor) -> None:
    """Note that no element may be true; `settle` looks."""
    _PENDING.append((what, differences.sum()))


def settle() -> None:
    """Raise `Difference` if something noted since the last time was true."""
    counts = [int(count) for count in torch.stack([count for _, count in _PENDING])] if _PENDING else []
    found = [f"{what}: {count} elements" for (what, _), count in zip(_PENDING, counts, strict=True) if count]
    _PENDING.clear()
    if found:
        raise Difference(f"{len(found)} of {len(counts)} comparisons failed: {'; '.join(found[:5])}")


def equal(what: str, x: Tensor, y: Tensor) -> None:
    """Note that the bits must agree."""
    none_of(what, bits(x) != bits(y))


def randn(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """bf16, normally distributed."""
    generator = torch.Generator(DEVICE).manual_seed(seed + 1000003 * len(shape) + sum(shape))
    return (torch.randn(shape, device=DEVICE, generator=generator) * scale).to(torch.bfloat16)


def poisoned(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """All NaN."""
    return torch.full(shape, math.nan, device=DEVICE, dtype=dtype)


def integers(values: list[int]) -> Tensor:
    """int32 on the device."""
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


# ---------------------------------------------------------------- operations on rows

Operation = Callable[[Tensor], Tensor]
"""From indices of rows of the operation's data to the outputs of those rows."""


def entry(operation: str, **sizes: int) -> Entry:
    """The table's entry; for sizes that no table has, the starting one."""
    key = operation, tuple(sorted(sizes.items()))
    return load("sm_90").entries.get(key) or starting_entry(operation, key[1], "sm_90")


def run_linear(x: Tensor, weight: Tensor, choice: Choice, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """One linear layer by one tile."""
    out = poisoned(x.shape[0], weight.shape[0], dtype=dtype)
    linear(x, weight, out, choice.tile, stream=choice.kernel.endswith("_stream"))
    return out


def run_gate_up(x: Tensor, weight: Tensor, activation: int, choice: Choice) -> Tensor:
    """One gated layer by one tile."""
    out = poisoned(x.shape[0], weight.shape[0] // 2)
    gate_up(x, weight, out, activation, choice.tile, stream=choice.kernel.endswith("_stream"))
    return out


def row_operations(count: int) -> Iterator[tuple[str, Operation]]:
    """The operations whose rows are independent by construction, on `count` rows of data each."""
    x = randn(count, 4096)

    def linear_rows(n: int, k: int, operation: str, dtype: torch.dtype) -> Operation:
        data, weight, tiles = randn(count, k), randn(n, k, scale=k**-0.5), entry(operation, n=n, k=k)
        return lambda rows: run_linear(data[rows].contiguous(), weight, tiles.choice(len(rows)), dtype)

    yield "linear 6144x4096", linear_rows(6144, 4096, "linear", torch.bfloat16)
    yield "linear 2560x6912", linear_rows(2560, 6912, "linear", torch.bfloat16)
    yield "linear 1408x704", linear_rows(1408, 704, "linear", torch.bfloat16)
    yield "head 16032x4096", linear_rows(16032, 4096, "head", torch.float32)

    def gated_rows(n: int, k: int, activation: int) -> Operation:
        data, weight = randn(count, k), randn(2 * n, k, scale=2 * k**-0.5)
        tiles = entry("gate_up", n=n, k=k, activation=activation)
        return lambda rows: run_gate_up(data[rows].contiguous(), weight, activation, tiles.choice(len(rows)))

    yield "gate_up silu 3584x4096", gated_rows(3584, 4096, SILU)
    yield "gate_up gelu 6912x1152", gated_rows(6912, 1152, GELU_TANH)

    tokens = torch.randint(0, 1000, (count,), device=DEVICE, dtype=torch.int32)
    table = randn(1000, 3840)

    def embedded(scale: float | None) -> Operation:
        def run(rows: Tensor) -> Tensor:
            out = poisoned(len(rows), 3840)
            embedding(tokens[rows].contiguous(), table, out, make_tile(4, 1, BLOCK=1024), scale=scale)
            return out

        return run

    yield "embedding", embedded(None)
    yield "scaled embedding", embedded(3840**0.5)

    y, weight = randn(count, 4096, seed=1), randn(4096, seed=2)

    def normed(width: int, unit_offset: bool, residual: bool) -> Operation:
        (tile,) = (choice.tile for choice in entry("rms_norm", width=width, unit_offset=0).choices)

        def run(rows: Tensor) -> Tensor:
            data, other = x[rows, :width].contiguous(), y[rows, :width].contiguous()
            out = poisoned(len(rows), width)
            pair = (other, data) if residual else None
            rms_norm(data, weight[:width], out, 1e-5, tile, unit_offset=unit_offset, residual=pair)
            return torch.cat([out, data], 1)

        return run

    yield "rms_norm 4096", normed(4096, False, False)
    yield "rms_norm 2560, unit offset", normed(2560, True, False)
    yield "rms_norm 3840, residual", normed(3840, False, True)
    yield "rms_norm 256, residual, unit offset", normed(256, True, True)

    def rotated(heads: int, kv_heads: int, d: int, norm: int, value_norm: bool, shared: bool) -> Operation:
        data = randn(count, (heads + kv_heads * (1 if shared else 2)) * d)
        angle = torch.rand(5000, d // 2, device=DEVICE) * 6.28
        positions = torch.randint(0, 5000, (count,), device=DEVICE, dtype=torch.int32)
        weights = randn(heads + kv_heads, d)
        sizes = {"heads": heads, "kv_heads": kv_heads, "head_dim": d, "norm": norm}
        tiles = entry("rotary_store", **sizes, value_norm=int(value_norm), shared=int(shared))

        def run(rows: Tensor) -> Tensor:
            queries = poisoned(len(rows), heads, d)
            cache = poisoned(len(rows), kv_heads, d), poisoned(len(rows), kv_heads, d)
            slots = torch.randperm(len(rows), device=DEVICE).to(torch.int32)
            flags = torch.zeros(len(rows), kv_heads, dtype=torch.int32, device=DEVICE)
            rotary_store(
                data[rows].contiguous(),
                (angle.cos(), angle.sin()),
                positions[rows].contiguous(),
                slots,
                queries,
                cache,
                flags,
                tiles.choice(len(rows)).tile,
                norm=(norm, weights, 1e-6) if norm else None,
                value_norm=value_norm,
                shared=shared,
            )
            none_of("flags on finite data", flags != 0)
            return torch.cat([part[slots.long()].flatten(1) if part is not queries else part.flatten(1)
                              for part in (queries, *cache)], 1)  # fmt: skip

        return run

    yield "rotary_store 32/8 x 128", rotated(32, 8, 128, 0, False, False)
    yield "rotary_store 32/8 x 128, head norm", rotated(32, 8, 128, PLAIN, False, False)
    yield "rotary_store 8/4 x 256, unit offset", rotated(8, 4, 256, UNIT_OFFSET, False, False)
    yield "rotary_store 16/1 x 512, shared", rotated(16, 1, 512, PLAIN, True, True)

    new_keys, new_values = randn(count, 8, 128, seed=1), randn(count, 8, 128, seed=2)

    def stored(rows: Tensor) -> Tensor:
        cache = poisoned(len(rows) + 1, 8, 128), poisoned(len(rows) + 1, 8, 128)
        flags = torch.zeros(len(rows), 8, dtype=torch.int32, device=DEVICE)
        slots = torch.randperm(len(rows), device=DEVICE).to(torch.int32)
        new = new_keys[rows].contiguous(), new_values[rows].contiguous()
        kv_store(new, slots, cache, flags, make_tile(4, 1))
        none_of("flags on finite data", flags != 0)
        none_of("a slot that no row owns was written", ~torch.isnan(cache[0][-1]))
        return torch.cat([part[slots.long()].flatten(1) for part in cache], 1)

    yield "kv_store", stored

    logits = torch.randn(count, 5000, device=DEVICE) * 40

    def capped(rows: Tensor) -> Tensor:
        out = logits[rows].contiguous()
        flags = torch.full((len(rows), 2), -1, dtype=torch.int32, device=DEVICE)
        flag_logits(out, flags, make_tile(4, 1, BLOCK=4096), cap=30.0)
        none_of("flags on finite data", flags != 0)
        return out

    yield "softcap", capped


def rows_section() -> None:
    """For each number of rows, every row has the bits that it has alone."""
    for name, operation in row_operations(max(ROWS)):
        alone = torch.cat([operation(torch.tensor([i], device=DEVICE)) for i in range(max(ROWS))])
        none_of(f"{name}: outputs not written", torch.isnan(alone))
        for count in ROWS:
            rows = torch.randperm(max(ROWS), device=DEVICE)[:count]
            equal(f"{name} at {count} rows", operation(rows), alone[rows])
        settle()
        print(f"rows: {name}: {len(ROWS)} numbers of rows, all rows equal to the single-row result", flush=True)


# ---------------------------------------------------------------- tiles


def _tile_choices(operation: str, **sizes: int) -> list[Choice]:
    """Every tile of the entry, and some of the candidates."""
    starting = entry(operation, **sizes)
    chosen = []
    for choice in starting.choices:
        options = list(candidates(starting, choice, "sm_90"))
        chosen += [Choice(None, choice.kernel, tile) for tile in (options[0], *options[1 :: max(1, len(options) // 4)])]
    return chosen


def _run(operation: str, x: Tensor, weight: Tensor, sizes: dict[str, int], choice: Choice) -> Tensor:
    if operation == "gate_up":
        return run_gate_up(x, weight, sizes["activation"], choice)
    return run_linear(x, weight, choice, torch.float32 if operation == "head" else torch.bfloat16)


def tiles_section(which: str) -> None:
    """Every tile gives the bits of the first, on random and hostile data, for rows that fill no tile."""
    rows = 199
    if which == "linear":
        shapes = [("linear", {"n": 520, "k": k}) for k in (64, 704, 4096)]
        shapes += [("head", {"n": 1000, "k": 1152})]
    else:
        shapes = [("gate_up", {"n": 264, "k": k, "activation": a}) for k, a in ((64, 0), (1152, 1), (4096, 0))]
    for operation, sizes in shapes:
        choices = _tile_choices(operation, **sizes)
        for kind in KINDS:
            columns = sizes["n"] * (2 if operation == "gate_up" else 1)
            x, weight = pair(kind, rows, columns, sizes["k"], DEVICE)
            results = []
            for choice in list(choices):
                try:
                    results.append(_run(operation, x, weight, sizes, choice))
                except OutOfResources:
                    choices.remove(choice)
            for choice, result in zip(choices, results, strict=True):
                equal(f"{operation} {sizes} {kind} {choice}", result, results[0])
        settle()
        print(f"tiles: {operation} {sizes}: {len(choices)} tiles x {len(KINDS)} kinds of data, equal", flush=True)


def warps_section() -> None:
    """Norms, rotation and softcap give the same bits for any number of warps and any block of heads."""
    for width in (256, 1152, 4096, 5376):
        x, _ = pair("wide 8", 64, 1, width, DEVICE)
        weight = randn(width)
        starting = entry("rms_norm", width=width, unit_offset=0)
        results = []
        for tile in candidates(starting, starting.choices[0], "sm_90"):
            out, total = poisoned(64, width), poisoned(64, width)
            rms_norm(x, weight, out, 1e-6, tile, residual=(x, total))
            results.append(torch.cat([out, total]))
        for result in results:
            equal(f"rms_norm {width}", result, results[0])
    settle()
    print("tiles: rms_norm, 4 widths x 1 to 16 warps, equal", flush=True)
    data = wide(33, (8 + 4 * 2) * 256, -8, 8, DEVICE)
    angle = torch.rand(40, 128, device=DEVICE) * 6.28
    results = []
    starting = entry("rotary_store", heads=8, kv_heads=4, head_dim=256, norm=1, value_norm=0, shared=0)
    for tile in candidates(starting, starting.choices[0], "sm_90"):
        queries, cache = poisoned(33, 8, 256), (poisoned(33, 4, 256), poisoned(33, 4, 256))
        flags = torch.zeros(33, 4, dtype=torch.int32, device=DEVICE)
        places = torch.arange(33, dtype=torch.int32, device=DEVICE)
        norm = (PLAIN, randn(12, 256), 1e-6)
        rotary_store(data, (angle.cos(), angle.sin()), places, places, queries, cache, flags, tile, norm=norm)
        results.append(torch.cat([queries.flatten(), cache[0].flatten(), cache[1].flatten()]))
    for result in results:
        equal("rotary_store", result, results[0])
    settle()
    print(f"tiles: rotary_store, {len(results)} tiles, equal", flush=True)


# ---------------------------------------------------------------- attention


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


# ---------------------------------------------------------------- the table


def table_matrices_section(part: int, parts: int) -> None:
    """All tiles of every linear, gated and head entry of the table have the bits of the entry's first."""
    every = [entry for entry in load("sm_90").entries.values() if entry.operation in TIMED]
    # The heads' weights are the largest: two processes take them all, one after another.
    heads = [entry for entry in every if entry.operation == "head"]
    others = [entry for entry in every if entry.operation != "head"]
    mine = heads[part::2] if part < 2 else others[part - 2 :: parts - 2]
    for one in mine:
        for choice, kind in differing_bits(one, one.choices):
            none_of(f"{one.operation} {one.dimensions} {choice} on {kind}", torch.ones(1, device=DEVICE))
    none_of("no entry", torch.zeros(1, device=DEVICE))
    settle()
    tiles = sum(len(one.choices) for one in mine)
    print(f"table: {len(mine)} entries, {tiles} tiles x {len(KINDS)} kinds of data, equal", flush=True)


def table_attention_section(part: int, parts: int) -> None:
    """For every attention entry of the table: extend, split and a plain tile have the same bits."""
    entries = [one for one in load("sm_90").entries.values() if one.operation == "attention"]
    for one in entries[part::parts]:
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
    print(f"table: {len(entries[part::parts])} attention entries, extend = split = plain tile", flush=True)


# ---------------------------------------------------------------- rows of nobody


def padding_section() -> None:
    """What stands before and behind a launch's rows is neither read nor written."""
    for rows in (1, 5, 17, 130, 300):
        x, weight = poisoned(rows + 200, 704), randn(528, 704)
        x[:rows] = randn(rows, 704)
        for operation, stacked in (("linear", 528), ("gate_up", 264)):
            sizes = {"n": stacked, "k": 704} | ({"activation": 1} if operation == "gate_up" else {})
            for choice in entry(operation, **sizes).choices:
                stream, out = choice.kernel.endswith("_stream"), torch.full((rows + 200, stacked), 7.0, device=DEVICE)
                out = out.to(torch.bfloat16)
                if operation == "gate_up":
                    gate_up(x[:rows], weight, out[:rows], 1, choice.tile, stream=stream)
                else:
                    linear(x[:rows], weight, out[:rows], choice.tile, stream=stream)
                none_of(f"{operation} {rows} rows {choice}: written behind", out[rows:] != 7.0)
                none_of(f"{operation} {rows} rows {choice}: read behind", torch.isnan(out[:rows]))
        out = torch.full((rows + 3, 704), 7.0, device=DEVICE).to(torch.bfloat16)
        tile = entry("rms_norm", width=704, unit_offset=0).choices[0].tile
        rms_norm(x[:rows], weight[0], out[:rows], 1e-6, tile)
        none_of("rms_norm: written behind", out[rows:] != 7.0)
        none_of("rms_norm: read behind", torch.isnan(out[:rows]))
    settle()
    print("padding: 5 numbers of rows x all tiles: nothing read or written behind the rows", flush=True)


# ---------------------------------------------------------------- twins


@triton.jit
def two_chains_kernel(x, weight, out, N: tl.constexpr, K: tl.constexpr):  # type: ignore[no-untyped-def]
    """A linear layer of 16 rows with the chain cut in two: what a split over k would compute."""
    row, column, k = tl.arange(0, 16)[:, None], tl.program_id(0) * 32 + tl.arange(0, 32)[None, :], tl.arange(0, 64)
    total = tl.zeros((16, 32), tl.float32)
    for half in range(2):
        part = tl.zeros((16, 32), tl.float32)
        for begin in range(half * K // 2, (half + 1) * K // 2, 64):
            a = tl.load(x + row * K + begin + k[None, :])
            part = tl.dot(a, tl.load(weight + column * K + begin + k[:, None]), part)
        total += part
    tl.store(out + row * N + column, total.to(tl.bfloat16))


@triton.jit
def sum_kernel(x, out, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """A sum in the order that the layout gives."""
    column = tl.arange(0, WIDTH)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + tl.program_id(0) * WIDTH + column).to(tl.float32), 0))


def twins_section() -> None:
    """Seeded faults are found: another chain, another split, a sum in no fixed order, an unwritten row, a flag."""

    def found(what: str, note: Callable[[], object]) -> None:
        settle()
        note()
        try:
            settle()
        except Difference as difference:
            print(f"twins: {what}: found ({str(difference)[:90]})", flush=True)
            return
        raise Difference(f"the fault '{what}' was not found")

    x, weight = randn(16, 4096), randn(256, 4096)
    good, bad = run_linear(x, weight, entry("linear", n=256, k=4096).choices[0]), poisoned(16, 256)
    two_chains_kernel[(8,)](x, weight, bad, 256, 4096, enable_fp_fusion=False)
    found("a chain cut in two", lambda: equal("linear", bad, good))

    sums = [torch.empty(64, device=DEVICE) for _ in range(2)]
    for warps, out in zip((1, 8), sums, strict=True):
        sum_kernel[(64,)](x.view(64, 1024), out, 1024, num_warps=warps)
    found("a sum in the order of the layout", lambda: equal("sum", *sums))

    data = [(randn(1500, 2, 32, seed=1), randn(1500, 2, 32, seed=2))]
    query, paged = randn(1500, 8, 32), Paged([1500], 64, 2, 32, data, 4)
    (base,) = run_attention("extend", paged, [(query, 1500)], 0.2, None)
    out, flags = torch.empty_like(query), torch.zeros(1500, 8, 4, dtype=torch.int32, device=DEVICE)
    tile = entry("attention", heads=8, kv_heads=2, head_dim=32, window=0).choice(1500).tile
    rows = tile.block("BLOCK_R") // 4
    ATTENTION.function[2, -(-1500 // rows), 1](
        query, *paged.cache, paged.tables, integers([0]), integers([1500]), integers([1500]), out, flags,
        -(-1500 // rows), paged.tables.shape[1], 0.2, HEADS=8, KV_HEADS=2, HEAD_DIM=32, PAGE=64, WINDOW=0, TILE=64,
        SPLIT=512, **dict(tile.blocks), **tile.options(),
    )  # fmt: skip
    found("another length of a split", lambda: equal("attention", out, base))

    paged.cache[1][paged.tables[0, 3].long() * 64 + 5, 1, 7] = math.nan
    found("a value that is not finite", lambda: run_attention("extend", paged, [(query, 1500)], 0.2, None))


# ---------------------------------------------------------------- integers


def integers_section() -> None:
    """No integer of a launch changes a bit, or which binary runs."""
    x, weight = randn(1024, 704), randn(264, 704)
    tile = make_tile(4, 2, BLOCK_M=16, BLOCK_N=32, BLOCK_K=64)
    whole = run_linear(x, weight, Choice(None, "linear", tile))
    for rows in INTEGERS:
        equal(f"linear at {rows}", run_linear(x[:rows], weight, Choice(None, "linear", tile)), whole[:rows])
    heads, kv_heads, d = 8, 2, 32
    data = [(randn(1024, kv_heads, d, seed=1), randn(1024, kv_heads, d, seed=2))]
    query = randn(1024, heads, d)
    paged = Paged([1024], 1, kv_heads, d, data, 4)
    base = run_attention("extend", paged, [(query, 1024)], 0.2, None)[0]
    for value in INTEGERS:
        for count in {min(value, other) for other in INTEGERS}:
            parts = [(query[value - count : value], value)]
            (result,) = run_attention("extend", paged, parts, 0.2, None)
            equal(f"attention, {count} rows of {value} keys", result, base[value - count : value])
        table = paged.tables
        for width in INTEGERS:
            if width >= value:
                paged.tables = table[:, :width].contiguous()
                (result,) = run_attention("split", paged, [(query[value - 1 : value], value)], 0.2, None)
                equal(f"attention_split, {value} keys, table of {width}", result, base[value - 1 : value])
        paged.tables = table
    for sequences in INTEGERS[:-1]:
        many = Paged([70] * sequences, 16, kv_heads, d, data * sequences, 5)
        for form in ("extend", "split"):
            for result in run_attention(form, many, [(query[68:70], 70)] * sequences, 0.2, None):
                equal(f"{form}, {sequences} sequences", result, base[68:70])
    count = sum(len(cache[0]) for cache in LINEAR.function.device_caches.values())
    if count != 1:
        raise Difference(f"the integers of linear made {count} binaries")
    settle()
    print(f"integers: {INTEGERS} in every integer argument: same bits, one binary of linear", flush=True)


# ---------------------------------------------------------------- error


def _error(x: Tensor, reference: Tensor) -> float:
    return float((x.double() - reference).norm() / reference.norm())


def errors_section() -> None:
    """The error against float64 is at most 1.1 times that of torch's own operation in bf16."""
    rows: list[tuple[str, float, float]] = []

    def compare(name: str, ours: Tensor, theirs: Tensor, reference: Tensor) -> None:
        rows.append((name, _error(ours, reference), _error(theirs, reference)))

    functional = torch.nn.functional
    for n, k in ((6144, 4096), (4096, 14336)):
        x, weight = randn(512, k), randn(n, k, scale=k**-0.5)
        choice = entry("linear", n=n, k=k).choice(512)
        compare(f"linear {n}x{k}", run_linear(x, weight, choice), x @ weight.T, x.double() @ weight.double().T)
    for activation, function in (
        (SILU, functional.silu),
        (GELU_TANH, lambda g: functional.gelu(g, approximate="tanh")),
    ):
        x, weight = randn(512, 4096), randn(2 * 3584, 4096, scale=2 / 64)
        both, exact = x @ weight.T, x.double() @ weight.double().T
        weight = interleaved(*weight.chunk(2))
        choice = entry("gate_up", n=3584, k=4096, activation=activation).choice(512)
        theirs = function(both[:, :3584]) * both[:, 3584:]
        reference = function(exact[:, :3584]) * exact[:, 3584:]
        compare(f"gate_up {activation}", run_gate_up(x, weight, activation, choice), theirs, reference)
    x, y, weight = randn(512, 4096), randn(512, 4096, seed=3), randn(4096)
    out, total = poisoned(512, 4096), poisoned(512, 4096)
    tile = entry("rms_norm", width=4096, unit_offset=0).choices[0].tile
    rms_norm(x, weight, out, 1e-5, tile)
    exact = functional.rms_norm(x.double(), (4096,), weight.double(), 1e-5)
    compare("rms_norm", out, functional.rms_norm(x, (4096,), weight, 1e-5), exact)
    rms_norm(x, weight, out, 1e-5, tile, residual=(y, total))
    exact = functional.rms_norm(x.double() + y.double(), (4096,), weight.double(), 1e-5)
    compare("residual rms_norm", out, functional.rms_norm(x + y, (4096,), weight, 1e-5), exact)
    data, angle = randn(512, 48 * 128), torch.rand(512, 64, device=DEVICE) * 6.28
    queries, cache = poisoned(512, 32, 128), (poisoned(512, 8, 128), poisoned(512, 8, 128))
    flags = torch.zeros(512, 8, dtype=torch.int32, device=DEVICE)
    places = torch.arange(512, dtype=torch.int32, device=DEVICE)
    tile = make_tile(4, 1, BLOCK_H=8)
    rotary_store(data, (angle.cos(), angle.sin()), places, places, queries, cache, flags, tile)

    def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        first, second = x.view(512, 48, 128)[:, :32].chunk(2, -1)
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)

    cosine, sine = angle.cos()[:, None], angle.sin()[:, None]
    theirs = turned(data, cosine.to(torch.bfloat16), sine.to(torch.bfloat16))
    compare("rotary", queries, theirs, turned(data.double(), cosine.double(), sine.double()))
    for d, window in ((64, None), (128, None), (256, None), (256, 512)):
        heads, kv_heads = SHAPES[d]
        length = 1500
        q, keys, values = (randn(length, h, d, seed=i) for i, h in enumerate((heads, kv_heads, kv_heads)))
        paged = Paged([length], 64, kv_heads, d, [(keys, values)], 2)
        (ours,) = run_attention("extend", paged, [(q, length)], d**-0.5, window)
        mask = torch.ones(length, length, dtype=torch.bool, device=DEVICE).tril()
        if window:
            mask &= ~torch.ones_like(mask).tril(-window)

        def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor = mask) -> Tensor:
            q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
            return functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)[0].transpose(0, 1)

        compare(
            f"attention {d} window {window}",
            ours,
            attend(q, keys, values),
            attend(q.double(), keys.double(), values.double()),
        )
    logits = torch.randn(64, 5000, device=DEVICE) * 40
    ours = logits.clone()
    flag_logits(ours, torch.zeros(64, 2, dtype=torch.int32, device=DEVICE), make_tile(4, 1, BLOCK=4096), cap=30.0)
    compare("softcap (float32)", ours, torch.tanh(logits / 30) * 30, torch.tanh(logits.double() / 30) * 30)
    for name, ours_error, their_error in rows:
        ratio = ours_error / their_error
        print(f"error: {name}: {ours_error:.3e}, torch {their_error:.3e}, ratio {ratio:.3f}", flush=True)
    worst = max(rows, key=lambda row: row[1] / row[2])
    if worst[1] > 1.1 * worst[2]:
        raise Difference(f"{worst[0]}: {worst[1]:.3e} is more than 1.1 times torch's {worst[2]:.3e}")


SECTIONS: dict[str, Callable[[], None]] = {
    "rows": rows_section,
    "tiles linear": lambda: tiles_section("linear"),
    "tiles gate_up": lambda: tiles_section("gate_up"),
    "tiles attention": attention_tiles_section,
    "tiles rows": warps_section,
    "integers": integers_section,
    "padding": padding_section,
    "twins": twins_section,
    "errors": errors_section,
    "attention 512": lambda: attention_section(512, None, 40),
} | {
    f"attention {d}{f' window {w}' if w else ''}": partial(attention_section, d, w)
    for d, windows in {32: (None, 40), 64: (None, 64), 128: (None, 700), 256: (None, 512)}.items()
    for w in windows
}
SECTIONS |= {f"table {part}": partial(table_matrices_section, part, 8) for part in range(8)}
SECTIONS |= {f"table attention {part}": partial(table_attention_section, part, 3) for part in range(3)}


def main() -> int:
    """Run the sections named on the command line, or all."""
    failed = 0
    for name in sys.argv[1:] or SECTIONS:
        begin = time.time()
        try:
            SECTIONS[name]()
        except Exception as error:
            failed += 1
            print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
            if not isinstance(error, Difference):
                raise
        print(f"{name}: {time.time() - begin:.0f} s", flush=True)
    return failed


def run(name: str, *arguments: Any) -> None:
    """One section, for tests."""
    SECTIONS[name](*arguments)


if __name__ == "__main__":
    sys.exit(main())
