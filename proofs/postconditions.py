"""What each action achieves.

The other theorems say what actions may not do; an action that does nothing satisfies them all. Stated of s and
t = effect(s, a), for every action a whose guard holds in a state s that satisfies Inv, is what the action is there for,
and of a choice that it was one: a draft that is proposed or dropped has a token, a hit leaves something to compute, a
request that is done has shown something.

`earliest_keeps` is what progress rests on: whatever happens to others, the request that came first keeps its table.

The last ones say of any state that satisfies Inv what those of its conjuncts are there for that no other theorem needs:
no page is lost, a hit brings finite values only, and nobody's pages keep a page of another domain from being evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vosti.proofs.book import Book, Replaced, state, transition, transitions
from vosti.proofs.two_states import differ
from vosti.refinement.smt.obligation import Obligation
from vosti.spec.determinism import Record
from vosti.spec.reference import finite_kv
from vosti.spec.state import Domain, Logits, PageId, RequestId, Sampler, State, Token, cached_value, history
from vosti.spec.step import (
    Admit,
    Allocate,
    Attach,
    Cancel,
    Compute,
    Emit,
    Evict,
    Fail,
    Finish,
    Observe,
    Preempt,
    Propose,
    Publish,
    Retract,
)


def arrives(
    s: State, t: State, r: RequestId, prompt: tuple[Token, ...], sampler: Sampler, domain: Domain, arrival: int
) -> bool:
    """The request is there, and was not; its identifier is used up."""
    return (
        r not in s.requests
        and r in t.requests
        and r in t.seen
        and t.requests[r].prompt == prompt
        and t.requests[r].output == ()
        and t.requests[r].sampler == sampler
        and t.requests[r].domain == domain
        and t.requests[r].arrival == arrival
    )


def drafts(s: State, t: State, r: RequestId, draft: tuple[Token, ...]) -> bool:
    """A draft that has a token is there."""
    return t.requests[r].draft == draft and draft != ()


def reuses(s: State, t: State, r: RequestId, page_id: PageId) -> bool:
    """A page's positions are cached, and a token of the history stays to be computed."""
    return (
        t.requests[r].table == s.requests[r].table + (page_id,)
        and t.requests[r].cached == s.requests[r].cached + s.page_size
        and t.requests[r].cached < len(history(t.requests[r]))
    )


def takes(s: State, t: State, r: RequestId, page_id: PageId) -> bool:
    """The table has one page more, which was free."""
    return t.requests[r].table == s.requests[r].table + (page_id,) and page_id not in s.pages


def frees(s: State, t: State, page_id: PageId) -> bool:
    """The page is free, and was not."""
    return page_id in s.pages and page_id not in t.pages


def advances(s: State, t: State, r: RequestId) -> bool:
    """One position more is cached."""
    return t.requests[r].cached == s.requests[r].cached + 1


def speaks(s: State, t: State, r: RequestId, record: Record, sampler: Sampler) -> bool:
    """The token is the last of the output, and the sampler state is the one after it."""
    return (
        t.requests[r].output == s.requests[r].output + (record.token,)
        and t.requests[r].sampler == sampler
        and len(t.requests[r].draft) == max(0, len(s.requests[r].draft) - 1)
    )


def looks(s: State, t: State, r: RequestId, position: int, logits: Logits) -> bool:
    """The position is the request's, and cached."""
    return 0 <= position < len(history(s.requests[r])) and position < s.requests[r].cached


def drops(s: State, t: State, r: RequestId) -> bool:
    """There was a draft, and there is none; none of its slots counts as cached."""
    return (
        s.requests[r].draft != ()
        and t.requests[r].draft == ()
        and t.requests[r].cached == min(s.requests[r].cached, len(history(s.requests[r])))
    )


def shares(s: State, t: State, r: RequestId, block: int) -> bool:
    """The page is registered, and was not."""
    page_id = s.requests[r].table[block]
    return not s.pages[page_id].registered and t.pages[page_id].registered


def starts_over(s: State, t: State, r: RequestId, in_favour_of: RequestId) -> bool:
    """Nothing is left of the request but its history, its sampler state and its rank."""
    return t.requests[r].table == () and t.requests[r].cached == 0 and t.requests[r].draft == ()


def leaves(s: State, t: State, r: RequestId) -> bool:
    """The request was there, and is not; nobody holds a page in its name."""
    return r in s.requests and r not in t.requests and all(r not in page.holders for page in t.pages.values())


def is_done(s: State, t: State, r: RequestId) -> bool:
    """The same of a request that has shown something."""
    return leaves(s, t, r) and len(s.requests[r].output) >= 1


ACHIEVED: Mapping[type, Callable[..., bool]] = {
    Admit: arrives,
    Propose: drafts,
    Attach: reuses,
    Allocate: takes,
    Evict: frees,
    Compute: advances,
    Emit: speaks,
    Observe: looks,
    Retract: drops,
    Publish: shares,
    Preempt: starts_over,
    Finish: is_done,
    Cancel: leaves,
    Fail: leaves,
}
"""What each action achieves: a statement of s, t, and the action's arguments."""


def is_earliest(s: State, r: RequestId) -> bool:
    """Everybody else came later."""
    return r in s.requests and all(
        s.requests[r].arrival < request.arrival for other, request in s.requests.items() if other != r
    )


def earliest_keeps(s: State, t: State, r: RequestId, page_id: PageId) -> bool:
    """The earliest request's table has the pages that it had."""
    return not is_earliest(s, r) or (
        r in t.requests and (page_id not in s.requests[r].table or page_id in t.requests[r].table)
    )


def no_page_is_lost(s: State, page_id: PageId) -> bool:
    """A page in use may be reused, or some live request has it in its table."""
    return (
        page_id not in s.pages
        or s.pages[page_id].registered
        or any(page_id in request.table for request in s.requests.values())
    )


def hit_is_finite(s: State, t: State, r: RequestId, p: int) -> bool:
    """The values at the positions of the page that was attached are finite: its creator fails alone."""
    return not s.requests[r].cached <= p < t.requests[r].cached or finite_kv(cached_value(t, r, p))


def children_are_of_own_domain(s: State, parent: PageId, child: PageId) -> bool:
    """What keeps a page from being evicted belongs to its own domain."""
    return (
        child not in s.pages
        or s.pages[child].parent != parent
        or (parent in s.pages and s.pages[child].domain == s.pages[parent].domain)
    )


def obligations(replaced: Replaced | None = None) -> list[Obligation]:
    """The achievement of each action, with what the earliest request keeps; then what is true of states."""
    book = Book("postconditions", replaced)
    s = state(book)
    page, anyone = book.symbol("page", PageId), book.symbol("anyone", RequestId)
    assumed = book.invariant(s)
    for action in transitions(book, s):
        t, have, statement = action.after.value, [*assumed, action.guard.term], ACHIEVED[action.kind]
        book.holds(f"{action.name}: {statement.__name__}", have, statement, s, t, *action.arguments.values())
        if action.kind in (Finish, Cancel, Fail):
            assert action.request is not None
            have = [*have, book.term(differ, anyone, action.request)]
        book.holds(f"{action.name}: earliest_keeps", have, earliest_keeps, s, t, anyone, page)
    book.holds("no_page_is_lost", assumed, no_page_is_lost, s, page)
    book.holds("children_are_of_own_domain", assumed, children_are_of_own_domain, s, page, book.symbol("child", PageId))
    attach = transition(book, s, Attach)
    r, t, p = attach.arguments["r"], attach.after.value, book.symbol("p", int)
    have = [*assumed, *book.invariant(t), attach.guard.term]
    book.holds("hit_is_finite", have, hit_is_finite, s, t, r, p)
    return book.obligations
