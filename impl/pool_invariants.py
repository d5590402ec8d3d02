"""What holds of every page pool that `vosti.impl.pool_state.empty` and the transitions of `vosti.impl.pool` lead to.

Executable, for tests and for proofs: no transition looks at them, and each takes time in the size of the whole pool.
They hold whatever tokens and lengths the caller passes. The groups are those of the paper's section 4.2.
"""

from __future__ import annotations

from vosti.impl.pool_state import Key, PageMeta, Pool, page_key
from vosti.spec.state import PageId, RequestId


def holders_of(pool: Pool, page_id: PageId) -> frozenset[RequestId]:
    """The requests whose table contains the page."""
    return frozenset(r for r, holding in pool.requests.items() if page_id in holding.table)


def children_of(pool: Pool, page_id: PageId) -> frozenset[PageId]:
    """The pages whose parent it is."""
    return frozenset(child for child, page in pool.pages.items() if page.parent == page_id)


# ---------------------------------------------------------------- request and layout consistency


def sizes_positive(pool: Pool) -> bool:
    """A page has a slot, and there is a key."""
    return pool.page_size >= 1 and pool.key_space >= 1


def free_or_used(pool: Pool) -> bool:
    """No page is lost, and none is in two places."""
    return (
        all(page_id in pool.capacity and page_id not in pool.free for page_id in pool.pages)
        and all(page_id in pool.capacity and page_id not in pool.pages for page_id in pool.free)
        and all(page_id in pool.free or page_id in pool.pages for page_id in pool.capacity)
    )


def tables_in_pages(pool: Pool) -> bool:
    """Nobody holds a page that is gone, or one of another domain."""
    return all(
        page_id in pool.pages and pool.pages[page_id].domain == holding.domain
        for holding in pool.requests.values()
        for page_id in holding.table
    )


def tables_cover_cached(pool: Pool) -> bool:
    """What is cached lies in the table."""
    return all(0 <= holding.cached <= len(holding.table) * pool.page_size for holding in pool.requests.values())


def depths_in_tables(pool: Pool) -> bool:
    """A page stands at its depth in every table that contains it; so no table contains it twice."""
    return all(
        pool.pages[holding.table[block]].depth == block
        for holding in pool.requests.values()
        for block in range(len(holding.table))
    )


# ---------------------------------------------------------------- sharing and write isolation


def refcounts_count(pool: Pool) -> bool:
    """A reference count is the number of holders."""
    return all(page.refcount == len(holders_of(pool, page_id)) for page_id, page in pool.pages.items())


def used_for_something(pool: Pool) -> bool:
    """A page in use is registered, or private to exactly one request."""
    return all(page.registered or page.refcount == 1 for page in pool.pages.values())


def registered_full(pool: Pool) -> bool:
    """Of a registered page every slot is cached by each of its holders, so that none of them writes it."""
    return all(
        not pool.pages[holding.table[block]].registered or (block + 1) * pool.page_size <= holding.cached
        for holding in pool.requests.values()
        for block in range(len(holding.table))
    )


def idle_exact(pool: Pool) -> bool:
    """Idle are the registered pages that nobody holds, and no others."""
    return all(
        page_id in pool.pages and pool.pages[page_id].registered and pool.pages[page_id].refcount == 0
        for page_id in pool.idle
    ) and all(page_id in pool.idle for page_id, page in pool.pages.items() if page.registered and page.refcount == 0)


# ---------------------------------------------------------------- the chains of registered pages


def parents_registered(pool: Pool) -> bool:
    """Only registered pages have a parent, and it is a registered page of the same domain."""
    return all(
        page.parent is None
        or (
            page.registered
            and page.parent in pool.pages
            and pool.pages[page.parent].registered
            and pool.pages[page.parent].domain == page.domain
        )
        for page in pool.pages.values()
    )


def registered_first(pool: Pool) -> bool:
    """In a table, the registered pages come before the private ones."""
    return all(
        pool.pages[holding.table[i]].registered or not pool.pages[holding.table[j]].registered
        for holding in pool.requests.values()
        for j in range(len(holding.table))
        for i in range(j)
    )


def depths_in_chains(pool: Pool) -> bool:
    """A registered page is one deeper than its parent, and at depth 0 without one; so no chain is a cycle."""
    return all(
        page.depth == (0 if page.parent is None else pool.pages[page.parent].depth + 1)
        for page in pool.pages.values()
        if page.registered
    )


def tables_in_chains(pool: Pool) -> bool:
    """In a table, a registered page stands after its parent."""
    return all(
        not pool.pages[holding.table[block]].registered
        or pool.pages[holding.table[block]].parent == (holding.table[block - 1] if block > 0 else None)
        for holding in pool.requests.values()
        for block in range(len(holding.table))
    )


def children_count(pool: Pool) -> bool:
    """A count of children is the number of pages whose parent it is."""
    return all(page.children == len(children_of(pool, page_id)) for page_id, page in pool.pages.items())


def tokens_full(pool: Pool) -> bool:
    """A registered page has page_size tokens; of a private page none are kept."""
    return all(len(page.tokens) == (pool.page_size if page.registered else 0) for page in pool.pages.values())


def indexed_as(pool: Pool, page: PageMeta, key: Key) -> bool:
    """Whether this is the key that the page is looked up by."""
    return key == page_key(pool.key_space, page.domain, page.parent, page.tokens)


def index_sound(pool: Pool) -> bool:
    """Every candidate is a registered page, under its own key: no key outlives its page."""
    return all(
        page_id in pool.pages and pool.pages[page_id].registered and indexed_as(pool, pool.pages[page_id], key)
        for key, page_id in pool.index.items()
    )


INVARIANTS = (
    sizes_positive,
    free_or_used,
    tables_in_pages,
    tables_cover_cached,
    depths_in_tables,
    refcounts_count,
    used_for_something,
    registered_full,
    idle_exact,
    parents_registered,
    registered_first,
    depths_in_chains,
    tables_in_chains,
    children_count,
    tokens_full,
    index_sound,
)
"""All of them; a later one may be undefined where an earlier one is false."""


def violated(pool: Pool) -> str | None:
    """The name of the first invariant that is false, or None."""
    return next((invariant.__name__ for invariant in INVARIANTS if not invariant(pool)), None)
