"""States up to names: renamed states have one form, and any other difference gives another form."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from vosti.proofs.explore_bounds import ONE, OTHER, Bounds, candidates, tokens
from vosti.proofs.explore_canonical import Canonical
from vosti.spec import step
from vosti.spec.reference import canonical_kv, next_sampler
from vosti.spec.state import Page, PageId, RequestId, State, Value, initial
from vosti.spec.step import Action, Cancel, Evict

BOUNDS = Bounds(
    "walks",
    requests=3,
    pages=5,
    page_size=1,
    prompts=(tokens(0, 0), tokens(0, 1)),
    outputs=2,
    drafts=(tokens(0),),
    domains=(ONE, OTHER),
)


def states() -> Iterator[State]:
    """States of random walks."""
    for seed in range(20):
        rng = random.Random(seed)
        s = BOUNDS.start
        for _ in range(60):
            enabled: dict[type, list[Action]] = {}
            for action in candidates(s, BOUNDS):
                if step.guard(s, action):
                    enabled.setdefault(type(action), []).append(action)
            enabled.pop(Cancel if rng.random() < 0.8 else Evict, None)  # or the walk would soon be over
            if not enabled:
                break
            s = step.effect(s, rng.choice(rng.choice([*enabled.values()])))
            yield s


@pytest.fixture(scope="module")
def walked() -> list[State]:
    """Some states, most of them with pages that nobody holds."""
    found = [s for s in states() if s.requests or s.pages]
    assert sum(any(not page.holders for page in s.pages.values()) for s in found) > 100
    return found


def form(canonical: Canonical, s: State) -> bytes:
    """The state's digest, with nothing beside it."""
    return canonical.digest(s, dict.fromkeys(s.requests, ()))


def renamed(s: State, rng: random.Random) -> State:
    """The same state under other names, with other arrivals of the same order, and everything in another order."""
    shuffled = rng.sample(sorted(s.capacity), len(s.capacity))
    pages = dict(zip(sorted(s.capacity), map(PageId, shuffled), strict=True))
    names = {r: RequestId(f"q{number}") for number, r in enumerate(rng.sample(sorted(s.seen), len(s.seen)))}
    requests = {
        names[r]: replace(
            request, table=tuple(pages[page_id] for page_id in request.table), arrival=3 * request.arrival + 7
        )
        for r, request in s.requests.items()
    }
    moved = {
        pages[page_id]: replace(
            page,
            holders=frozenset(names[r] for r in page.holders),
            parent=None if page.parent is None else pages[page.parent],
        )
        for page_id, page in s.pages.items()
    }
    return replace(
        s,
        requests=dict(rng.sample(sorted(requests.items()), len(requests))),
        pages=dict(rng.sample(sorted(moved.items(), key=lambda item: item[0]), len(moved))),
        seen=frozenset(names.values()),
    )


def test_renamed_states_have_one_form(walked: list[State]) -> None:
    """Other names, and arrivals of the same order, make no difference."""
    canonical, rng = Canonical(), random.Random(1)
    for s in walked:
        for _ in range(3):
            assert form(canonical, s) == form(canonical, renamed(s, rng))


def others(s: State) -> Iterator[State]:
    """States that differ from s in one respect, some of them with Inv broken."""
    for r, request in s.requests.items():
        changes: list[dict[str, Any]] = [
            {"prompt": (*request.prompt, 2)},
            {"output": (*request.output, 2)},
            {"draft": (*request.draft, 2)},
            {"sampler": next_sampler(request.sampler)},
            {"cached": request.cached + 1},
            {"table": (*request.table, PageId(4))},
            {"table": (*request.table, PageId(9))},
            {"domain": OTHER if request.domain == ONE else ONE},
        ]
        changes += [{"table": request.table[:-1]}] if request.table else []
        for change in changes:
            yield replace(s, requests={**s.requests, r: replace(request, **change)})
        first = min(other.arrival for other in s.requests.values())
        if request.arrival != first:
            yield replace(s, requests={**s.requests, r: replace(request, arrival=first)})
        yield replace(s, seen=s.seen - {r})
    for page_id, page in s.pages.items():
        changes = [
            {"prefix": (*page.prefix, 2)},
            {"tokens": (*page.tokens, 2)},
            {"kv": (*page.kv, canonical_kv(tokens(2)))},
            {"kv": (Value("something"), *page.kv[1:])},
            {"holders": page.holders | {RequestId("somebody")}},
            {"holders": page.holders | {"r0"} if "r0" not in page.holders else page.holders - {"r0"}},
            {"registered": not page.registered},
            {"parent": None if page.parent is not None else page_id},
            {"parent": PageId(9)},
            {"domain": OTHER if page.domain == ONE else ONE},
        ]
        for change in changes:
            yield replace(s, pages={**s.pages, page_id: replace(page, **change)})
        yield replace(s, pages={other: used for other, used in s.pages.items() if other != page_id})
        outside = {PageId(9) if other == page_id else other: used for other, used in s.pages.items()}
        yield replace(s, pages=outside)
    yield replace(s, seen=s.seen | {RequestId("another")})
    yield replace(s, page_size=s.page_size + 1)
    yield replace(s, capacity=s.capacity | {PageId(5)})


def test_any_other_difference_gives_another_form(walked: list[State]) -> None:
    """Nothing of a state is left out of its form, whether or not Inv holds."""
    canonical = Canonical()
    for s in walked[::4]:
        for other in others(s):
            assert form(canonical, s) != form(canonical, other), (s, other)


def test_what_stands_beside_a_state_counts() -> None:
    """Two nodes with equal states differ if what goes beside the state does."""
    canonical = Canonical()
    s = step.effect(BOUNDS.start, next(iter(candidates(BOUNDS.start, BOUNDS))))
    (r,) = s.requests

    assert canonical.digest(s, {r: (0, 0)}) != canonical.digest(s, {r: (0, 1)})
    assert canonical.digest(s, {r: ()}, whole=1) != canonical.digest(s, {r: ()}, whole=2)


def test_retained_trees_with_equal_contents_are_told_apart_by_what_is_below() -> None:
    """Of two pages with equal tokens one has a child: which of them it is does not matter, that it has one does."""
    leaf = Page((), tokens(0), (canonical_kv(tokens(0)),), frozenset(), True, None, ONE)
    child = Page(tokens(0), tokens(1), (canonical_kv(tokens(0, 1)),), frozenset(), True, PageId(0), ONE)
    s = initial(frozenset(map(PageId, range(4))), 1)
    left = replace(s, pages={PageId(0): leaf, PageId(1): leaf, PageId(2): child})
    right = replace(s, pages={PageId(0): leaf, PageId(1): leaf, PageId(2): replace(child, parent=PageId(1))})
    neither = replace(s, pages={PageId(0): leaf, PageId(1): leaf, PageId(2): replace(child, parent=None)})
    canonical = Canonical()

    assert form(canonical, left) == form(canonical, right)
    assert form(canonical, left) != form(canonical, neither)


def test_fields_of_states_are_all_considered() -> None:
    """A field that is added to a state, request or page must be added to the form: this test knows those there are."""
    names = {cls.__name__: tuple(field.name for field in fields(cls)) for cls in (State, Page)}

    assert ("requests", "pages", "capacity", "seen", "page_size") == names["State"]
    assert ("prefix", "tokens", "kv", "holders", "registered", "parent", "domain") == names["Page"]
