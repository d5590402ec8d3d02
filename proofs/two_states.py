"""What an action may change: properties of a state and the state after it.

Stated of s and t = effect(s, a), for every action a whose guard holds in a state s that satisfies Inv.
"""

from __future__ import annotations

from vosti.proofs.book import Book, Replaced, state, transitions
from vosti.refinement.smt.obligation import Obligation
from vosti.spec.determinism import Record
from vosti.spec.state import Page, PageId, RequestId, State, history
from vosti.spec.step import Admit, Cancel, Emit, Evict, Fail, Finish, Observe


def same_content(old: Page, new: Page) -> bool:
    """The pages differ in their holders at most."""
    return (
        old.prefix == new.prefix
        and old.tokens == new.tokens
        and old.kv == new.kv
        and old.registered == new.registered
        and old.parent == new.parent
        and old.domain == new.domain
    )


def registered_is_unchanged(s: State, t: State, page_id: PageId) -> bool:
    """A registered page never changes: page ∈ s ∧ registered ∧ page ∈ t ⟹ the same content."""
    return (
        page_id not in s.pages
        or not s.pages[page_id].registered
        or page_id not in t.pages
        or same_content(s.pages[page_id], t.pages[page_id])
    )


def registered_stays(s: State, t: State, page_id: PageId) -> bool:
    """A registered page does not vanish."""
    return page_id not in s.pages or not s.pages[page_id].registered or page_id in t.pages


def held_stays(s: State, t: State, page_id: PageId, holder: RequestId) -> bool:
    """A page that somebody holds does not vanish, and he goes on holding it."""
    return (
        page_id not in s.pages
        or holder not in s.pages[page_id].holders
        or (page_id in t.pages and holder in t.pages[page_id].holders)
    )


def request_is_unchanged(s: State, t: State, other: RequestId) -> bool:
    """Nothing of a request changes, nor whether it is there."""
    return (
        s.requests[other] == t.requests[other]
        if other in s.requests and other in t.requests
        else other not in s.requests and other not in t.requests
    )


def private_is_unchanged(s: State, t: State, page_id: PageId, holder: RequestId) -> bool:
    """A page that somebody holds keeps its content."""
    return (
        page_id not in s.pages
        or holder not in s.pages[page_id].holders
        or page_id not in t.pages
        or same_content(s.pages[page_id], t.pages[page_id])
    )


def output_is_kept(s: State, t: State, r: RequestId) -> bool:
    """Prompt, output, sampler, domain and rank stay as they are."""
    return (
        r not in s.requests
        or r not in t.requests
        or (
            s.requests[r].prompt == t.requests[r].prompt
            and s.requests[r].output == t.requests[r].output
            and s.requests[r].sampler == t.requests[r].sampler
            and s.requests[r].domain == t.requests[r].domain
            and s.requests[r].arrival == t.requests[r].arrival
        )
    )


def output_grows(s: State, t: State, r: RequestId, record: Record) -> bool:
    """The history has grown by one token."""
    return r in s.requests and r in t.requests and history(t.requests[r]) == history(s.requests[r]) + (record.token,)


def stays_live(s: State, t: State, r: RequestId) -> bool:
    """A live request stays."""
    return r not in s.requests or r in t.requests


def was_live(s: State, t: State, r: RequestId) -> bool:
    """No request comes into being."""
    return r not in t.requests or r in s.requests


def seen_stays(s: State, t: State, r: RequestId) -> bool:
    """What has been seen is never forgotten; pool and page size stay what they are."""
    return (r not in s.seen or r in t.seen) and s.page_size == t.page_size


def capacity_stays(s: State, t: State, page_id: PageId) -> bool:
    """The pool consists of the same pages."""
    return (page_id in s.capacity) == (page_id in t.capacity)


def nothing_changes(s: State, t: State) -> bool:
    """To look changes nothing."""
    return s == t


def differ(other: RequestId, r: RequestId) -> bool:
    """Somebody else."""
    return other != r


def differ_pages(other: PageId, page_id: PageId) -> bool:
    """Another page."""
    return other != page_id


def obligations(replaced: Replaced | None = None) -> list[Obligation]:
    """Each property, for each action that it is claimed of."""
    book = Book("two_states", replaced)
    s = state(book)
    page, other, anyone = book.symbol("page", PageId), book.symbol("other", RequestId), book.symbol("anyone", RequestId)
    assumed = book.invariant(s)
    for action in transitions(book, s):
        t, name = action.after.value, action.name
        have = [*assumed, action.guard.term]
        mine = action.request
        others = [*have, book.term(differ, other, mine)] if mine is not None else have
        book.holds(f"{name}: registered_is_unchanged", have, registered_is_unchanged, s, t, page)
        spared = [*have, book.term(differ_pages, page, action.arguments["page_id"])] if action.kind is Evict else have
        book.holds(f"{name}: registered_stays", spared, registered_stays, s, t, page)
        book.holds(f"{name}: held_stays", others, held_stays, s, t, page, other)
        book.holds(f"{name}: private_is_unchanged", others, private_is_unchanged, s, t, page, other)
        book.holds(f"{name}: request_is_unchanged", others, request_is_unchanged, s, t, other)
        book.holds(f"{name}: seen_stays", have, seen_stays, s, t, anyone)
        book.holds(f"{name}: capacity_stays", have, capacity_stays, s, t, page)
        if action.kind is Emit:
            record = action.arguments["record"]
            assert mine is not None
            book.holds(f"{name}: output_grows", have, output_grows, s, t, mine, record)
        elif action.kind is not Admit:
            book.holds(f"{name}: output_is_kept", have, output_is_kept, s, t, anyone)
        if action.kind is not Admit:
            book.holds(f"{name}: was_live", have, was_live, s, t, anyone)
        if action.kind not in (Finish, Cancel, Fail):
            book.holds(f"{name}: stays_live", have, stays_live, s, t, anyone)
        if action.kind is Observe:
            book.holds(f"{name}: nothing_changes", have, nothing_changes, s, t)
    return book.obligations
