"""What Figure 2 shows: values outlive their creator, and what others do, or did, leaves no trace.

Corollaries of the other theorems, stated by name:

- `retained`: a registered page keeps its values when its creator finishes, is cancelled, fails or is preempted.
- `evicting_a_leaf`: evicting one page affects no other page, and no request.
- `no_parent_is_evicted`: a page cannot be evicted while another one refers to it.
- `attached_is_canonical`: after a hit, the request reads canonical values at the new positions.
- `reads_own_domain`: every value that a request reads lies in a page of its own domain.
- `no_trace`: whatever happens to somebody else, the logits that a request would emit stay what they are. So a cancelled
  or preempted request, a rejected draft, and other domains leave no trace in anyone's output.
- `no_trace_of_a_draft`: nor does a request's own draft, when it is dropped.
"""

from __future__ import annotations

from vosti.proofs.book import Book, Replaced, state, transition, transitions
from vosti.proofs.two_states import differ, differ_pages, same_content
from vosti.refinement.smt.obligation import Obligation
from vosti.spec.actions import emitted_logits, evict_guard
from vosti.spec.reference import canonical_kv, forward
from vosti.spec.state import PageId, RequestId, State, cached_value, history
from vosti.spec.step import Attach, Cancel, Evict, Fail, Finish, Preempt, Retract


def retained(s: State, t: State, page_id: PageId) -> bool:
    """A registered page is there afterwards, as it was."""
    return (
        page_id not in s.pages
        or not s.pages[page_id].registered
        or (page_id in t.pages and same_content(s.pages[page_id], t.pages[page_id]))
    )


def evicting_a_leaf(s: State, t: State, other: PageId, r: RequestId) -> bool:
    """Every other page, and every request, is as it was."""
    return (
        (other in s.pages) == (other in t.pages)
        and (other not in t.pages or s.pages[other] == t.pages[other])
        and (r in s.requests) == (r in t.requests)
        and (r not in t.requests or s.requests[r] == t.requests[r])
    )


def no_parent_is_evicted(s: State, parent: PageId, child: PageId) -> bool:
    """A page that another one refers to is not evicted."""
    return child not in s.pages or s.pages[child].parent != parent or not evict_guard(s, parent)


def attached_is_canonical(s: State, t: State, r: RequestId, p: int) -> bool:
    """The positions of the page that was attached hold canonical values of the request's history."""
    return not s.requests[r].cached <= p < t.requests[r].cached or cached_value(t, r, p) == canonical_kv(
        history(t.requests[r])[: p + 1]
    )


def reads_own_domain(s: State, r: RequestId, p: int) -> bool:
    """The page that a cached position lies in is of the request's domain."""
    return (
        r not in s.requests
        or not 0 <= p < s.requests[r].cached
        or s.pages[s.requests[r].table[p // s.page_size]].domain == s.requests[r].domain
    )


def may_emit(s: State, r: RequestId) -> bool:
    """The request's history is cached."""
    return r in s.requests and s.requests[r].cached >= len(history(s.requests[r]))


def logits_are_forward(s: State, r: RequestId) -> bool:
    """What the kernels compute for a request whose history is cached is Forward of that history."""
    return not may_emit(s, r) or emitted_logits(s, r) == forward(history(s.requests[r]))


def no_trace(s: State, t: State, r: RequestId) -> bool:
    """History and sampler state are the same, and so are the logits, where both states have them."""
    return (
        r not in s.requests
        or r not in t.requests
        or (
            history(s.requests[r]) == history(t.requests[r])
            and s.requests[r].sampler == t.requests[r].sampler
            and (not may_emit(s, r) or not may_emit(t, r) or emitted_logits(s, r) == emitted_logits(t, r))
        )
    )


def obligations(replaced: Replaced | None = None) -> list[Obligation]:
    """Each corollary. That Inv holds after an action is `vosti.proofs.inductive`."""
    book = Book("reuse", replaced)
    s = state(book)
    r, page, child = book.symbol("anyone", RequestId), book.symbol("page", PageId), book.symbol("child", PageId)
    p = book.symbol("p", int)
    inv = book.invariant(s)
    for kind in (Finish, Cancel, Fail, Preempt):
        action = transition(book, s, kind)
        book.holds(f"{action.name}: retained", [*inv, action.guard.term], retained, s, action.after.value, page)
    evict = transition(book, s, Evict)
    another = [*inv, evict.guard.term, book.term(differ_pages, page, evict.arguments["page_id"])]
    book.holds("evicting_a_leaf", another, evicting_a_leaf, s, evict.after.value, page, r)
    book.holds("no_parent_is_evicted", inv, no_parent_is_evicted, s, page, child)
    attach = transition(book, s, Attach)
    t = attach.after.value
    have = [*inv, *book.invariant(t), attach.guard.term]
    book.holds("attached_is_canonical", have, attached_is_canonical, s, t, attach.arguments["r"], p)
    book.holds("reads_own_domain", inv, reads_own_domain, s, r, p)
    book.holds("logits_are_forward", inv, logits_are_forward, s, r)
    # Whatever t is: that the logits of a state with Inv are defined does not depend on how it came about.
    other = state(book, "t")
    book.defined("no_trace", [*inv, *book.invariant(other)], book.run(no_trace, s, other, r).needs)
    for action in transitions(book, s):
        t, mine = action.after.value, action.request
        have = [*inv, *book.invariant(t), action.guard.term]
        have += [book.term(logits_are_forward, s, r), book.term(logits_are_forward, t, r)]
        others = [*have, book.term(differ, r, mine)] if mine is not None else have
        book.prove(f"{action.name}: no_trace", others, book.term(no_trace, s, t, r))
        if action.kind is Retract:
            book.prove(f"{action.name}: no_trace_of_a_draft", have, book.term(no_trace, s, t, r))
    return book.obligations
