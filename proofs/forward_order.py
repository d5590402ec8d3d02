"""The forward phase: evaluating its computes at once equals every order.

For requests a ≠ b that may both compute in a state s that satisfies Inv, t = compute(s, a):

- b may compute in t exactly if it may in s;
- b reads in t what it reads in s, so the value that it computes is the same;
- compute(compute(s, a), b) = compute(compute(s, b), a).

Neighbours in a sequence of computes of different requests may therefore change places; every order that keeps each
request's positions in their order leads to the same state, and so does evaluating all of them on what was there before.
"""

from __future__ import annotations

from dataclasses import replace

from vosti.proofs.book import Book, Replaced, state
from vosti.proofs.canonical_output import computes_canonical
from vosti.proofs.two_states import request_is_unchanged
from vosti.refinement.smt.obligation import Obligation
from vosti.spec.actions import compute, compute_guard
from vosti.spec.state import PageId, RequestId, State, cached_value


def both_may(s: State, a: RequestId, b: RequestId) -> bool:
    """Two requests may compute."""
    return a != b and compute_guard(s, a) and compute_guard(s, b)


def guard_stays(s: State, a: RequestId, b: RequestId) -> bool:
    """Whether one may compute does not depend on the other's having done so."""
    return compute_guard(compute(s, a), b) == compute_guard(s, b)


def reads_the_same(s: State, a: RequestId, b: RequestId, p: int) -> bool:
    """What one reads does not depend on the other's having computed."""
    return not 0 <= p < s.requests[b].cached or cached_value(compute(s, a), b, p) == cached_value(s, b, p)


def page_is_in_both(t: State, u: State, page_id: PageId) -> bool:
    """A page is in both states, or in neither."""
    return (page_id in t.pages) == (page_id in u.pages)


def tokens_agree(t: State, u: State, page_id: PageId) -> bool:
    """A page has the same tokens in both."""
    return (
        page_id not in t.pages
        or page_id not in u.pages
        or (t.pages[page_id].prefix == u.pages[page_id].prefix and t.pages[page_id].tokens == u.pages[page_id].tokens)
    )


def values_agree(t: State, u: State, page_id: PageId, slot: int) -> bool:
    """A page has as many values in both, and the same one in every slot."""
    if page_id not in t.pages or page_id not in u.pages:
        return True
    first = t.pages[page_id].kv
    second = u.pages[page_id].kv
    return len(first) == len(second) and (not 0 <= slot < len(first) or first[slot] == second[slot])


def pages_agree(t: State, u: State, page_id: PageId) -> bool:
    """A page is the same in both, its values aside."""
    return (
        page_id not in t.pages
        or page_id not in u.pages
        or replace(t.pages[page_id], kv=()) == replace(u.pages[page_id], kv=())
    )


def nothing_else_changes(s: State, t: State) -> bool:
    """A compute touches requests and pages alone."""
    return s.seen == t.seen and s.capacity == t.capacity and s.page_size == t.page_size


def obligations(replaced: Replaced | None = None) -> list[Obligation]:
    """Two computes that stand side by side.

    Inv holds in between, by `vosti.proofs.inductive`. So the second compute is defined there, by `guard_stays` and
    `vosti.proofs.definedness`, and writes a canonical value, by `vosti.proofs.canonical_output`.
    """
    book = Book("forward_order", replaced)
    s, a, b = state(book), book.symbol("a", RequestId), book.symbol("b", RequestId)
    have = [*book.invariant(s), book.term(both_may, s, a, b)]
    book.holds("guard_stays", have, guard_stays, s, a, b)
    book.holds("reads_the_same", have, reads_the_same, s, a, b, book.symbol("p", int))
    t, u = book.run(compute, s, a).value, book.run(compute, s, b).value
    ab, ba = book.run(compute, t, b).value, book.run(compute, u, a).value
    canonical = [book.term(computes_canonical, *where) for where in ((s, a), (s, b), (t, b), (u, a))]
    have += canonical
    book.holds("requests_agree", have, request_is_unchanged, ab, ba, book.symbol("r", RequestId))
    page = book.symbol("page", PageId)
    book.holds("page_is_in_both", have, page_is_in_both, ab, ba, page)
    book.holds("tokens_agree", have, tokens_agree, ab, ba, page)
    book.holds("values_agree", have, values_agree, ab, ba, page, book.symbol("slot", int))
    book.holds("pages_agree", have, pages_agree, ab, ba, page)
    book.holds("nothing_else_changes", have, nothing_else_changes, s, t)
    return book.obligations
