"""Looking at what a step touched finds what looking at everything finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from event_walk import EventWalk, Habits
from vosti.refinement.checker import Checker
from vosti.refinement.inv import Invariant
from vosti.refinement.observations import Observations
from vosti.refinement.touched import OBJECTS
from vosti.spec.invariants import CONJUNCTS
from vosti.spec.state import Domain, Page, PageId, Request, RequestId, State, Token, Value, initial

OTHER = Value("0" * 32)

BREAKABLE = {conjunct.name for conjunct in CONJUNCTS} - {"page_size_positive", "registered_are_finite"}
"""The conjuncts that a change of a walk's state can break: its pages have slots, and what is not finite is gone."""


def other_tokens(tokens: tuple[Token, ...], random: Random) -> tuple[Token, ...]:
    """The tokens with one changed, added or lost."""
    i = random.randint(0, len(tokens))
    middle = random.choice(((), (Token(9),), (Token(9), *tokens[i : i + 1])))
    return (*tokens[:i], *middle, *tokens[i + 1 :])


def other_table(s: State, table: tuple[PageId, ...], random: Random) -> tuple[PageId, ...]:
    """The table with an entry changed, added, lost, or moved."""
    i = random.randint(0, len(table))
    entry = random.choice([*sorted(s.capacity), PageId(999)])
    return random.choice(((*table[:i], entry, *table[i + 1 :]), table[:-1], (*table, entry), table[::-1]))


def broken_request(s: State, request: Request, random: Random) -> Request:
    """The request with one field changed."""
    others = [other.arrival for other in s.requests.values()]
    return random.choice(
        (
            lambda: replace(request, prompt=other_tokens(request.prompt, random)),
            lambda: replace(request, output=other_tokens(request.output, random)),
            lambda: replace(request, draft=other_tokens(request.draft, random)),
            lambda: replace(request, cached=request.cached + random.choice((-9, -2, -1, 1, 2, 9))),
            lambda: replace(request, table=other_table(s, request.table, random)),
            lambda: replace(request, domain=Domain("elsewhere")),
            lambda: replace(request, arrival=random.choice(others)),
        )
    )()


def broken_page(s: State, page: Page, random: Random) -> Page:
    """The page with one field changed."""
    somebody = random.choice([*sorted(s.requests), RequestId("nobody")])
    return random.choice(
        (
            lambda: replace(page, prefix=other_tokens(page.prefix, random)),
            lambda: replace(page, tokens=other_tokens(page.tokens, random)),
            lambda: replace(page, tokens=page.tokens[:-1], kv=page.kv[:-1]),
            lambda: replace(page, kv=(*page.kv[:-1], OTHER)),
            lambda: replace(page, kv=page.kv[:-1]),
            lambda: replace(page, kv=page.kv[::-1]),
            lambda: replace(page, holders=page.holders ^ {somebody}),
            lambda: replace(page, holders=frozenset()),
            lambda: replace(page, registered=not page.registered),
            lambda: replace(page, parent=random.choice([None, *sorted(s.pages)])),
            lambda: replace(page, domain=Domain("elsewhere")),
        )
    )()


def broken_state(s: State, random: Random) -> State:
    """The state with one structure changed; most of the time Inv does not hold any more."""

    def one_request() -> State:
        if not s.requests:
            return s
        r = random.choice(sorted(s.requests))
        return replace(s, requests={**s.requests, r: broken_request(s, s.requests[r], random)})

    def one_page() -> State:
        if not s.pages:
            return s
        page_id = random.choice(sorted(s.pages))
        return replace(s, pages={**s.pages, page_id: broken_page(s, s.pages[page_id], random)})

    def lose_request() -> State:
        lost = random.choice([*sorted(s.requests), None])
        return replace(s, requests={r: request for r, request in s.requests.items() if r != lost})

    def lose_page() -> State:
        lost = random.choice([*sorted(s.pages), None])
        return replace(s, pages={page_id: page for page_id, page in s.pages.items() if page_id != lost})

    def copy_request() -> State:
        if not s.requests:
            return s
        request = random.choice([s.requests[r] for r in sorted(s.requests)])
        stranger = replace(request, table=(), cached=0, arrival=random.choice((request.arrival, 10**6)))
        return replace(s, requests={**s.requests, RequestId("stranger"): stranger})

    def copy_page() -> State:
        if not s.pages:
            return s
        page = random.choice([s.pages[page_id] for page_id in sorted(s.pages)])
        place = random.choice([*sorted(s.capacity), PageId(999)])
        return replace(s, pages={**s.pages, place: random.choice((page, replace(page, holders=frozenset())))})

    def forget() -> State:
        return replace(s, seen=s.seen - {random.choice([*sorted(s.seen), RequestId("nobody")])})

    def repeat_entry() -> State:
        held = [r for r in sorted(s.requests) if s.requests[r].table]
        if not held:
            return s
        r = random.choice(held)
        table = s.requests[r].table
        return replace(s, requests={**s.requests, r: replace(s.requests[r], table=(*table, random.choice(table)))})

    def share_empty_page() -> State:
        empty = [page_id for page_id in sorted(s.pages) if not s.pages[page_id].tokens]
        if not empty or not s.requests:
            return s
        page_id, r = random.choice(empty), random.choice(sorted(s.requests))
        page, request = s.pages[page_id], s.requests[r]
        shared = replace(page, holders=page.holders | {r})
        longer = replace(request, table=(*request.table, page_id))
        return replace(s, requests={**s.requests, r: longer}, pages={**s.pages, page_id: shared})

    def doubt_output() -> State:
        if not s.requests:
            return s
        r = random.choice(sorted(s.requests))
        request = s.requests[r]
        doubted = replace(request, output=(), draft=request.output + request.draft)
        return replace(s, requests={**s.requests, r: doubted})

    def move_retained() -> State:
        retained = [page_id for page_id in sorted(s.pages) if not s.pages[page_id].holders]
        if not retained:
            return s
        page_id = random.choice(retained)
        return replace(s, pages={**s.pages, page_id: replace(s.pages[page_id], domain=Domain("elsewhere"))})

    changes: list[Callable[[], State]] = [one_request, one_request, one_page, one_page, lose_request, lose_page]
    several = [copy_request, copy_page, forget, repeat_entry, share_empty_page, doubt_output, move_retained]
    return random.choice([*changes, *several])()


Failures = set[tuple[str, tuple[Any, ...]]]


def found(seed: int) -> tuple[Failures, Failures]:
    """What is found in a broken state, by what was touched and by everything."""
    random = Random(seed)
    size, pages = random.choice(((1, 24), (2, 14), (4, 9)))
    walk = EventWalk(seed, Habits(page_size=size, pages=pages, draft=0.4, shy=0.3, prompt=(1, 14 if size > 1 else 9)))
    checker = Checker(walk.header)
    invariant = Invariant(checker.state, checker.run.observations)
    for _ in range(random.randint(1, 8)):
        for event in walk.step():
            checker.feed(event)
        assert [] == list(invariant.failing_touched(checker.state, invariant.touch(checker.state)))
    for event in walk.step():  # so that a step's own changes are there as well
        checker.feed(event)
    s = checker.state
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        s = broken_state(s, random)
    touched = {(conjunct.name, x) for conjunct, x in invariant.failing_touched(s, invariant.touch(s))}
    return touched, {(conjunct.name, x) for conjunct, x in invariant.failing(s)}


@given(seed=st.integers(0, 2**48))
@settings(max_examples=200)
def test_touched_objects_are_enough(seed: int) -> None:
    """In a state that was broken in a step, the touched objects that fail are all that fail."""
    touched, whole = found(seed)

    if {name for name, _ in whole} == {"arrivals_are_unique"}:  # of two equal arrivals, only the new one is touched
        assert touched
        assert touched <= whole
    else:
        assert whole == touched


@lru_cache
def seeds_that_break() -> dict[str, int]:
    """Of each conjunct, a seed whose fault breaks it."""
    return {name: seed for seed in range(300) for name in {name for name, _ in found(seed)[1]}}


def test_every_conjunct_is_broken_by_some_fault() -> None:
    """The broken states that the test above compares break each conjunct that a walk's state can break."""
    assert BREAKABLE == set(seeds_that_break())


def test_a_registered_page_that_is_not_finite_is_found() -> None:
    """A page becomes registered although one of its values is not finite."""
    observations = Observations()
    s = initial(frozenset({PageId(0)}), 1)
    invariant = Invariant(s, observations)
    observations.kv.observe(observations.prefixes.number((Token(5),)), "bits", "test", 0)
    observations.note_finiteness("bits", finite=False, seen_before=False)
    page = Page((), (Token(5),), (Value("bits"),), frozenset(), registered=True, parent=None, domain=Domain(""))
    s = replace(s, pages={PageId(0): page})

    assert ["registered_are_finite"] == [
        conjunct.name for conjunct, _ in invariant.failing_touched(s, invariant.touch(s))
    ]
    assert ["registered_are_finite"] == [conjunct.name for conjunct, _ in invariant.failing(s)]


def test_a_page_without_slots_is_found() -> None:
    """Inv does not hold with pages of size 0."""
    s = initial(frozenset(), 0)

    assert ["page_size_positive"] == [conjunct.name for conjunct, _ in Invariant(s, Observations()).failing(s)]


def test_every_conjunct_has_its_objects() -> None:
    """The table of touched objects speaks of each conjunct of the specification, and of no other."""
    assert {conjunct.name for conjunct in CONJUNCTS} == set(OBJECTS)


@pytest.mark.parametrize("name", sorted(BREAKABLE))
def test_a_conjunct_without_its_objects_misses_faults(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If one conjunct's touched objects were forgotten, the comparison above would show it."""
    seed = seeds_that_break()[name]
    monkeypatch.setitem(OBJECTS, name, lambda touched: ())

    try:
        touched, whole = found(seed)
    except KeyError:  # a later conjunct relied on this one
        return
    assert {name} == {name for name, _ in whole}
    assert name not in {name for name, _ in touched}
