"""What is proved of all states is also seen to hold in walks over the specification, and the walks go everywhere."""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from spec_walk import Visit, walk
from vosti.proofs import canonical_output, determinism, forward_order, reuse, two_states
from vosti.proofs.determinism import Past
from vosti.spec import actions
from vosti.spec.invariants import broken
from vosti.spec.state import RequestId, history
from vosti.spec.step import RULES, Admit, Compute, Emit, Evict, Fail, Observe, Retract, arguments, effect


@pytest.fixture(scope="module")
def visits() -> list[list[Visit]]:
    """Several walks."""
    return [list(walk(random.Random(seed), 500)) for seed in range(12)]


def test_every_action_is_reachable(visits: list[list[Visit]]) -> None:
    """No theorem speaks of an action that cannot happen: each happens in a state that satisfies Inv."""
    happened = {type(v.action) for walked in visits for v in walked if not any(broken(v.before))}

    assert set(RULES) == happened


def named(visit: Visit) -> Iterator[tuple[Any, Any]]:
    """Pages and requests of a visit."""
    for page in {*visit.before.pages, *visit.after.pages}:
        for r in {*visit.before.requests, *visit.after.requests}:
            yield page, r


def test_two_state_properties_hold_in_runs(visits: list[list[Visit]]) -> None:
    """The statements that are proved, evaluated on what happened."""
    for visit in (v for walked in visits[:6] for v in walked):
        s, t, action = visit.before, visit.after, visit.action
        for page, r in named(visit):
            mine = getattr(action, "request", None)
            assert two_states.registered_is_unchanged(s, t, page)
            assert isinstance(action, Evict) or two_states.registered_stays(s, t, page)
            assert r == mine or two_states.held_stays(s, t, page, r)
            assert r == mine or two_states.request_is_unchanged(s, t, r)
            assert isinstance(action, Emit) or two_states.output_is_kept(s, t, r)
            assert r == mine or reuse.no_trace(s, t, r)
            assert reuse.no_parent_is_evicted(s, page, page)
        if isinstance(action, Emit):
            assert two_states.output_grows(s, t, action.request, action.record)
        if isinstance(action, Retract):
            assert reuse.no_trace(s, t, action.request)


def test_the_theorem_holds_in_runs(visits: list[list[Visit]]) -> None:
    """Every record is the reference machine's."""
    emitted = 0
    for visit in (v for walked in visits for v in walked):
        if isinstance(visit.action, Emit):
            emitted += 1
            assert canonical_output.emits_forward(visit.before, *arguments(visit.action))  # type: ignore[arg-type]
        if isinstance(visit.action, Observe):
            assert canonical_output.observes_forward(visit.before, *arguments(visit.action))  # type: ignore[arg-type]
        if isinstance(visit.action, Compute):
            assert canonical_output.computes_canonical(visit.before, visit.action.request)

    assert emitted >= 30


def test_the_forward_may_be_reordered_in_runs(visits: list[list[Visit]]) -> None:
    """Two computes lead to one state, whichever comes first."""
    pairs = 0
    for s in (v.before for walked in visits for v in walked):
        for a in s.requests:
            for b in s.requests:
                if forward_order.both_may(s, a, b):
                    pairs += 1
                    first = actions.compute(actions.compute(s, a), b)
                    assert first == actions.compute(actions.compute(s, b), a)
                    assert forward_order.guard_stays(s, a, b)

    assert pairs >= 20


def test_the_past_follows_in_runs(visits: list[list[Visit]]) -> None:
    """What is proved of an execution's past is true of every past, and two pasts agree."""
    pasts: list[Past] = []
    failed = 0
    for walked in visits:
        past = determinism.nothing_yet()
        for visit in walked:
            note = determinism.OBSERVED.get(type(visit.action))
            past = note(past, *arguments(visit.action)) if note else past
            failed += isinstance(visit.action, Fail)
        for conjunct in determinism.CONJUNCTS:
            assert conjunct(walked[-1].after, past), conjunct.__name__
        pasts.append(past)

    assert failed >= 3
    assert all(
        determinism.agree(first, r1, second, r2)
        for first in pasts
        for second in pasts
        for r1 in first.admitted
        for r2 in second.admitted
    )


def test_a_past_that_strays_is_seen(visits: list[list[Visit]]) -> None:
    """A record that is not the reference run's breaks `views_follow`, and so does one too many `lives_follow`."""
    walked = next(w for w in visits if any(isinstance(v.action, Emit) for v in w))
    past = determinism.nothing_yet()
    s = walked[0].before
    for visit in walked:
        note = determinism.OBSERVED.get(type(visit.action))
        past = note(past, *arguments(visit.action)) if note else past
        s = visit.after
        if isinstance(visit.action, Emit):
            break
    else:
        pytest.fail("no record")
    r, record = visit.action.request, visit.action.record
    doubled = determinism.after_emit(past, r, record, visit.action.sampler)

    assert determinism.views_follow(s, past)
    assert determinism.lives_follow(s, past)
    assert not determinism.lives_follow(s, doubled)


def test_the_reference_run_is_what_its_equations_say(visits: list[list[Visit]]) -> None:
    """The opaque functions satisfy the equations that proofs assume of them."""
    admitted = [v.action for walked in visits for v in walked if isinstance(v.action, Admit)][:20]
    for action in admitted:
        prompt, sampler = action.prompt, action.sampler
        assert determinism.run_begins(prompt, sampler)
        assert all(determinism.run_goes_on(prompt, sampler, k) for k in range(4))


def test_a_history_is_blocked_exactly_where_it_is_not_finite(visits: list[list[Visit]]) -> None:
    """Every request that failed did so at a blocked history; none that emitted did."""
    for visit in (v for walked in visits for v in walked):
        if isinstance(visit.action, Fail | Emit):
            tokens = history(visit.before.requests[RequestId(visit.action.request)])
            assert isinstance(visit.action, Fail) == determinism.blocked(tokens)


def test_effects_are_those_of_the_rules(visits: list[list[Visit]]) -> None:
    """The walks take the very functions that are compiled."""
    visit = visits[0][0]

    assert effect(visit.before, visit.action) == visit.after
    assert all(import_module(rule.effect.__module__) is actions for rule in RULES.values())
