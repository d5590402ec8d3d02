"""Valid runs are accepted, and the checker's state is the one that the specification computes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from event_streams import stream
from event_walk import EventWalk, Habits
from event_worlds import FloatWorld, HashWorld, SymbolicWorld
from vosti.refinement.checker import Checker
from vosti.refinement.witnesses import WITNESSES
from vosti.spec.determinism import Record, is_output
from vosti.spec.digests import sha256
from vosti.spec.events import Event, ForwardEvent, PlanEvent, SettleEvent
from vosti.spec.invariants import invariant
from vosti.spec.reference import forward
from vosti.spec.state import State, Value, history, initial, sequence
from vosti.spec.step import Action, Emit, Observe, Step, after, effect, output, step_ok

SIZES = ((1, 30), (2, 14), (4, 9), (16, 4))


@st.composite
def habits(draw: st.DrawFn) -> Habits:
    """Habits of all kinds."""
    page_size, pages = draw(st.sampled_from(SIZES))
    return Habits(
        page_size=page_size,
        pages=draw(st.integers(max(2, -(-16 // page_size)), pages + 4)),
        max_seqs=draw(st.integers(1, 4)),
        token_budget=draw(st.integers(1, 16)),
        live=draw(st.integers(1, 5)),
        sick=draw(st.sampled_from((0.0, 0.2))),
        draft=draw(st.sampled_from((0.0, 0.5))),
        observe=draw(st.sampled_from((0.0, 0.3))),
        preempt=draw(st.sampled_from((0.0, 0.1))),
        shy=draw(st.sampled_from((0.0, 0.2))),
        reread=draw(st.booleans()),
    )


@given(seed=st.integers(0, 2**32), habits=habits(), every=st.integers(1, 9))
@settings(max_examples=80)
def test_a_valid_run_is_accepted(seed: int, habits: Habits, every: int) -> None:
    """Whatever the specification allows, the checker accepts, and it ends in the state where the walk ends."""
    walk = EventWalk(seed, habits)
    checker = Checker(walk.header, every=every)
    for event in walk.events(12):
        checker.feed(event)
        counted = Counter(page.parent for page in checker.state.pages.values() if page.parent is not None)
        assert counted == +checker.run.children
    checker.finish()

    assert walk.state == checker.state
    assert 12 == checker.steps


@given(seed=st.integers(0, 2**32), habits=habits())
@settings(max_examples=15)
def test_a_valid_run_with_all_its_bits_is_accepted(seed: int, habits: Habits) -> None:
    """In mode full the bits have their digests, and each token is what the exact sampler draws from them."""
    walk = EventWalk(seed, replace(habits, full=True), FloatWorld())
    checker = Checker(walk.header)
    for event in walk.events(8):
        checker.feed(event)
    checker.finish()

    assert walk.state == checker.state


def symbolic(s: State, action: Action) -> Action:
    """The action with the specification's own values in place of digests."""
    match action:
        case Emit(request=r, record=record):
            return replace(action, record=Record(forward(history(s.requests[r])), record.token))
        case Observe(request=r, position=position):
            return replace(action, logits=forward(sequence(s.requests[r])[: position + 1]))
        case _:
            return action


def symbolic_step(s: State, plan: PlanEvent, rows: ForwardEvent, settle: SettleEvent) -> Step:
    """The step that three events tell of, with symbolic values. `s` is the state before it."""
    computed = after(s, Step(plan.actions, rows.rows, ()))
    assert computed is not None
    settled: list[Action] = []
    for action in settle.actions:
        settled.append(symbolic(computed, action))
        computed = effect(computed, settled[-1])
    return Step(plan.actions, rows.rows, tuple(settled))


def digested(s: State) -> State:
    """The state with digests in place of symbolic values."""
    pages = {
        page_id: replace(page, kv=tuple(Value(sha256(repr(value).encode())) for value in page.kv))
        for page_id, page in s.pages.items()
    }
    return replace(s, pages=pages)


@given(seed=st.integers(0, 2**32), habits=habits())
@settings(max_examples=25)
def test_the_state_is_that_of_direct_execution(seed: int, habits: Habits) -> None:
    """After every step the checker's state, which holds observed digests, equals the specification's own `after`,
    which computes every value from all earlier ones. What the specification takes for a step, `step_ok` says, and
    refuses with its phases exchanged; each request of its output has records.
    """
    walk = EventWalk(seed, habits, SymbolicWorld())
    checker = Checker(walk.header)
    direct: State | None = initial(checker.state.capacity, habits.page_size)
    for _ in range(6):
        events: list[Any] = walk.step()
        for event in events:
            checker.feed(event)
        assert direct is not None
        step = symbolic_step(direct, *events[:3])
        assert step_ok(direct, step)
        assert not step.settle or not step_ok(direct, replace(step, plan=step.settle, settle=step.plan))
        assert is_output(output(step))
        direct = after(direct, step)

        assert direct is not None
        assert digested(direct) == checker.state
        assert invariant(direct)


def test_everything_is_exercised() -> None:
    """The walks that these tests take come by every situation that is counted."""
    counts: Counter[str] = Counter()
    for seed in range(12):
        run = stream(seed, habits=Habits(pages=9 + 7 * (seed % 2), sick=0.1))
        checker = Checker(run.header)
        for event in run.events:
            checker.feed(event)
        counts.update(checker.run.witnesses.counts)

    assert [] == [name for name in WITNESSES if counts[name] == 0]


def test_witness_counts_are_those_of_the_events() -> None:
    """Counts that can be read off the actions are their numbers."""
    run = stream(3, habits=Habits(pages=9, sick=0.1))
    checker = Checker(run.header)
    for event in run.events:
        checker.feed(event)
    names = Counter(
        type(action).__name__
        for event in run.events
        if isinstance(event, PlanEvent | SettleEvent)
        for action in event.actions
    )
    expected = {
        "requests": names["Admit"],
        "evictions": names["Evict"],
        "preemptions": names["Preempt"],
        "cancellations": names["Cancel"],
        "failures": names["Fail"],
        "finished": names["Finish"],
        "records": names["Emit"],
        "drafts_rejected": names["Retract"],
        "observations": names["Observe"],
    }

    assert expected == {name: checker.run.witnesses.counts[name] for name in expected}


@pytest.mark.parametrize("world", [HashWorld(), SymbolicWorld(), FloatWorld()])
def test_walks_repeat(world: Any) -> None:
    """The same seed makes the same run, so that a failure can be looked at again."""
    first: tuple[Event, ...] = stream(5, world=world).events

    assert first == stream(5, world=world).events
