"""Digests of slots and logits where they lie: the word sum of `vosti.spec.digests`, by `vosti.kernels.digest`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

from vosti.impl.backend import Digests
from vosti.kernels.digest import Layout, digest, fetched, hexadecimal, layout, matrix_layout
from vosti.kernels.tables import Table

DIGESTS = ("digest", "digest_merge")
"""The operations of a digest, in order."""

WORD = 4
"""Bytes of a word."""


class DeviceDigests:
    """Digests of one backend's values."""

    def __init__(self, table: Table, device: torch.device) -> None:
        """Raises `ConfigurationError` if the table has no tiles for digests."""
        self._entries = table.entry(DIGESTS[0]), table.entry(DIGESTS[1])
        self._device = device
        self._slots = layout([], device)
        self._rows: dict[int, Layout] = {}

    def lay_out(self, caches: Iterable[Tensor]) -> None:
        """Take note of a new pool: keys and values of its layers, one behind the other."""
        parts, begin = [], 0
        for cache in caches:
            words = cache[0].nbytes // WORD
            parts.append((begin, words, words))
            begin += len(cache) * words
        self._slots = layout(parts, self._device)

    def slots(self, pool: Tensor, slots: Sequence[int]) -> Digests:
        """Begin to digest slots of the pool."""
        return self._begin(pool.view(torch.int32), self._slots, torch.tensor(slots, dtype=torch.int32))

    def rows(self, logits: Tensor) -> Digests:
        """Begin to digest the rows of logits [n, width]."""
        count, width = logits.shape
        if width not in self._rows:
            self._rows[width] = matrix_layout(width, self._device)
        return self._begin(logits.view(torch.int32), self._rows[width], torch.arange(count, dtype=torch.int32))

    def _begin(self, words: Tensor, rows: Layout, sources: Tensor) -> Digests:
        if not len(sources):
            return list
        found = digest(words, rows, sources.to(self._device), self._entries)
        return fetched(found) if found.is_cuda else partial(hexadecimal, found)
