"""What is matched may be attached.

`match_next` never raises, and a page that it finds for a request's next tokens is one that attach does not refuse.
What attach does not refuse is full: as many tokens match as positions are cached.
`match_prefix` is a loop around it; by induction over the chain that it has found, each page that it adds is one that
attach does not refuse after those before it (`chain_goes_on`), so attach_prefix does not refuse the chain
(`vosti.proofs.pool_composites`). The key that pages are looked up by is an unknown function: a hash decides nothing.
"""

from __future__ import annotations

from vosti.impl.pool import attach_guard, attach_prefix, attach_prefix_guard, match_next
from vosti.impl.pool_state import Pool
from vosti.proofs.book import Replaced
from vosti.proofs.pool_refinement import PoolBook
from vosti.refinement.smt.obligation import Obligation
from vosti.spec.state import Domain, PageId, RequestId, Token


def match_is_attachable(pool: Pool, r: RequestId, tokens: tuple[Token, ...], length: int) -> bool:
    """What is found after a full table may be attached, if the history goes on behind it."""
    if r not in pool.requests:
        return True
    holding = pool.requests[r]
    found = match_next(pool, holding.domain, holding.table[-1] if holding.table else None, tokens)
    return (
        found is None
        or holding.cached != len(holding.table) * pool.page_size
        or holding.cached + pool.page_size >= length
        or attach_guard(pool, r, found, tokens, length)
    )


def attached_is_full(pool: Pool, r: RequestId, page_id: PageId, tokens: tuple[Token, ...], length: int) -> bool:
    """A page that may be attached has a token for each of its positions, whatever the caller says."""
    return not attach_guard(pool, r, page_id, tokens, length) or len(tokens) == pool.page_size


def chain_begins(pool: Pool, r: RequestId, past: tuple[Token, ...]) -> bool:
    """No page may be attached to a full table, if the history goes on behind it."""
    if r not in pool.requests:
        return True
    holding = pool.requests[r]
    return (
        holding.cached != len(holding.table) * pool.page_size
        or holding.cached >= len(past)
        or attach_prefix_guard(pool, r, (), past)
    )


def chain_goes_on(pool: Pool, r: RequestId, page_ids: tuple[PageId, ...], past: tuple[Token, ...]) -> bool:
    """After a chain that may be attached, so may what is found for the next tokens, if the history goes on behind it.

    One round of `match_prefix`: `parent` and `end` are its own.
    """
    if r not in pool.requests or not attach_prefix_guard(pool, r, page_ids, past):
        return True
    holding = pool.requests[r]
    before = holding.table[-1] if holding.table else None
    parent = page_ids[-1] if page_ids else before
    end = (len(holding.table) + len(page_ids) + 1) * pool.page_size
    if end >= len(past):
        return True
    found = match_next(pool, holding.domain, parent, past[end - pool.page_size : end])
    if found is None:
        return True
    attached = attach_prefix(pool, r, page_ids, past)
    return attach_guard(attached, r, found, past[end - pool.page_size : end], len(past))


def obligations(replaced: Replaced | None = None) -> list[Obligation]:
    """One page, then a chain."""
    book = PoolBook("pool_matches", replaced)
    r, tokens, past = (
        book.symbol("r", RequestId),
        book.symbol("tokens", tuple[Token, ...]),
        book.symbol("past", tuple[Token, ...]),
    )
    domain, parent = book.symbol("domain", Domain), book.symbol("parent", PageId | None)
    sound = book.sound(book.pool)
    book.defined("match_next", sound, book.run(match_next, book.pool, domain, parent, tokens).needs)
    length = book.symbol("length", int)
    book.holds("match_is_attachable", sound, match_is_attachable, book.pool, r, tokens, length)
    page_id = book.symbol("page_id", PageId)
    book.holds("attached_is_full", sound, attached_is_full, book.pool, r, page_id, tokens, length)
    book.holds("chain_begins", sound, chain_begins, book.pool, r, past)
    page_ids = book.symbol("page_ids", tuple[PageId, ...])
    book.holds("chain_goes_on", sound, chain_goes_on, book.pool, r, page_ids, past)
    return book.obligations
