"""The pool's composite transitions are its simple ones in turn, by induction.

| composite C       | induction over                             | simple transition X | actions A |
| ----------------- | ------------------------------------------ | ------------------- | --------- |
| advance           | how many positions, from 0                 | compute             | compute   |
| advance_each      | a batch, from none, one request at a time  | advance             | computes  |
| attach_prefix     | a chain of pages, from none                | attach              | attach    |

Write C(x) for the pool after the composite of x, and x + e for one more. In every pool that has its invariants:

- nothing: C(0) = pool, if its guard holds;
- guard: the guard of C(x + e) holds exactly if that of C(x) does and, in the pool C(x), that of X(e);
- effect: if it holds, C(x + e) = X(C(x), e).

By induction over x, the guard of C(x) holds exactly if each X may happen in its turn, and C(x) is where they lead: for
a batch in any order, since any request may be the one more. (advance counts from 0: "from 0" is that it refuses less.)

*Claim* for x: if the guard of C(x) holds, then from s on, which agrees with the pool, the actions of x may happen in
their turn, and in the state t that they lead to: Inv holds, t agrees with C(x), C(x) has the pool's invariants, and
the caller owes what he owed. By induction over x:

- base: C(0) agrees with s and has the invariants;
- step: let the guard of C(x + e) hold, so that of C(x) does, and the claim gives t. The next action may happen in t;
  the state that it leads to agrees with C(x + e), which has the invariants; and the same is owed there. (Inv is
  `vosti.proofs.inductive`. For advance_each, the next actions are those of one advance, and the claim for that gives
  the state they lead to.)
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
    extends,
)
from vosti.impl.pool_invariants import registered_first
from vosti.impl.pool_state import Pool
from vosti.proofs.book import Replaced
from vosti.proofs.pool_refinement import Function, PoolBook, conditions
from vosti.proofs.pool_relation import RELATION, advance_each_owed, attach_prefix_owed, compute_owed
from vosti.refinement.smt.obligation import Obligation
from vosti.refinement.smt.terms import Term, integer
from vosti.refinement.smt.values import Empty, Value, integer_value
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


def length_of(lengths: Mapping[RequestId, int], r: RequestId) -> int:
    """What is owed of r."""
    return lengths[r]


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


def next_may(pool: Pool, r: RequestId, page_ids: tuple[PageId, ...], past: tuple[Token, ...]) -> bool:
    """The last page of a chain may be attached, in the pool after the others."""
    return attach_guard(pool, r, last(page_ids), next_tokens(pool, r, past), len(past))


def next_one(pool: Pool, r: RequestId, page_ids: tuple[PageId, ...], past: tuple[Token, ...]) -> Pool:
    """attach of the last page of a chain, in the pool after the others."""
    return attach(pool, r, last(page_ids), next_tokens(pool, r, past), len(past))


def prefix_may(pool: Pool, r: RequestId, page_ids: tuple[PageId, ...], past: tuple[Token, ...]) -> bool:
    """A chain may be attached exactly if it may without its last page, and then that."""
    if len(page_ids) == 0:
        return True
    allowed = attach_prefix_guard(pool, r, page_ids, past)
    if not attach_prefix_guard(pool, r, before_last(page_ids), past):
        return not allowed
    also = next_may(attach_prefix(pool, r, before_last(page_ids), past), r, page_ids, past)
    return (not allowed or also) and (not also or allowed)


def prefix_does(pool: Pool, r: RequestId, page_ids: tuple[PageId, ...], past: tuple[Token, ...]) -> bool:
    """attach_prefix(pages) = attach(attach_prefix(pages but the last), last page)."""
    if len(page_ids) == 0 or not attach_prefix_guard(pool, r, page_ids, past):
        return True
    before = attach_prefix(pool, r, before_last(page_ids), past)
    return attach_prefix(pool, r, page_ids, past) == next_one(before, r, page_ids, past)


def continues(pool: Pool, r: RequestId, page_ids: tuple[PageId, ...], past: tuple[Token, ...]) -> bool:
    """A lemma: the first page of a chain comes after the last of the table."""
    return extends(pool, pool.requests[r], page_ids, past, 0)


# ---------------------------------------------------------------- obligations


def one_more(n: int) -> int:
    """n + 1."""
    return n + 1


def counted(n: int) -> bool:
    """n is a number of positions."""
    return n >= 0


def is_chain(page_ids: tuple[PageId, ...]) -> bool:
    """There is a page."""
    return len(page_ids) > 0


def is_new(counts: Mapping[RequestId, int], lengths: Mapping[RequestId, int], r: RequestId) -> bool:
    """r is not of the batch yet; its length is known."""
    return r not in counts and r in lengths


def prefix_still_owed(s: State, r: RequestId, page_id: PageId, past: tuple[Token, ...]) -> bool:
    """An attach changes no history."""
    return attach_prefix_owed(actions.attach(s, r, page_id), r, past)


def obligations(replaced: Replaced | None = None) -> list[Obligation]:
    """Each composite: that it is its simple transitions, and the claim."""
    book = PoolBook("pool_composites", replaced)
    advances(book)
    advances_each(book)
    attaches(book)
    return book.obligations


def total(book: PoolBook, guard_of: Function, effect_of: Function, *args: Value) -> None:
    """The guard never raises; where it holds, neither does the effect."""
    sound, guard = book.sound(book.pool), book.run(guard_of, book.pool, *args)
    book.defined(guard_of.__name__, sound, guard.needs)
    book.defined(effect_of.__name__, [*sound, guard.term], book.run(effect_of, book.pool, *args).needs)


def advances(book: PoolBook) -> None:
    """advance."""
    pool, s = book.pool, book.s
    r, n, length = book.symbol("r", RequestId), book.symbol("n", int), book.symbol("length", int)
    sound = book.sound(pool)
    total(book, advance_guard, advance, r, n, length)
    book.holds("advance: from 0", sound, advance_counts, pool, r, n, length)
    book.holds("advance: nothing", sound, advance_nothing, pool, r, length)
    book.holds("advance: guard", sound, advance_may, pool, r, n, length)
    book.holds("advance: effect", sound, advance_does, pool, r, n, length)
    agreeing = [book.term(f, pool, s) for f in RELATION]
    none = integer_value(integer(0))
    allowed = book.term(advance_guard, pool, r, none, length)
    nothing = book.run(advance, pool, r, none, length).value
    book.proves_agreement("advance: base,", [*agreeing, allowed], nothing, s)
    book.proves_invariants("advance: base,", [allowed], pool, nothing)
    # The state t of the claim is called s here: any state.
    more = book.run(one_more, n).value
    before, after = book.run(advance, pool, r, n, length).value, book.run(advance, pool, r, more, length).value
    have = [book.term(counted, n), book.term(advance_guard, pool, r, more, length)]
    claim = [*book.related(before, s), book.term(compute_owed, s, r, length)]
    book.prove("advance: step, allowed", [*claim, *have], conditions(book.term(actions.compute_guard, s, r)))
    then = book.run(actions.compute, s, r).value
    book.proves_agreement("advance: step,", [*claim, *have], after, then)
    book.proves_invariants("advance: step,", [*have, *book.focus(r)], before, after)
    may = [*book.invariant(s), book.term(actions.compute_guard, s, r)]
    lengths = book.symbol("lengths", Mapping[RequestId, int])
    book.holds("advance: step, still owed", may, compute_still_owed, s, lengths, r, length)


def advances_each(book: PoolBook) -> None:
    """advance_each."""
    pool, s = book.pool, book.s
    r, n = book.symbol("r", RequestId), book.symbol("n", int)
    counts, lengths = (book.symbol(name, Mapping[RequestId, int]) for name in ("counts", "lengths"))
    sound = book.sound(pool)
    total(book, advance_each_guard, advance_each, counts, lengths)
    book.holds("advance_each: nothing", sound, each_nothing, pool, lengths)
    book.holds("advance_each: guard", sound, each_may, pool, counts, lengths, r, n)
    book.holds("advance_each: effect", sound, each_does, pool, counts, lengths, r, n)
    agreeing = [book.term(f, pool, s) for f in RELATION]
    nobody = book.run(advance_each, pool, Empty(), lengths).value
    book.proves_agreement("advance_each: base,", agreeing, nobody, s)
    book.proves_invariants("advance_each: base,", [], pool, nobody)
    # s is the state t of the claim; for what follows of agreement, it is the state after r's computes.
    batch = book.run(with_one_more, counts, r, n).value
    before, after = (book.run(advance_each, pool, c, lengths).value for c in (counts, batch))
    have = [book.term(is_new, counts, lengths, r), book.term(advance_each_guard, pool, batch, lengths)]
    book.holds("advance_each: step, owed", [*book.related(before, s), *have], each_owed, s, lengths, r)
    own = book.run(length_of, lengths, r).value
    single = book.run(advance, before, r, n, own).value
    then = [book.term(f, single, s) for f in RELATION]
    book.proves_agreement("advance_each: step,", [*then, *have], after, s)
    book.proves_invariants("advance_each: step,", have, single, after)


def attaches(book: PoolBook) -> None:
    """attach_prefix."""
    pool, s = book.pool, book.s
    r, past = book.symbol("r", RequestId), book.symbol("past", tuple[Token, ...])
    page_ids = book.symbol("page_ids", tuple[PageId, ...])
    sound = book.sound(pool)
    total(book, attach_prefix_guard, attach_prefix, r, page_ids, past)
    book.holds("attach_prefix: nothing", sound, prefix_nothing, pool, r, past)
    book.holds("attach_prefix: guard", sound, prefix_may, pool, r, page_ids, past)
    book.holds("attach_prefix: effect", sound, prefix_does, pool, r, page_ids, past)
    agreeing = [book.term(f, pool, s) for f in RELATION]
    allowed = book.term(attach_prefix_guard, pool, r, Empty(), past)
    nothing = book.run(attach_prefix, pool, r, Empty(), past).value
    book.proves_agreement("attach_prefix: base,", [*agreeing, allowed], nothing, s)
    book.proves_invariants("attach_prefix: base,", [allowed], pool, nothing)
    # The state t of the claim is called s here: any state.
    shorter, page_id = book.run(before_last, page_ids).value, book.run(last, page_ids).value
    before, after = (book.run(attach_prefix, pool, r, ids, past).value for ids in (shorter, page_ids))
    have = [book.term(is_chain, page_ids), book.term(attach_prefix_guard, pool, r, page_ids, past)]
    claim = [*book.related(before, s), book.term(attach_prefix_owed, s, r, past)]
    book.prove(
        "attach_prefix: step, allowed", [*claim, *have], conditions(book.term(actions.attach_guard, s, r, page_id))
    )
    then = book.run(actions.attach, s, r, page_id).value
    book.proves_agreement("attach_prefix: step,", [*claim, *have], after, then)
    book.holds("attach_prefix: step, continues", [*sound, *have], continues, pool, r, page_ids, past)
    hints: Mapping[Function, Term] = {registered_first: book.term(continues, pool, r, page_ids, past)}
    book.proves_invariants("attach_prefix: step,", [*have, *book.focus(r)], before, after, hints)
    may = [*book.related(before, s), book.term(attach_prefix_owed, s, r, past)]
    may.append(book.term(actions.attach_guard, s, r, page_id))
    book.holds("attach_prefix: step, still owed", may, prefix_still_owed, s, r, page_id, past)
