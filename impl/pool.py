"""The page pool: which request holds which page, and which pages may be shared (sections 4.1 and 4.2 of the paper).

Pure functions over persistent maps (`vosti.impl.pool_state`). Each transition is a guard and an effect of the same
arguments, `X_guard(pool, ...)` and `X(pool, ...)`: the guard never raises on a pool that has its invariants
(`vosti.impl.pool_invariants`), and where it holds, the effect gives the new pool and leaves the old one as it was. The
text keeps to the subset of Python that `vosti.spec` describes, which here also knows the maps' `set`, `delete`, `get`
and `update`: the functions that run are the very ones that can be proved to refine the specification's actions.

| transition                     | action of the specification |
| ------------------------------ | --------------------------- |
| admit                          | admit                       |
| attach, attach_prefix          | attach, once per page       |
| allocate                       | allocate                    |
| compute, advance, advance_each | compute, once per slot      |
| retract                        | retract                     |
| publish                        | publish                     |
| evict                          | evict                       |
| preempt                        | preempt                     |
| remove                         | finish, cancel, fail        |

*Policy is outside.* Which page to allocate, to evict or to attach is an argument; the guards decide whether it may be.
A scheduler that is wrong about what is free or idle gets False, never a broken pool. The iteration order of a map means
nothing, and over request identifiers it differs from run to run: whoever chooses orders by something that does mean it.

*Histories are outside.* `tokens` and `length` are the caller's word about the request's own tokens. `length` counts the
history for attach, publish and retract, which must not touch a draft, and history and draft for compute and advance.
attach_prefix takes the history itself. What else an action asks for is the caller's duty too: that an identifier is new
for ever, that a published page holds finite values only, in whose favour a request is preempted, why it is removed.

*Ghosts are outside.* A page that is neither held nor registered is absent from `pages` and present in `free`. Of a
private page no tokens are kept: they are its owner's. A hash finds candidates and decides nothing.

Every transition takes time in what it touches: a page, a request's table, or the requests of a forward.
"""

from __future__ import annotations

from collections.abc import Mapping

from immutables import Map

from vosti.impl.persistent import replace, without
from vosti.impl.pool_state import Holding, PageMeta, Pool, page_key
from vosti.spec.state import Domain, PageId, RequestId, Token

# ---------------------------------------------------------------- a request comes


def admit_guard(pool: Pool, r: RequestId, domain: Domain) -> bool:
    """That an identifier is never used again after its request has gone is the caller's duty."""
    return r not in pool.requests


def admit(pool: Pool, r: RequestId, domain: Domain) -> Pool:
    """r is live, holds nothing and has nothing cached."""
    return replace(pool, requests=pool.requests.set(r, Holding(table=(), cached=0, domain=domain)))


# ---------------------------------------------------------------- a prefix hit: exact prefix matching, section 4.2


def is_block(page: PageMeta, domain: Domain, parent: PageId | None, depth: int, tokens: tuple[Token, ...]) -> bool:
    """Whether a page is the registered one for these tokens, `depth` pages after the start, after this very parent."""
    return (
        page.registered
        and page.depth == depth
        and page.parent == parent
        and page.domain == domain
        and page.tokens == tokens
    )


def match_next(pool: Pool, domain: Domain, parent: PageId | None, tokens: tuple[Token, ...]) -> PageId | None:
    """The page to attach after `parent` (None: at the start) for the next page_size tokens, if one is known.

    The index proposes and `is_block` decides: attach does not refuse what is returned for its tokens, depth, parent or
    domain. A known page is missed where another one has its key, or where the first page found for the tokens before is
    another than its parent (two requests may compute, and publish, the same tokens).
    """
    if parent is not None and parent not in pool.pages:
        return None
    page_id = pool.index.get(page_key(pool.key_space, domain, parent, tokens))
    if page_id is None:
        return None
    depth = 0 if parent is None else pool.pages[parent].depth + 1
    return page_id if is_block(pool.pages[page_id], domain, parent, depth, tokens) else None


def one_more_holder(page: PageMeta) -> PageMeta:
    """The page in one table more."""
    return replace(page, refcount=page.refcount + 1)


def attach_guard(pool: Pool, r: RequestId, page_id: PageId, tokens: tuple[Token, ...], length: int) -> bool:
    """An exact match. `tokens`: history[cached : cached + page_size]; `length`: of the history.

    One token of the history must stay to be computed, so that there is a row to take logits from.
    """
    if r not in pool.requests or page_id not in pool.pages:
        return False
    holding = pool.requests[r]
    parent = holding.table[-1] if holding.table else None
    return (
        holding.cached == len(holding.table) * pool.page_size
        and holding.cached + pool.page_size < length
        and is_block(pool.pages[page_id], holding.domain, parent, len(holding.table), tokens)
    )


def attach(pool: Pool, r: RequestId, page_id: PageId, tokens: tuple[Token, ...], length: int) -> Pool:
    """r reads page_size more positions from a registered page; it holds that page, which is idle no longer."""
    holding = pool.requests[r]
    page = pool.pages[page_id]
    longer = replace(holding, table=holding.table + (page_id,), cached=holding.cached + pool.page_size)
    return replace(
        pool,
        requests=pool.requests.set(r, longer),
        pages=pool.pages.set(page_id, one_more_holder(page)),
        idle=pool.idle.delete(page_id) if page.refcount == 0 else pool.idle,
    )


def extends(pool: Pool, holding: Holding, page_ids: tuple[PageId, ...], history: tuple[Token, ...], i: int) -> bool:
    """Whether page i may be attached once those before it are. Needs all of them in use, and history to their end."""
    before = holding.table[-1] if holding.table else None
    block = len(holding.table) + i
    return is_block(
        pool.pages[page_ids[i]],
        holding.domain,
        page_ids[i - 1] if i > 0 else before,
        block,
        history[block * pool.page_size : (block + 1) * pool.page_size],
    )


def attach_prefix_guard(pool: Pool, r: RequestId, page_ids: tuple[PageId, ...], history: tuple[Token, ...]) -> bool:
    """The guard of attach holds for each page in turn. (For no pages: for any page at all.) `history`: all of it."""
    if r not in pool.requests or not all(page_id in pool.pages for page_id in page_ids):
        return False
    holding = pool.requests[r]
    return (
        holding.cached == len(holding.table) * pool.page_size
        and (len(holding.table) + len(page_ids)) * pool.page_size < len(history)
        and all(extends(pool, holding, page_ids, history, i) for i in range(len(page_ids)))
    )


def attach_prefix(pool: Pool, r: RequestId, page_ids: tuple[PageId, ...], history: tuple[Token, ...]) -> Pool:
    """attach of each page in turn, in time linear in the table."""
    holding = pool.requests[r]
    blocks = len(holding.table) + len(page_ids)
    longer = replace(holding, table=holding.table + page_ids, cached=blocks * pool.page_size)
    return replace(
        pool,
        requests=pool.requests.set(r, longer),
        pages=pool.pages.update({page_id: one_more_holder(pool.pages[page_id]) for page_id in page_ids}),
        idle=without(pool.idle, page_ids),
    )


# ---------------------------------------------------------------- private slots: allocated, then written


def allocate_guard(pool: Pool, r: RequestId, page_id: PageId) -> bool:
    """Only a free page; an idle one must be evicted first."""
    return r in pool.requests and page_id in pool.free


def allocate(pool: Pool, r: RequestId, page_id: PageId) -> Pool:
    """r's table grows by a private page, all of whose slots are uninitialised."""
    holding = pool.requests[r]
    page = PageMeta(
        refcount=1,
        children=0,
        registered=False,
        tokens=(),
        parent=None,
        domain=holding.domain,
        depth=len(holding.table),
    )
    return replace(
        pool,
        requests=pool.requests.set(r, replace(holding, table=holding.table + (page_id,))),
        pages=pool.pages.set(page_id, page),
        free=pool.free.delete(page_id),
    )


def further(holding: Holding, n: int) -> Holding:
    """n more slots hold KV."""
    return replace(holding, cached=holding.cached + n)


def compute_guard(pool: Pool, r: RequestId, length: int) -> bool:
    """`length`: of history and draft. That the written page is private follows from the invariants."""
    if r not in pool.requests:
        return False
    holding = pool.requests[r]
    return holding.cached < length and holding.cached < len(holding.table) * pool.page_size


def compute(pool: Pool, r: RequestId, length: int) -> Pool:
    """The slot of position `cached` is written."""
    return replace(pool, requests=pool.requests.set(r, further(pool.requests[r], 1)))


def advance_guard(pool: Pool, r: RequestId, n: int, length: int) -> bool:
    """`length`: of history and draft."""
    if r not in pool.requests:
        return False
    holding = pool.requests[r]
    return n >= 0 and holding.cached + n <= length and holding.cached + n <= len(holding.table) * pool.page_size


def advance(pool: Pool, r: RequestId, n: int, length: int) -> Pool:
    """n computes: a chunk of a prefill, a decoded token, or a token with its draft."""
    return replace(pool, requests=pool.requests.set(r, further(pool.requests[r], n)))


def advance_each_guard(pool: Pool, counts: Mapping[RequestId, int], lengths: Mapping[RequestId, int]) -> bool:
    """`counts`: slots written, per request; `lengths`: of history and draft, of each of these at least."""
    return all(r in lengths and advance_guard(pool, r, n, lengths[r]) for r, n in counts.items())


def advance_each(pool: Pool, counts: Mapping[RequestId, int], lengths: Mapping[RequestId, int]) -> Pool:
    """The slots of one forward, of all its requests at once: advance of each, in any order."""
    return replace(pool, requests=pool.requests.update({r: further(pool.requests[r], n) for r, n in counts.items()}))


def retract_guard(pool: Pool, r: RequestId, length: int) -> bool:
    """`length`: of the history. The slots after it are a draft's, which no registered page holds."""
    if r not in pool.requests:
        return False
    holding = pool.requests[r]
    return length >= 0 and (
        holding.cached <= length or not pool.pages[holding.table[length // pool.page_size]].registered
    )


def retract(pool: Pool, r: RequestId, length: int) -> Pool:
    """At most `length` slots stay valid. The pages stay in the table: the same positions come again."""
    holding = pool.requests[r]
    return replace(pool, requests=pool.requests.set(r, replace(holding, cached=min(holding.cached, length))))


# ---------------------------------------------------------------- sharing


def one_more_child(page: PageMeta) -> PageMeta:
    """The page with one registered child more."""
    return replace(page, children=page.children + 1)


def one_less_child(page: PageMeta) -> PageMeta:
    """The page with one registered child less."""
    return replace(page, children=page.children - 1)


def publish_guard(pool: Pool, r: RequestId, block: int, tokens: tuple[Token, ...], length: int) -> bool:
    """`tokens`: history[block · page_size : (block + 1) · page_size]; `length`: of the history, so no draft counts."""
    if r not in pool.requests or not 0 <= block < len(pool.requests[r].table):
        return False
    holding = pool.requests[r]
    return (
        len(tokens) == pool.page_size
        and (block + 1) * pool.page_size <= holding.cached
        and (block + 1) * pool.page_size <= length
        and not pool.pages[holding.table[block]].registered
        and (block == 0 or pool.pages[holding.table[block - 1]].registered)
    )


def publish(pool: Pool, r: RequestId, block: int, tokens: tuple[Token, ...], length: int) -> Pool:
    """A full private page is registered, after its registered parent: immutable from now on, and free to attach."""
    holding = pool.requests[r]
    page_id = holding.table[block]
    parent = holding.table[block - 1] if block > 0 else None
    key = page_key(pool.key_space, holding.domain, parent, tokens)
    page = replace(pool.pages[page_id], registered=True, tokens=tokens, parent=parent)
    grown = pool.pages if parent is None else pool.pages.set(parent, one_more_child(pool.pages[parent]))
    return replace(
        pool,
        pages=grown.set(page_id, page),
        index=pool.index if key in pool.index else pool.index.set(key, page_id),
    )


def evict_guard(pool: Pool, page_id: PageId) -> bool:
    """Only a leaf that nobody holds: no page's identifier is recycled while a child still refers to it."""
    return page_id in pool.idle and pool.pages[page_id].children == 0


def evict(pool: Pool, page_id: PageId) -> Pool:
    """The page is free, and no longer found."""
    page = pool.pages[page_id]
    parent = page.parent
    key = page_key(pool.key_space, page.domain, parent, page.tokens)
    fewer = pool.pages.delete(page_id)
    return replace(
        pool,
        pages=fewer if parent is None else fewer.set(parent, one_less_child(fewer[parent])),
        index=pool.index.delete(key) if pool.index.get(key) == page_id else pool.index,
        idle=pool.idle.delete(page_id),
        free=pool.free.set(page_id, pool.clock),
    )


# ---------------------------------------------------------------- a request gives its pages back


def released(pool: Pool, r: RequestId, requests: Map[RequestId, Holding]) -> Pool:
    """The pool with `requests`, in which r holds nothing: its registered pages stay, its private pages are free."""
    table = pool.requests[r].table
    pages = pool.pages
    freed = {page_id: pool.clock for page_id in table if not pages[page_id].registered}
    shared = {
        page_id: replace(pages[page_id], refcount=pages[page_id].refcount - 1)
        for page_id in table
        if pages[page_id].registered
    }
    return replace(
        pool,
        requests=requests,
        pages=without(pages.update(shared), freed),
        free=pool.free.update(freed),
        idle=pool.idle.update({page_id: pool.clock for page_id, page in shared.items() if page.refcount == 0}),
        clock=pool.clock + 1,
    )


def preempt_guard(pool: Pool, r: RequestId) -> bool:
    """In whose favour is planning's matter."""
    return r in pool.requests


def preempt(pool: Pool, r: RequestId) -> Pool:
    """r holds nothing and has nothing cached; it stays live, to be computed again."""
    return released(pool, r, pool.requests.set(r, replace(pool.requests[r], table=(), cached=0)))


def remove_guard(pool: Pool, r: RequestId) -> bool:
    """At any time: after a finish, a cancellation or a failure."""
    return r in pool.requests


def remove(pool: Pool, r: RequestId) -> Pool:
    """r is gone. What it published stays, idle where nobody else holds it."""
    return released(pool, r, pool.requests.delete(r))


TRANSITIONS = (
    "admit",
    "attach",
    "attach_prefix",
    "allocate",
    "compute",
    "advance",
    "advance_each",
    "retract",
    "publish",
    "evict",
    "preempt",
    "remove",
)
"""The names of all transitions X, each with its X_guard."""


# ---------------------------------------------------------------- a search: outside the subset, it only proposes


def match_prefix(
    pool: Pool, domain: Domain, history: tuple[Token, ...], limit: int, table: tuple[PageId, ...] = ()
) -> tuple[PageId, ...]:
    """The chain of known pages that goes on from `table`, up to position `limit`: match_next, as far as it goes.

    With limit < len(history), `attach_prefix` of a chain that is not empty is not refused to a request of this domain
    with this history and this table, all of it cached. Linear in the tokens matched.
    """
    chain: list[PageId] = []
    parent = table[-1] if table else None
    size = pool.page_size
    for end in range((len(table) + 1) * size, min(limit, len(history)) + 1, size):
        parent = match_next(pool, domain, parent, history[end - size : end])
        if parent is None:
            break
        chain.append(parent)
    return tuple(chain)
