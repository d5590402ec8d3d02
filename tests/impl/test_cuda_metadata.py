"""From a batch to a kernel's integers: what is refused, where everything stands, what padding says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from vosti.impl.backend import NO_PAGE, NO_SEQUENCE, NO_SLOT, Batch
from vosti.impl.backends.cuda.metadata import ALIGNED, Limits, Place, Shape, layout, pack, write
from vosti.impl.backends.cuda.plan import METADATA, Form
from vosti.impl.errors import BatchError

LIMITS = Limits(vocabulary=100, positions=64, pages=10, page_size=4)


def integers(*values: int) -> np.ndarray:
    """An array as batches have them."""
    return np.array(values, np.int64)


def batch(**changed: object) -> Batch:
    """Three rows of one sequence, one of another, and a padding row."""
    fields: dict[str, object] = {
        "tokens": integers(5, 6, 7, 8, 0),
        "positions": integers(2, 3, 4, 0, 0),
        "write_slots": integers(10, 11, 28, 4, NO_SLOT),
        "sequences": integers(0, 0, 0, 2, NO_SEQUENCE),
        "tables": np.array([[2, 7], [NO_PAGE, NO_PAGE], [1, NO_PAGE]], np.int64),
        "logit_rows": integers(2, 3),
    }
    return Batch(**{**fields, **changed})  # type: ignore[arg-type]


def test_sequences_are_found() -> None:
    """Each sequence's first row, number of rows and number of keys; nothing for one without rows."""
    packed = pack(batch(), LIMITS)

    assert [0, 0, 3] == packed.starts.tolist()
    assert [3, 0, 1] == packed.counts.tolist()
    assert [5, 0, 1] == packed.lengths.tolist()
    assert (3, 5) == (packed.most_rows, packed.longest)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokens": integers(5, 6, 7, 100, 0)}, "tokens must lie between 0 and 99"),
        ({"positions": integers(2, 3, -1, 0, 0)}, "positions must lie between 0 and 63"),
        ({"write_slots": integers(10, 11, 40, 4, -1)}, "write_slots must lie between -1 and 39"),
        ({"sequences": integers(0, 0, 0, 3, -1)}, "sequences must lie between -1 and 2"),
        ({"tables": np.array([[2, 10], [-1, -1], [1, -1]])}, "tables must lie between -1 and 9"),
        ({"logit_rows": integers(5)}, "logit_rows must lie between 0 and 4"),
        ({"write_slots": integers(10, 11, 10, 4, -1)}, "Two rows of a batch write one slot"),
        ({"positions": integers(2, 4, 5, 0, 0)}, "must stand together in order of position"),
        ({"positions": integers(4, 3, 2, 0, 0)}, "must stand together in order of position"),
        ({"sequences": integers(0, 0, NO_SEQUENCE, 0, 2)}, "must stand together in order of position"),
        ({"sequences": integers(2, 2, 2, 0, NO_SEQUENCE)}, "sequences in order"),
        ({"tables": np.array([[2, -1], [-1, -1], [1, -1]])}, "Sequence 0 lacks a page for some position up to 4"),
        ({"tables": np.array([[-1, 7], [-1, -1], [1, -1]])}, "Sequence 0 lacks a page"),
        ({"tables": np.array([[2], [-1], [1]])}, "Sequence 0 lacks a page"),
    ],
)
def test_what_breaks_a_premise_is_refused(changed: dict[str, object], message: str) -> None:
    """No kernel is launched on integers that its contract does not allow."""
    with pytest.raises(BatchError, match=message):
        pack(batch(**changed), LIMITS)


def test_a_batch_without_rows_is_refused() -> None:
    """There is nothing to compute."""
    none = integers()
    empty = batch(tokens=none, positions=none, write_slots=none, sequences=none, logit_rows=none)

    with pytest.raises(BatchError, match="at least one row"):
        pack(empty, LIMITS)


SHAPE = Shape(Form.SPLIT, rows=8, sequences=4, selected=2, most_rows=4, longest=1024)


def test_arrays_stand_apart_and_aligned() -> None:
    """Each array begins at a multiple of 16 bytes, behind the one before."""
    places = list(layout(SHAPE, 3).values())

    assert set(METADATA) == set(layout(SHAPE, 3))
    assert all(place.offset % ALIGNED == 0 for place in places)
    assert all(first.end <= second.offset for first, second in pairwise(places))


def test_padding_is_rewritten() -> None:
    """Whatever stood there: padding rows have no slot, padding sequences no rows, no keys and no pages."""
    places = layout(SHAPE, 3)
    host = np.full(max(place.end for place in places.values()), 77, np.int32)
    write(pack(batch(), LIMITS), places, host)

    def found(name: str) -> list[object]:
        place: Place = places[name]
        values: list[object] = host[place.offset : place.end].reshape(place.shape).tolist()
        return values

    assert [5, 6, 7, 8, 0, 0, 0, 0] == found("tokens")
    assert [2, 3, 4, 0, 0, 0, 0, 0] == found("positions")
    assert [10, 11, 28, 4, -1, -1, -1, -1] == found("slots")
    assert [3, 0, 1, 0] == found("counts")
    assert [5, 0, 1, 0] == found("lengths")
    assert [0, 0, 3, 0] == found("starts")
    assert [2, 3] == found("row_map")
    assert [[2, 7, -1], [-1, -1, -1], [1, -1, -1], [-1, -1, -1]] == found("tables")


def test_tables_are_as_wide_as_they_can_get() -> None:
    """No wider than the pool has pages, nor than the longest sequence needs."""
    assert 10 == LIMITS.table_width
    assert 16 == replace(LIMITS, pages=1000).table_width
