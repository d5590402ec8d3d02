"""How long kernels take on a GPU: `python kernels_timing.py [PART ...]` prints a table.

Launches are replayed from CUDA graphs; what the host waits for is timed by the clock on the wall.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import triton
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))

from check_digests import pool
from common import DEVICE, entry, integers, keys_of, randn

from vosti.impl.sampling import kept, sample_row, sample_rows
from vosti.kernels.attention import Sequences, attention
from vosti.kernels.attention_split import Scratch, attention_split, splits_needed
from vosti.kernels.candidates import make_tile
from vosti.kernels.devices import instruction_classes
from vosti.kernels.digest import digest, fetched, matrix_layout
from vosti.kernels.embedding import embedding
from vosti.kernels.finite import flag_logits
from vosti.kernels.gate_up import gate_up
from vosti.kernels.linear import linear
from vosti.kernels.rms_norm import rms_norm
from vosti.kernels.rotary_store import rotary_store
from vosti.kernels.tables import load
from vosti.kernels.tile import Tile
from vosti.kernels.tuning import milliseconds
from vosti.spec.sampling import sampler_state

CACHE = Path(triton.knobs.cache.dir)
"""Where the compiler keeps binaries."""

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


def waited(call: Callable[[], object], repeats: int = 30) -> float:
    """Median microseconds of a call, from an idle GPU to an idle GPU."""
    times = []
    for _ in range(repeats + 5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e6)
    return sorted(times[5:])[repeats // 2]


def digests() -> None:
    """Digests of Llama-3.1-8B's slots and rows of logits: the launches alone, and from call to text."""
    memory, rows = pool(16384)
    table = load("sm_90")
    tiles = table.entry("digest"), table.entry("digest_merge")
    logits = torch.randn(64, 128256, device=DEVICE).view(torch.int32)
    for what, words, where, counts in (
        ("slots of 128 KiB", memory, rows, (4, 64, 8192)),
        ("rows of 128256 logits", logits, matrix_layout(128256, DEVICE), (4, 64)),
    ):
        for count in counts:
            sources = torch.randperm(len(logits) if count <= len(logits) else 16384, device=DEVICE)[:count].int()
            alone = milliseconds([partial(digest, words, where, sources, tiles)] * 5) * 1e3
            whole = waited(lambda: fetched(digest(words, where, sources, tiles))())  # noqa: B023
            speed = count * where.words * 4 / alone / 1e6
            print(f"digests of {count} {what}: {alone:.1f} us, {speed:.2f} TB/s; to text {whole:.0f} us", flush=True)


def sampling() -> None:
    """Tokens from rows of 128256 logits, from call to token: alone, and four rows at once."""
    peaked = torch.randn(4, 128256, device=DEVICE) * 3
    for what, logits, options in (
        ("greedy", peaked, {"temperature": 0.0}),
        ("temperature 1", peaked, {}),
        ("top-k 50", peaked, {"top_k": 50}),
        ("top-p 0.9", peaked, {"top_p": 0.9, "temperature": 0.7}),
        ("top-k 20, top-p 0.95", peaked, {"top_k": 20, "top_p": 0.95, "temperature": 0.6}),
        ("top-p 0.95, a flat row", peaked / 3, {"top_p": 0.95, "temperature": 0.8}),
    ):
        states = [sampler_state(**options, seed=seed) for seed in range(4)]
        one = waited(lambda: sample_row(logits[0], states[0], [], 0))  # noqa: B023
        four = waited(lambda: sample_rows(logits, states, [[]] * 4, [0] * 4))  # noqa: B023
        rows = waited(lambda: [kept(row, state) for row, state in zip(logits, states, strict=True)])  # noqa: B023
        print(
            f"sampling, {what}: {one:.0f} us, 4 rows {four:.0f} us, 4 by whole-row operations {rows:.0f} us", flush=True
        )


def classes() -> None:
    """Compiling what Llama-3.1-8B launches, and reading the classes of instructions from it, at first and again."""
    entries = [load("sm_90").entry(name, **dict(sizes)) for name, sizes in keys_of("llama-3.1-8b")]
    for when in ("at first", "again"):
        begin = time.perf_counter()
        found = instruction_classes(entries, "sm_90")
        print(f"instruction classes, {when}: {time.perf_counter() - begin:.1f} s, {found}", flush=True)
    cached = set(CACHE.iterdir())
    few_rows(4)
    added = [file.name for folder in set(CACHE.iterdir()) - cached for file in folder.glob("*.json")]
    print(f"launches compiled besides: {added}", flush=True)


def main() -> None:
    """Print the table, or the parts named on the command line."""
    print(torch.__version__, triton.__version__, torch.cuda.get_device_name(), flush=True)
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


def forward() -> None:
    """What a forward launches."""
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


PARTS = {"forward": forward, "digests": digests, "sampling": sampling, "classes": classes}

if __name__ == "__main__":
    main()
