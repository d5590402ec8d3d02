"""Cases for kernels under Triton's interpreter, in one module for each kind of kernel, and what they share.

Importing them does not import Triton: the interpreter has to be chosen before.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from vosti.spec.numerics.floats import Array, Floats, array

CASES: dict[str, Callable[[], None]] = {}
TOLERANCE = 2e-6


def case(function: Callable[[], None]) -> Callable[[], None]:
    """Register a case under its name."""
    CASES[function.__name__] = function
    return function


def tensor(numbers: Array) -> Any:
    """A float32 tensor of the array."""
    import torch

    return torch.tensor(numbers.elements, dtype=torch.float32).reshape(numbers.shape)


def int32(numbers: list[int]) -> Any:
    """A tensor of integers, as kernels take them."""
    import torch

    return torch.tensor(numbers, dtype=torch.int32)


def draw(seed: int, *shape: int, scale: float = 1.0) -> Array:
    """Normally distributed numbers."""
    source = random.Random(seed)
    return array((source.gauss(0.0, scale) for _ in range(math.prod(shape))), *shape)


def close(expected: Array, actual: Any, tolerance: float = TOLERANCE) -> None:
    """Fail unless all elements agree to within the tolerance, relative to the largest."""
    scale = max(1.0, *(abs(x) for x in expected.elements))
    found = actual.reshape(-1).tolist()
    assert len(expected.elements) == len(found), (expected.shape, tuple(actual.shape))
    worst = max(range(len(found)), key=lambda i: abs(expected.elements[i] - found[i]) if found[i] == found[i] else 1e30)
    difference = abs(expected.elements[worst] - found[worst])
    assert difference <= tolerance * scale, (
        f"element {worst}: {expected.elements[worst]} expected, {found[worst]} found"
    )


def tile(warps: int = 4, stages: int = 1, **blocks: int) -> Any:
    """A tile."""
    from vosti.kernels.tile import Tile

    return Tile(tuple(blocks.items()), warps, stages)


def transposed(matrix: Array) -> Array:
    """[n, k] → [k, n]."""
    n, k = matrix.shape
    return array((matrix.elements[j * k + i] for i in range(k) for j in range(n)), k, n)


OPS = Floats()
