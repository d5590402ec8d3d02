"""How long kernels take on a GPU: `python kernels_timing.py` prints a table. Launches are replayed from a CUDA graph."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from kernels_check import DEVICE, entry, integers, randn

from vosti.kernels.attention import ATTENTION, ROW_PROGRAM, attention
from vosti.kernels.attention_split import ATTENTION_MERGE, ATTENTION_SPLIT, Scratch, attention_split, splits_needed
from vosti.kernels.candidates import make_tile
from vosti.kernels.embedding import embedding
from vosti.kernels.finite import flag_logits
from vosti.kernels.gate_up import gate_up
from vosti.kernels.linear import linear
from vosti.kernels.rms_norm import rms_norm
from vosti.kernels.rotary_store import rotary_store
from vosti.kernels.tile import Tile


def milliseconds(launches: list[Callable[[], Any]], repeats: int = 7) -> float:
    """The median time of one of the launches, all of them replayed in order from one graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for launch in launches:
            launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    graph.replay()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / len(launches))
    return sorted(times)[len(times) // 2]


def few_rows(rows: int) -> None:
    """The linears of Llama-3.1-8B on few rows, the weights rotated so that none stays in the cache."""
    total = 0.0
    for name, operation, n, k in (
        ("qkv", "linear", 6144, 4096),
        ("o", "linear", 4096, 4096),
        ("gate+up", "gate_up", 14336, 4096),
        ("down", "linear", 4096, 14336),
        ("head", "head", 128256, 4096),
    ):
        stacked = n * (2 if operation == "gate_up" else 1)
        copies = max(2, int(6e8 / (stacked * k * 2)))
        weights = [randn(stacked, k, seed=i, scale=k**-0.5) for i in range(copies)]
        x = randn(rows, k)
        if operation == "gate_up":
            tile = entry(operation, n=n, k=k, activation=0).choice(rows).tile
            out = torch.empty(rows, n, dtype=torch.bfloat16, device=DEVICE)
            time = milliseconds([lambda w=w: gate_up(x, w, out, 0, tile) for w in weights])
        else:
            tile = entry(operation, n=n, k=k).choice(rows).tile
            dtype = torch.float32 if operation == "head" else torch.bfloat16
            out = torch.empty(rows, n, dtype=dtype, device=DEVICE)
            time = milliseconds([lambda w=w: linear(x, w, out, tile) for w in weights])
        cublas = milliseconds([lambda w=w: torch.mm(x, w.T) for w in weights])
        gigabytes = stacked * k * 2 / 1e9
        print(
            f"rows {rows}: {name} {stacked}x{k}: {time * 1e3:.1f} us, {gigabytes / time:.2f} TB/s, floor "
            f"{gigabytes / 4.3 * 1e3:.1f} us, cuBLAS {cublas * 1e3:.1f} us (gate+up without the activation)",
            flush=True,
        )
        total += 0.0 if operation == "head" else time
        del weights
    print(f"rows {rows}: one layer's linears {total * 1e3:.1f} us", flush=True)


def many_rows(rows: int) -> None:
    """The linears of Llama-3.1-8B on many rows."""
    for name, operation, n, k in (
        ("qkv", "linear", 6144, 4096),
        ("o", "linear", 4096, 4096),
        ("gate+up", "gate_up", 14336, 4096),
        ("down", "linear", 4096, 14336),
    ):
        stacked = n * (2 if operation == "gate_up" else 1)
        x, weight = randn(rows, k), randn(stacked, k, scale=k**-0.5)
        out = torch.empty(rows, n, dtype=torch.bfloat16, device=DEVICE)
        if operation == "gate_up":
            choice = entry(operation, n=n, k=k, activation=0).choice(rows)
            launch: Callable[[], Any] = lambda: gate_up(x, weight, out, 0, choice.tile, stream=True)  # noqa: E731
        else:
            choice = entry(operation, n=n, k=k).choice(rows)
            launch = lambda: linear(x, weight, out, choice.tile, stream=True)  # noqa: E731
        time, cublas = milliseconds([launch] * 3), milliseconds([lambda: torch.mm(x, weight.T)] * 3)
        teraflops = 2 * rows * stacked * k / 1e9
        print(
            f"rows {rows}: {name} {stacked}x{k}: {time:.3f} ms, {teraflops / time:.0f} TFLOP/s, cuBLAS "
            f"{teraflops / cublas:.0f} (gate+up without the activation)",
            flush=True,
        )


def decode(
    d: int, heads: int, kv_heads: int, window: int | None, split: int | None = None, tile: Tile | None = None
) -> None:
    """Attention of one row in each of four sequences."""
    batch = 4
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_dim": d, "window": window or 0}
    for length in (1024, 4096, 16384):
        copies = max(2, int(4e8 / (batch * length * kv_heads * d * 4)))
        copies = min(copies, 24)
        pages = batch * copies * (length // 64)
        cache = randn(pages * 64, kv_heads, d), randn(pages * 64, kv_heads, d, seed=1)
        tables = torch.randperm(pages, device=DEVICE).to(torch.int32).view(copies, batch, -1).contiguous()
        query = randn(batch, heads, d)
        out, flags = torch.empty_like(query), torch.zeros(batch, heads, 4, dtype=torch.int32, device=DEVICE)
        metadata = integers(list(range(batch))), integers([1] * batch), integers([length] * batch)
        tile = tile or entry("attention_split", **sizes).choice(1).tile
        if split is None:
            splits = splits_needed(length, 1, window)
            scratch = Scratch.allocate(batch, kv_heads, splits, tile.block("BLOCK_R"), d, DEVICE)
            launches = [
                lambda table=table: attention_split(
                    query, cache, table, *metadata, scratch, out, flags, splits, 1, 64, d**-0.5, tile, make_tile(1, 1),
                    window=window,
                )
                for table in tables
            ]  # fmt: skip
        else:
            splits = -(-length // split)
            scratch = Scratch.allocate(batch, kv_heads, splits, tile.block("BLOCK_R"), d, DEVICE)
            fixed = {"HEADS": heads, "KV_HEADS": kv_heads, "HEAD_DIM": d, "WINDOW": window or 0, "SPLIT": split}

            def both(table: torch.Tensor) -> None:
                states = scratch.maxima, scratch.totals, scratch.outputs
                ATTENTION_SPLIT.function[kv_heads, splits, batch](
                    query, *cache, table, *metadata, *states, splits, table.shape[1], d**-0.5,
                    **fixed, TILE=64, PAGE=64, **dict(tile.blocks), **tile.options(),
                )  # fmt: skip
                ATTENTION_MERGE.function[heads, 1, batch](
                    *states, *metadata, out, flags, splits, **fixed, BLOCK_R=tile.block("BLOCK_R"),
                    **make_tile(1, 1).options(),
                )  # fmt: skip

            launches = [lambda table=table: both(table) for table in tables]
        time = milliseconds(launches)
        seen = min(length, window or length)
        gigabytes = batch * seen * kv_heads * d * 4 / 1e9
        print(
            f"decode d {d} {heads}/{kv_heads} window {window} split {split or ROW_PROGRAM['SPLIT']}: {length} keys, {tile.warps} warps {tile.stages} stages: "
            f"{time * 1e3:.1f} us, {gigabytes / time:.2f} TB/s",
            flush=True,
        )


def prefill(d: int, heads: int, kv_heads: int, window: int | None, length: int, split: int | None = None) -> None:
    """Attention of one whole prompt, by several tiles."""
    pages = length // 64
    cache = randn(pages * 64, kv_heads, d), randn(pages * 64, kv_heads, d, seed=1)
    tables = torch.randperm(pages, device=DEVICE).to(torch.int32).view(1, -1).contiguous()
    query = randn(length, heads, d)
    out, flags = torch.empty_like(query), torch.zeros(length, heads, 4, dtype=torch.int32, device=DEVICE)
    metadata = integers([0]), integers([length]), integers([length])
    pairs = sum(min(i + 1, window or i + 1) for i in range(length))
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_dim": d, "window": window or 0}
    tiles = [entry("attention", **sizes).choice(length).tile]
    if split is None:
        block_d = min(d, 128)
        tiles += [make_tile(w, n, BLOCK_R=16 * w, BLOCK_D=block_d) for w in (4, 8) for n in (3, 4, 5, 6, 7)]
        if d == 256:
            tiles += [make_tile(4, 2, BLOCK_R=32, BLOCK_D=256)]
    for tile in dict.fromkeys(tiles):
        try:
            if split is None:
                launch: Callable[[], Any] = lambda tile=tile: attention(  # noqa: E731
                    query, cache, tables, *metadata, out, flags, length, 64, d**-0.5, tile, window=window
                )
            else:
                rows = tile.block("BLOCK_R") // (heads // kv_heads)
                count = -(-length // rows)
                launch = lambda: ATTENTION.function[kv_heads, count, 1](  # noqa: E731, B023
                    query, *cache, tables, *metadata, out, flags, count, tables.shape[1], d**-0.5, HEADS=heads,  # noqa: B023
                    KV_HEADS=kv_heads, HEAD_DIM=d, PAGE=64, WINDOW=window or 0, TILE=64, SPLIT=split,
                    **dict(tile.blocks), **tile.options(),  # noqa: B023
                )  # fmt: skip
            time = milliseconds([launch] * 2, 5)
        except Exception as error:
            print(f"prefill d {d}: {tile}: {type(error).__name__}", flush=True)
            continue
        print(
            f"prefill d {d} {heads}/{kv_heads} window {window} split {split or ROW_PROGRAM['SPLIT']}, {length} keys, "
            f"{dict(tile.blocks)} {tile.warps} warps {tile.stages} stages: {time:.3f} ms, "
            f"{4 * heads * d * pairs / time / 1e9:.0f} TFLOP/s",
            flush=True,
        )


def rows_only() -> None:
    """Operations that move rows, of Llama-3.1-8B's sizes."""
    for rows in (4, 8192):
        x, y, weight = randn(rows, 4096), randn(rows, 4096, seed=1), randn(4096)
        out = torch.empty_like(x)
        starting = entry("rms_norm", width=4096, unit_offset=0).choices[0].tile
        for tile in {starting, make_tile(4, 1, BLOCK=4096), make_tile(8, 1, BLOCK=4096), make_tile(2, 1, BLOCK=4096)}:
            time = milliseconds([lambda tile=tile: rms_norm(x, weight, out, 1e-5, tile, residual=(y, x))] * 20)
            bandwidth = rows * 4096 * 8 / time / 1e9
            print(
                f"residual rms_norm {rows}x4096, {tile.warps} warps: {time * 1e3:.1f} us, {bandwidth:.2f} TB/s",
                flush=True,
            )
        qkv, angle = randn(rows, 48 * 128), torch.rand(8192, 64, device=DEVICE)
        queries = torch.empty(rows, 32, 128, dtype=torch.bfloat16, device=DEVICE)
        cache = (
            torch.empty(rows, 8, 128, dtype=torch.bfloat16, device=DEVICE),
            torch.empty(rows, 8, 128, dtype=torch.bfloat16, device=DEVICE),
        )
        flags = torch.zeros(rows, 8, dtype=torch.int32, device=DEVICE)
        places = torch.arange(rows, dtype=torch.int32, device=DEVICE)
        for tile in (make_tile(1, 1, BLOCK_H=2), make_tile(4, 1, BLOCK_H=8), make_tile(2, 1, BLOCK_H=8)):
            time = milliseconds(
                [lambda tile=tile: rotary_store(qkv, (angle, angle), places, places, queries, cache, flags, tile)] * 20
            )
            bandwidth = rows * 48 * 128 * 4 / time / 1e9
            print(f"rotary_store {rows}: {tile}: {time * 1e3:.1f} us, {bandwidth:.2f} TB/s", flush=True)
        table = randn(128256, 4096)
        time = milliseconds([lambda: embedding(places, table, out, make_tile(4, 1, BLOCK=1024))] * 20)
        print(f"embedding {rows}: {time * 1e3:.1f} us", flush=True)
    logits, flags = torch.randn(4, 128256, device=DEVICE), torch.zeros(4, 32, dtype=torch.int32, device=DEVICE)
    time = milliseconds([lambda: flag_logits(logits, flags, make_tile(4, 1, BLOCK=4096))] * 20)
    print(f"flags of logits 4x128256: {time * 1e3:.1f} us", flush=True)


def main() -> None:
    """Print the table."""
    import triton

    print(torch.__version__, triton.__version__, torch.cuda.get_device_name(), flush=True)
    if "tiles" in sys.argv:
        for split in (1024, 512, 256):
            for warps, stages in ((1, 5), (2, 5), (4, 5), (4, 7), (4, 9), (8, 7)):
                decode(128, 32, 8, None, split, make_tile(warps, stages, BLOCK_R=16, BLOCK_D=128))
        for warps, stages in ((4, 3), (4, 5), (4, 7), (8, 5)):
            decode(256, 8, 4, 1024, 1024, make_tile(warps, stages, BLOCK_R=16, BLOCK_D=256))
        return
    few_rows(4)
    many_rows(8192)
    prefill(128, 32, 8, None, 8192)
    decode(128, 32, 8, None)
    rows_only()
    prefill(256, 8, 4, 1024, 8192)
    prefill(256, 8, 4, None, 8192)
    decode(256, 8, 4, 1024)
    few_rows(64)


if __name__ == "__main__":
    main()
