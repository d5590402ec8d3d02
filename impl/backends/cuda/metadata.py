"""From a batch to the integers that kernels read: premises checked on the host, one copy to the device.

All integers of a forward stand in one buffer of int32, each array at a multiple of 16 bytes. What the batch leaves
unused is written too, before every forward: padding rows have token 0, position 0 and no slot, padding sequences no
row, no key and no page, and padding entries of the row map name row 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np
import numpy.typing as npt

from vosti.impl.backend import NO_PAGE, NO_SEQUENCE, NO_SLOT, Batch, Integers
from vosti.impl.backends.cuda.plan import ROW_MAP, ROW_METADATA, SEQUENCE_METADATA, TABLES, Form
from vosti.impl.errors import BatchError
from vosti.spec.numerics.attention import KEY_TILE, SPLIT_TILES

SPLIT = KEY_TILE * SPLIT_TILES
"""Keys of one split."""

ALIGNED = 4
"""Integers that the start of each array is a multiple of."""


@dataclass(frozen=True)
class Limits:
    """What a batch must keep to."""

    vocabulary: int
    positions: int
    pages: int
    page_size: int

    @property
    def table_width(self) -> int:
        """Columns of the tables that kernels read: no sequence has more pages."""
        return min(self.pages, -(-self.positions // self.page_size))


@dataclass(frozen=True, eq=False)
class Packed:
    """A batch by sequence: sequence b has the rows from starts[b], counts[b] of them, the last of lengths[b] keys."""

    batch: Batch
    starts: Integers
    counts: Integers
    lengths: Integers

    @property
    def most_rows(self) -> int:
        """Of one sequence."""
        return int(self.counts.max(initial=0))

    @property
    def longest(self) -> int:
        """Keys of one sequence, at most."""
        return int(self.lengths.max(initial=0))


@dataclass(frozen=True)
class Shape:
    """Everything that the launches of a forward depend on, but for the contents of buffers."""

    form: Form
    rows: int
    sequences: int
    selected: int
    """Wanted rows of logits."""

    most_rows: int
    """Of one sequence, at most."""

    longest: int
    """Keys of one sequence, at most: whole splits."""


def pack(batch: Batch, limits: Limits) -> Packed:
    """A batch by sequence.

    Raises `BatchError` for what would reach outside the model's tables or the pool, for a position without a page, for
    a slot that two rows write, and unless the rows of each sequence stand together in order of position, and the
    sequences in order.
    """
    rows, sequences = len(batch.tokens), len(batch.tables)
    if rows == 0:
        raise BatchError("A batch must have at least one row.")
    _check_range("tokens", batch.tokens, 0, limits.vocabulary)
    _check_range("positions", batch.positions, 0, limits.positions)
    _check_range("write_slots", batch.write_slots, NO_SLOT, limits.pages * limits.page_size)
    _check_range("sequences", batch.sequences, NO_SEQUENCE, sequences)
    _check_range("tables", batch.tables, NO_PAGE, limits.pages)
    _check_range("logit_rows", batch.logit_rows, 0, rows)

    live = (batch.sequences != NO_SEQUENCE).nonzero()[0]
    owners, positions = batch.sequences[live], batch.positions[live]
    same = owners[1:] == owners[:-1]
    if (owners[1:] < owners[:-1]).any() or ((np.diff(live) != 1) & same).any() or (np.diff(positions) != 1)[same].any():
        raise BatchError("The rows of a sequence must stand together in order of position, and sequences in order.")
    counts = np.bincount(owners, minlength=sequences)
    ends = counts.cumsum()
    starts = np.zeros(sequences, np.int64)
    lengths = np.zeros(sequences, np.int64)
    running = counts > 0
    starts[running] = live[(ends - counts)[running]]
    lengths[running] = positions[ends[running] - 1] + 1

    needed = -(-lengths // limits.page_size)
    width = batch.tables.shape[1]
    missing = (batch.tables == NO_PAGE) & (np.arange(width) < needed[:, None])
    if missing.any() or needed.max(initial=0) > width:
        sequence = int((missing.any(1) | (needed > width)).nonzero()[0][0])
        raise BatchError(f"Sequence {sequence} lacks a page for some position up to {lengths[sequence] - 1}.")
    written = batch.write_slots[batch.write_slots != NO_SLOT]
    if len(np.unique(written)) != len(written):
        raise BatchError("Two rows of a batch write one slot.")
    return Packed(batch, starts, counts, lengths)


def _check_range(name: str, values: Integers, low: int, high: int) -> None:
    if values.size and not (low <= values.min() and values.max() < high):
        raise BatchError(f"Batch.{name} must lie between {low} and {high - 1}.")


@dataclass(frozen=True)
class Place:
    """Where an array of integers stands in the common buffer."""

    offset: int
    shape: tuple[int, ...]

    @property
    def end(self) -> int:
        """One more than its last element."""
        return self.offset + prod(self.shape)


@cache
def layout(shape: Shape, table_width: int) -> dict[str, Place]:
    """The arrays of a forward's metadata, by name, in the order in which they stand."""
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(ROW_METADATA, (shape.rows,))
    shapes |= dict.fromkeys(SEQUENCE_METADATA, (shape.sequences,))
    shapes |= {ROW_MAP: (shape.selected,), TABLES: (shape.sequences, table_width)}
    places, offset = {}, 0
    for name, sizes in shapes.items():
        places[name] = Place(offset, sizes)
        offset = -(-places[name].end // ALIGNED) * ALIGNED
    return places


def write(packed: Packed, places: Mapping[str, Place], host: npt.NDArray[np.int32]) -> None:
    """Write a batch's integers, and those of what it leaves unused."""
    batch = packed.batch
    arrays = {
        "tokens": (batch.tokens, 0),
        "positions": (batch.positions, 0),
        "slots": (batch.write_slots, NO_SLOT),
        "starts": (packed.starts, 0),
        "counts": (packed.counts, 0),
        "lengths": (packed.lengths, 0),
        ROW_MAP: (batch.logit_rows, 0),
    }
    for name, (values, padding) in arrays.items():
        place = places[name]
        host[place.offset : place.offset + len(values)] = values
        host[place.offset + len(values) : place.end] = padding
    place = places[TABLES]
    tables = host[place.offset : place.end].reshape(place.shape)
    sequences, width = batch.tables.shape
    tables[:sequences, :width] = batch.tables
    tables[:sequences, width:] = NO_PAGE
    tables[sequences:] = NO_PAGE
