"""The forward's rows: proved of every batch, true of what the backend packs, and false of what is wrong."""

from __future__ import annotations

import ast
import inspect
import random
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from vosti.impl.backend import NO_PAGE, NO_SEQUENCE, NO_SLOT, Batch
from vosti.impl.backends.cuda.metadata import Limits, pack
from vosti.proofs import forward_rows
from vosti.proofs.forward_rows import Packed, layer_part
from vosti.proofs.prove import concerns, discharge, prove
from vosti.refinement.smt.obligation import Obligation
from vosti.refinement.smt.solve import LIMITS, Answer, solve
from vosti.refinement.smt.solve import Limits as ResourceLimits
from vosti.spec import rows
from vosti.spec.invariants import CONJUNCTS
from vosti.spec.reference import canonical_kv
from vosti.spec.rows import Row, Rows, forward_ok
from vosti.spec.state import Domain, Page, PageId, Request, RequestId, Sampler, State, Token


def test_every_obligation_is_proved() -> None:
    """By Z3, within a third of its limit."""
    report = prove(["forward_rows"], solvers=("z3",))

    assert [] == [(r.obligation.name, r.verdicts["z3"].detail) for r in report.failures]
    assert report.proved
    assert max(r.verdicts["z3"].resources for r in report.results) * 3 <= LIMITS.z3


def test_the_second_solver_agrees() -> None:
    """cvc5 proves the statements themselves; that they are defined, too, where there is more time."""
    chosen = [one for one in forward_rows.obligations() if "is defined" not in one.name]
    verdicts = {one.name: solve(one.script, "cvc5") for one in chosen}

    assert len(chosen) >= 20
    assert [] == [name for name, verdict in verdicts.items() if verdict.answer is not Answer.PROVED]


# ---------------------------------------------------------------- what is wrong is not proved


def edited(function: Callable[..., Any], old: str, new: str) -> dict[str, ast.FunctionDef]:
    """Another text for a function."""
    text = textwrap.dedent(inspect.getsource(function))
    assert text.count(old) == 1
    (body,) = ast.parse(text.replace(old, new)).body
    assert isinstance(body, ast.FunctionDef)
    return {f"{function.__module__}.{function.__qualname__}": body}


DROPPED = "return True or "

FAULTS: dict[str, tuple[dict[str, ast.FunctionDef], str]] = {
    "a position too far": (edited(forward_rows.position_of, "+ i", "+ i + 1"), "last_stands"),
    "a row too far": (edited(forward_rows.row_of, "starts[b] + i", "starts[b] + i + 1"), "last_stands"),
    "rows in no order": (
        edited(rows.row_is_next, "return row.position ==", DROPPED + "row.position =="),
        "earlier_stands",
    ),
    "padding has a slot": (
        edited(rows.padding_is_inert, "row.write is None and row.readable", "row.readable"),
        "initialised_is_left",
    ),
    "another slot is written": (
        edited(rows.row_writes_its_slot, "row.position % s.page_size", "(row.position + 1) % s.page_size"),
        "reads_its_slot",
    ),
    "another's table is read": (
        edited(rows.row_reads_its_prefix, "and row.table[:blocks] == s.requests[row.request].table[:blocks]", ""),
        "reads_own_pages",
    ),
    "slots are shared": (
        edited(rows.row_writes_alone, "return row.write is None", "return True or row.write is None"),
        "slots_differ",
    ),
    "a page too few": (edited(rows.row_reads_its_prefix, "and blocks <= len(row.table)", ""), "last_reads"),
    "the value of a shorter prefix": (
        edited(forward_rows.row_is_stored, "[: row.position + 1]", "[: row.position]"),
        "computed_is_found",
    ),
    "a store that moves others": (
        edited(forward_rows.slot_is_left, "return any(", "return True or any("),
        "cached_is_found",
    ),
    "sequences overlap": (
        edited(
            forward_rows.sequence_is_listed,
            "and all(packed.sequences[i] == b for i in range(start, start + count))",
            "",
        ),
        "common_row",
    ),
    "a sequence ends early": (
        edited(forward_rows.sequence_is_listed, ".position + 1 if", ".position if"),
        "last_stands",
    ),
}
"""What is wrong, and the statement that is then not proved."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_not_proved(fault: str) -> None:
    """The statement that speaks of it fails, and not only its being defined."""
    replaced, statement = FAULTS[fault]
    chosen = [one for one in forward_rows.obligations(replaced) if concerns(one, None, statement)]
    report = discharge(chosen, solvers=("z3",), limits=ResourceLimits(z3=LIMITS.z3 // 4))

    assert any(re.fullmatch(rf"forward_rows/{statement}( \(.*\))?", one.obligation.name) for one in report.failures)


# ---------------------------------------------------------------- a batch that is


PAGE_SIZE = 4


@dataclass(frozen=True)
class World:
    """A state, the rows of a forward in it, and the batch that the backend gets."""

    state: State
    rows: Rows
    batch: Batch


def world(seed: int) -> World:
    """Some requests, the first pages of which some share, and a few rows of each; some are not in the batch."""
    rng = random.Random(seed)
    prefix = tuple(Token(rng.randrange(5)) for _ in range(2 * PAGE_SIZE))
    requests: dict[RequestId, Request] = {}
    pages: dict[PageId, Page] = {}
    numbers = iter(rng.sample(range(100), 60))

    def page(tokens: tuple[Token, ...], block: int, cached: int, holders: set[str], shared: bool) -> PageId:
        first, end = block * PAGE_SIZE, max(block * PAGE_SIZE, min(cached, (block + 1) * PAGE_SIZE))
        number = PageId(next(numbers))
        pages[number] = Page(
            prefix=tokens[:first],
            tokens=tokens[first:end],
            kv=tuple(canonical_kv(tokens[: p + 1]) for p in range(first, end)),
            holders=frozenset(RequestId(name) for name in holders),
            registered=shared,
            parent=table_of_shared[block - 1] if shared and block else None,
            domain=Domain(""),
        )
        return number

    names = [f"r{n}" for n in range(rng.randrange(1, 5))]
    sharing = {name for name in names if rng.random() < 0.6}
    table_of_shared: list[PageId] = []
    for block in range(2):
        table_of_shared.append(page(prefix, block, len(prefix), sharing, True))
    wanted: list[tuple[RequestId, int, int]] = []
    for number, name in enumerate(names):
        tokens = (prefix if name in sharing else ()) + tuple(
            Token(rng.randrange(5)) for _ in range(rng.randrange(2, 14))
        )
        cached = rng.randrange(len(prefix) if name in sharing else 0, len(tokens))
        count = rng.randrange(0, len(tokens) - cached + 1)
        own = range(2 if name in sharing else 0, -(-(cached + count) // PAGE_SIZE))
        table = (*(table_of_shared if name in sharing else ()), *(page(tokens, b, cached, {name}, False) for b in own))
        requests[RequestId(name)] = Request(tokens, (), (), Sampler(None), cached, table, Domain(""), number)
        if count:
            wanted.append((RequestId(name), cached, count))
    state = State(requests, pages, frozenset(PageId(n) for n in range(100)), frozenset(requests), PAGE_SIZE)
    return World(state, *packed_rows(state, wanted, rng))


def packed_rows(state: State, wanted: list[tuple[RequestId, int, int]], rng: random.Random) -> tuple[Rows, Batch]:
    """The rows, with padding before, between and behind them; as the specification and the backend see them."""
    rows: list[Row] = []
    sequences: list[int] = []

    def pad() -> None:
        for _ in range(rng.randrange(3)):
            rows.append(Row(None, Token(0), 0, None, (), 0, False))
            sequences.append(NO_SEQUENCE)

    for number, (name, first, count) in enumerate(wanted):
        request = state.requests[name]
        pad()
        for p in range(first, first + count):
            write = (request.table[p // PAGE_SIZE], p % PAGE_SIZE)
            rows.append(Row(name, request.prompt[p], p, write, request.table, p + 1, p == first + count - 1))
            sequences.append(number)
    pad()
    if not rows:
        rows.append(Row(None, Token(0), 0, None, (), 0, False))
        sequences.append(NO_SEQUENCE)
    tables = np.full((len(wanted), 8), NO_PAGE, np.int64)
    for number, (name, _, _) in enumerate(wanted):
        table = state.requests[name].table
        tables[number, : len(table)] = table
    return tuple(rows), Batch(
        tokens=np.array([row.token for row in rows], np.int64),
        positions=np.array([row.position for row in rows], np.int64),
        write_slots=np.array(
            [NO_SLOT if row.write is None else row.write[0] * PAGE_SIZE + row.write[1] for row in rows], np.int64
        ),
        sequences=np.array(sequences, np.int64),
        tables=tables,
        logit_rows=np.array([i for i, row in enumerate(rows) if row.logits], np.int64),
    )


def by_sequence(found: World) -> Packed:
    """What the backend makes of the batch."""
    packed = pack(found.batch, Limits(vocabulary=5, positions=64, pages=100, page_size=PAGE_SIZE))
    return Packed(
        sequences=tuple(None if b == NO_SEQUENCE else int(b) for b in found.batch.sequences),
        tables=tuple(tuple(PageId(int(p)) for p in table if p != NO_PAGE) for table in found.batch.tables),
        starts=tuple(map(int, packed.starts)),
        counts=tuple(map(int, packed.counts)),
        lengths=tuple(map(int, packed.lengths)),
    )


def after_store(found: World, layer: int) -> Mapping[PageId, tuple[forward_rows.Part, ...]]:
    """What a layer's pages hold once the rows are stored."""
    empty = layer_part(canonical_kv(()), -1)
    pages = {number: [empty] * PAGE_SIZE for number in found.state.pages}
    for number, page in found.state.pages.items():
        pages[number][: len(page.kv)] = [layer_part(value, layer) for value in page.kv]
    for row in found.rows:
        if row.request is not None and row.write is not None:
            tokens = found.state.requests[row.request].prompt
            pages[row.write[0]][row.write[1]] = layer_part(canonical_kv(tokens[: row.position + 1]), layer)
    return {number: tuple(slots) for number, slots in pages.items()}


WORLDS = range(60)


def test_what_is_assumed_is_true_of_batches() -> None:
    """Inv, `forward_ok`, and `listed` of what the backend makes of them: so the proofs are of something.

    Among the batches are some with padding, shared pages, several rows of a request, and requests that have no rows.
    """
    seen = {"padding": 0, "shared": 0, "several": 0, "absent": 0, "long": 0}
    for seed in WORLDS:
        found = world(seed)
        packed = by_sequence(found)

        assert [] == [conjunct.name for conjunct in CONJUNCTS if not conjunct.whole(found.state)]
        assert forward_ok(found.state, found.rows)
        assert forward_rows.listed(found.rows, packed)
        assert forward_rows.stored(found.state, found.rows, after_store(found, seed), seed)
        requests = [row.request for row in found.rows]
        seen["padding"] += None in requests
        seen["several"] += any(requests.count(name) > 1 for name in requests if name is not None)
        seen["absent"] += bool(set(found.state.requests) - set(requests))
        seen["shared"] += any(len(page.holders) > 1 for page in found.state.pages.values())
        seen["long"] += any(row.position >= 2 * PAGE_SIZE for row in found.rows)

    assert all(seen.values()), seen


def test_what_is_proved_is_true_of_batches() -> None:
    """Every statement, run as Python, for each row, sequence and position."""
    for seed in WORLDS:
        found = world(seed)
        s, rows, packed, after = found.state, found.rows, by_sequence(found), after_store(found, seed)
        for b in range(len(packed.counts)):
            for i in range(packed.counts[b]):
                assert forward_rows.row_stands(rows, packed, b, i)
                assert all(forward_rows.computed_is_found(s, rows, packed, after, seed, b, i, k) for k in range(i + 1))
            assert forward_rows.begins_after_cached(s, rows, packed, b)
            assert forward_rows.counts_fit(packed, b)
            assert all(forward_rows.ranges_differ(packed, b, c) for c in range(len(packed.counts)))
            assert all(forward_rows.tables_reach(s, packed, b, c) for c in range(10))
        for i in range(len(rows)):
            assert all(forward_rows.cached_is_found(s, rows, after, seed, i, j) for j in range(rows[i].readable))
            assert all(forward_rows.slots_differ(rows, i, k) for k in range(len(rows)))


@pytest.mark.parametrize("field", ["starts", "counts", "lengths"])
def test_a_batch_that_is_listed_otherwise_is_noticed(field: str) -> None:
    """`listed` is false of numbers that are off by one."""
    found = next(one for one in map(world, WORLDS) if by_sequence(one).counts)
    packed = by_sequence(found)
    numbers = getattr(packed, field)

    assert not forward_rows.listed(found.rows, replace(packed, **{field: (numbers[0] + 1, *numbers[1:])}))


def test_a_slot_in_a_padding_row_breaks_something() -> None:
    """Where a padding row takes a slot that holds a value, `forward_ok` is false, and so is the statement."""
    found = next(one for one in map(world, WORLDS) if any(page.kv for page in one.state.pages.values()))
    page_id = next(number for number, page in found.state.pages.items() if page.kv)
    rows = (*found.rows, Row(None, Token(0), 0, (page_id, 0), (), 0, False))

    assert not forward_ok(found.state, rows)
    assert not forward_rows.initialised_is_left(found.state, rows, page_id, 0, len(rows) - 1)


def test_obligations_are_known_by_their_names() -> None:
    """No two have one name."""
    names = [one.name for one in forward_rows.obligations() if isinstance(one, Obligation)]

    assert len(set(names)) == len(names)
