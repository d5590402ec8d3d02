"""What differs between two rows of logits, bit by bit."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Divergence:
    """How two rows of logits differ; the right one is the reference."""

    token: int
    """The lowest token id whose logits differ."""

    left_bits: str
    right_bits: str
    """Their bit patterns, eight hexadecimal digits each."""

    left: float
    right: float
    ulps: int
    """How many float32 numbers lie between the two."""

    largest: float
    """The largest difference of any token."""

    differing: int
    """How many tokens have other bits."""

    margin: float
    """Of the reference: its largest logit less its second largest."""

    same_argmax: bool
    rank: int | None
    """The first rank at which another token stands, from 0; None if the order is the same."""


def row_digest(row: bytes) -> str:
    """128 bits of SHA-256, in hexadecimal."""
    return hashlib.sha256(row).hexdigest()[:32]


def floats(row: bytes) -> Floats:
    """The row's numbers."""
    return np.frombuffer(row, "<f4")


def is_finite(row: bytes) -> bool:
    """Whether all numbers are finite."""
    return bool(np.isfinite(floats(row)).all())


def is_constant(row: bytes) -> bool:
    """Whether all numbers are the same."""
    return bool((floats(row) == floats(row)[0]).all())


def argmax(row: bytes) -> int:
    """The token with the largest logit; of equal ones the lowest."""
    return int(floats(row).argmax())


def divergence(left: bytes, right: bytes) -> Divergence:
    """How two rows of equal length differ; they must."""
    a, b = floats(left), floats(right)
    changed = np.flatnonzero(a.view(np.uint32) != b.view(np.uint32))
    token = int(changed[0])
    pair = _ordered(np.stack((a[token], b[token])))
    first, second = np.partition(b, -2)[-1], np.partition(b, -2)[-2]
    order = np.flatnonzero(_ranking(a) != _ranking(b))
    return Divergence(
        token=token,
        left_bits=f"{a.view(np.uint32)[token]:08x}",
        right_bits=f"{b.view(np.uint32)[token]:08x}",
        left=float(a[token]),
        right=float(b[token]),
        ulps=int(abs(pair[0] - pair[1])),
        largest=_largest(a, b),
        differing=len(changed),
        margin=float(first - second),
        same_argmax=argmax(left) == argmax(right),
        rank=int(order[0]) if len(order) else None,
    )


def _largest(a: Floats, b: Floats) -> float:
    """The largest |a − b|; infinite if some number is not finite."""
    finite = np.isfinite(a).all() and np.isfinite(b).all()
    return float(np.abs(a.astype(np.float64) - b).max()) if finite else float("inf")


def _ordered(values: Floats) -> npt.NDArray[np.int64]:
    """Integers in the order of the numbers, neighbours one apart; both zeros are 0."""
    bits = values.view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def _ranking(values: Floats) -> npt.NDArray[np.int64]:
    """Token ids from the largest logit down, equal ones by id."""
    return np.argsort(-values, kind="stable").astype(np.int64)
