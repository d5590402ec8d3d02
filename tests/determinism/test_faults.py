"""Seeded faults: each turns its axis red, with the first divergence where it must be."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from hashing_backend import HashingBackend
from hashing_subject import hashing_subject
from vosti.impl.backend import NO_SEQUENCE, NO_SLOT, Batch, ForwardResult
from vosti.impl.backends.cpu import CpuBackend
from vosti.impl.backends.torch_ops import EVERYWHERE, TorchOps
from vosti.impl.bundled import find_checkpoint
from vosti.impl.determinism import paper
from vosti.impl.determinism.cases import Bench, Case
from vosti.impl.determinism.prompts import geometry_for, read_vocabulary
from vosti.impl.determinism.protocol import Settings, Subject
from vosti.impl.determinism.results import Done, compare, header
from vosti.impl.determinism.suites import axis_names, plan
from vosti.impl.determinism.summary import Cell, summarize
from vosti.impl.determinism.vosti_engine import VostiSubject
from vosti.impl.models.model import Model


def measured(subject: Subject, cases: Sequence[Case]) -> dict[str, Cell]:
    """The cells of some cases."""
    geometry = geometry_for(subject.context)
    bench = Bench(subject, geometry)
    done = [Done(case.name, 0.0, tuple(compare(pair) for pair in case.run(bench))) for case in cases]
    head = header(
        suite="quick",
        engine="faulty",
        model="a model",
        configuration={},
        environment={},
        scale=geometry.scale,
        cases=cases,
        skipped={},
    )
    return {cell.axis: cell for cell in summarize(head, done).cells}


class TileByBatch(TorchOps):
    """Sums in two halves where the batch has more than one tile of rows: a tile that depends on the batch."""

    rows = 0

    def chain(self, x: Tensor, weight: Tensor) -> Tensor:
        """x · weight."""
        if self.rows <= 16:
            return super().chain(x, weight)
        half = x.shape[1] // 2
        return super().chain(x[:, :half], weight[:half]) + super().chain(x[:, half:], weight[half:])


class MaskedTileResets(TorchOps):
    """A key tile of which a row sees nothing is no identity: it resets the running maximum to 0."""

    def maximum(self, x: Tensor, y: Tensor) -> Tensor:
        """The larger of the two, but 0 where the second is that of no score at all."""
        return torch.where(torch.isneginf(y), 0.0, super().maximum(x, y))

    def any_lane(self, condition: Tensor) -> Tensor:
        """True, whatever is seen."""
        return EVERYWHERE


class FaultyBackend(CpuBackend):
    """A CPU backend whose operations are told how many rows a batch has."""

    def forward(self, batch: Batch) -> ForwardResult:
        """As it is."""
        if isinstance(self._ops, TileByBatch):
            self._ops.rows = len(batch.tokens)
        return super().forward(batch)


def cpu_subject(name: str, make: Callable[[], TorchOps]) -> Subject:
    """A bundled checkpoint on faulty operations."""
    path = find_checkpoint(name)
    model = Model.load(path)
    vocabulary = read_vocabulary(path, model.config.vocab_size)
    return VostiSubject(lambda settings: FaultyBackend(model, make()), vocabulary, window=64)


def test_a_tile_that_depends_on_the_batch_turns_batch_red() -> None:
    """A prompt of 3 tokens fits into one tile when it is alone, and differs in company; one of 17 never fits."""
    subject = cpu_subject("tiny-llama3", TileByBatch)
    sizes = replace(paper.QUICK, batch_lengths=(33, 257), group_sizes=(2,), fresh=())
    cell = measured(subject, [case for case in _cases(subject, sizes) if case.axis == "batch"])["batch"]

    assert ("mismatch", 3, 3) == (cell.verdict, cell.mismatched, cell.matched)
    assert {"prompt-00"} == {pair.request for pair in cell.mismatches}
    assert cell.first is not None
    assert ("batch/2-ascending/prompt-00/0", 2) == (cell.first.name, cell.first.position)
    assert cell.first.divergence is not None
    assert cell.first.divergence.ulps > 0
    assert {"company", "packed rows", "padding"} == set(cell.first.differs)


def test_a_masked_tile_that_resets_the_maximum_turns_batch_red() -> None:
    """Of prompts of 65 and 96 tokens, the second shares a tile of rows with the last token of the first, which looks
    at a key tile that the second's first tokens do not see. The other way round tiles are aligned, and nothing differs.
    """
    subject = cpu_subject("tiny-llama3", MaskedTileResets)
    sizes = replace(paper.QUICK, batch_lengths=(1025, 1536), group_sizes=(2,), fresh=())
    cell = measured(subject, [case for case in _cases(subject, sizes) if case.axis == "batch"])["batch"]

    assert ("mismatch", 6) == (cell.verdict, cell.total)
    assert cell.first is not None
    assert ("batch/2-ascending/prompt-01/0", 95) == (cell.first.name, cell.first.position)
    assert {"prompt-01"} == {pair.request for pair in cell.mismatches}
    assert not any("descending" in pair.name for pair in cell.mismatches)


def _cases(subject: Subject, sizes: paper.Sizes) -> list[Case]:
    return paper.cases(subject, geometry_for(subject.context), sizes)


class StalePage(HashingBackend):
    """A request that goes on at the border of a page reads the page before as it was before it was last written."""

    def allocate(self, pages: int, page_size: int) -> None:
        """Make a fresh pool; every page was full of nothing before."""
        super().allocate(pages, page_size)
        self.before = list(self.slots)

    def forward(self, batch: Batch) -> ForwardResult:
        """Compute with stale pages, and put the true ones back."""
        size, held = self.page_size, dict[int, bytes]()
        for sequence in range(len(batch.tables)):
            first = int(batch.positions[batch.sequences == sequence].min())
            if first and first % size == 0:
                page = int(batch.tables[sequence, first // size - 1])
                for slot in range(page * size, page * size + size):
                    held[slot], self.slots[slot] = self.slots[slot], self.before[slot]
        result = super().forward(batch)
        for slot, value in held.items():
            self.slots[slot] = value
        return result


class StalePadding(HashingBackend):
    """Padding rows keep the write slots that the rows in their place had in the forward before."""

    def allocate(self, pages: int, page_size: int) -> None:
        """Make a fresh pool, without a forward before."""
        super().allocate(pages, page_size)
        self.last = np.full(0, -1)

    def forward(self, batch: Batch) -> ForwardResult:
        """Store what padding computes, and then all the rest."""
        for row in np.flatnonzero(batch.sequences == NO_SEQUENCE):
            if row < len(self.last) and self.last[row] >= 0:
                self.slots[self.last[row]] = b"\0" * 16
        self.last = batch.write_slots.copy()
        return super().forward(batch)


def test_a_stale_page_turns_hits_red() -> None:
    """Whoever hits a page reads what it held before: the query's first row differs, for every hit."""
    subject = hashing_subject(StalePage)
    cell = measured(subject, plan("extended", subject, geometry_for(4096), ["hits"]).cases)["hits"]

    assert ("mismatch", 264, 264) == (cell.verdict, cell.mismatched, cell.total)
    assert cell.first is not None
    assert ("hits/4/query/0", "query", 50) == (cell.first.name, cell.first.request, cell.first.position)
    assert {"hits"} <= set(cell.first.differs)


def test_a_stale_page_turns_evict_red_only_where_a_page_is_left() -> None:
    """Where all pages were evicted there is no hit, and everything is computed again."""
    subject = hashing_subject(StalePage)
    cell = measured(subject, plan("quick", subject, geometry_for(4096), ["evict"]).cases)["evict"]

    assert ("mismatch", 16, 8) == (cell.verdict, cell.mismatched, cell.matched)
    assert {"1", "2"} == {pair.name.split("-")[2] for pair in cell.mismatches}


def test_a_stale_padding_entry_turns_padding_red() -> None:
    """The first decode has fewer rows than the prefill: padding overwrites what the prompt stored."""
    subject = hashing_subject(StalePadding)
    cell = measured(subject, plan("extended", subject, geometry_for(4096), ["padding"]).cases)["padding"]

    assert "mismatch" == cell.verdict
    assert cell.first is not None
    assert ("padding/2-rows/row-00/1", "row-00", 3) == (cell.first.name, cell.first.request, cell.first.position)
    assert not any(pair.name.endswith("/0") for pair in cell.mismatches)


class Nosy(HashingBackend):
    """Values depend on all that they must not: how many rows a forward has, on pages, and on their size."""

    def forward(self, batch: Batch) -> ForwardResult:
        """Spoil logits, and what is stored."""
        self.seen = f"{len(batch.tokens)} {batch.tables.tolist()} {self.page_size}".encode()
        result = super().forward(batch)
        for slot in batch.write_slots[batch.write_slots != NO_SLOT]:
            self.slots[slot] = hashlib.sha256(self.slots[slot] + self.seen).digest()[:16]
        return result

    def _logits(self, read: bytes, *, sick: bool) -> np.ndarray:
        return super()._logits(read + self.seen, sick=sick)


@pytest.mark.parametrize("axis", axis_names("quick"))
def test_every_axis_can_turn_red(axis: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None passes whatever an engine does."""
    subject = hashing_subject(Nosy)
    monkeypatch.setattr(Bench, "serve_fresh", lambda bench, settings, asks, cold=False: bench.serve(settings, asks)[0])
    cell = measured(subject, plan("quick", subject, geometry_for(4096), [axis]).cases)[axis]

    assert "mismatch" == cell.verdict


@pytest.mark.parametrize("axis", ["chunk", "prefix"])
def test_an_engine_that_ignores_what_is_asked_is_invalid(axis: str) -> None:
    """Budgets that cut nothing and caches that find nothing give equal rows, and no pass."""
    subject = hashing_subject()
    plain = subject.open

    def deaf(settings: Settings) -> object:
        return plain(replace(settings, token_budget=4096, prefix_caching=False))

    subject.open = deaf  # type: ignore[method-assign,assignment]
    cell = measured(subject, plan("quick", subject, geometry_for(4096), [axis]).cases)[axis]

    assert ("invalid", 0) == (cell.verdict, cell.mismatched)
    assert cell.first_invalid is not None
    assert cell.matched + cell.invalid == cell.total
