"""Kernels under Triton's interpreter in float32, against the row programs in plain Python.

A program of its own, because the interpreter has to be chosen before Triton is imported: it runs every case of
`CASES` and prints one line of JSON per case, [name, problem or null]. The interpreter's sums of products have an
order of their own, so results are compared within a tolerance: this tests which numbers are combined, not their bits.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vosti.spec.numerics import activations, norms, projections, rotary
from vosti.spec.numerics import attention as program
from vosti.spec.numerics.floats import Array, Floats, array, indices

CASES: dict[str, Callable[[], None]] = {}
TOLERANCE = 2e-6


def case(function: Callable[[], None]) -> Callable[[], None]:
    """Register a case under its name."""
    CASES[function.__name__] = function
    return function


def tensor(numbers: Array) -> Any:
    """A float32 tensor of the array."""
    import torch

    return torch.tensor(numbers.elements, dtype=torch.float32).reshape(numbers.shape)


def int32(numbers: list[int]) -> Any:
    """A tensor of integers, as kernels take them."""
    import torch

    return torch.tensor(numbers, dtype=torch.int32)


def draw(seed: int, *shape: int, scale: float = 1.0) -> Array:
    """Normally distributed numbers."""
    source = random.Random(seed)
    return array((source.gauss(0.0, scale) for _ in range(math.prod(shape))), *shape)


def close(expected: Array, actual: Any, tolerance: float = TOLERANCE) -> None:
    """Fail unless all elements agree to within the tolerance, relative to the largest."""
    scale = max(1.0, *(abs(x) for x in expected.elements))
    found = actual.reshape(-1).tolist()
    assert len(expected.elements) == len(found), (expected.shape, tuple(actual.shape))
    worst = max(range(len(found)), key=lambda i: abs(expected.elements[i] - found[i]) if found[i] == found[i] else 1e30)
    difference = abs(expected.elements[worst] - found[worst])
    assert difference <= tolerance * scale, (
        f"element {worst}: {expected.elements[worst]} expected, {found[worst]} found"
    )


def tile(warps: int = 4, stages: int = 1, **blocks: int) -> Any:
    """A tile."""
    from vosti.kernels.tile import Tile

    return Tile(tuple(blocks.items()), warps, stages)


def transposed(matrix: Array) -> Array:
    """[n, k] → [k, n]."""
    n, k = matrix.shape
    return array((matrix.elements[j * k + i] for i in range(k) for j in range(n)), k, n)


OPS = Floats()


# ---------------------------------------------------------------- linear layers


def _linear(rows: int, n: int, k: int, stream: bool, **blocks: int) -> None:
    import torch

    from vosti.kernels.linear import linear

    x, weight = draw(1, rows, k), draw(2, n, k)
    out = torch.full((rows, n), math.nan)
    linear(tensor(x), tensor(weight), out, tile(**blocks), stream=stream)
    close(projections.linear(OPS, x, transposed(weight)), out)


@case
def linear_with_rows_and_columns_that_fill_no_tile() -> None:
    """Both axes of the output end inside a tile."""
    _linear(19, 40, 64, False, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32)


@case
def linear_stream_with_several_tiles_per_program() -> None:
    """Fewer programs than tiles, and a last group of rows that is not full."""
    _linear(70, 48, 32, True, BLOCK_M=16, BLOCK_N=32, BLOCK_K=16, GROUP_M=2, PROGRAMS=3)


def _gate_up(activation: int, stream: bool, **blocks: int) -> None:
    import torch

    from vosti.kernels.gate_up import SILU, gate_up, interleaved

    x, weight = draw(3, 18, 32), draw(4, 2 * 24, 32, scale=0.3)
    out = torch.full((18, 24), math.nan)
    gate_up(tensor(x), interleaved(*tensor(weight).chunk(2)), out, activation, tile(**blocks), stream=stream)
    function = activations.silu_mul if activation == SILU else activations.gelu_tanh_mul
    close(function(OPS, projections.linear(OPS, x, transposed(weight))), out)


@case
def gate_up_with_silu() -> None:
    """The two halves of the weight, and SiLU."""
    _gate_up(0, False, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16)


@case
def gate_up_with_gelu() -> None:
    """The two halves of the weight, and GELU."""
    _gate_up(1, False, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16)


@case
def gate_up_stream_with_silu() -> None:
    """The same through descriptors."""
    _gate_up(0, True, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=2, PROGRAMS=2)


# ---------------------------------------------------------------- rows


@case
def embeddings() -> None:
    """Rows of the table, and the same times a scale."""
    import torch

    from vosti.kernels.embedding import embedding

    table, tokens = draw(5, 11, 40), [3, 0, 10, 3]
    out = torch.full((4, 40), math.nan)
    embedding(torch.tensor(tokens, dtype=torch.int32), tensor(table), out, tile(BLOCK=32))
    close(projections.embedding(OPS, table, indices(tokens, 4)), out, 0.0)
    embedding(torch.tensor(tokens, dtype=torch.int32), tensor(table), out, tile(BLOCK=32), scale=1.7)
    close(projections.scaled_embedding(OPS, table, indices(tokens, 4), 1.7), out, 0.0)


@case
def rms_norms() -> None:
    """Plain and unit offset; the sum is the row program's tree, so the bits agree."""
    import torch

    from vosti.kernels.rms_norm import rms_norm

    x, weight = draw(6, 5, 40), draw(7, 40)
    for unit_offset, function in ((False, norms.rms_norm), (True, norms.rms_norm_unit_offset)):
        out = torch.full((5, 40), math.nan)
        rms_norm(tensor(x), tensor(weight), out, 1e-5, tile(BLOCK=64), unit_offset=unit_offset)
        close(function(OPS, x, weight, 40, 1e-5), out, 0.0)


@case
def residual_rms_norms() -> None:
    """The sum replaces the residual stream, and the norm reads it."""
    import torch

    from vosti.kernels.rms_norm import rms_norm

    x, y, weight = draw(8, 5, 64), draw(9, 5, 64), draw(10, 64)
    for unit_offset, function in (
        (False, norms.residual_rms_norm),
        (True, norms.residual_rms_norm_unit_offset),
    ):
        stream, out = tensor(x), torch.full((5, 64), math.nan)
        rms_norm(
            stream, tensor(weight), out, 1e-6, tile(BLOCK=64), unit_offset=unit_offset, residual=(tensor(y), stream)
        )
        total, normed = function(OPS, x, y, weight, 64, 1e-6)
        close(total, stream, 0.0)
        close(normed, out, 0.0)


@case
def scaled_residual_rms_norms() -> None:
    """The sum times the scale replaces the residual stream, and the norm reads it."""
    import torch

    from vosti.kernels.rms_norm import rms_norm

    x, y, weight, scale = draw(8, 5, 64), draw(9, 5, 64), draw(10, 64), draw(21, 1)
    stream, out = tensor(x), torch.full((5, 64), math.nan)
    rms_norm(stream, tensor(weight), out, 1e-6, tile(BLOCK=64), residual=(tensor(y), stream), scale=tensor(scale))
    total, normed = norms.scaled_residual_rms_norm(OPS, x, y, weight, scale, 64, 1e-6)
    close(total, stream, 0.0)
    close(normed, out, 0.0)


@case
def rms_norm_of_chosen_rows() -> None:
    """With a row map, output row i is computed from row row_map[i]."""
    import torch

    from vosti.kernels.rms_norm import rms_norm

    x, y, weight, rows = draw(11, 6, 32), draw(12, 6, 32), draw(13, 32), [4, 1, 1]
    total, out = torch.full((3, 32), math.nan), torch.full((3, 32), math.nan)
    row_map = torch.tensor(rows, dtype=torch.int32)
    rms_norm(tensor(x), tensor(weight), out, 1e-6, tile(BLOCK=32), residual=(tensor(y), total), row_map=row_map)
    wanted = norms.residual_rms_norm(
        OPS, OPS.take(x, indices(rows, 3)), OPS.take(y, indices(rows, 3)), weight, 32, 1e-6
    )
    close(wanted[0], total, 0.0)
    close(wanted[1], out, 0.0)


@case
def logits_are_capped_and_flagged() -> None:
    """The soft cap, and a flag for the block that holds a number that is not finite."""
    import torch

    from vosti.kernels.finite import flag_logits

    x = draw(14, 3, 50, scale=20.0)
    logits, flags = tensor(x), torch.full((3, 2), -1, dtype=torch.int32)
    flag_logits(logits, flags, tile(BLOCK=32), cap=30.0)
    close(activations.softcap(OPS, x, 30.0), logits)
    assert flags.tolist() == [[0, 0]] * 3
    logits[1, 40], logits[2, 3] = math.inf, math.nan
    flag_logits(logits, flags, tile(BLOCK=32))
    assert flags.tolist() == [[0, 0], [0, 1], [1, 0]]


# ---------------------------------------------------------------- digests


def _digests(block: int, merge_block: int) -> None:
    import torch

    from vosti.kernels.digest import digest, hexadecimal, layout
    from vosti.kernels.tables import Choice, Entry
    from vosti.spec.digests import word_sum

    generator = torch.Generator().manual_seed(3)
    words = torch.randint(-(2**31), 2**31, (500,), generator=generator).to(torch.int32)
    # Three parts of rows of 40, 7 and 12 words, of which the last is not read whole; row 2 of no part is asked for.
    parts, sources = [(8, 40, 40), (250, 7, 7), (300, 12, 10)], [4, 0, -1, 1, 4]
    entries = (
        Entry("digest", (), (Choice(None, "digest", tile(BLOCK=block)),)),
        Entry("digest_merge", (), (Choice(None, "digest_merge", tile(BLOCK=merge_block)),)),
    )
    found = hexadecimal(digest(words, layout(parts, "cpu"), int32(sources), entries))
    for source, actual in zip(sources, found, strict=True):
        row = [words[begin + source * stride :][:count] for begin, stride, count in parts]
        assert source < 0 or word_sum(torch.cat(row).numpy().astype("<i4").tobytes()) == actual


@case
def digests_of_rows_in_parts() -> None:
    """Blocks that are longer and shorter than the parts give the digest of the row's bytes."""
    _digests(64, 4)
    _digests(16, 2)


@case
def digests_of_matrices() -> None:
    """Stretches of a row that is longer than one, and whose words fill no block."""
    import torch

    from vosti.kernels.candidates import starting_entry
    from vosti.kernels.digest import digest, hexadecimal, matrix_layout
    from vosti.spec.digests import word_sum

    logits = torch.randn(3, 9001, generator=torch.Generator().manual_seed(4))
    first, second = (starting_entry(name, (), "sm_90") for name in ("digest", "digest_merge"))
    rows = matrix_layout(9001, "cpu")
    found = hexadecimal(digest(logits.view(torch.int32), rows, int32([2, 0]), (first, second)))
    assert [word_sum(logits[i].numpy().astype("<f4").tobytes()) for i in (2, 0)] == found


# ---------------------------------------------------------------- sampling


def _sampled(names: list[str]) -> None:
    """Tokens of hostile rows in every eighth state that draws."""
    import torch

    from hostile_rows import HOSTILE_ROWS, STATES
    from vosti.impl.device_sampling import tokens
    from vosti.spec.sampling import sample

    for name in names:
        drawing = [state for state in STATES if state.temperature > 0]
        states = [state for number, state in enumerate(drawing) if number % 8 == len(name) % 8]
        row = torch.tensor(HOSTILE_ROWS[name], dtype=torch.float32)
        for state, token in zip(states, tokens(row[None].repeat(len(states), 1), states), strict=True):
            assert sample(HOSTILE_ROWS[name], state, [], 0) == token, (name, state, token)


@case
def tokens_of_hostile_rows() -> None:
    """Short rows are ranked whole."""
    _sampled(["one token", "ties at the k boundary", "two zeros", "huge", "+inf", "at the end of the weights"])


@case
def tokens_of_rows_that_are_longer_than_the_head() -> None:
    """Where the largest logits do not tell, the cut is found by bisection: behind them, or among equal logits."""
    from vosti.kernels import sample

    before = sample.HEAD, sample.WHOLE_BLOCK
    sample.HEAD, sample.WHOLE_BLOCK = 8, 128
    try:
        _sampled(["all equal", "bfloat16 ladder", "powers of a half"])
    finally:
        sample.HEAD, sample.WHOLE_BLOCK = before


# ---------------------------------------------------------------- rotary embedding and the store


def _rotary(norm: int, value_norm: bool, shared: bool, block_h: int) -> None:
    import torch

    from vosti.kernels.rotary_store import rotary_store

    rows, heads, kv_heads, d, slots = 3, 6, 2, 16, 9
    width = heads + kv_heads * (1 if shared else 2)
    qkv, cosines, sines = draw(15, rows, width, d), draw(16, 20, d // 2), draw(17, 20, d // 2)
    weight = draw(18, heads + kv_heads, d)
    positions, places = [7, 0, 19], [4, -1, 8]
    queries = torch.full((rows, heads, d), math.nan)
    cache = torch.full((slots, kv_heads, d), math.nan), torch.full((slots, kv_heads, d), math.nan)
    flags = torch.zeros(rows, kv_heads, dtype=torch.int32)
    rotary_store(
        tensor(qkv).reshape(rows, -1),
        (tensor(cosines), tensor(sines)),
        torch.tensor(positions, dtype=torch.int32),
        torch.tensor(places, dtype=torch.int32),
        queries,
        cache,
        flags,
        tile(BLOCK_H=block_h),
        norm=(norm, tensor(weight), 1e-5) if norm or value_norm else None,
        value_norm=value_norm,
        shared=shared,
    )
    rotated = array(tensor(qkv)[:, : heads + kv_heads].reshape(-1).tolist(), rows, heads + kv_heads, d)
    values = tensor(qkv)[:, width - kv_heads :]
    raw = array(values.reshape(-1).tolist(), rows, kv_heads, d)
    if norm:
        function = norms.rms_norm if norm == 1 else norms.rms_norm_unit_offset
        rotated = function(OPS, rotated, weight, d, 1e-5)
    cosine, sine = rotary.angles(OPS, cosines, sines, indices(positions, rows, 1))
    turned = tensor(rotary.rotate(OPS, rotated, cosine, sine))
    if value_norm:
        raw = norms.rms_norm(OPS, raw, array([1.0] * d, d), d, 1e-5)
    close(array(turned[:, :heads].reshape(-1).tolist(), rows * heads * d), queries, 0.0)
    for row, place in enumerate(places):
        if place >= 0:
            close(array(turned[row, heads:].reshape(-1).tolist(), kv_heads * d), cache[0][place], 0.0)
            close(array(tensor(raw)[row].reshape(-1).tolist(), kv_heads * d), cache[1][place], 0.0)
    untouched = [slot for slot in range(slots) if slot not in places]
    assert all(bool(torch.isnan(part[untouched]).all()) for part in cache), "a slot that no row owns was written"
    assert not flags.any()


@case
def rotary_store_plain() -> None:
    """Rotation and store, with a row that stores nothing."""
    _rotary(0, False, False, 4)


@case
def rotary_store_with_head_norms() -> None:
    """Each head of queries and keys normalised first, plain and with the unit offset."""
    _rotary(1, False, False, 8)
    _rotary(2, False, False, 2)


@case
def rotary_store_with_shared_values() -> None:
    """Values that are the keys' projection, normalised without weights."""
    _rotary(2, True, True, 4)


@case
def kv_store_alone() -> None:
    """Rows go to their slots, and to no other; what is not finite raises the head's flag."""
    import torch

    from vosti.kernels.kv_store import kv_store

    keys, values = tensor(draw(19, 3, 2, 32)), tensor(draw(20, 3, 2, 32))
    keys[2, 1, 5] = math.inf
    cache = torch.full((5, 2, 32), math.nan), torch.full((5, 2, 32), math.nan)
    flags = torch.zeros(3, 2, dtype=torch.int32)
    kv_store((keys, values), torch.tensor([4, -1, 0], dtype=torch.int32), cache, flags, tile(1))
    for new, part in zip((keys, values), cache, strict=True):
        assert bool((part[[4, 0]] == new[[0, 2]]).all())
        assert bool(torch.isnan(part[1:4]).all())
    assert flags.tolist() == [[0, 0], [0, 0], [0, 1]]


@case
def rotary_store_flags_what_is_not_finite() -> None:
    """A NaN among the keys or values of one head raises that head's flag, and no other; flags stay up."""
    import torch

    from vosti.kernels.rotary_store import rotary_store

    qkv = torch.randn(3, 4 + 2 * 2, 16, generator=torch.Generator().manual_seed(0))
    qkv[0, 5, 3], qkv[2, 6, 15] = math.nan, math.inf
    flags = torch.tensor([[0, 0], [0, 1], [0, 0]], dtype=torch.int32)
    rotary_store(
        qkv.reshape(3, -1),
        (torch.ones(4, 8), torch.zeros(4, 8)),
        torch.zeros(3, dtype=torch.int32),
        torch.arange(3, dtype=torch.int32),
        torch.empty(3, 4, 16),
        (torch.empty(4, 2, 16), torch.empty(4, 2, 16)),
        flags,
        tile(BLOCK_H=8),
    )
    assert flags.tolist() == [[0, 1], [0, 1], [1, 0]], flags.tolist()


# ---------------------------------------------------------------- attention


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


def main() -> None:
    """Run every case."""
    import numpy as np
    import triton.language as tl
    from triton.language.extra import libdevice
    from triton.runtime.interpreter import TensorHandle

    # The interpreter knows no library functions; the kernels call one.
    libdevice.tanh = lambda x: tl.tensor(TensorHandle(np.tanh(x.handle.data), x.dtype), x.type)
    for name, function in CASES.items():
        try:
            function()
            problem = None
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        print(json.dumps([name, problem]), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    assert os.environ.get("TRITON_INTERPRET") == "1", "set TRITON_INTERPRET=1"
    main()
