"""Inv(E, W): what holds in every reachable state, grouped as in section 4.2 of the paper.

Each conjunct is written `all(local(s, x) for x in objects)`. Proofs use the whole conjunct; a checker of runs
evaluates the same `local` on the objects that a step has touched, and on all of them now and then. `CONJUNCTS` lists
them, with the kind of object each ranges over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vosti.spec.actions import page_finite
from vosti.spec.reference import canonical_kv
from vosti.spec.state import PageId, RequestId, State, history, sequence

# ---------------------------------------------------------------- request and layout consistency


def page_size_positive(s: State) -> bool:
    """A page has at least one slot."""
    return s.page_size >= 1


def request_was_seen(s: State, r: RequestId) -> bool:
    """The identifier is among those that are never used again."""
    return r in s.seen


def requests_were_seen(s: State) -> bool:
    """∀ r ∈ requests : r ∈ seen."""
    return all(request_was_seen(s, r) for r in s.requests)


def arrival_is_unique(s: State, r: RequestId) -> bool:
    """No other live request has the same rank."""
    return all(s.requests[r].arrival != request.arrival for other, request in s.requests.items() if other != r)


def arrivals_are_unique(s: State) -> bool:
    """Live requests are totally ordered by arrival."""
    return all(arrival_is_unique(s, r) for r in s.requests)


def cached_is_in_range(s: State, r: RequestId) -> bool:
    """0 ≤ cached ≤ |history + draft|, and the table covers the cached positions."""
    request = s.requests[r]
    return (
        len(request.prompt) >= 1
        and 0 <= request.cached <= len(sequence(request))
        and request.cached <= len(request.table) * s.page_size
    )


def cached_in_range(s: State) -> bool:
    """∀ r : 0 ≤ r.cached ≤ |r.history + r.draft| ∧ r.cached ≤ |r.table| · page_size."""
    return all(cached_is_in_range(s, r) for r in s.requests)


def block_is_held(s: State, r: RequestId, block: int) -> bool:
    """The table's page is in use, and the request is among its holders."""
    page_id = s.requests[r].table[block]
    return page_id in s.pages and r in s.pages[page_id].holders


def tables_hold(s: State) -> bool:
    """∀ r, b : r ∈ pages[r.table[b]].holders."""
    return all(block_is_held(s, r, block) for r, request in s.requests.items() for block in range(len(request.table)))


def block_is_unique(s: State, r: RequestId, block: int) -> bool:
    """No earlier block of the table is the same page."""
    table = s.requests[r].table
    return all(table[earlier] != table[block] for earlier in range(block))


def tables_are_injective(s: State) -> bool:
    """∀ r, a < b : r.table[a] ≠ r.table[b]."""
    return all(block_is_unique(s, r, block) for r, request in s.requests.items() for block in range(len(request.table)))


def holders_map_page(s: State, page_id: PageId) -> bool:
    """Every holder is live, and its table contains the page."""
    return all(r in s.requests and page_id in s.requests[r].table for r in s.pages[page_id].holders)


def holders_map(s: State) -> bool:
    """∀ p, r ∈ pages[p].holders : p ∈ r.table."""
    return all(holders_map_page(s, page_id) for page_id in s.pages)


def page_is_in_pool(s: State, page_id: PageId) -> bool:
    """The page is one of the pool's."""
    return page_id in s.capacity


def pages_are_in_pool(s: State) -> bool:
    """dom(pages) ⊆ capacity."""
    return all(page_is_in_pool(s, page_id) for page_id in s.pages)


def page_is_used(s: State, page_id: PageId) -> bool:
    """Held by somebody, or retained for reuse."""
    return s.pages[page_id].registered or s.pages[page_id].holders != frozenset()


def pages_are_used(s: State) -> bool:
    """No page is lost: what is neither held nor registered is free."""
    return all(page_is_used(s, page_id) for page_id in s.pages)


# ---------------------------------------------------------------- KV-value consistency


def page_is_filled(s: State, page_id: PageId) -> bool:
    """One value for each token, no more than the page has slots; a registered page is full."""
    page = s.pages[page_id]
    return (
        len(page.tokens) <= s.page_size
        and len(page.kv) == len(page.tokens)
        and (len(page.tokens) == s.page_size or not page.registered)
    )


def pages_are_filled(s: State) -> bool:
    """∀ p : |p.kv| = |p.tokens| ≤ page_size, with equality if p is registered."""
    return all(page_is_filled(s, page_id) for page_id in s.pages)


def parent_precedes(s: State, page_id: PageId) -> bool:
    """A registered page continues its parent, which is registered too; without a parent it begins a sequence."""
    page = s.pages[page_id]
    if not page.registered:
        return page.parent is None
    return (
        page.prefix == ()
        if page.parent is None
        else page.parent in s.pages
        and s.pages[page.parent].registered
        and page.prefix == s.pages[page.parent].prefix + s.pages[page.parent].tokens
    )


def parents_precede(s: State) -> bool:
    """∀ registered p : p.prefix = parent.prefix + parent.tokens: a chain of parents spells the prefix (section 4.1)."""
    return all(parent_precedes(s, page_id) for page_id in s.pages)


def block_maps_sequence(s: State, r: RequestId, block: int) -> bool:
    """The page holds the tokens of its positions; a block beyond the cached positions is empty and private."""
    request = s.requests[r]
    page = s.pages[request.table[block]]
    start = block * s.page_size
    end = min(start + s.page_size, request.cached)
    return (
        page.prefix == sequence(request)[:start] and page.tokens == sequence(request)[start:end]
        if start < request.cached
        else page.tokens == () and not page.registered
    )


def tables_map_sequences(s: State) -> bool:
    """q_u.tokens = r_u.history[0 : r_u.cached], page by page: the layout mapping of section 4.2."""
    return all(
        block_maps_sequence(s, r, block) for r, request in s.requests.items() for block in range(len(request.table))
    )


def value_is_canonical(s: State, page_id: PageId, slot: int) -> bool:
    """The slot's value is the canonical one of the tokens up to it."""
    page = s.pages[page_id]
    return page.kv[slot] == canonical_kv(page.prefix + page.tokens[: slot + 1])


def values_are_canonical(s: State) -> bool:
    """E.kv[q.slots[p]] = f_KV(W, q.tokens, p): the central invariant of section 4.2.

    It speaks of every initialised slot of every page in use: of live requests, private tails included, and of
    retained pages whether or not anybody still holds them.
    """
    return all(
        value_is_canonical(s, page_id, slot) for page_id, page in s.pages.items() for slot in range(len(page.kv))
    )


def registered_is_finite(s: State, page_id: PageId) -> bool:
    """A page that others may attach holds finite values only."""
    return not s.pages[page_id].registered or page_finite(s.pages[page_id])


def registered_are_finite(s: State) -> bool:
    """∀ registered p, v ∈ p.kv : v is finite: a failing request harms nobody else."""
    return all(registered_is_finite(s, page_id) for page_id in s.pages)


# ---------------------------------------------------------------- sharing and write isolation


def unregistered_is_private(s: State, page_id: PageId) -> bool:
    """A page that may still be written has one holder."""
    page = s.pages[page_id]
    return page.registered or all(a == b for a in page.holders for b in page.holders)


def unregistered_are_private(s: State) -> bool:
    """Writable suffix slots are private (section 4.2)."""
    return all(unregistered_is_private(s, page_id) for page_id in s.pages)


def block_is_verified(s: State, r: RequestId, block: int) -> bool:
    """If the block is registered, it lies within the history."""
    request = s.requests[r]
    return not s.pages[request.table[block]].registered or (block + 1) * s.page_size <= len(history(request))


def drafts_are_private(s: State) -> bool:
    """No draft lies in a registered page: to drop one changes nothing that is shared."""
    return all(
        block_is_verified(s, r, block) for r, request in s.requests.items() for block in range(len(request.table))
    )


def block_is_own_domain(s: State, r: RequestId, block: int) -> bool:
    """The table's page belongs to the request's domain."""
    request = s.requests[r]
    return s.pages[request.table[block]].domain == request.domain


def tables_stay_in_domain(s: State) -> bool:
    """Nobody reads another domain's page."""
    return all(
        block_is_own_domain(s, r, block) for r, request in s.requests.items() for block in range(len(request.table))
    )


def parent_is_own_domain(s: State, page_id: PageId) -> bool:
    """A page and its parent belong to one domain."""
    page = s.pages[page_id]
    return page.parent is None or s.pages[page.parent].domain == page.domain


def parents_stay_in_domain(s: State) -> bool:
    """A chain of parents never leaves its domain."""
    return all(parent_is_own_domain(s, page_id) for page_id in s.pages)


# ---------------------------------------------------------------- the whole


@dataclass(frozen=True)
class Conjunct:
    """One conjunct of Inv."""

    whole: Callable[[State], bool]
    """The conjunct; its name is the conjunct's name."""

    local: Callable[..., bool]
    """The predicate it asks of each object: `local(s, *object)`."""

    kind: str
    """What it ranges over: "state", "request", "block" (of a table), "page" or "slot" (of a page)."""

    group: str
    """The paper's heading for it (section 4.2)."""

    @property
    def name(self) -> str:
        """How reports and proofs call it."""
        return self.whole.__name__


LAYOUT = "request and layout consistency"
VALUES = "KV-value consistency"
SHARING = "sharing and write isolation"

CONJUNCTS = (
    Conjunct(page_size_positive, page_size_positive, "state", LAYOUT),
    Conjunct(requests_were_seen, request_was_seen, "request", LAYOUT),
    Conjunct(arrivals_are_unique, arrival_is_unique, "request", LAYOUT),
    Conjunct(cached_in_range, cached_is_in_range, "request", LAYOUT),
    Conjunct(tables_hold, block_is_held, "block", LAYOUT),
    Conjunct(tables_are_injective, block_is_unique, "block", LAYOUT),
    Conjunct(holders_map, holders_map_page, "page", LAYOUT),
    Conjunct(pages_are_in_pool, page_is_in_pool, "page", LAYOUT),
    Conjunct(pages_are_used, page_is_used, "page", LAYOUT),
    Conjunct(pages_are_filled, page_is_filled, "page", VALUES),
    Conjunct(parents_precede, parent_precedes, "page", VALUES),
    Conjunct(tables_map_sequences, block_maps_sequence, "block", VALUES),
    Conjunct(values_are_canonical, value_is_canonical, "slot", VALUES),
    Conjunct(registered_are_finite, registered_is_finite, "page", VALUES),
    Conjunct(unregistered_are_private, unregistered_is_private, "page", SHARING),
    Conjunct(drafts_are_private, block_is_verified, "block", SHARING),
    Conjunct(tables_stay_in_domain, block_is_own_domain, "block", SHARING),
    Conjunct(parents_stay_in_domain, parent_is_own_domain, "page", SHARING),
)
"""Inv, conjunct by conjunct, in an order in which each may rely on those before it (a table's pages are in use before
they are read).
"""


def objects(s: State, kind: str) -> Iterator[tuple[Any, ...]]:
    """All objects of one kind in a state, as arguments for `Conjunct.local`.

    Raises:
        ValueError: if there is no such kind.
    """
    match kind:
        case "state":
            yield ()
        case "request":
            yield from ((r,) for r in s.requests)
        case "block":
            yield from ((r, block) for r, request in s.requests.items() for block in range(len(request.table)))
        case "page":
            yield from ((page_id,) for page_id in s.pages)
        case "slot":
            yield from ((page_id, slot) for page_id, page in s.pages.items() for slot in range(len(page.kv)))
        case _:
            raise ValueError(f"no kind of object is called {kind!r}: state, request, block, page or slot")


def broken(s: State) -> Iterator[tuple[Conjunct, tuple[Any, ...]]]:
    """The conjuncts that fail in a state, each with an object it fails on; empty if Inv holds.

    It stops at the first conjunct that fails: those after it may rely on it, and could raise.

    >>> from vosti.spec.state import initial
    >>> [conjunct.name for conjunct, _ in broken(initial(frozenset({PageId(0)}), page_size=0))]
    ['page_size_positive']
    """
    for conjunct in CONJUNCTS:
        failing = [x for x in objects(s, conjunct.kind) if not conjunct.local(s, *x)]
        if failing:
            yield from ((conjunct, x) for x in failing)
            return


def invariant(s: State) -> bool:
    """Inv(E, W)."""
    return not any(True for _ in broken(s))
