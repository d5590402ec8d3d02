"""Steps for the search for explanations: recorded ones, recorded wrongly, and states a few actions away."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

from event_streams import Stream, stream
from event_walk import Habits, snapshot
from vosti.refinement.candidates import Question
from vosti.refinement.search import replays
from vosti.spec.actions import publish_ready
from vosti.spec.events import ForwardEvent, PlanEvent, SettleEvent
from vosti.spec.state import State, history
from vosti.spec.step import (
    RULES,
    Action,
    Allocate,
    Attach,
    Cancel,
    Evict,
    Finish,
    Observe,
    Phase,
    Preempt,
    Propose,
    Publish,
    Retract,
    effect,
    guard,
)

CROWDED = Habits(pages=9, sick=0.1, cancel=0.1, preempt=0.1)
"""A pool that is short of pages, so that all kinds of actions occur."""


def small_steps(s: Stream, most: int = 9) -> Iterator[tuple[int, Question, tuple[Action, ...]]]:
    """The steps of a stream with a few actions: where each begins, its question, and what changes its state."""
    for i, event in enumerate(s.events):
        if isinstance(event, PlanEvent):
            forward, settle = s.events[i + 1], s.events[i + 2]
            assert isinstance(forward, ForwardEvent)
            assert isinstance(settle, SettleEvent)
            actions = tuple(a for a in (*event.actions, *settle.actions) if not isinstance(a, Observe))
            if len(actions) <= most:
                question = Question(s.states[i], settle.after, forward, settle.rereadings, actions)
                yield i, question, actions


def steps_with(kind: type[Action], seeds: range = range(20)) -> Iterator[tuple[Question, Action]]:
    """Steps that happened, with an action of a kind, the action not among those that were recorded."""
    for seed in seeds:
        for _, question, actions in small_steps(stream(seed, 25, CROWDED)):
            for j, action in enumerate(actions):
                without = (*actions[:j], *actions[j + 1 :])
                if isinstance(action, kind) and not replays(question, without):
                    yield replace(question, recorded=without), action


def swapped(s: Stream) -> tuple[Stream, Question, tuple[Action, Action]]:
    """The stream with two neighbouring actions of a small step's plan recorded in the wrong order, and that step."""
    for i, question, actions in small_steps(s):
        plan = s.events[i]
        assert isinstance(plan, PlanEvent)
        for j in range(len(plan.actions) - 1):
            a, b = plan.actions[j : j + 2]
            order = (*plan.actions[:j], b, a, *plan.actions[j + 2 :])
            recorded = (*order, *actions[len(order) :])
            if not replays(question, recorded):
                return s.with_event(i, replace(plan, actions=order)), replace(question, recorded=recorded), (a, b)
    raise AssertionError("no two actions of this stream depend on their order")


def everything(s: State) -> Iterator[Action]:
    """Every action without records or arrivals, over all ids of a state, whether or not it can happen."""
    blocks = range(max((len(request.table) for request in s.requests.values()), default=0) + 2)
    for r, request in s.requests.items():
        yield from (Cancel(r), Retract(r), Finish(r), Propose(r, history(request)[:1]))
        yield from (Preempt(r, other) for other in s.requests)
        yield from (Publish(r, block) for block in blocks)
    yield from (Attach(r, p) for r, p in product(s.requests, sorted(s.capacity)))
    yield from (Allocate(r, p) for r, p in product(s.requests, sorted(s.capacity)))
    yield from map(Evict, sorted(s.capacity))


def reachable(s: State, most: int) -> list[tuple[State, int]]:
    """The states that actions of `everything` lead to, plan before settle, each with the fewest that are needed."""
    found: list[tuple[State, int]] = [(s, 0)]
    known = {(repr(s), False)}
    level = [(s, False)]
    for count in range(1, most + 1):
        following: list[tuple[State, bool]] = []
        for before, settling in level:
            for action in everything(s):
                settles = RULES[type(action)].phase is Phase.SETTLE
                if (settles or not settling) and can_happen(before, action):
                    after = effect(before, action)
                    if (repr(after), settles) not in known:
                        known.add((repr(after), settles))
                        following.append((after, settles))
                        if all(snapshot(after) != snapshot(other) for other, _ in found):
                            found.append((after, count))
        level = following
    return found


def can_happen(s: State, action: Action) -> bool:
    """The action's guard; of a publish its control part, since values are digests, and finite."""
    if isinstance(action, Publish):
        return publish_ready(s, action.request, action.block)
    return guard(s, action)


def with_text(function: Callable[..., object], right: str, wrong: str) -> dict[str, ast.FunctionDef]:
    """Another text for a function, as `Compiler` takes it."""
    text = inspect.getsource(function)
    assert right in text
    (node,) = ast.parse(text.replace(right, wrong)).body
    assert isinstance(node, ast.FunctionDef)
    return {f"{function.__module__}.{function.__qualname__}": node}
