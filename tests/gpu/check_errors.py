"""Errors against float64: at most 1.1 times those of torch's own operations in bf16."""

from __future__ import annotations

import torch
from check_attention import SHAPES, Paged, run_attention
from common import DEVICE, Difference, entry, poisoned, randn, run_gate_up, run_linear
from torch import Tensor

from vosti.kernels.candidates import make_tile
from vosti.kernels.finite import flag_logits
from vosti.kernels.gate_up import GELU_TANH, SILU, interleaved
from vosti.kernels.rms_norm import rms_norm
from vosti.kernels.rotary_store import rotary_store


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
