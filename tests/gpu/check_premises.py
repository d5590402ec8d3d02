"""What no launch may depend on, or touch: rows of nobody, the integers of a launch; and faults that must be found."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from check_attention import Paged, run_attention
from common import DEVICE, Difference, entry, equal, integers, none_of, poisoned, randn, run_linear, settle

from vosti.kernels.attention import ATTENTION
from vosti.kernels.candidates import make_tile
from vosti.kernels.gate_up import gate_up
from vosti.kernels.linear import LINEAR, linear
from vosti.kernels.rms_norm import rms_norm
from vosti.kernels.tables import Choice

INTEGERS = (1, 2, 3, 15, 16, 17, 32, 1024)


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
