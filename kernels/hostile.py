"""Data that is hard on rounding: what tiles are compared on before they enter a table, besides random data."""

from __future__ import annotations

import math

import torch
from torch import Tensor

KINDS = (
    "random",
    "wide 8",
    "wide 30",
    "subnormal",
    "cancelling",
    "large first",
    "large last",
    "sparse",
    "minus zero",
    "infinity and nan",
    "overflow",
)
"""Wide ranges of exponents, sums that cancel, one term that dwarfs the others, zeros of both signs, infinities."""

_EXPONENTS = {
    "wide 8": (-8, 8, -8, 8),
    "wide 30": (-30, 30, -30, 30),
    "subnormal": (-70, -60, -70, -60),
    "overflow": (50, 60, 60, 66),
}


def wide(m: int, k: int, low: int, high: int, device: str) -> Tensor:
    """[m, k] bf16: normally distributed numbers times 2^e, e uniform between low and high."""
    exponent = torch.randint(low, high + 1, (m, k), device=device, dtype=torch.int8).float()
    return (torch.randn(m, k, device=device) * torch.exp2(exponent)).to(torch.bfloat16)


def pair(kind: str, m: int, n: int, k: int, device: str) -> tuple[Tensor, Tensor]:
    """[m, k] and [n, k], to be multiplied; `kind` is one of `KINDS`."""
    if kind in _EXPONENTS:
        a, b, c, d = _EXPONENTS[kind]
        return wide(m, k, a, b, device), wide(n, k, c, d, device)
    x, w = wide(m, k, 0, 0, device), wide(n, k, 0, 0, device)
    if kind == "cancelling":
        x[:, 1::2], w[:, 1::2] = x[:, 0::2], -w[:, 0::2]
        x[:, 7::64] *= 1.0078125
    if kind.startswith("large"):
        place = 0 if kind == "large first" else -1
        x[:, place], w[:, place] = 2.0**14, 2.0**14
    if kind == "sparse":
        x = x * (torch.rand(m, k, device=device) < 0.05)
        x = torch.where(torch.rand(m, k, device=device) < 0.3, -x.abs() * 0, x)
    if kind == "minus zero":
        x = torch.zeros_like(x)
        x[:, ::2] = -0.0
    if kind == "infinity and nan":
        x[m // 2, 5], w[n // 2, 9] = math.inf, math.nan
    return x.contiguous(), w.contiguous()


def bits(x: Tensor) -> Tensor:
    """The bits as integers, every NaN as one."""
    same = torch.where(torch.isnan(x), torch.full_like(x, math.nan), x)
    return same.view(torch.int16 if x.element_size() == 2 else torch.int32)
