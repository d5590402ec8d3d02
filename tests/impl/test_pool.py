"""The page pool against its naive model on random transitions, and faults in the pool, each of which that finds."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from pool_model import Disagreement
from pool_walk import KEY_SPACES, walk
from vosti.impl import pool as engine
from vosti.impl.persistent import replace, without
from vosti.impl.pool_invariants import INVARIANTS, violated
from vosti.impl.pool_state import KEY_SPACE, Holding, Key, Pool, empty, page_key
from vosti.spec.state import Domain, PageId, RequestId, Token

A, B, C = (RequestId(name) for name in "abc")
LEFT, RIGHT = Domain("left"), Domain("right")


def ids(*pages: int) -> tuple[PageId, ...]:
    """Page identifiers."""
    return tuple(map(PageId, pages))


def tokens(*values: int) -> tuple[Token, ...]:
    """Tokens."""
    return tuple(map(Token, values))


def take(pool: Pool, name: str, *args: Any) -> Pool:
    """A transition that must be allowed."""
    assert getattr(engine, name + "_guard")(pool, *args), (name, args)
    return getattr(engine, name)(pool, *args)


def filled(pool: Pool, r: RequestId, pages: tuple[PageId, ...], history: tuple[Token, ...]) -> Pool:
    """r computes its whole history on these pages, and publishes every full one."""
    for page in pages:
        pool = take(pool, "allocate", r, page)
    pool = take(pool, "advance", r, len(history), len(history))
    for block in range(len(history) // pool.page_size):
        page_tokens = history[block * pool.page_size : (block + 1) * pool.page_size]
        pool = take(pool, "publish", r, block, page_tokens, len(history))
    return pool


def sample(key_space: int = KEY_SPACE) -> Pool:
    """Eight pages of two: a holds 0, 1 (registered: 1 2, 3 4) and 2 (private: 5); 3 (registered: 7 8) is idle."""
    pool = empty(frozenset(ids(*range(8))), 2, key_space)
    pool = filled(take(pool, "admit", A, LEFT), A, ids(0, 1, 2), tokens(1, 2, 3, 4, 5))
    return take(filled(take(pool, "admit", B, LEFT), B, ids(3), tokens(7, 8)), "remove", B)


# ---------------------------------------------------------------- agreement


def walks(count: int) -> Counter[str]:
    """Long walks, the same ones each time; what happened on them."""
    seen: Counter[str] = Counter()
    for seed in range(count):
        walk(Random(seed), 150, seen)
    return seen


@settings(max_examples=60)
@given(st.randoms(use_true_random=False))
def test_pool_and_model_agree(random: Random) -> None:
    """After any transitions, guards, states, contents and matches are the model's, and every invariant is true."""
    walk(random, 40, Counter())


def test_long_walks_agree_and_exercise_everything() -> None:
    """On longer walks too, in which all transitions are taken and refused, and pages shared, missed and recycled."""
    seen = walks(100)
    expected = {*engine.TRANSITIONS, *(f"{name} refused" for name in engine.TRANSITIONS)}
    expected |= {"draft accepted", "draft rejected", "a page recycled", "shared by live requests"}
    expected |= {"several pages at once", "a page not indexed"}

    assert set() == {what for what in expected if seen[what] < 5}, seen


def random_arguments(random: Random, pool: Pool, name: str) -> tuple[Any, ...]:
    """Arguments of a caller whose tokens and lengths are not any request's."""
    r = random.choice((A, B, C))
    page, n, length = PageId(random.randrange(5)), random.randrange(-1, 4), random.randrange(-1, 9)
    block = tokens(*random.choice(((), (0,), (0, 0), (0, 0), (0, 1), (1, 0))))
    match name:
        case "admit":
            return r, random.choice((LEFT, LEFT, RIGHT))
        case "attach":
            return r, page, block, length
        case "attach_prefix":
            return r, ids(*(random.randrange(5) for _ in range(n))), block * 5
        case "allocate":
            return r, page
        case "compute" | "retract":
            return r, length
        case "advance":
            return r, n, length
        case "advance_each":
            return {r: n}, {random.choice((A, B, C)): length}
        case "publish":
            return r, n, block, length
        case "evict":
            return (page,)
        case _:
            return (r,)


@pytest.mark.parametrize("key_space", KEY_SPACES)
def test_invariants_hold_whatever_the_caller_says(key_space: int) -> None:
    """Tokens and lengths that are not the requests' own leave the pool whole; no effect raises or is in place."""
    random, taken = Random(key_space), Counter[str]()
    rare = {"preempt": 1, "remove": 3, "retract": 1, "attach": 50, "publish": 50}
    weights = [rare.get(name, 10) for name in engine.TRANSITIONS]
    for _ in range(30):
        pool = empty(frozenset(ids(*range(5))), 2, key_space)
        for _ in range(300):
            name = random.choices(engine.TRANSITIONS, weights)[0]
            args = random_arguments(random, pool, name)
            if not getattr(engine, name + "_guard")(pool, *args):
                continue
            before, taken[name] = repr(pool), taken[name] + 1
            after = getattr(engine, name)(pool, *args)
            assert before == repr(pool), name
            assert violated(after) is None, (name, args)
            pool = after

    assert set(engine.TRANSITIONS) == set(taken), taken


# ---------------------------------------------------------------- examples


@pytest.mark.parametrize(("key_space", "known"), [(KEY_SPACE, 2), (1, 1)])
def test_a_chain_is_found_by_tokens_parent_and_domain(key_space: int, known: int) -> None:
    """A match is exact and keeps to its limit; where all keys collide, pages are missed and none is mistaken."""
    pool = sample(key_space)

    assert ids(0, 1)[:known] == engine.match_prefix(pool, LEFT, tokens(1, 2, 3, 4, 9), 4)
    assert ids(0) == engine.match_prefix(pool, LEFT, tokens(1, 2, 3, 4), 3)
    assert ids(0) == engine.match_prefix(pool, LEFT, tokens(1, 2, 4, 3, 9), 4)
    assert () == engine.match_prefix(pool, LEFT, tokens(3, 4, 3, 4, 9), 4)
    assert () == engine.match_prefix(pool, RIGHT, tokens(1, 2, 3, 4, 9), 4)
    assert () == engine.match_prefix(pool, LEFT, tokens(1, 2, 3), 1)
    assert engine.match_next(pool, LEFT, PageId(7), tokens(1, 2)) is None


@pytest.mark.parametrize(
    ("refused", "domain", "page", "page_tokens", "length"),
    [
        ("nothing", LEFT, 0, (1, 2), 5),
        ("nothing", LEFT, 3, (7, 8), 3),
        ("other tokens", LEFT, 0, (1, 3), 5),
        ("another parent", LEFT, 1, (3, 4), 5),
        ("another domain", RIGHT, 0, (1, 2), 5),
        ("a private page", LEFT, 2, (), 5),
        ("a free page", LEFT, 6, (1, 2), 5),
        ("nothing left to compute", LEFT, 0, (1, 2), 2),
    ],
)
def test_attach_refuses(refused: str, domain: Domain, page: int, page_tokens: tuple[int, ...], length: int) -> None:
    """Only a registered page that matches exactly is attached, and one token of the history stays to be computed."""
    pool = take(sample(), "admit", C, domain)
    history = tokens(*page_tokens, *[9] * length)[:length]

    assert (refused == "nothing") == engine.attach_guard(pool, C, PageId(page), tokens(*page_tokens), length)
    assert (refused == "nothing") == engine.attach_prefix_guard(pool, C, ids(page), history)


def test_an_idle_page_that_is_attached_is_not_evicted() -> None:
    """An idle leaf may be evicted until somebody attaches it, and again once nobody holds it."""
    pool = take(sample(), "admit", C, LEFT)
    held = take(pool, "attach", C, PageId(3), tokens(7, 8), 3)

    assert [True, False, True] == [engine.evict_guard(p, PageId(3)) for p in (pool, held, take(held, "preempt", C))]


def test_idle_pages_know_when_they_were_last_used() -> None:
    """The page released first has the lowest clock; one that was used again counts from its last release."""
    pool = take(take(sample(), "admit", C, LEFT), "remove", A)
    assert {3: 0, 0: 1, 1: 1} == dict(pool.idle)
    again = take(take(pool, "attach", C, PageId(3), tokens(7, 8), 3), "remove", C)

    assert {3: 2, 0: 1, 1: 1} == dict(again.idle)


def test_only_leaves_are_evicted() -> None:
    """A parent stays while it has a child, and is evicted after it."""
    pool = take(sample(), "remove", A)

    assert not engine.evict_guard(pool, PageId(0))
    assert {0: 1, 3: 0} == dict(take(pool, "evict", PageId(1)).idle)
    assert {3: 0} == dict(take(take(pool, "evict", PageId(1)), "evict", PageId(0)).idle)


def test_retract_keeps_pages_and_never_cuts_a_registered_one() -> None:
    """Slots past the history are dropped and their page stays; a length inside a registered page is refused."""
    pool = sample()

    assert Holding(ids(0, 1, 2), 4, LEFT) == take(pool, "retract", A, 4).requests[A]
    assert pool.requests[A] == take(pool, "retract", A, 6).requests[A]
    assert [False] * 4 == [engine.retract_guard(pool, A, length) for length in (-1, 0, 2, 3)]


def test_keys_are_the_same_in_every_process() -> None:
    """A key does not depend on the interpreter's hash seed or on an address, and takes any text as a domain."""
    program = (
        "from vosti.impl.pool_state import page_key\n"
        "print(page_key(2**64, 'left', None, (1, 2)), page_key(2**64, '\\ud800', 3, (1, 2)))"
    )
    keys = (
        page_key(KEY_SPACE, LEFT, None, tokens(1, 2)),
        page_key(KEY_SPACE, Domain("\ud800"), PageId(3), tokens(1, 2)),
    )
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        assert f"{keys[0]} {keys[1]}" == run.stdout.strip()


# ---------------------------------------------------------------- each invariant refuses something


def page(pool: Pool, page_id: int, **changes: object) -> Pool:
    """The pool with a page changed."""
    return replace(pool, pages=pool.pages.set(PageId(page_id), replace(pool.pages[PageId(page_id)], **changes)))


def holding(pool: Pool, **changes: object) -> Pool:
    """The pool with a's holding changed."""
    return replace(pool, requests=pool.requests.set(A, replace(pool.requests[A], **changes)))


CORRUPTIONS: dict[str, list[Callable[[Pool], Pool]]] = {
    "sizes_positive": [lambda p: replace(p, page_size=0), lambda p: replace(p, key_space=0)],
    "free_or_used": [
        lambda p: replace(p, free=p.free.delete(PageId(7))),
        lambda p: replace(p, free=p.free.set(PageId(0), 0)),
        lambda p: replace(p, free=p.free.set(PageId(8), 0)),
        lambda p: replace(p, capacity=p.capacity - {PageId(0)}),
    ],
    "tables_in_pages": [lambda p: holding(p, table=ids(0, 1, 7)), lambda p: holding(p, domain=RIGHT)],
    "tables_cover_cached": [lambda p: holding(p, cached=7), lambda p: holding(p, cached=-1)],
    "depths_in_tables": [lambda p: holding(p, table=ids(0, 2, 1)), lambda p: page(p, 2, depth=3)],
    "refcounts_count": [lambda p: page(p, 0, refcount=2), lambda p: page(p, 3, refcount=1)],
    "used_for_something": [lambda p: page(p, 3, registered=False)],
    "registered_full": [lambda p: holding(p, cached=3)],
    "idle_exact": [lambda p: replace(p, idle=p.idle.set(PageId(1), 0)), lambda p: replace(p, idle=Map())],
    "parents_registered": [
        lambda p: page(p, 2, parent=PageId(1)),
        lambda p: page(p, 1, parent=PageId(2)),
        lambda p: page(p, 1, parent=PageId(7)),
        lambda p: page(page(p, 3, parent=PageId(1), depth=2), 3, domain=RIGHT),
    ],
    "registered_first": [lambda p: page(page(p, 0, registered=False, tokens=()), 1, parent=None)],
    "depths_in_chains": [lambda p: page(p, 3, depth=1), lambda p: page(p, 3, parent=PageId(0))],
    "tables_in_chains": [lambda p: page(p, 1, parent=PageId(3))],
    "children_count": [lambda p: page(p, 0, children=0), lambda p: page(p, 3, children=1)],
    "tokens_full": [lambda p: page(p, 3, tokens=tokens(7)), lambda p: page(p, 2, tokens=tokens(5, 6))],
    "index_sound": [
        lambda p: replace(p, index=p.index.set(Key(0), PageId(3))),
        lambda p: replace(p, index=p.index.update(dict.fromkeys(p.index, PageId(7)))),
        lambda p: page(p, 3, tokens=tokens(7, 7)),
    ],
}
"""By invariant: changes to a good pool that make it the first to be false."""


def test_a_good_pool_has_its_invariants() -> None:
    """What is corrupted below is whole, and each invariant has its corruptions."""
    assert violated(sample()) is None
    assert [invariant.__name__ for invariant in INVARIANTS] == list(CORRUPTIONS)


@pytest.mark.parametrize(
    ("invariant", "corrupted"), [(name, change) for name, changes in CORRUPTIONS.items() for change in changes]
)
def test_a_corrupted_pool_is_found(invariant: str, corrupted: Callable[[Pool], Pool]) -> None:
    """Each invariant is false where what it states is."""
    assert invariant == violated(corrupted(sample()))


# ---------------------------------------------------------------- faults, each of which a walk finds

Function = Callable[..., Any]


def kept(*fields: str) -> Callable[[Function], Function]:
    """An effect that leaves these fields as they were."""
    return lambda real: lambda pool, *args: replace(real(pool, *args), **{f: getattr(pool, f) for f in fields})


def counted(change: Callable[[Pool, Pool, PageId], dict[str, object]]) -> Callable[[Function], Function]:
    """An effect after which each page that was and is in use is changed, as `change` says of the pools and the page."""

    def faulty(real: Function) -> Function:
        def effect(pool: Pool, *args: Any) -> Pool:
            after: Pool = real(pool, *args)
            changed = {p: replace(after.pages[p], **change(pool, after, p)) for p in pool.pages if p in after.pages}
            return replace(after, pages=after.pages.update(changed))

        return effect

    return faulty


def frees_what_it_drops(real: Function) -> Function:
    """A retract that gives back the pages behind the history, whoever else holds them."""

    def effect(pool: Pool, r: RequestId, length: int) -> Pool:
        after: Pool = real(pool, r, length)
        table = after.requests[r].table
        kept_pages = table[: length // pool.page_size]
        gone = table[len(kept_pages) :]
        return replace(
            after,
            requests=after.requests.set(r, Holding(kept_pages, min(length, after.requests[r].cached), LEFT)),
            pages=without(after.pages, gone),
            free=after.free.update(dict.fromkeys(gone, pool.clock)),
        )

    return effect


def frees_shared_pages(real: Function) -> Function:
    """A release after which the request's registered pages are free too."""

    def effect(pool: Pool, r: RequestId, requests: Any) -> Pool:
        after, table = real(pool, r, requests), pool.requests[r].table
        return replace(
            after,
            pages=without(after.pages, table),
            idle=without(after.idle, table),
            free=after.free.update(dict.fromkeys(table, pool.clock)),
        )

    return effect


def registers_early(real: Function) -> Function:
    """A publish that does not ask whether the page is full."""

    def guard(pool: Pool, r: RequestId, *args: Any) -> bool:
        if r not in pool.requests:
            return False
        full = replace(pool.requests[r], cached=len(pool.requests[r].table) * pool.page_size)
        return bool(real(replace(pool, requests=pool.requests.set(r, full)), r, *args))

    return guard


def cuts_the_table(real: Function) -> Function:
    """A preempt that keeps the cached length."""

    def effect(pool: Pool, r: RequestId) -> Pool:
        after: Pool = real(pool, r)
        waiting = replace(after.requests[r], cached=pool.requests[r].cached)
        return replace(after, requests=after.requests.set(r, waiting))

    return effect


FAULTS: dict[str, tuple[str, Callable[[Function], Function], str]] = {
    "a live identifier is admitted again": ("admit_guard", lambda real: lambda *_: True, "admit_guard says True"),
    "attach leaves no token to compute": (
        "attach_guard",
        lambda real: lambda pool, r, p, t, length: real(pool, r, p, t, length + 1),
        "attach_guard says True|attach_prefix is not attach in turn",
    ),
    "attach compares no tokens": (
        "attach_guard",
        lambda real: lambda pool, r, p, t, n: real(pool, r, p, pool.pages[p].tokens if p in pool.pages else t, n),
        "attach_guard says True|attach_prefix is not attach in turn",
    ),
    "attach_prefix checks its first page only": (
        "attach_prefix_guard",
        lambda real: (
            lambda pool, r, pages, history: (
                real(pool, r, pages[:1], history)
                and all(p in pool.pages for p in pages)
                and (len(pool.requests[r].table) + len(pages)) * pool.page_size < len(history)
            )
        ),
        "attach_prefix_guard says True",
    ),
    "a match compares no parent": (
        "is_block",
        lambda real: lambda page, domain, parent, depth, t: real(page, domain, page.parent, page.depth, t),
        "attach_guard says True|attach_prefix_guard says True|match_next finds|match_prefix finds",
    ),
    "a match compares no domain": (
        "is_block",
        lambda real: lambda page, domain, parent, depth, t: real(page, page.domain, parent, depth, t),
        "attach_guard says True|attach_prefix_guard says True|match_next finds|match_prefix finds",
    ),
    "a match trusts the hash": (
        "match_next",
        lambda real: lambda pool, *args: pool.index.get(page_key(pool.key_space, *args)),
        "match_next finds|match_prefix finds",
    ),
    "a match finds nothing": ("match_next", lambda real: lambda *_: None, "match_next finds None"),
    "a missing ancestor counts as a hit": (
        "match_prefix",
        lambda real: (
            lambda pool, domain, history, limit, table: (
                real(pool, domain, history, limit, table) or real(pool, domain, history[pool.page_size :], limit, table)
            )
        ),
        "match_prefix finds",
    ),
    "the last page matched leaves no token": (
        "match_prefix",
        lambda real: lambda pool, domain, history, limit, table: real(pool, domain, history, limit + 1, table),
        "match_prefix finds",
    ),
    "attach counts no holder": ("one_more_holder", lambda real: lambda page: page, "refcounts_count"),
    "an attached page stays idle": ("attach", kept("idle"), "idle_exact|not attach in turn"),
    "the pages of an attached prefix stay idle": ("attach_prefix", kept("idle"), "idle_exact|not attach in turn"),
    "an idle page is allocated": (
        "allocate_guard",
        lambda real: lambda pool, r, p: r in pool.requests and (p in pool.free or p in pool.idle),
        "allocate_guard says True",
    ),
    "an allocated page stays free": ("allocate", kept("free"), "free_or_used"),
    "compute writes past the table": (
        "compute_guard",
        lambda real: lambda pool, r, n: r in pool.requests and pool.requests[r].cached < n,
        "compute_guard says True|advance is not",
    ),
    "advance writes past the sequence": (
        "advance_guard",
        lambda real: lambda pool, r, n, length: real(pool, r, n, length + 1),
        "advance_guard says True|advance_each_guard says True",
    ),
    "a forward asks nobody's length": (
        "advance_each_guard",
        lambda real: lambda pool, counts, lengths: real(pool, counts, dict.fromkeys(lengths, 10**6)),
        "advance_each_guard says True",
    ),
    "a forward advances everybody by one": (
        "advance_each",
        lambda real: lambda pool, counts, lengths: real(pool, dict.fromkeys(counts, 1), lengths),
        "advance_each is not advance in turn",
    ),
    "retract keeps the draft's slots": ("retract", kept("requests"), "retract: requests differ"),
    "retract keeps one slot of the draft": (
        "retract",
        lambda real: lambda pool, r, length: real(pool, r, length + 1),
        "retract: requests differ",
    ),
    "retract frees pages": ("retract", frees_what_it_drops, "retract: "),
    "a draft is published": (
        "publish_guard",
        lambda real: (
            lambda pool, r, block, t, length: real(pool, r, block, (*t, *[0] * (pool.page_size - len(t))), 10**6)
        ),
        "publish_guard says True",
    ),
    "a page is published before it is full": ("publish_guard", registers_early, "publish_guard says True"),
    "publish ignores the parent": (
        "publish",
        counted(lambda before, after, p: {} if before.pages[p].registered else {"parent": None}),
        "depths_in_chains",
    ),
    "publish counts no child": ("one_more_child", lambda real: lambda page: page, "children_count"),
    "publish forgets the index": ("publish", kept("index"), "match_next finds None"),
    "a parent is evicted before its child": (
        "evict_guard",
        lambda real: lambda pool, p: p in pool.idle,
        "evict_guard says True",
    ),
    "a held page is evicted": (
        "evict_guard",
        lambda real: lambda pool, p: p in pool.pages and pool.pages[p].registered and not pool.pages[p].children,
        "evict_guard says True",
    ),
    "an evicted page stays in the index": ("evict", kept("index"), "index_sound"),
    "an evicted page stays idle": ("evict", kept("idle"), "idle_exact"),
    "an evicted page is lost": ("evict", kept("free"), "free_or_used"),
    "evict counts no child less": ("one_less_child", lambda real: lambda page: page, "children_count"),
    "release counts no holder less": (
        "released",
        counted(lambda before, after, p: {"refcount": before.pages[p].refcount}),
        "refcounts_count",
    ),
    "released pages are not idle": ("released", kept("idle"), "idle_exact"),
    "released private pages are lost": ("released", kept("free"), "free_or_used"),
    "release frees shared pages": ("released", frees_shared_pages, "raises|is false|differ"),
    "time stands still": ("released", kept("clock"), "idle differ"),
    "preempt keeps the cached length": ("preempt", cuts_the_table, "tables_cover_cached"),
    "a removed request stays": ("remove", kept("requests"), "tables_in_pages|refcounts_count|requests differ"),
}
"""By fault: the function, its faulty form made from the real one, and what finds it first."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A random walk with the faulty function ends in a disagreement, and it is the expected one."""
    name, faulty, finding = FAULTS[fault]
    monkeypatch.setattr(engine, name, faulty(getattr(engine, name)))

    with pytest.raises(Disagreement, match=finding):
        walks(300)
