"""The packed rows of a forward are judged as the specification judges them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from event_walk import EventWalk, Habits
from vosti.refinement.rows import false_row, writes_are_apart
from vosti.spec.events import ForwardEvent, PlanEvent
from vosti.spec.state import Domain, Page, PageId, Request, RequestId, Sampler, State, Token, initial
from vosti.spec.step import (
    ROW_CONJUNCTS,
    Row,
    Rows,
    effect,
    forward_ok,
    row_writes_alone,
    row_writes_private,
)


def planned_rows(seed: int) -> tuple[State, Rows]:
    """Rows of a forward, with the state that they find."""
    walk = EventWalk(seed, Habits(page_size=2, pages=14, token_budget=8))
    for _ in range(seed % 6 + 2):
        s = walk.state
        plan, forward = walk.step()[:2]
    assert isinstance(plan, PlanEvent)
    assert isinstance(forward, ForwardEvent)
    for action in plan.actions:
        s = effect(s, action)
    return s, forward.rows


def broken_rows(rows: Rows, random: Random) -> Rows:
    """The rows with one of them changed, repeated, or lost."""
    if not rows:
        return rows
    i, j = random.randrange(len(rows)), random.randrange(len(rows))
    row, other = rows[i], rows[j]
    changed = random.choice(
        (
            replace(row, token=Token(row.token + 1)),
            replace(row, position=row.position + random.choice((-1, 1))),
            replace(row, write=other.write),
            replace(row, table=other.table),
            replace(row, readable=row.readable + random.choice((-1, 1, 4))),
            replace(row, request=other.request),
            replace(row, request=None),
            other,
        )
    )
    return random.choice(((*rows[:i], changed, *rows[i + 1 :]), (*rows[:i], *rows[i + 1 :]), (*rows, row)))


@given(seed=st.integers(0, 2**32), faults=st.integers(0, 2))
@settings(max_examples=300)
def test_rows_are_judged_as_forward_ok_judges_them(seed: int, faults: int) -> None:
    """A row is found exactly when `forward_ok` is false, and the named condition is false of that row."""
    s, rows = planned_rows(seed)
    random = Random(seed)
    for _ in range(faults):
        rows = broken_rows(rows, random)
    found = false_row(s, rows)

    assert forward_ok(s, rows) == (found is None)
    assert faults or found is None
    if found is not None:
        condition, i = found
        earlier = ROW_CONJUNCTS[: ROW_CONJUNCTS.index(condition)]
        assert not condition(s, rows, i)
        assert all(condition(s, rows, k) for condition in earlier for k in range(len(rows)))


def two_writers(**changes: bool) -> tuple[State, Rows]:
    """Two requests that share a page, as no state that satisfies Inv lets them: only the last conditions can tell."""
    r, q = RequestId("r"), RequestId("q")
    page = Page((), (), (), frozenset({r, q}), registered=False, parent=None, domain=Domain(""))
    page = replace(page, **changes)  # type: ignore[arg-type]
    request = Request((Token(1),), (), (), Sampler(None), 0, (PageId(0),), Domain(""), 0)
    s = replace(
        initial(frozenset({PageId(0)}), 2),
        requests={r: request, q: replace(request, arrival=1)},
        pages={PageId(0): page},
    )
    row = Row(r, Token(1), 0, (PageId(0), 0), (PageId(0),), 1, logits=True)
    return s, (row, replace(row, request=q))


def test_two_requests_never_write_one_page() -> None:
    """Of two requests that write one page, the first row is named."""
    s, rows = two_writers()

    assert (row_writes_alone, 0) == false_row(s, rows)
    assert not writes_are_apart(s, rows)


def test_a_page_that_another_request_reads_is_never_written() -> None:
    """A row that reads another's written page is found, although it writes elsewhere."""
    s, (row, other) = two_writers()
    reader = replace(other, write=(PageId(1), 0))

    assert not writes_are_apart(s, (row, reader))
    assert not row_writes_alone(s, (row, reader), 0)


def test_a_registered_page_is_never_written() -> None:
    """A row that writes a page which others may attach is found."""
    s, rows = two_writers(registered=True)

    assert (row_writes_private, 0) == false_row(s, rows[:1])
