"""Digests where values are at hand: SHA-256 of their bytes, computed at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from vosti.impl.backend import Digests
from vosti.spec.digests import SHA256


class _HoldsSlots(Protocol):
    def slot_bytes(self, slots: Sequence[int]) -> list[bytes]:
        """As of `vosti.impl.backend.Backend`."""


class HostDigests:
    """The digests of a backend, by its own `slot_bytes`."""

    digest_algorithm = SHA256.name

    def slot_digests(self: _HoldsSlots, slots: Sequence[int]) -> Digests:
        """Each slot's digest."""
        found = [SHA256.digest(bits) for bits in self.slot_bytes(slots)]
        return lambda: found

    def row_digests(self, logits: torch.Tensor) -> Digests:
        """Each row's digest."""
        found = [SHA256.digest(bits) for bits in row_bytes(logits)]
        return lambda: found


def row_bytes(logits: torch.Tensor) -> list[bytes]:
    """The bits of rows of logits, on any device: float32, little-endian."""
    return [row.tobytes() for row in logits.cpu().numpy().astype("<f4", copy=False)]
