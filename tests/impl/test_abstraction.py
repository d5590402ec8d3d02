"""The abstraction shows the engine's own structures, corrupt ones included, and takes nothing from elsewhere."""

from dataclasses import dataclass, replace

import pytest

from vosti.impl import pool as pools
from vosti.impl.abstraction import snapshot
from vosti.impl.pool_state import Pool, empty
from vosti.spec.events import PageView, Snapshot
from vosti.spec.sampling import SamplerState, sampler_state
from vosti.spec.state import Domain, PageId, Request, RequestId, Sampler, Token

A, B = RequestId("a"), RequestId("b")
GREEDY = sampler_state(temperature=0, seed=0)


@dataclass(frozen=True)
class Known:
    """What an engine keeps of a live request, beside the pool."""

    prompt: tuple[Token, ...]
    output: tuple[Token, ...] = ()
    draft: tuple[Token, ...] = ()
    sampler: SamplerState = GREEDY
    arrival: int = 0


def some(*tokens: int) -> tuple[Token, ...]:
    """Tokens."""
    return tuple(map(Token, tokens))


def small() -> tuple[Pool, dict[RequestId, Known]]:
    """a holds two registered pages and a private one with a drafted slot; b shares the first."""
    live = {A: Known(some(1, 2, 3), some(4), some(5, 6), arrival=3), B: Known(some(1, 2, 9), arrival=4)}
    pool = empty(frozenset(map(PageId, range(6))), 2)
    pool = pools.admit(pool, A, Domain("x"))
    for page in (4, 2, 0):
        pool = pools.allocate(pool, A, PageId(page))
    pool = pools.advance(pool, A, 5, 6)
    pool = pools.publish(pool, A, 0, some(1, 2), 4)
    pool = pools.publish(pool, A, 1, some(3, 4), 4)
    pool = pools.admit(pool, B, Domain("x"))
    pool = pools.attach(pool, B, PageId(4), some(1, 2), 3)
    return pools.allocate(pool, B, PageId(1)), live


def test_it_shows_what_there_is() -> None:
    """Requests with their tables, pages with their counts and tokens, free pages: written out."""
    pool, live = small()
    seen = snapshot(pool, live)
    assert seen.requests == {
        A: Request(
            some(1, 2, 3), some(4), some(5, 6), Sampler(GREEDY), 5, tuple(map(PageId, (4, 2, 0))), Domain("x"), 3
        ),
        B: Request(some(1, 2, 9), (), (), Sampler(GREEDY), 2, (PageId(4), PageId(1)), Domain("x"), 4),
    }
    x = Domain("x")
    assert {
        4: PageView(True, None, x, 2, some(1, 2), True),
        2: PageView(True, PageId(4), x, 1, some(3, 4), True),
        0: PageView(False, None, x, 1, some(5), False),
        1: PageView(False, None, x, 1, (), False),
    } == seen.pages
    assert {3, 5} == seen.free


CORRUPTIONS = {
    "a count": lambda pool: replace(pool, pages=pool.pages.set(PageId(4), replace(pool.pages[PageId(4)], refcount=1))),
    "stored tokens": lambda pool: replace(
        pool, pages=pool.pages.set(PageId(2), replace(pool.pages[PageId(2)], tokens=some(3, 5)))
    ),
    "a parent": lambda pool: replace(
        pool, pages=pool.pages.set(PageId(2), replace(pool.pages[PageId(2)], parent=PageId(0)))
    ),
    "a registration": lambda pool: replace(
        pool, pages=pool.pages.set(PageId(0), replace(pool.pages[PageId(0)], registered=True))
    ),
    "a domain": lambda pool: replace(
        pool, pages=pool.pages.set(PageId(0), replace(pool.pages[PageId(0)], domain=Domain("y")))
    ),
    "a request's domain": lambda pool: replace(
        pool, requests=pool.requests.set(B, replace(pool.requests[B], domain=Domain("y")))
    ),
    "a table": lambda pool: replace(
        pool, requests=pool.requests.set(B, replace(pool.requests[B], table=(PageId(4), PageId(3))))
    ),
    "a length": lambda pool: replace(pool, requests=pool.requests.set(A, replace(pool.requests[A], cached=4))),
    "a free page": lambda pool: replace(pool, free=pool.free.delete(PageId(3))),
    "a page in two places": lambda pool: replace(pool, free=pool.free.set(PageId(4), 0)),
    "a lost page": lambda pool: replace(pool, pages=pool.pages.delete(PageId(1))),
    "a lost request": lambda pool: replace(pool, requests=pool.requests.delete(B)),
    "an index entry": lambda pool: replace(
        pool, index=pool.index.update({key: PageId(0) for key, page in pool.index.items() if page == 4})
    ),
    "a missing index entry": lambda pool: replace(
        pool, index=pool.index.delete(next(key for key, page in pool.index.items() if page == 4))
    ),
}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_every_corruption_shows(name: str) -> None:
    """Whatever single part of the pool changes without an action, the snapshot changes."""
    pool, live = small()
    corrupt = CORRUPTIONS[name](pool)
    assert corrupt != pool
    assert snapshot(pool, live) != snapshot(corrupt, live)


@pytest.mark.parametrize("field", ["prompt", "output", "draft", "sampler", "arrival"])
def test_every_change_of_a_record_shows(field: str) -> None:
    """So does a change of what the engine keeps beside the pool."""
    pool, live = small()
    other = {
        "prompt": some(1, 2, 3, 4),
        "output": some(5),
        "draft": some(5),
        "sampler": GREEDY.advanced(),
        "arrival": 9,
    }[field]
    assert snapshot(pool, live) != snapshot(pool, {**live, A: replace(live[A], **{field: other})})  # type: ignore[arg-type]
    assert snapshot(pool, live) != snapshot(pool, {A: live[A]})


def test_it_changes_nothing() -> None:
    """To take a snapshot leaves pool and records as they are, and two snapshots of one state are equal."""
    pool, live = small()
    before = pool, dict(live)
    assert snapshot(pool, live) == snapshot(pool, live)
    assert before == (pool, live)


def test_an_empty_engine() -> None:
    """All pages are free."""
    seen = snapshot(empty(frozenset(map(PageId, range(3))), 2), {})
    assert Snapshot(requests={}, pages={}, free=frozenset(map(PageId, range(3)))) == seen
