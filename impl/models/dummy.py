"""Dummy weights: a model of full size from its config alone.

Each number is a function of (seed, tensor, row, column), in integer arithmetic and two correctly rounded operations,
so that every device makes the same bits, in any order. Linear layers and embeddings scatter about 0 with standard
deviation 1 / √columns, and norms about the value that leaves a row's scale alone, so that rows keep their scale from
layer to layer and no two tokens, positions or layers are alike.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable

import torch

from vosti.impl.models.plan import Source

RECIPE = 1
"""Version of what follows: other numbers have another one."""

CHUNK = 1 << 20
"""Numbers made at once: enough for a GPU, and few enough for a processor's cache."""

VECTOR_DEVIATION = 0.125
"""Standard deviation of tensors with one axis: weights of norms, and scalars."""

_MASK = (1 << 32) - 1
_FACTOR = 0x45D9F3B
"""An odd number below 2^31, whose multiples stir the bits of a number below 2^32; products fit in int64."""

_UNIFORM = math.sqrt(3.0)
"""Half the width, in standard deviations, of a uniform distribution."""


class DummyTensors:
    """Implements `vosti.impl.models.tensors.Tensors`; stored in bf16."""

    def __init__(self, seed: int) -> None:
        """Weights of their own for each seed."""
        self._seed = seed

    def check(self, sources: Iterable[Source], tied: bool) -> None:
        """Any source can be made."""

    def read(self, source: Source, device: torch.device) -> torch.Tensor:
        """The tensor, made on the device."""
        *_, columns = source.shape
        rows = math.prod(source.shape) // columns
        deviation = columns**-0.5 if len(source.shape) > 1 else VECTOR_DEVIATION
        scale = torch.tensor(deviation * _UNIFORM * 2.0**-23, dtype=torch.float32, device=device)
        across = _stirred(torch.arange(columns, device=device) ^ self._key(source, "columns"))
        target = torch.empty(rows, columns, dtype=torch.bfloat16, device=device)
        step = max(1, CHUNK // columns)
        for begin in range(0, rows, step):
            down = torch.arange(begin, min(begin + step, rows), device=device) ^ self._key(source, "rows")
            numbers = _stirred(_stirred(down)[:, None] ^ across)
            uniform = (numbers >> 8).sub_(1 << 23).float()
            target[begin : begin + step] = uniform.mul_(scale).add_(source.centre)
        return target.view(source.shape)

    def identity(self) -> str:
        """The recipe and the seed, in place of a digest of bytes."""
        return f"dummy weights, recipe {RECIPE}, seed {self._seed}"

    def _key(self, source: Source, axis: str) -> int:
        """32 bits that belong to one axis of one tensor."""
        text = f"vosti dummy weights {RECIPE} {self._seed} {source.name} {axis}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def _stirred(x: torch.Tensor) -> torch.Tensor:
    """A permutation of the integers below 2^32, each bit of which depends on all others."""
    for _ in range(2):
        x = (x ^ (x >> 16)).mul_(_FACTOR).bitwise_and_(_MASK)
    return x ^ (x >> 16)
