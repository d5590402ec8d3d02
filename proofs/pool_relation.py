"""The page pool and the specification side by side: when they agree, and what the pool's caller owes.

A forward simulation relates the engine's pool to a state of the specification: `agrees(pool, s)`. It is the graph of
`vosti.impl.abstraction`, as far as the pool goes: each field of s that the pool knows of is what the pool says. Nothing
ghost is stored in the pool: histories, drafts and sampler states are the caller's, prefixes and values are the
specification's alone, and the tokens of a private page are its owner's. Whoever holds a page is told by the tables
(`holders_agree`, a consequence).

The pool takes its caller's word for what it does not know. `X_owed(s, ...)` is what the caller of transition X owes:
that tokens and lengths are the request's own, and those conditions of the specification's guard that are not the
pool's business. Where the action may not happen anyway, nothing is owed.
"""

from __future__ import annotations

from collections.abc import Mapping

from vosti.impl.pool_invariants import holders_of
from vosti.impl.pool_state import Pool
from vosti.spec.actions import publish_ready, publishes
from vosti.spec.state import PageId, RequestId, State, Token, history, sequence

# ---------------------------------------------------------------- the relation


def sizes_agree(pool: Pool, s: State) -> bool:
    """The same pages, of the same size."""
    return pool.page_size == s.page_size and pool.capacity == s.capacity


def requests_agree(pool: Pool, s: State) -> bool:
    """The same requests, with the same tables, cached positions and domains."""
    return all(r in s.requests for r in pool.requests) and all(
        r in pool.requests
        and pool.requests[r].table == request.table
        and pool.requests[r].cached == request.cached
        and pool.requests[r].domain == request.domain
        for r, request in s.requests.items()
    )


def pages_agree(pool: Pool, s: State) -> bool:
    """The same pages in use, registered or not alike, with the same parents and domains."""
    return all(page_id in s.pages for page_id in pool.pages) and all(
        page_id in pool.pages
        and pool.pages[page_id].registered == page.registered
        and pool.pages[page_id].parent == page.parent
        and pool.pages[page_id].domain == page.domain
        for page_id, page in s.pages.items()
    )


def tokens_agree(pool: Pool, s: State) -> bool:
    """Registered pages hold the same tokens."""
    return all(pool.pages[page_id].tokens == page.tokens for page_id, page in s.pages.items() if page.registered)


RELATION = (sizes_agree, requests_agree, pages_agree, tokens_agree)
"""The parts of `agrees`; each may rely on those before it."""


def agrees(pool: Pool, s: State) -> bool:
    """Whether the pool stands for the state."""
    return sizes_agree(pool, s) and requests_agree(pool, s) and pages_agree(pool, s) and tokens_agree(pool, s)


def holders_agree(pool: Pool, s: State) -> bool:
    """A consequence: a page's holders are the requests whose table contains it, and so are counted right."""
    return all(page.holders == holders_of(pool, page_id) for page_id, page in s.pages.items())


# ---------------------------------------------------------------- lemmas: what counts say of members


def free_is_unheld(pool: Pool, page_id: PageId) -> bool:
    """A free page has no holder."""
    return page_id not in pool.free or len(holders_of(pool, page_id)) == 0


def leaf_is_childless(pool: Pool, page_id: PageId) -> bool:
    """A page whose count of children is 0 is nobody's parent."""
    return (
        page_id not in pool.pages
        or pool.pages[page_id].children != 0
        or all(page.parent != page_id for page in pool.pages.values())
    )


def held_are_counted(pool: Pool) -> bool:
    """A reference count is not negative, and not 0 for a page that somebody holds."""
    return all(page.refcount >= 0 for page in pool.pages.values()) and all(
        pool.pages[page_id].refcount >= 1 for holding in pool.requests.values() for page_id in holding.table
    )


def others_of(pool: Pool, r: RequestId, page_id: PageId) -> frozenset[RequestId]:
    """The requests other than r whose table contains the page."""
    return frozenset(other for other, holding in pool.requests.items() if other != r and page_id in holding.table)


def is_private_to(pool: Pool, r: RequestId, page_id: PageId) -> bool:
    """r holds the page, which is not registered."""
    return r in pool.requests and page_id in pool.requests[r].table and not pool.pages[page_id].registered


def page_of_block(pool: Pool, r: RequestId, block: int) -> PageId:
    """The page of a block of a request's table."""
    return pool.requests[r].table[block]


def private_is_uncounted(pool: Pool, r: RequestId, page_id: PageId) -> bool:
    """Of a private page's one holder no other is left to be counted."""
    return not is_private_to(pool, r, page_id) or len(others_of(pool, r, page_id)) == 0


def private_are_uncounted(pool: Pool) -> bool:
    """Of all requests and the pages that they hold: `private_is_uncounted`."""
    return all(
        private_is_uncounted(pool, r, page_id) for r, holding in pool.requests.items() for page_id in holding.table
    )


def private_are_alone(pool: Pool) -> bool:
    """A private page is in one table only."""
    return all(
        pool.pages[page_id].registered
        or all(other == r or page_id not in others.table for other, others in pool.requests.items())
        for r, holding in pool.requests.items()
        for page_id in holding.table
    )


# ---------------------------------------------------------------- what the caller owes


def attach_owed(s: State, r: RequestId, tokens: tuple[Token, ...], length: int) -> bool:
    """The length of the history, and its next page_size tokens if there are as many."""
    if r not in s.requests:
        return True
    tokens_of = history(s.requests[r])
    start = s.requests[r].cached
    end = start + s.page_size
    return length == len(tokens_of) and (end > length or start > end or tokens == tokens_of[start:end])


def attach_prefix_owed(s: State, r: RequestId, past: tuple[Token, ...]) -> bool:
    """All of the history."""
    return r not in s.requests or past == history(s.requests[r])


def compute_owed(s: State, r: RequestId, length: int) -> bool:
    """The length of history and draft."""
    return r not in s.requests or length == len(sequence(s.requests[r]))


def advance_each_owed(s: State, lengths: Mapping[RequestId, int]) -> bool:
    """Of each request that is named, the length of history and draft."""
    return all(r not in s.requests or length == len(sequence(s.requests[r])) for r, length in lengths.items())


def retract_owed(s: State, r: RequestId, length: int) -> bool:
    """The length of the history; there is a draft."""
    return r not in s.requests or (length == len(history(s.requests[r])) and s.requests[r].draft != ())


def publish_owed(s: State, r: RequestId, block: int, tokens: tuple[Token, ...], length: int) -> bool:
    """The length of the history, and the block's tokens; that the page's values are finite."""
    if r not in s.requests:
        return True
    tokens_of = history(s.requests[r])
    start = block * s.page_size
    end = start + s.page_size
    return (
        length == len(tokens_of)
        and (block < 0 or end > length or tokens == tokens_of[start:end])
        and (not publish_ready(s, r, block) or publishes(s, r, block))
    )


def preempt_owed(s: State, r: RequestId, in_favour_of: RequestId) -> bool:
    """It is in favour of an earlier arrival."""
    return r not in s.requests or (
        in_favour_of in s.requests and s.requests[in_favour_of].arrival < s.requests[r].arrival
    )
