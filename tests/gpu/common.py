"""What the checks of kernels on a GPU share: data, entries of the table, and comparisons of bits.

Bits are compared as integers; where data is hostile, a NaN may be any NaN.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vosti.kernels.candidates import starting_entry
from vosti.kernels.gate_up import gate_up
from vosti.kernels.hostile import bits
from vosti.kernels.linear import linear
from vosti.kernels.shapes import SHAPES, Dimensions
from vosti.kernels.shapes import operations as shape_operations
from vosti.kernels.tables import Choice, Entry, load

DEVICE = "cuda"


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


def entry(operation: str, **sizes: int) -> Entry:
    """The table's entry; for sizes that no table has, the starting one."""
    key = operation, tuple(sorted(sizes.items()))
    return load("sm_90").entries.get(key) or starting_entry(operation, key[1], "sm_90")


def entries_of(model: str, *operations: str) -> list[Entry]:
    """The table's entries of these operations that no model before this one has."""
    names = list(SHAPES)
    before = {key for name in names[: names.index(model)] for key in keys_of(name)}
    return [load("sm_90").entries[key] for key in keys_of(model) if key not in before and key[0] in operations]


def keys_of(model: str) -> list[tuple[str, Dimensions]]:
    """The keys of a model's entries, each once."""
    return list(dict.fromkeys((name, tuple(sorted(sizes))) for name, sizes in shape_operations(SHAPES[model])))


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
