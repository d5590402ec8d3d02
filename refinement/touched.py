"""Which objects a step has touched: those of which something that a conjunct's local predicate reads has changed.

If Inv holds before, then it holds after if and only if each conjunct holds of its touched objects. So a check costs
what a step changes, and not what a state contains. What each predicate reads:

| conjuncts | reads | touched |
| --- | --- | --- |
| requests_were_seen | the identifier, `seen` | new requests; all, if `seen` changed |
| arrivals_are_unique | all arrivals | requests whose arrival is new (of two equal ones, one is) |
| cached_in_range | the request | changed requests |
| tables_hold | the table's entry; that page's presence and holders | new entries; entries of pages with other holders |
| tables_are_injective | the entry and those before it | entries from the first new one on |
| holders_map | the page's holders, and their tables | pages with other holders; pages that left a table |
| pages_are_in_pool | the page's identifier | pages that came into use |
| pages_are_used, unregistered_are_private | the page | changed pages |
| pages_are_filled, registered_are_finite | the page's contents | pages with other contents |
| parents_precede, parents_stay_in_domain | contents of the page and of its parent | those pages, and their children |
| tables_map_sequences | entry, page, tokens and `cached` of these positions | what differs of these |
| values_are_canonical | the page's prefix, tokens and values up to the slot | slots from the first other one on |
| drafts_are_private | entry, page, and whether the history reaches beyond the block | what differs of these |
| tables_stay_in_domain | entry, page, the request's domain | what differs of these |

A page's *contents* are all its fields but the holders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from vosti.refinement.differences import common_prefix
from vosti.spec.state import Page, PageId, Request, RequestId, State, sequence

Block = tuple[RequestId, int]
Slot = tuple[PageId, int]


@dataclass
class Touched:
    """The objects that differ between two states, by what differs."""

    requests: set[RequestId] = field(default_factory=set)
    """Changed or new."""

    unseen: Iterable[RequestId] = ()
    """Their identifier, or the set of identifiers, is new."""

    ranked: set[RequestId] = field(default_factory=set)
    """Their arrival is new."""

    entries: set[Block] = field(default_factory=set)
    """The table's entry, or one before it, is new."""

    mapped: set[Block] = field(default_factory=set)
    """Tokens of these positions, or how many of them are cached."""

    verified: set[Block] = field(default_factory=set)
    """The history's end lies on the other side of the block's end."""

    moved: set[Block] = field(default_factory=set)
    """The request's domain."""

    arrived: set[PageId] = field(default_factory=set)
    """Came into use."""

    held: set[PageId] = field(default_factory=set)
    """Holders, or came into use."""

    left: set[PageId] = field(default_factory=set)
    """Some table or holder lost it."""

    contents: set[PageId] = field(default_factory=set)
    """Any field but the holders, or came into use."""

    children: set[PageId] = field(default_factory=set)
    """Their parent's contents, or their parent went out of use."""

    slots: set[Slot] = field(default_factory=set)
    """The slot's value, or the tokens up to it."""

    held_blocks: set[Block] = field(default_factory=set)
    """The entry's page has other holders, or went out of use."""

    content_blocks: set[Block] = field(default_factory=set)
    """The entry's page has other contents."""


def _blocks(blocks: set[Block]) -> Iterable[tuple[Any, ...]]:
    return blocks


def _single(things: Iterable[RequestId] | Iterable[PageId]) -> Iterable[tuple[Any, ...]]:
    return ((thing,) for thing in things)


OBJECTS: dict[str, Callable[[Touched], Iterable[tuple[Any, ...]]]] = {
    "page_size_positive": lambda t: ((),),
    "requests_were_seen": lambda t: _single(t.unseen),
    "arrivals_are_unique": lambda t: _single(t.ranked),
    "cached_in_range": lambda t: _single(t.requests),
    "tables_hold": lambda t: t.entries | t.held_blocks,
    "tables_are_injective": lambda t: t.entries,
    "holders_map": lambda t: _single(t.held | t.left),
    "pages_are_in_pool": lambda t: _single(t.arrived),
    "pages_are_used": lambda t: _single(t.held | t.contents),
    "pages_are_filled": lambda t: _single(t.contents),
    "parents_precede": lambda t: _single(t.contents | t.children),
    "tables_map_sequences": lambda t: t.entries | t.mapped | t.content_blocks,
    "values_are_canonical": lambda t: t.slots,
    "registered_are_finite": lambda t: _single(t.contents),
    "unregistered_are_private": lambda t: _single(t.held | t.contents),
    "drafts_are_private": lambda t: t.entries | t.verified | t.content_blocks,
    "tables_stay_in_domain": lambda t: t.entries | t.moved | t.content_blocks,
    "parents_stay_in_domain": lambda t: _single(t.contents | t.children),
}
"""Conjunct → the touched objects that it ranges over."""


class Comparison:
    """Compares each state with the one before.

    It knows, from tables and parents, which blocks lead to a page and which pages continue it; both follow the states
    step by step.
    """

    def __init__(self, s: State) -> None:
        """Start from `s`, which has no requests and no pages."""
        self._before = s
        self._users: dict[PageId, set[Block]] = {}
        self._children: dict[PageId, set[PageId]] = {}

    def touched(self, s: State) -> Touched:
        """What differs between the state before and `s`, which becomes the state before."""
        before, touched = self._before, Touched()
        if s is before:
            return touched
        for r in before.requests.keys() - s.requests.keys():
            self._retable(r, before.requests[r].table, (), touched)
        for r, request in s.requests.items():
            old = before.requests.get(r)
            if old is not request:
                self._request(r, old, request, s.page_size, touched)
        touched.unseen = touched.requests if s.seen is before.seen else s.requests
        for page_id, page in s.pages.items():
            old_page = before.pages.get(page_id)
            if old_page is not page:
                self._page(page_id, old_page, page, touched)
        if len(before.pages) + len(touched.arrived) != len(s.pages):
            for page_id in before.pages.keys() - s.pages.keys():
                self._reparent(page_id, before.pages[page_id].parent, None)
                touched.held_blocks |= self._users.get(page_id, set())
                touched.children |= self._children.get(page_id, set())
        # A page that went out of use is no object any more: what it was to others stands in the sets above.
        touched.left &= s.pages.keys()
        touched.children &= s.pages.keys()
        self._before = s
        return touched

    def _request(self, r: RequestId, old: Request | None, new: Request, page_size: int, touched: Touched) -> None:
        touched.requests.add(r)
        if old is None:
            touched.ranked.add(r)
            self._retable(r, (), new.table, touched)
            return
        if old.arrival != new.arrival:
            touched.ranked.add(r)
        if old.table is not new.table:
            self._retable(r, old.table, new.table, touched)
        blocks = len(new.table)
        if old.domain != new.domain:
            touched.moved.update((r, block) for block in range(blocks))
        low, high = sorted((old.cached, new.cached))
        touched.mapped.update(_within(r, low, high, page_size, blocks))
        if old.output is not new.output or old.draft is not new.draft or old.prompt is not new.prompt:
            other = common_prefix(sequence(old), sequence(new))
            touched.mapped.update(_within(r, other, new.cached, page_size, blocks))
            low, high = sorted((len(old.prompt) + len(old.output), len(new.prompt) + len(new.output)))
            touched.verified.update((r, b) for b in range(low // page_size, min(high // page_size, blocks)))

    def _retable(self, r: RequestId, old: tuple[PageId, ...], new: tuple[PageId, ...], touched: Touched) -> None:
        kept = common_prefix(old, new)
        for block in range(kept, len(old)):
            self._users[old[block]].discard((r, block))
            touched.left.add(old[block])
        for block in range(kept, len(new)):
            self._users.setdefault(new[block], set()).add((r, block))
            touched.entries.add((r, block))

    def _page(self, page_id: PageId, old: Page | None, new: Page, touched: Touched) -> None:
        if old is None:
            touched.arrived.add(page_id)
        if old is None or old.holders != new.holders:
            touched.held.add(page_id)
            touched.held_blocks |= self._users.get(page_id, set())
        if old is not None and same_contents(old, new):
            return
        touched.contents.add(page_id)
        touched.content_blocks |= self._users.get(page_id, set())
        touched.children |= self._children.get(page_id, set())
        self._reparent(page_id, None if old is None else old.parent, new.parent)
        first = 0
        if old is not None and old.prefix == new.prefix:
            first = min(common_prefix(old.tokens, new.tokens), _common_values(old, new))
        touched.slots.update((page_id, slot) for slot in range(first, len(new.kv)))

    def _reparent(self, page_id: PageId, old: PageId | None, new: PageId | None) -> None:
        if old is not None and old != new:
            self._children[old].discard(page_id)
        if new is not None:
            self._children.setdefault(new, set()).add(page_id)


def _within(r: RequestId, start: int, stop: int, page_size: int, blocks: int) -> Iterable[Block]:
    """The blocks of the table that hold a position from `start` to `stop` - 1."""
    first, last = max(0, start) // page_size, -(-stop // page_size)
    return ((r, block) for block in range(first, min(last, blocks))) if start < stop else ()


def same_contents(a: Page, b: Page) -> bool:
    """Whether two pages differ in their holders only."""
    return (
        (a.tokens is b.tokens or a.tokens == b.tokens)
        and (a.kv is b.kv or a.kv == b.kv)
        and a.registered == b.registered
        and a.parent == b.parent
        and a.domain == b.domain
        and (a.prefix is b.prefix or a.prefix == b.prefix)
    )


def _common_values(old: Page, new: Page) -> int:
    shorter = min(len(old.kv), len(new.kv))
    return next((slot for slot in range(shorter) if old.kv[slot] != new.kv[slot]), shorter)
