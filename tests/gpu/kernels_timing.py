"""How long kernels take on a GPU: `python kernels_timing.py` prints a table. Launches are replayed from CUDA graphs."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import torch
import triton
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))

from common import DEVICE, entry, integers, randn

from vosti.kernels.attention import Sequences, attention
from vosti.kernels.attention_split import Scratch, attention_split, splits_needed
from vosti.kernels.candidates import make_tile
from vosti.kernels.embedding import embedding
from vosti.kernels.finite import flag_logits
from vosti.kernels.gate_up import gate_up
from vosti.kernels.linear import linear
from vosti.kernels.rms_norm import rms_norm
from vosti.kernels.rotary_store import rotary_store
from vosti.kernels.tile import Tile
from vosti.kernels.tuning import milliseconds

LAYER = (
    ("qkv", "linear", 6144, 4096),
    ("o", "linear", 4096, 4096),
    ("gate+up", "gate_up", 14336, 4096),
    ("down", "linear", 4096, 14336),
)
"""The linears of one layer of Llama-3.1-8B."""

HEAD = ("head", "head", 128256, 4096)


def matrix(operation: str, n: int, k: int, rows: int, copies: int) -> tuple[float, float]:
    """Milliseconds of one launch, ours and cuBLAS's (which applies no activation), the weights in rotation."""
    stacked = n * (2 if operation == "gate_up" else 1)
    weights = [randn(stacked, k, seed=i, scale=k**-0.5) for i in range(copies)]
    x = randn(rows, k)
    dtype = torch.float32 if operation == "head" else torch.bfloat16
    out = torch.empty(rows, n, dtype=dtype, device=DEVICE)
    sizes = {"n": n, "k": k} | ({"activation": 0} if operation == "gate_up" else {})
    choice = entry(operation, **sizes).choice(rows)
    stream = choice.kernel.endswith("_stream")
    if operation == "gate_up":
        ours = milliseconds([partial(gate_up, x, w, out, 0, choice.tile, stream=stream) for w in weights])
    else:
        ours = milliseconds([partial(linear, x, w, out, choice.tile, stream=stream) for w in weights])
    return ours, milliseconds([partial(torch.mm, x, w.T) for w in weights])


def few_rows(rows: int) -> None:
    """Linears whose cost is the bytes of their weights."""
    total = 0.0
    for name, operation, n, k in (*LAYER, HEAD):
        gigabytes = n * (2 if operation == "gate_up" else 1) * k * 2 / 1e9
        ours, cublas = matrix(operation, n, k, rows, max(2, int(0.6 / gigabytes)))
        total += 0.0 if operation == "head" else ours
        print(
            f"{rows} rows, {name}: {ours * 1e3:.1f} us, {gigabytes / ours:.2f} TB/s, "
            f"floor {gigabytes / 4.3e-3:.1f} us, cuBLAS {cublas * 1e3:.1f} us",
            flush=True,
        )
    print(f"{rows} rows, one layer's linears: {total * 1e3:.1f} us", flush=True)


def many_rows(rows: int) -> None:
    """Linears whose cost is arithmetic."""
    for name, operation, n, k in LAYER:
        work = 2 * rows * n * (2 if operation == "gate_up" else 1) * k / 1e9
        ours, cublas = matrix(operation, n, k, rows, 2)
        line = f"{ours:.3f} ms, {work / ours:.0f} TFLOP/s, cuBLAS {work / cublas:.0f}"
        print(f"{rows} rows, {name}: {line}", flush=True)


def pages(sequences: int, length: int, copies: int, kv_heads: int, d: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Keys and values, and tables [copies, sequences, pages of 64]."""
    count = sequences * copies * (length // 64)
    cache = randn(count * 64, kv_heads, d), randn(count * 64, kv_heads, d, seed=1)
    return cache, torch.randperm(count, device=DEVICE).to(torch.int32).view(copies, sequences, -1).contiguous()


def decode(d: int, heads: int, kv_heads: int, window: int | None) -> None:
    """Attention of one row in each of four sequences."""
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_dim": d, "window": window or 0}
    tile = entry("attention_split", **sizes).choice(1).tile
    for length in (512, 1024, 4096, 8192, 16384):
        gigabytes = 4 * min(length, window or length) * kv_heads * d * 4 / 1e9
        cache, tables = pages(4, length, min(24, max(2, int(0.4 / gigabytes))), kv_heads, d)
        query = randn(4, heads, d)
        out, flags = torch.empty_like(query), torch.zeros(4, heads, 4, dtype=torch.int32, device=DEVICE)
        metadata = integers([0, 1, 2, 3]), integers([1] * 4), integers([length] * 4)
        splits = splits_needed(length, 1, window)
        scratch = Scratch.allocate(4, kv_heads, splits, tile.block("BLOCK_R"), d, DEVICE)
        launches = [
            partial(
                attention_split,
                query,
                cache,
                Sequences(table, *metadata, 1, 64),
                scratch,
                splits,
                out,
                flags,
                d**-0.5,
                tile,
                make_tile(1, 1),
                window=window,
            )
            for table in tables
        ]
        time = milliseconds(launches)
        print(
            f"decode, d {d}, {heads}/{kv_heads} heads, window {window}, 4 x {length} keys: {time * 1e3:.1f} us, "
            f"{gigabytes / time:.2f} TB/s",
            flush=True,
        )


def prefill(d: int, heads: int, kv_heads: int, window: int | None, length: int) -> None:
    """Attention of one whole prompt."""
    cache, tables = pages(1, length, 1, kv_heads, d)
    query = randn(length, heads, d)
    out, flags = torch.empty_like(query), torch.zeros(length, heads, 4, dtype=torch.int32, device=DEVICE)
    metadata = integers([0]), integers([length]), integers([length])
    seen = sum(min(i + 1, window or i + 1) for i in range(length))
    tile = entry("attention", heads=heads, kv_heads=kv_heads, head_dim=d, window=window or 0).choice(length).tile
    sequences = Sequences(tables[0], *metadata, length, 64)
    launch = partial(attention, query, cache, sequences, out, flags, d**-0.5, tile, window=window)
    time = milliseconds([launch] * 3)
    print(
        f"prefill, d {d}, {heads}/{kv_heads} heads, window {window}, {length} keys: {time:.3f} ms, "
        f"{4 * heads * d * seen / time / 1e9:.0f} TFLOP/s",
        flush=True,
    )


def row_kernels(rows: int) -> None:
    """Kernels that move rows, at Llama-3.1-8B's sizes."""
    x, y, weight = randn(rows, 4096), randn(rows, 4096, seed=1), randn(4096)
    out = torch.empty_like(x)
    tile = entry("rms_norm", width=4096, unit_offset=0).choice(rows).tile
    time = milliseconds([partial(rms_norm, x, weight, out, 1e-5, tile, residual=(y, x))] * 20)
    print(f"{rows} rows, residual rms_norm: {time * 1e3:.1f} us, {rows * 4096 * 8 / time / 1e9:.2f} TB/s", flush=True)
    qkv, angle = randn(rows, 48 * 128), torch.rand(8192, 64, device=DEVICE)
    queries, keys, values = randn(rows, 32, 128), randn(rows, 8, 128), randn(rows, 8, 128)
    flags = torch.zeros(rows, 8, dtype=torch.int32, device=DEVICE)
    places = torch.arange(rows, dtype=torch.int32, device=DEVICE)
    sizes = {"heads": 32, "kv_heads": 8, "head_dim": 128, "norm": 0, "value_norm": 0, "shared": 0}
    rotated: Tile = entry("rotary_store", **sizes).choice(rows).tile
    launch = partial(
        rotary_store, qkv, (angle, angle), places, places, queries, (keys, values), flags, rotated
    )  # fmt: skip
    time = milliseconds([launch] * 20)
    bandwidth = rows * 48 * 128 * 4 / time / 1e9
    print(f"{rows} rows, rotary_store: {time * 1e3:.1f} us, {bandwidth:.2f} TB/s", flush=True)
    time = milliseconds([partial(embedding, places, randn(8192, 4096), out, make_tile(4, 1, BLOCK=1024))] * 20)
    print(f"{rows} rows, embedding: {time * 1e3:.1f} us", flush=True)


def main() -> None:
    """Print the table."""
    print(torch.__version__, triton.__version__, torch.cuda.get_device_name(), flush=True)
    few_rows(4)
    few_rows(64)
    many_rows(8192)
    prefill(128, 32, 8, None, 8192)
    prefill(256, 8, 4, 1024, 8192)
    prefill(256, 8, 4, None, 8192)
    decode(128, 32, 8, None)
    decode(256, 8, 4, 1024)
    row_kernels(4)
    row_kernels(8192)
    logits, flags = torch.randn(4, 128256, device=DEVICE), torch.zeros(4, 32, dtype=torch.int32, device=DEVICE)
    time = milliseconds([partial(flag_logits, logits, flags, make_tile(4, 1, BLOCK=4096))] * 20)
    print(f"4 rows, flags of 128256 logits: {time * 1e3:.1f} us", flush=True)


if __name__ == "__main__":
    main()
