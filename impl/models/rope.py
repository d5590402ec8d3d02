"""Rotary position embedding: inverse frequencies and tables of cosines and sines.

Both are made by the very torch operations that transformers uses, so that they are equal to the reference's with zero
difference. They are data to the row programs, which only look rows up.
"""

from __future__ import annotations

import math

import torch

from vosti.impl.models.rope_config import Rope


def inverse_frequencies(rope: Rope, head_dim: int) -> torch.Tensor:
    """[head_dim/2] float32: the angle, in radians per position, by which each pair of a head turns.

    - default: θ^(−2i/d)
    - linear: that, divided by the factor
    - proportional: that, for the pairs that turn; 0 for the others
    - llama3: unchanged where the wavelength is short, divided by the factor where it is long, blended between
      (short: below original_positions / high_frequency_factor; long: above original_positions / low_frequency_factor)
    """
    base = 1.0 / (rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.int64).to(torch.float32) / head_dim))
    if rope.kind == "default":
        return base
    if rope.kind == "linear":
        return base / rope.factor
    if rope.kind == "proportional":
        turning = int(rope.share * head_dim // 2)
        return torch.cat([base[:turning], torch.zeros(head_dim // 2 - turning)]) / rope.factor
    low, high, original = rope.low_frequency_factor, rope.high_frequency_factor, rope.original_positions
    wavelength = 2 * math.pi / base
    is_long = wavelength > original / low
    is_short = wavelength < original / high
    scaled = torch.where(is_long, base / rope.factor, base)
    blend = (original / wavelength - low) / (high - low)
    blended = (1 - blend) * scaled / rope.factor + blend * scaled
    return torch.where(is_long | is_short, scaled, blended)


def rope_tables(rope: Rope, head_dim: int, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """[positions, head_dim/2] float32 twice: cosine and sine of position times inverse frequency."""
    turns = torch.arange(positions, dtype=torch.int64)[:, None].float() * inverse_frequencies(rope, head_dim)
    return turns.cos(), turns.sin()
