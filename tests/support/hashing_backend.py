"""A backend without a model: every value is a hash of all that it was computed from.

A position's value hashes the values of all earlier positions, read through the page table, and its own token; a row
of logits hashes the values of all its positions. Whatever an engine gets wrong (a slot, a page, an order, a token)
changes bits from there on, so an engine can be tested by the thousand steps a second.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch

from vosti.impl.backend import NO_SEQUENCE, NO_SLOT, Batch, ForwardResult
from vosti.impl.backends.host_digests import HostDigests

UNWRITTEN = b"\xff" * 16


class HashingBackend(HostDigests):
    """Implements `vosti.impl.backend.Backend`."""

    def __init__(
        self,
        vocab_size: int = 11,
        eos_ids: tuple[int, ...] = (),
        max_positions: int = 4096,
        row_tile: int = 4,
        sick_tokens: frozenset[int] = frozenset(),
        sick_endings: frozenset[int] = frozenset(),
        finds_largest: bool = False,
    ) -> None:
        """A backend whose KV is not finite at `sick_tokens`, and whose logits are not finite after `sick_endings`; one
        that finds the largest logits leaves no greedy token to the engine.
        """
        self.vocab_size = vocab_size
        self.eos_ids = eos_ids
        self.max_positions = max_positions
        self.row_tile = row_tile
        self.sick_tokens = sick_tokens
        self.sick_endings = sick_endings
        self.finds_largest = finds_largest
        self.page_size = 0
        self.forwards = 0
        self.digested = 0
        self.slots: list[bytes] = []

    def allocate(self, pages: int, page_size: int) -> None:
        """Make a fresh pool."""
        self.page_size = page_size
        self.slots = [UNWRITTEN] * (pages * page_size)

    def poison(self) -> None:
        """Nothing was written yet, and that shows."""
        self.slots = [UNWRITTEN] * len(self.slots)

    def forward(self, batch: Batch) -> ForwardResult:
        """Hash each row, in order."""
        self.forwards += 1
        wanted = set(batch.logit_rows.tolist())
        logits: dict[int, np.ndarray] = {}
        finite = np.ones(len(batch.tokens), bool)
        for row, (token, position, slot, sequence) in enumerate(
            zip(*(a.tolist() for a in (batch.tokens, batch.positions, batch.write_slots, batch.sequences)), strict=True)
        ):
            if sequence == NO_SEQUENCE:
                assert slot == NO_SLOT
                continue
            past = [self.slots[self._slot(batch, sequence, p)] for p in range(position)]
            value = hashlib.sha256(b"".join(past) + f"{position}:{token}".encode()).digest()[:16]
            if slot != NO_SLOT:
                self.slots[slot] = value
            finite[row] = token not in self.sick_tokens
            if row in wanted:
                read = b"".join([*past, self.slots[self._slot(batch, sequence, position)]])
                logits[row] = self._logits(read, sick=token in self.sick_endings)
        stacked = [logits[row] for row in batch.logit_rows.tolist()]
        shape = (len(stacked), self.vocab_size)
        rows = torch.from_numpy(np.array(stacked, np.float32).reshape(shape))
        largest = rows.argmax(1).numpy() if self.finds_largest else None
        return ForwardResult(logits=rows, kv_finite=finite, largest=largest)

    def _slot(self, batch: Batch, sequence: int, position: int) -> int:
        page = int(batch.tables[sequence, position // self.page_size])
        assert page >= 0, "a row reads through a table entry that names no page"
        return page * self.page_size + position % self.page_size

    def _logits(self, read: bytes, *, sick: bool) -> np.ndarray:
        seed = int.from_bytes(hashlib.sha256(b"logits" + read).digest()[:8], "big")
        row = np.random.default_rng(seed).normal(0, 2, self.vocab_size).astype(np.float32)
        if sick:
            row[0] = np.nan
        return row

    def slot_bytes(self, slots: Sequence[int]) -> list[bytes]:
        """The slots' hashes."""
        self.digested += len(slots)
        return [self.slots[slot] for slot in slots]

    def fingerprint(self) -> dict[str, object]:
        """What a value depends on."""
        return {
            "backend": "hashing",
            "vocab_size": self.vocab_size,
            "sick": [sorted(self.sick_tokens), sorted(self.sick_endings)],
        }
