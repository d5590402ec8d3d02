"""The pool's composite transitions are its simple ones in turn, by induction.

| composite C       | induction over                             | simple transition X | action A |
| ----------------- | ------------------------------------------ | ------------------- | -------- |
| advance           | how many positions, from 0                 | compute             | compute  |
| advance_each      | a batch, from none, one request at a time  | advance             | computes |
| attach_prefix     | a chain of pages, from none                | attach              | attach   |

Write C(x) for the pool after the composite of x, and x + e for one more. In every pool that has its invariants:

- nothing: C(0) = pool, if its guard holds;
- guard: the guard of C(x + e) holds exactly if that of C(x) does and, in the pool C(x), that of X(e);
- effect: if it holds, C(x + e) = X(C(x), e).

By induction over x, the guard of C(x) holds exactly if each X may happen in its turn, and C(x) is where they lead: for
a batch in any order, since any request may be the one more. (advance counts from 0: "from 0" is that it refuses less.)

*Claim*: let the pool and s be as in `vosti.proofs.pool_refinement`, the guard of C(x) hold, and what its caller owes be
owed. Then, from s on, the actions of x may happen in their turn, and in the state t that they lead to Inv holds, t
agrees with C(x), C(x) has the pool's invariants, and the same is owed. By induction over x:

- base: C(0) = pool agrees with s, since equals may stand for equals ("equal: ...");
- step: the guard of C(x + e) gives that of C(x), for which the claim holds, and that of X in the pool C(x). What is
  owed in t for C is owed for X ("owed"). So `vosti.proofs.pool_refinement` speaks of X in C(x) and A in t (for
  advance_each: the claim for advance does): A may happen, and X(C(x), e) agrees with A(t) and has the pool's
  invariants; Inv(A(t)) is `vosti.proofs.inductive`. So, equals for equals, does C(x + e); and the same is owed as
  before ("still owed").
"""

from __future__ import annotations

from collections.abc import Mapping

from vosti.impl.pool import (
    advance,
    advance_each,
    advance_each_guard,
    advance_guard,
    attach,
    attach_guard,
    attach_prefix,
    attach_prefix_guard,
    compute,
    compute_guard,
)
from vosti.impl.pool_state import Pool
from vosti.proofs.book import Replaced
from vosti.proofs.pool_refinement import PoolBook
from vosti.proofs.pool_relation import RELATION, advance_each_owed, attach_owed, attach_prefix_owed, compute_owed
from vosti.refinement.smt.obligation import Obligation
from vosti.spec import actions
from vosti.spec.state import PageId, RequestId, State, Token

# ---------------------------------------------------------------- advance: n computes


def advance_nothing(pool: Pool, r: RequestId, length: int) -> bool:
    """advance(0) = pool."""
    return not advance_guard(pool, r, 0, length) or advance(pool, r, 0, length) == pool


def advance_counts(pool: Pool, r: RequestId, n: int, length: int) -> bool:
    """Fewer than no computes are refused: the induction begins at 0."""
    return n >= 0 or not advance_guard(pool, r, n, length)


def advance_may(pool: Pool, r: RequestId, n: int, length: int) -> bool:
    """n + 1 computes may happen exactly if n may, and then one."""
    return n < 0 or advance_guard(pool, r, n + 1, length) == (
        advance_guard(pool, r, n, length) and compute_guard(advance(pool, r, n, length), r, length)
    )


def advance_does(pool: Pool, r: RequestId, n: int, length: int) -> bool:
    """advance(n + 1) = compute(advance(n))."""
    return not advance_guard(pool, r, n, length) or advance(pool, r, n + 1, length) == compute(
        advance(pool, r, n, length), r, length
    )


# ---------------------------------------------------------------- advance_each: the advances of a batch


def with_one_more(counts: Mapping[RequestId, int], r: RequestId, n: int) -> Mapping[RequestId, int]:
    """A batch with one request more."""
    return {**counts, r: n}


def each_nothing(pool: Pool, lengths: Mapping[RequestId, int]) -> bool:
    """advance_each(∅) = pool, and may happen."""
    return advance_each_guard(pool, {}, lengths) and advance_each(pool, {}, lengths) == pool


def each_may(
    pool: Pool, counts: Mapping[RequestId, int], lengths: Mapping[RequestId, int], r: RequestId, n: int
) -> bool:
    """The batch with r may advance exactly if the batch may, and then r."""
    return r in counts or advance_each_guard(pool, with_one_more(counts, r, n), lengths) == (
        advance_each_guard(pool, counts, lengths)
        and r in lengths
        and advance_guard(advance_each(pool, counts, lengths), r, n, lengths[r])
    )


def each_does(
    pool: Pool, counts: Mapping[RequestId, int], lengths: Mapping[RequestId, int], r: RequestId, n: int
) -> bool:
    """advance_each(counts + r) = advance(advance_each(counts), r)."""
    return (
        r in counts
        or not advance_each_guard(pool, with_one_more(counts, r, n), lengths)
        or advance_each(pool, with_one_more(counts, r, n), lengths)
        == advance(advance_each(pool, counts, lengths), r, n, lengths[r])
    )


def each_owed(s: State, lengths: Mapping[RequestId, int], r: RequestId) -> bool:
    """What is owed for a batch is owed for each of its requests."""
    return not advance_each_owed(s, lengths) or r not in lengths or compute_owed(s, r, lengths[r])


def compute_still_owed(s: State, lengths: Mapping[RequestId, int], r: RequestId, length: int) -> bool:
    """A compute changes no length."""
    t = actions.compute(s, r)
    return (not advance_each_owed(s, lengths) or advance_each_owed(t, lengths)) and (
        not compute_owed(s, r, length) or compute_owed(t, r, length)
    )


# ---------------------------------------------------------------- attach_prefix: the attaches of a chain


def before_last(page_ids: tuple[PageId, ...]) -> tuple[PageId, ...]:
    """A chain without its last page. Needs one."""
    return page_ids[: len(page_ids) - 1]


def last(page_ids: tuple[PageId, ...]) -> PageId:
    """The last page of a chain. Needs one."""
    return page_ids[len(page_ids) - 1]


def next_tokens(pool: Pool, r: RequestId, past: tuple[Token, ...]) -> tuple[Token, ...]:
    """past[cached : cached + page_size], if there are as many."""
    start = pool.requests[r].cached
    end = start + pool.page_size
    return past[start:end] if end <= len(past) else ()


def prefix_nothing(pool: Pool, r: RequestId, past: tuple[Token, ...]) -> bool:
    """attach_prefix(()) = pool."""
    return not attach_prefix_guard(pool, r, (), past) or attach_prefix(pool, r, (), past) == pool


def prefix_may(pool: Pool, r: RequestId, page_ids: tuple[PageId, ...], past: tuple[Token, ...]) -> bool:
    """A chain may be attached exactly if it may without its last page, and then that."""
    if len(page_ids) == 0:
        return True
    allowed = attach_prefix_guard(pool, r, page_ids, past)
    if not attach_prefix_guard(pool, r, before_last(page_ids), past):
        return not allowed
    before = attach_prefix(pool, r, before_last(page_ids), past)
    also = attach_guard(before, r, last(page_ids), next_tokens(before, r, past), len(past))
    return (not allowed or also) and (not also or allowed)


def prefix_does(pool: Pool, r: RequestId, page_ids: tuple[PageId, ...], past: tuple[Token, ...]) -> bool:
    """attach_prefix(pages) = attach(attach_prefix(pages but the last), last page)."""
    if len(page_ids) == 0 or not attach_prefix_guard(pool, r, page_ids, past):
        return True
    before = attach_prefix(pool, r, before_last(page_ids), past)
    return attach_prefix(pool, r, page_ids, past) == attach(
        before, r, last(page_ids), next_tokens(before, r, past), len(past)
    )


def prefix_owed(pool: Pool, s: State, r: RequestId, past: tuple[Token, ...]) -> bool:
    """What is owed for a chain is owed for its next page."""
    return (
        r not in pool.requests
        or not attach_prefix_owed(s, r, past)
        or attach_owed(s, r, next_tokens(pool, r, past), len(past))
    )


def attach_still_owed(s: State, r: RequestId, page_id: PageId, past: tuple[Token, ...]) -> bool:
    """An attach changes no history."""
    return not attach_prefix_owed(s, r, past) or attach_prefix_owed(actions.attach(s, r, page_id), r, past)


# ---------------------------------------------------------------- obligations


def equal(a: Pool, b: Pool) -> bool:
    """Every part is the same; of a mapping, every entry."""
    return a == b


def obligations(replaced: Replaced | None = None) -> list[Obligation]:
    """Equals for equals, then each composite."""
    book = PoolBook("pool_composites", replaced)
    pool, s = book.pool, book.s
    r, n, length = book.symbol("r", RequestId), book.symbol("n", int), book.symbol("length", int)
    counts, lengths = (book.symbol(name, Mapping[RequestId, int]) for name in ("counts", "lengths"))
    page_ids, past = book.symbol("page_ids", tuple[PageId, ...]), book.symbol("past", tuple[Token, ...])
    page_id = book.symbol("page_id", PageId)
    sound, related = book.sound(pool), book.related(pool, s)
    other = book.symbol("other_pool", Pool)
    alike = book.term(equal, pool, other)
    book.proves_agreement("equal", [*(book.term(f, pool, s) for f in RELATION), alike], other, s)
    book.proves_invariants("equal", [alike], other)
    may_compute = [*related, book.term(actions.compute_guard, s, r)]
    may_attach = [*related, book.term(actions.attach_guard, s, r, page_id)]
    book.holds("advance, from 0", sound, advance_counts, pool, r, n, length)
    book.holds("advance, nothing", sound, advance_nothing, pool, r, length)
    book.holds("advance, guard", sound, advance_may, pool, r, n, length)
    book.holds("advance, effect", sound, advance_does, pool, r, n, length)
    book.holds("advance, still owed", may_compute, compute_still_owed, s, lengths, r, length)
    book.holds("advance_each, nothing", sound, each_nothing, pool, lengths)
    book.holds("advance_each, guard", sound, each_may, pool, counts, lengths, r, n)
    book.holds("advance_each, effect", sound, each_does, pool, counts, lengths, r, n)
    book.holds("advance_each, owed", related, each_owed, s, lengths, r)
    book.holds("attach_prefix, nothing", sound, prefix_nothing, pool, r, past)
    book.holds("attach_prefix, guard", sound, prefix_may, pool, r, page_ids, past)
    book.holds("attach_prefix, effect", sound, prefix_does, pool, r, page_ids, past)
    book.holds("attach_prefix, owed", related, prefix_owed, pool, s, r, past)
    book.holds("attach_prefix, still owed", may_attach, attach_still_owed, s, r, page_id, past)
    return book.obligations
