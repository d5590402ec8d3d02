"""The search for explanations: what it finds is an explanation, and where it finds none there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from event_streams import stream
from event_walk import EventWalk, Habits, snapshot
from search_cases import CROWDED, reachable, small_steps, steps_with, swapped, with_text
from vosti.refinement.candidates import Question
from vosti.refinement.search import Answer, ExplanationRefused, Limits, replays, search
from vosti.refinement.smt.concrete import Work
from vosti.refinement.smt.solve import model
from vosti.refinement.texts import Scripts, texts
from vosti.spec import actions
from vosti.spec.state import PageId, State, Token
from vosti.spec.step import RULES, Action, Admit, Compute, Evict, Observe, Phase

DELETED = [kind for kind in RULES if kind not in (Compute, Observe)]
"""All actions that change a state and are recorded as such."""


# ---------------------------------------------------------------- explained


@pytest.mark.parametrize("seed", [3, 5])
def test_swapped_entries_are_explained(seed: int) -> None:
    """Of two actions that were recorded in the wrong order, an order is found that leads to the recorded state."""
    _, question, (first, second) = swapped(stream(seed, 12, CROWDED))
    outcome = search(question)

    assert Answer.EXPLAINED == outcome.answer
    assert outcome.actions.index(first) < outcome.actions.index(second)
    assert replays(question, outcome.actions)


@pytest.mark.parametrize("kind", DELETED)
def test_a_deleted_action_is_found(kind: type[Action]) -> None:
    """Whatever action was not recorded: the explanation has one of its kind."""
    question, _ = next(steps_with(kind))
    outcome = search(question)

    assert Answer.EXPLAINED == outcome.answer
    assert kind in set(map(type, outcome.actions))
    assert replays(question, outcome.actions)


def test_steps_that_happened_are_explained() -> None:
    """Valid steps, nothing recorded of their actions but who arrived: explained, with no more actions than happened."""
    habits = replace(CROWDED, page_size=3, reread=True)
    for _, question, happened in small_steps(stream(44, 25, habits), most=6):
        admissions = tuple(action for action in happened if isinstance(action, Admit))
        outcome = search(replace(question, recorded=admissions))

        assert Answer.EXPLAINED == outcome.answer
        assert len(outcome.actions) <= len(happened)
        assert replays(question, outcome.actions)


def test_an_admission_that_nobody_recorded_is_named() -> None:
    """A request that came and went in one step, its admission not recorded: what is missing is part of the answer."""
    for seed in range(50, 80):
        for _, question, happened in small_steps(stream(seed, 25, replace(CROWDED, domains=1))):
            gone = [a.request for a in happened if isinstance(a, Admit) and a.request not in question.after.requests]
            if gone and gone[0] in dict(question.written):
                outcome = search(replace(question, recorded=()))

                assert Answer.IMPOSSIBLE == outcome.answer
                assert f"rows name {gone[0]}, of whom no admission is known" in str(outcome)
                assert Answer.EXPLAINED == search(question).answer
                return
    raise AssertionError("no request came and went in one step")


def test_a_search_may_begin_in_the_settle() -> None:
    """From the state after the forward, the settle alone is searched for."""
    walk = EventWalk(3)
    for _ in range(4):
        walk.step()
    walk.actions, walk.readings = [], []
    shares = walk.plan()
    forward, bits = walk.forward(shares)
    before = walk.state
    settle = walk.settle(shares, bits)
    question = Question(before, settle.after, forward, phase=Phase.SETTLE)
    outcome = search(question)

    assert Answer.EXPLAINED == outcome.answer
    assert {Phase.SETTLE} == {RULES[type(action)].phase for action in outcome.actions}
    assert 1 <= len(outcome.actions) <= len(settle.actions)


# ---------------------------------------------------------------- impossible


def first_step() -> Question:
    """A step in which a request arrives and gets its first token."""
    return next(question for _, question, recorded in small_steps(stream(3, 12, CROWDED)) if question.forward.rows)  # type: ignore[union-attr]


def other_request(question: Question, **changes: Any) -> Question:
    """The step with something else recorded of one of its requests."""
    r, request = next((r, request) for r, request in question.after.requests.items() if request.table)
    requests = {**question.after.requests, r: replace(request, **changes)}
    return replace(question, after=replace(question.after, requests=requests))


def other_page(question: Question, **changes: Any) -> Question:
    """The step with something else recorded of one of its pages."""
    p, view = max(question.after.pages.items())
    return replace(question, after=replace(question.after, pages={**question.after.pages, p: replace(view, **changes)}))


IMPOSSIBLE: Mapping[str, Any] = {
    "a token that was never sampled": lambda q: other_request(q, output=(Token(7), Token(8), Token(9))),
    "a prompt that changed": lambda q: other_request(q, prompt=(Token(9),)),
    "fewer positions cached": lambda q: other_request(q, cached=0),
    "a holder too many": lambda q: other_page(q, refcount=2),
    "a page that lost its tokens": lambda q: other_page(q, tokens=()),
    "a page of another domain": lambda q: other_page(q, domain="nobody's"),
    "a page that is registered before it is full": lambda q: other_page(q, registered=True, tokens=(Token(1),)),
    "a page that is in use and free": lambda q: replace(
        q, after=replace(q.after, free=q.after.free | {*q.after.pages})
    ),
}
"""States that no actions lead to."""


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_nothing_explains_is_impossible(name: str) -> None:
    """A recorded state that no actions lead to: the search says so, and within how many actions."""
    outcome = search(IMPOSSIBLE[name](first_step()))

    assert (Answer.IMPOSSIBLE, 12, ()) == (outcome.answer, outcome.within, outcome.actions)
    assert str(outcome).startswith("impossible within 12 actions (over ")


def test_no_search_does_better_or_worse_than_trying_everything() -> None:
    """For all states two actions away: as many actions as there must be, and impossible with fewer."""
    before = shared_pages()
    found = reachable(before, 2)
    chosen = found[1::2]
    lengths = [(len(search(Question(before, snapshot(s))).actions), count) for s, count in chosen]
    fewer = [search(Question(before, snapshot(s)), Limits(actions=1)).answer for s, count in chosen if count == 2]

    assert 12 <= len(chosen)
    assert {1, 2} == {count for _, count in chosen}
    assert [(count, count) for _, count in chosen] == lengths
    assert {Answer.IMPOSSIBLE} == set(fewer)


def shared_pages() -> State:
    """A state with a retained page and its child, a page that is held, and a request that waits."""
    walk = EventWalk(11, Habits(page_size=2, pages=6, live=2, max_seqs=2, prompt=(4, 6), output=(1, 3), domains=1))
    for _ in range(200):
        walk.step()
        pages, requests = walk.state.pages, walk.state.requests
        if len(requests) == 2 and parent_and_child(walk.state) and any(page.holders for page in pages.values()):
            return walk.state
    raise AssertionError("the walk never got there")


def parent_and_child(s: State) -> tuple[PageId, PageId] | None:
    """A retained page that nobody holds, and its child, which nobody holds either."""
    idle = {p: page for p, page in s.pages.items() if page.registered and not page.holders}
    return next(((page.parent, p) for p, page in idle.items() if page.parent in idle and page.parent is not None), None)


# ---------------------------------------------------------------- gave up


@pytest.mark.parametrize("limits", [Limits(terms=100), Limits(resources=100)])
def test_a_tiny_limit_is_no_answer(limits: Limits) -> None:
    """A search that may not do its work says that it gave up, whether or not there is an explanation."""
    possible, impossible = first_step(), other_page(first_step(), refcount=2)
    answers = [search(possible, limits).answer, search(possible).answer]

    assert [Answer.GAVE_UP, Answer.EXPLAINED] == answers
    assert search(impossible, Limits(terms=100)).gave_up
    assert str(search(possible, limits)).startswith("gave up before an answer for 12 actions was found (over ")


def test_limits_count_work_and_not_time() -> None:
    """The same question costs the same again, to the unit."""
    question, _ = next(steps_with(Evict))

    assert 1 == len({spent(question) for _ in range(2)})


def spent(question: Question) -> tuple[int, int]:
    """The work of a search: terms that were evaluated, and units of the solver's for twelve actions."""
    work = Work(1_000_000)
    scripts = Scripts(question, texts(), work)
    return 1_000_000 - work.left, model(scripts.script(12), 1_000_000_000).resources


# ---------------------------------------------------------------- what is found is replayed


def eviction_of_a_parent() -> Question:
    """A page is gone, and its child is still there."""
    before = shared_pages()
    pair = parent_and_child(before)
    assert pair is not None
    return Question(before, snapshot(actions.evict(before, pair[0])))


def test_nothing_is_believed_that_does_not_replay() -> None:
    """With a conjunct of a guard dropped from the compiled text, an impossible step is 'explained', and refused."""
    question = eviction_of_a_parent()
    fault = with_text(actions.evict_guard, "and all(child.parent != page_id for child in s.pages.values())", "and True")

    assert Answer.IMPOSSIBLE == search(question).answer
    with pytest.raises(ExplanationRefused, match="does not hold when it is replayed") as refused:
        search(question, replaced=fault)
    assert [Evict] == list(map(type, refused.value.found))


def test_a_replay_refuses_other_orders_and_other_phases() -> None:
    """Reversed, with an action left out, or with its phases mixed, an explanation is none."""
    question, _ = next(steps_with(Evict))
    found = search(question).actions
    plan = [action for action in found if RULES[type(action)].phase is Phase.PLAN]

    assert replays(question, found)
    assert not replays(question, found[::-1])
    assert not replays(question, found[1:])
    assert not replays(question, (*found[len(plan) :], *plan))
