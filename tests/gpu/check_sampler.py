"""The exact sampler on a GPU draws the specification's tokens, on hostile rows and on rows as long as a vocabulary."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import torch
from common import DEVICE, Difference
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from hostile_rows import HOSTILE_ROWS, STATES
from vosti.impl.device_sampling import tokens
from vosti.impl.sampling import sample_row, sample_rows
from vosti.spec.sampling import SamplerState, sample, sampler_state

VOCABULARY = 128256
"""Llama 3's."""

SPEED = {
    "no cuts": (6.0, {}),
    "top-k 50": (6.0, {"top_k": 50}),
    "top-p 0.95": (6.0, {"top_p": 0.95}),
    "top-k 20, top-p 0.95": (6.0, {"top_k": 20, "top_p": 0.95, "temperature": 0.6}),
    "top-k 3000": (6.0, {"top_k": 3000}),
    "top-p 0.95, flat rows": (3.0, {"top_p": 0.95}),
}
"""What is timed: how far logits are spread, and the parameters. The last two cut behind the 1024 largest logits."""


def sampler_section() -> None:
    """Alone and in a batch, every state on every row; all that is drawn is drawn on the device."""

    def compare(name: str, row: Tensor, states: list[SamplerState], expected: list[int]) -> None:
        batch = row.to(DEVICE)[None].repeat(len(states), 1)
        found = sample_rows(batch, states, [[]] * len(states), [0] * len(states))
        alone = [sample_row(batch[i], state, [], 0) for i, state in enumerate(states[::5])]
        if found != expected or alone != expected[::5]:
            raise Difference(f"{name}: {found} in a batch, {alone} alone, {expected} by the specification")
        left = [state for state, token in zip(states, tokens(batch, states), strict=True) if token is None]
        if any(state.temperature > 0 for state in left):
            raise Difference(f"{name}: states {left} were left to whole-row operations")

    for name, row in HOSTILE_ROWS.items():
        expected = [sample(row, state, [], 0) for state in STATES]
        compare(name, torch.tensor(row, dtype=torch.float32), STATES, expected)
    print(f"sampler: {len(HOSTILE_ROWS)} hostile rows x {len(STATES)} states: the specification's tokens", flush=True)
    generator = torch.Generator().manual_seed(5)
    usual = [
        sampler_state(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
        for temperature, top_k, top_p, min_p in (
            (1.0, 0, 1.0, 0.0),
            (0.7, 0, 1.0, 0.05),
            (0.6, 20, 0.95, 0.0),
            (1.0, 50, 1.0, 0.0),
            (1.0, 0, 0.9, 0.0),
            (1.0, 3000, 0.9, 0.001),
            (1.0, 100_000, 1.0, 0.0),
            (0.0, 0, 1.0, 0.0),
        )
        for seed in range(4)
    ]
    for scale in (0.02, 1.0, 3.0, 10.0):
        for ties in (False, True):
            row = torch.randn(VOCABULARY, generator=generator) * scale
            row = row.bfloat16().float() if ties else row
            expected = [sample_row(row, state, [], 0) for state in usual]
            compare(f"scale {scale}, ties {ties}", row, usual, expected)
    try:
        compare("twin", row, usual, [*expected[:-1], expected[-1] + 1])
    except Difference:
        print("sampler: another token than the specification's: found", flush=True)
    else:
        raise Difference("another token than the specification's was not found")
    print(f"sampler: 8 rows of {VOCABULARY} logits x {len(usual)} states: equal to the CPU's", flush=True)


def sampler_speed_section() -> None:
    """Milliseconds from the call to all tokens, the median of nine; needs less than 20 s."""
    generator = torch.Generator(DEVICE).manual_seed(6)
    print(f"sampler, ms, rows of {VOCABULARY} logits: " + "".join(f"{count:>9}" for count in (1, 8, 64, 256)))
    for name, (scale, options) in SPEED.items():
        cells = []
        for count in (1, 8, 64, 256):
            logits = torch.randn(count, VOCABULARY, device=DEVICE, generator=generator) * scale
            states = [sampler_state(**{"seed": seed, **options}) for seed in range(count)]
            tokens(logits, states)
            cells.append(statistics.median(_seconds(logits, states) for _ in range(9)) * 1e3)
        print(f"{name:<39}" + "".join(f"{cell:9.3f}" for cell in cells), flush=True)


def _seconds(logits: Tensor, states: list[SamplerState]) -> float:
    """Of one call, which waits for the device."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    tokens(logits, states)
    return time.perf_counter() - begin
