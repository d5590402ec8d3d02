"""The rows that the theorem speaks of are the rows that the engine packs, and its plans keep to what they owe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest

from company import random_workload, serve, serve_alone, with_drafts
from vosti.impl import engine as engine_module
from vosti.impl.backend import NO_SEQUENCE, Batch
from vosti.impl.options import EngineOptions
from vosti.impl.packing import pack
from vosti.impl.planning import Chunk
from vosti.impl.pool_state import Pool
from vosti.proofs.pool_relation import agrees
from vosti.proofs.pool_rows import Layout, chunks_owed, layout_ok, packed_rows
from vosti.spec.events import ForwardEvent
from vosti.spec.rows import Rows, forward_ok
from vosti.spec.state import Page, Request, RequestId, Sampler, State, Token


@dataclass(frozen=True)
class Packed:
    """What was packed, and the rows that were recorded of it."""

    chunks: tuple[Chunk, ...]
    pool: Pool
    histories: Mapping[RequestId, tuple[Token, ...]]
    batch: Batch
    rows: Rows

    @property
    def state(self) -> State:
        """A state that agrees with the pool, as far as rows are concerned: ghosts and values are left out."""
        drafts = {chunk.request: chunk.draft for chunk in self.chunks}
        requests = {
            r: Request(
                prompt=self.histories.get(r, ()),
                output=(),
                draft=drafts.get(r, ()),
                sampler=Sampler(None),
                cached=holding.cached,
                table=holding.table,
                domain=holding.domain,
                arrival=0,
            )
            for r, holding in self.pool.requests.items()
        }
        pages = {
            p: Page(
                prefix=(),
                tokens=page.tokens,
                kv=(),
                holders=frozenset(),
                registered=page.registered,
                parent=page.parent,
                domain=page.domain,
            )
            for p, page in self.pool.pages.items()
        }
        return State(requests, pages, self.pool.capacity, frozenset(requests), self.pool.page_size)

    @property
    def layout(self) -> Layout:
        """The layout of the arrays."""
        sequences = self.batch.sequences.tolist()
        return Layout(
            chunk=tuple(None if number == NO_SEQUENCE else number for number in sequences),
            first=tuple(sequences.index(number) for number in range(len(self.chunks))),
            padding=Token(0),
            logits=frozenset(self.batch.logit_rows.tolist()),
        )


Call = tuple[tuple[Chunk, ...], Pool, Mapping[RequestId, tuple[Token, ...]], Batch]


@pytest.fixture(scope="module")
def packed() -> tuple[Packed, ...]:
    """Every forward of some runs, in a pool so small that requests are preempted."""
    found = list[Packed]()
    for seed in range(4):
        calls = list[Call]()

        def watched(
            chunks: Sequence[Chunk],
            pool: Pool,
            histories: Mapping[RequestId, tuple[Token, ...]],
            row_tile: int,
            asked: Mapping[RequestId, int],
            calls: list[Call] = calls,
        ) -> Batch:
            batch = pack(chunks, pool, histories, row_tile, asked)
            calls.append((tuple(chunks), pool, {r: tuple(history) for r, history in histories.items()}, batch))
            return batch

        random = Random(seed)
        workload = random_workload(random)
        workload = with_drafts(workload, serve_alone(workload), random)
        options = EngineOptions(page_size=random.choice((1, 2, 3, 5)), pages=60, max_seqs=4, token_budget=16)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine_module, "pack", watched)
            run = serve(workload, options)
        forwards = [event for event in run.events if isinstance(event, ForwardEvent) and event.rows]
        found += [Packed(*call, event.rows) for call, event in zip(calls, forwards, strict=True)]
    return tuple(found)


def test_rows_are_those_of_the_theorem(packed: tuple[Packed, ...]) -> None:
    """What the engine recorded of its arrays is `packed_rows` of pool, chunks and layout."""
    assert len(packed) > 100
    for one in packed:
        assert packed_rows(one.pool, one.chunks, one.histories, one.layout) == one.rows


def test_plans_keep_to_what_they_owe(packed: tuple[Packed, ...]) -> None:
    """Every plan's chunks are as they should be, every batch has an orderly layout; and so the rows are right."""
    for one in packed:
        assert agrees(one.pool, one.state)
        assert chunks_owed(one.pool, one.state, one.chunks, one.histories)
        assert layout_ok(one.chunks, one.layout)
        assert forward_ok(one.state, one.rows)


def test_runs_are_varied(packed: tuple[Packed, ...]) -> None:
    """There are batches of several chunks, with padding, with drafts, and with shared pages."""
    assert any(len(one.chunks) > 1 for one in packed)
    assert any(None in one.layout.chunk for one in packed)
    assert any(chunk.draft for one in packed for chunk in one.chunks)
    assert any(page.refcount > 1 for one in packed for page in one.pool.pages.values())


def faulty(one: Packed) -> Iterator[tuple[str, bool]]:
    """Faults in the first chunk's first row, and whether what is owed or the layout still holds."""
    first, *others = one.chunks
    later = (replace(first, start=first.start + 1), *others)
    longer = (replace(first, count=first.count + 99), *others)
    astray = replace(one.layout, chunk=(None, *one.layout.chunk[1:]))
    yield "a position is left out", chunks_owed(one.pool, one.state, later, one.histories)
    yield "a chunk longer than its table", chunks_owed(one.pool, one.state, longer, one.histories)
    yield "one request twice", chunks_owed(one.pool, one.state, (first, *one.chunks), one.histories)
    yield "a chunk longer than its rows", layout_ok(longer, one.layout)
    yield "a row taken for padding", layout_ok(one.chunks, astray)


def test_faults_are_seen(packed: tuple[Packed, ...]) -> None:
    """What is owed, and the layout, are false of chunks and layouts with a fault."""
    assert [] == [fault for one in packed[:20] for fault, holds in faulty(one) if holds]
