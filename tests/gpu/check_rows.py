"""Operations on rows: each row has the bits that it has alone, and the same for any number of warps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from common import DEVICE, entry, equal, none_of, poisoned, randn, run_gate_up, run_linear, settle
from torch import Tensor

from vosti.kernels.candidates import candidates, make_tile
from vosti.kernels.embedding import embedding
from vosti.kernels.finite import flag_logits
from vosti.kernels.gate_up import GELU_TANH, SILU
from vosti.kernels.hostile import pair, wide
from vosti.kernels.kv_store import kv_store
from vosti.kernels.rms_norm import rms_norm
from vosti.kernels.rotary_store import PLAIN, UNIT_OFFSET, rotary_store

ROWS = (1, 2, 15, 16, 17, 127, 128, 129, 255, 256, 257, 512, 4096)

Operation = Callable[[Tensor], Tensor]
"""From indices of rows of the operation's data to the outputs of those rows."""


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

    y, weight, scale = randn(count, 4096, seed=1), randn(4096, seed=2), randn(1, seed=3)

    def normed(width: int, unit_offset: bool, residual: bool, scaled: bool = False) -> Operation:
        (tile,) = (choice.tile for choice in entry("rms_norm", width=width, unit_offset=0).choices)

        def run(rows: Tensor) -> Tensor:
            data, other = x[rows, :width].contiguous(), y[rows, :width].contiguous()
            out = poisoned(len(rows), width)
            rms_norm(
                data,
                weight[:width],
                out,
                1e-5,
                tile,
                unit_offset=unit_offset,
                residual=(other, data) if residual else None,
                scale=scale if scaled else None,
            )
            return torch.cat([out, data], 1)

        return run

    yield "rms_norm 4096", normed(4096, False, False)
    yield "rms_norm 2560, unit offset", normed(2560, True, False)
    yield "rms_norm 3840, residual", normed(3840, False, True)
    yield "rms_norm 256, residual, unit offset", normed(256, True, True)
    yield "rms_norm 3840, residual, scaled", normed(3840, False, True, scaled=True)

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


def rows_section(*beginnings: str) -> None:
    """For each number of rows, every row has the bits that it has alone: of operations whose names begin so."""
    for name, operation in row_operations(max(ROWS)):
        if not name.startswith(beginnings):
            continue
        alone = torch.cat([operation(torch.tensor([i], device=DEVICE)) for i in range(max(ROWS))])
        none_of(f"{name}: outputs not written", torch.isnan(alone))
        for count in ROWS:
            rows = torch.randperm(max(ROWS), device=DEVICE)[:count]
            equal(f"{name} at {count} rows", operation(rows), alone[rows])
        settle()
        print(f"rows: {name}: {len(ROWS)} numbers of rows, all rows equal to the single-row result", flush=True)


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
