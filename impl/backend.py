"""The interface between the engine and a model: what one forward reads, and what it returns.

The engine decides which rows run and where their keys and values live; a backend computes, and
holds the pool of pages. Everything that a forward may depend on is in its `Batch`: a row's
values are a function of the tokens at positions 0 to its own, whatever stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from vosti.impl.errors import BatchError

if TYPE_CHECKING:
    import torch

ROW_TILE = 16
"""Rows of one tile on the CPU: each batch is padded to a multiple of it."""

NO_SLOT = -1
"""In `Batch.write_slots`: this row stores no key and value."""

NO_SEQUENCE = -1
"""In `Batch.sequences`: this row is padding."""

NO_PAGE = -1
"""In `Batch.tables`: no page stands here."""

Integers = npt.NDArray[np.int64]
"""An array of signed 64-bit integers."""


@dataclass(frozen=True, eq=False)
class Batch:
    """The packed rows of one forward; every array has dtype int64.

    A *row* is one token of one sequence. The rows of a sequence may come in any number, but each
    position from 0 to the row's own must have been written: by an earlier forward, or by a row of this one
    (keys and values are stored before attention reads them, layer by layer). A backend may ask that the rows of each
    sequence stand together in order of position, and the sequences in order, as `vosti.impl.packing` has them.

    A padding row is (token 0, position 0, write slot `NO_SLOT`, sequence `NO_SEQUENCE`): it writes
    nothing and reads no slot.

    Raises `BatchError` for a wrong dtype or shape.
    """

    tokens: Integers
    """[rows] Token id of each row."""

    positions: Integers
    """[rows] Position of each row's token in its sequence, from 0."""

    write_slots: Integers
    """[rows] Flat slot = page * page_size + offset that takes the row's key and value, or `NO_SLOT`.

    The slots that are not `NO_SLOT` are pairwise different.
    """

    sequences: Integers
    """[rows] Index into `tables`, or `NO_SEQUENCE` for a padding row."""

    tables: Integers
    """[sequences, width] Page ids in order of position; `NO_PAGE` where no page stands."""

    logit_rows: Integers
    """[n] Rows whose logits are wanted, in the order of the result; none of them padding."""

    def __post_init__(self) -> None:
        for name, dimensions in _DIMENSIONS.items():
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype != np.int64 or array.ndim != dimensions:
                raise BatchError(f"Batch.{name} must be a numpy array of int64 with {dimensions} dimension(s).")
        for name in ("positions", "write_slots", "sequences"):
            if len(getattr(self, name)) != len(self.tokens):
                raise BatchError(f"Batch.{name} has {len(getattr(self, name))} rows, Batch.tokens {len(self.tokens)}.")


_DIMENSIONS = {"tokens": 1, "positions": 1, "write_slots": 1, "sequences": 1, "tables": 2, "logit_rows": 1}


@dataclass(frozen=True, eq=False)
class ForwardResult:
    """What one forward returns. All arrays are the caller's: the backend does not touch them again."""

    logits: torch.Tensor
    """[n, vocab] float32: the logits of `Batch.logit_rows`, in that order. May hold non-finite values."""

    kv_finite: npt.NDArray[np.bool_]
    """[rows] Whether all keys and values of the row, over all layers, are finite. True for padding rows."""

    flagged_logits: npt.NDArray[np.bool_] | None = None
    """[n] Whether each row of logits holds a number that is not finite; None if the backend did not look."""

    largest: npt.NDArray[np.int64] | None = None
    """[n] The lowest token id among each finite row's largest logits, which is what greedy sampling takes; None if the
    backend did not look.
    """

    launching: Callable[[], AbstractContextManager[None]] = nullcontext
    """Within it kernels are launched on the logits: none whose binary the backend would not run itself."""

    def logits_finite(self) -> npt.NDArray[np.bool_]:
        """[n] Whether each row of logits holds finite numbers only."""
        if self.flagged_logits is not None:
            return ~self.flagged_logits
        found: npt.NDArray[np.bool_] = self.logits.isfinite().all(1).cpu().numpy()
        return found


Digests = Callable[[], list[str]]
"""Digests that are being computed, in order; a call waits for them. Values may change in the meantime."""


class Backend(Protocol):
    """A model together with one pool of key/value pages."""

    @property
    def vocab_size(self) -> int:
        """Number of logits of a row; token ids are 0 to vocab_size - 1."""

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Token ids that end a sequence, ascending; empty if the checkpoint names none."""

    @property
    def max_positions(self) -> int:
        """Longest sequence that the model accepts, in tokens."""

    @property
    def row_tile(self) -> int:
        """The number of rows of a batch is a positive multiple of this."""

    def allocate(self, pages: int, page_size: int) -> None:
        """Make a fresh pool of `pages` pages of `page_size` slots each, and drop the one before."""

    def poison(self) -> None:
        """Fill the whole pool with NaN, so that a read of a slot that nobody wrote would show."""

    def forward(self, batch: Batch) -> ForwardResult:
        """Compute the batch's rows, store their keys and values, and return the logits asked for.

        Changes the slots named in `batch.write_slots` and no others. Raises `BatchError` before any slot is
        changed if the batch breaks its contract.
        """

    def slot_bytes(self, slots: Sequence[int]) -> list[bytes]:
        """The raw bytes stored in each slot, read from the pool: per layer in order its key, then its value.

        Little-endian in the pool's dtype; of each layer [2, kv_heads, head_dim], which may differ between layers.
        """

    @property
    def digest_algorithm(self) -> str:
        """Which algorithm of `vosti.spec.digests` digests are made with."""

    def slot_digests(self, slots: Sequence[int]) -> Digests:
        """Begin to digest each slot as the pool holds it now: what `slot_bytes` would return."""

    def row_digests(self, logits: torch.Tensor) -> Digests:
        """Begin to digest each row of a forward's logits: its float32 values, little-endian."""

    def fingerprint(self) -> dict[str, object]:
        """The configuration W: everything that may change a value, and nothing else, as JSON types."""
