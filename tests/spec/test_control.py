"""The control part of a step is judged as the specification judges the whole: rows exactly, guards but for values."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from event_walk import EventWalk, Habits
from spec_walk import proposal, walk
from vosti.spec.control import (
    UNSEEN,
    Objection,
    computed,
    control_effect,
    control_part,
    false_row,
    performed,
    planned,
    settled,
    writes_are_apart,
)
from vosti.spec.events import ForwardEvent, PlanEvent, SettleEvent
from vosti.spec.rows import ROW_CONJUNCTS, Row, Rows, forward_ok, row_writes_alone, row_writes_private
from vosti.spec.state import Domain, Page, PageId, Request, RequestId, Sampler, State, Token, initial
from vosti.spec.step import RULES, Cancel, Emit, Fail, Observe, Phase, Publish, effect, guard


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


# ---------------------------------------------------------------- actions


def without_values(s: State) -> State:
    """The state with nothing to see in its slots."""
    pages = {page_id: replace(page, kv=(UNSEEN,) * len(page.kv)) for page_id, page in s.pages.items()}
    return replace(s, pages=pages)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=30)
def test_guards_are_judged_but_for_their_values(seed: int) -> None:
    """Without values a guard is false only where it is false, true only where it is true unless it looks at values, and
    its effect is the same but for values.
    """
    random = Random(seed)
    for visit in walk(random, 60):
        blind = without_values(visit.before)
        for action in (visit.action, *(proposal(visit.before, random) for _ in range(3))):
            part, args = control_part(action)
            holds = part(blind, *args)
            assert holds or not guard(visit.before, action)
            assert isinstance(action, Emit | Observe | Publish | Fail) or holds == guard(visit.before, action)
        assert without_values(visit.after) == control_effect(blind, visit.action)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=30)
def test_a_step_is_followed(seed: int) -> None:
    """A step's plan, rows and settle lead where they lead with values; and an action in another phase is named."""
    walk = EventWalk(seed, Habits(page_size=2, pages=14, token_budget=8))
    for _ in range(seed % 6 + 2):
        s: State | Objection = without_values(walk.state)
        plan, forward, settle = walk.step()[:3]
    assert isinstance(plan, PlanEvent)
    assert isinstance(forward, ForwardEvent)
    assert isinstance(settle, SettleEvent)
    assert isinstance(s, State)
    for follow in (
        lambda s: planned(s, plan.actions),
        lambda s: computed(s, forward.rows),
        lambda s: settled(s, forward.rows, settle.actions),
    ):
        s = follow(s)
        assert isinstance(s, State)
    assert without_values(walk.state) == s


def test_an_objection_says_what_and_whose() -> None:
    """A false guard is named, an action out of its phase is, and an emit without a row of logits is."""
    s, (row, _) = two_writers()
    r = RequestId("r")
    absent = Cancel(RequestId("absent"))
    assert Objection("cancel_guard", absent.request, absent) == planned(s, (absent,))
    assert Objection("action_is_in_its_phase", r, Cancel(r)) == performed(s, Phase.SETTLE, (Cancel(r),))
    seen = computed(s, (row,))
    assert isinstance(seen, State)
    look = Observe(r, 0, row.logits)  # type: ignore[arg-type]
    assert Objection("logits_were_taken", r, look) == settled(seen, (replace(row, logits=False),), (look,))
    assert seen == settled(seen, (row,), (look,))
    assert Objection("observe_ready", r, look) == settled(s, (row,), (look,))


def test_every_action_has_a_control_part() -> None:
    """Each kind of action is judged by its own guard, or by the control part of it that the specification names."""
    random = Random(0)
    visits = [visit for _ in range(20) for visit in walk(random, 40)]
    names = {control_part(proposal(visit.before, random))[0].__name__ for visit in visits for _ in range(4)}
    whole = {f"{kind.__name__.lower()}_guard" for kind in RULES if kind not in (Emit, Observe, Publish, Fail)}
    assert {"emit_ready", "observe_ready", "publish_ready", "fail_ready", *whole} == names
