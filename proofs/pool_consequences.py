"""What the page pool's invariants are there for besides: consequences that no refinement needs, and callers rely on.

The specification's own Inv carries these for the specification; here they are the pool's alone, whoever calls it.

- `computed_is_private`: the slot that a compute writes lies in a page that is not registered, as `compute_guard` says
  without asking.
- `parents_of_held_are_held`: whoever holds a page holds the page before it, so an idle page has no child in use, and
  pages become idle children first: that is what the order of eviction rests on (`vosti.impl.planning`).
"""

from __future__ import annotations

from vosti.impl.pool import compute_guard
from vosti.impl.pool_state import Pool
from vosti.proofs.book import Replaced
from vosti.proofs.pool_refinement import PoolBook
from vosti.refinement.smt.obligation import Obligation
from vosti.spec.state import PageId, RequestId


def computed_is_private(pool: Pool, r: RequestId, length: int) -> bool:
    """No other request may attach the page that is written."""
    if not compute_guard(pool, r, length):
        return True
    holding = pool.requests[r]
    return not pool.pages[holding.table[holding.cached // pool.page_size]].registered


def parents_of_held_are_held(pool: Pool, r: RequestId, page_id: PageId) -> bool:
    """A page in a table has its parent, if it has one, in the same table."""
    if r not in pool.requests or page_id not in pool.requests[r].table:
        return True
    parent = pool.pages[page_id].parent
    return parent is None or parent in pool.requests[r].table


def obligations(replaced: Replaced | None = None) -> list[Obligation]:
    """Each consequence of the invariants."""
    book = PoolBook("pool_consequences", replaced)
    sound, r = book.sound(book.pool), book.symbol("r", RequestId)
    book.holds("computed_is_private", sound, computed_is_private, book.pool, r, book.symbol("length", int))
    book.holds("parents_of_held_are_held", sound, parents_of_held_are_held, book.pool, r, book.symbol("page", PageId))
    return book.obligations
