"""Driving a backend row by row: schedules of rows, on scattered pages, in a poisoned pool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

import vosti.impl
from vosti.impl.backend import NO_PAGE, NO_SEQUENCE, NO_SLOT, Backend, Batch

CHECKPOINTS = Path(vosti.impl.__file__).parent / "checkpoints"
"""The bundled checkpoints."""

NAMES = ("tiny-llama3", "tiny-gemma3")
"""Their folders."""

Step = Sequence[int]
"""The rows of one forward: whose next token each row is, or `NO_SEQUENCE` for padding."""

Place = tuple[int, int]
"""(sequence, position)."""


@dataclass(frozen=True)
class Computed:
    """What one row yielded."""

    logits: bytes
    stored: bytes
    """Keys and values of all layers, read back from the pool."""

    finite: bool


@dataclass(frozen=True)
class Pages:
    """How a pool is cut, and which pages each sequence gets."""

    page_size: int
    tables: Sequence[Sequence[int]]
    pages: int


def scattered_pages(lengths: Sequence[int], page_size: int, seed: int, spare: int = 3) -> Pages:
    """Pages for sequences of the given lengths, in an order that the seed shuffles, and some that nobody uses."""
    counts = [-(-length // page_size) for length in lengths]
    pages = list(range(sum(counts) + spare))
    Random(seed).shuffle(pages)
    ends = np.cumsum(counts).tolist()
    return Pages(page_size, [pages[end - count : end] for count, end in zip(counts, ends, strict=True)], len(pages))


def make_batch(
    sequences: Sequence[Sequence[int]], rows: Sequence[Place], pages: Pages, logit_rows: Sequence[int]
) -> Batch:
    """The batch of the given rows; a sequence below 0 makes a padding row."""
    width = max(len(table) for table in pages.tables)
    tables = np.full((len(pages.tables), width), NO_PAGE, dtype=np.int64)
    for sequence, table in enumerate(pages.tables):
        tables[sequence, : len(table)] = table

    def column(values: Iterable[int]) -> np.ndarray:
        return np.fromiter(values, dtype=np.int64)

    return Batch(
        tokens=column(sequences[s][p] if s >= 0 else 0 for s, p in rows),
        positions=column(p if s >= 0 else 0 for s, p in rows),
        write_slots=column(slot_of(pages, s, p) if s >= 0 else NO_SLOT for s, p in rows),
        sequences=column(s if s >= 0 else NO_SEQUENCE for s, _ in rows),
        tables=tables,
        logit_rows=column(logit_rows),
    )


def slot_of(pages: Pages, sequence: int, position: int) -> int:
    """Where a position's key and value are stored."""
    page_size = pages.page_size
    return pages.tables[sequence][position // page_size] * page_size + position % page_size


def run(
    backend: Backend,
    sequences: Sequence[Sequence[int]],
    steps: Iterable[Step],
    pages: Pages,
    *,
    wanted: set[Place] | None = None,
) -> dict[Place, Computed]:
    """Run a schedule in a fresh pool full of NaN, and return what each row (or each wanted one) yielded.

    A step's rows are filled up with padding rows at the end.
    """
    backend.allocate(pages.pages, pages.page_size)
    backend.poison()
    reached = [0] * len(sequences)
    computed = {}
    for step in steps:
        rows: list[Place] = []
        for sequence in [*step, *[NO_SEQUENCE] * (-len(step) % backend.row_tile)]:
            rows.append((sequence, reached[sequence] if sequence >= 0 else 0))
            if sequence >= 0:
                reached[sequence] += 1
        chosen = [i for i, place in enumerate(rows) if place[0] >= 0 and (wanted is None or place in wanted)]
        result = backend.forward(make_batch(sequences, rows, pages, chosen))
        stored = backend.slot_bytes([slot_of(pages, *rows[i]) for i in chosen])
        for number, i in enumerate(chosen):
            logits = result.logits[number].cpu().numpy().tobytes()
            computed[rows[i]] = Computed(logits, stored[number], bool(result.kv_finite[i]))
    return computed


def alone(backend: Backend, sequences: Sequence[Sequence[int]], page_size: int = 16) -> dict[Place, Computed]:
    """Each sequence in one forward of its own, in a fresh pool."""
    computed = {}
    for number, sequence in enumerate(sequences):
        pages = scattered_pages([len(sequence)], page_size, seed=number)
        own = run(backend, [sequence], [[0] * len(sequence)], pages)
        computed.update({(number, position): row for (_, position), row in own.items()})
    return computed


def random_tokens(lengths: Iterable[int], seed: int, vocabulary: int = 4096) -> list[list[int]]:
    """Sequences of random tokens."""
    random = Random(seed)
    return [[random.randrange(vocabulary) for _ in range(length)] for length in lengths]


def random_steps(lengths: Sequence[int], seed: int, most: int = 40) -> list[list[int]]:
    """A schedule of all rows: chunks of random sizes, in random company, in random places, with padding between."""
    random = Random(seed)
    left = list(lengths)
    steps = []
    while any(left):
        step: list[int] = []
        for sequence in random.sample(range(len(left)), len(left)):
            count = min(left[sequence], random.choice((0, 0, 1, 1, 2, 5, 15, 16, 17, most)))
            left[sequence] -= count
            step += [sequence] * count
        step += [NO_SEQUENCE] * random.randrange(4)
        random.shuffle(step)
        if any(sequence >= 0 for sequence in step):
            steps.append(step)
    return steps


def differing(expected: dict[Place, Computed], found: dict[Place, Computed]) -> list[Place]:
    """The places found whose bits are not the expected ones."""
    return [place for place, row in found.items() if row != expected[place]]
