"""The compiled texts, evaluated on the ids of a concrete state, say what the functions say."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import pytest

from event_streams import stream
from search_cases import CROWDED, everything
from vosti.refinement.evidence import BY_EVIDENCE, Evidence
from vosti.refinement.smt import concrete
from vosti.refinement.smt.components import Ids, Key, flat, parts
from vosti.refinement.smt.concrete import UNDEFINED, Cases, Evaluator, Work
from vosti.refinement.smt.terms import BOOL, TRUE
from vosti.refinement.smt.values import type_of
from vosti.refinement.texts import EVIDENCE, STATE, texts
from vosti.spec.events import SettleEvent
from vosti.spec.state import State
from vosti.spec.step import RULES, Action, arguments, effect

NOTHING_SEEN = Evidence({}, {}, {}, frozenset(), frozenset())
"""No forward, and all values finite."""


def some_states() -> list[State]:
    """States from the middle of runs."""
    runs = [stream(seed, 25, CROWDED) for seed in (3, 5)]
    settled = [
        s for run in runs for event, s in zip(run.events, run.states, strict=True) if isinstance(event, SettleEvent)
    ]
    return settled[3::4]


def cases_of(components: dict[Key, Hashable]) -> dict[Key, Cases]:
    """Components that have one value each."""
    return {key: {value: TRUE} for key, value in components.items()}


def ids_of(s: State) -> Ids:
    """The ids of a state, with room for one block more."""
    blocks = max((len(request.table) for request in s.requests.values()), default=0) + 1
    by_sort = {"RequestId": tuple(s.requests), "PageId": tuple(sorted(s.capacity))}
    return Ids(by_sort, lambda key: blocks if "table" in key[0] else s.page_size)


def compared(s: State) -> Iterator[tuple[Action, bool, list[Key]]]:
    """Each action on a state: whether it can happen, and where the compiled texts say something else."""
    ids, before = ids_of(s), dict(flat(type_of(State), STATE, s))
    frame = cases_of({**before, **dict(flat(type_of(Evidence), EVIDENCE, NOTHING_SEEN))})
    evaluator = Evaluator(frame, {name for name, _ in frame}, ids, Work(10_000_000))
    for action in everything(s):
        text, of = texts().actions[type(action)], arguments(action)
        env, by_evidence = text.env(of), BY_EVIDENCE.get(type(action))
        expected = by_evidence(s, NOTHING_SEEN, *of) if by_evidence else RULES[type(action)].guard(s, *of)
        wrong: list[Key] = [] if evaluator.cases(text.guard, env) == {expected: TRUE} else [("guard", ())]
        if expected:
            after = dict(flat(type_of(State), STATE, effect(s, action)))
            for key, term in parts(text.after, STATE, ids):
                value = after.get(key, False if term.sort == BOOL else UNDEFINED)
                if not meaningless(key, after) and evaluator.cases(term, env) != {value: TRUE}:
                    wrong.append(key)
        yield action, expected, wrong


def test_guards_and_effects_on_concrete_ids() -> None:
    """Each action on each state: the guard as Python evaluates it, and each component of the effect."""
    found = [of for s in some_states() for of in compared(s)]

    assert [] == [(action, wrong) for action, _, wrong in found if wrong]
    assert 8 <= len({type(action) for action, happens, _ in found if happens})
    assert 8 <= len({type(action) for action, happens, _ in found if not happens})


@pytest.mark.parametrize(
    ("table", "name", "wrong"),
    [
        ("OPERATORS", "<", lambda a, b: a <= b),
        ("OPERATORS", "+", lambda a, b: a - b),
        ("OPERATORS", "<=", lambda a, b: a < b),
        ("FUNCTIONS", "times", lambda a, b: a + b),
        ("FUNCTIONS", "len_Token", lambda h: len(h) + 1),
        ("FUNCTIONS", "slice_Token", lambda h, a, b: h[a : b + 1]),
        ("FUNCTIONS", "eq_Token", lambda g, h: len(g) == len(h)),
        ("FUNCTIONS", "concat_Token", lambda g, h: g),
    ],
)
def test_a_fault_in_the_evaluation_is_found(
    table: str, name: str, wrong: Callable[..., Hashable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one function evaluated wrongly, some guard or effect is not what Python says."""
    monkeypatch.setitem(getattr(concrete, table), name, wrong)

    assert any(wrong for s in some_states() for _, _, wrong in compared(s))


def meaningless(key: Key, after: dict[Key, Hashable]) -> bool:
    """Whether a component is about a request or a page that is not there, or an element beyond a tuple's end."""
    name, params = key
    owner = next((of for of in ("s.requests", "s.pages") if name.startswith(f"{of}.")), None)
    if owner is None or name == f"{owner}.has":
        return False
    if (f"{owner}.has", params[:1]) not in after:
        return True
    if name.endswith(".some"):
        return after.get((name.removesuffix(".some") + ".is_none", params)) is True
    return name.endswith(".at") and key not in after
