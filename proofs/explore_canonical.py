"""States up to names: which of an exploration's states are the same.

The specification compares identifiers of requests and pages for equality only, and arrivals by order only. So two
states that differ by a renaming of requests and pages, and by arrivals of the same order, have the same future but for
names, and one of them stands for both.

A state's form is all of it, written down under one such renaming: requests count up in the order of arrival, pages as a
walk through the tables meets them, then the retained pages that nobody holds, parent by parent. Equal forms therefore
mean states that are the same up to names, whatever the states are. That states which are the same have equal forms
needs Inv (nobody holds a page whose parent he does not hold, and retained pages form a forest); where it fails, a state
is at worst explored twice.
"""

from __future__ import annotations

import marshal
from collections.abc import Hashable, Mapping
from hashlib import blake2b
from typing import Any

from vosti.spec.state import Page, PageId, Request, RequestId, State

Form = tuple[Any, ...]
Beside = Mapping[RequestId, tuple[int, ...]]
Details = Mapping[PageId, tuple[int, ...]]

NO_DETAILS: Details = {}

NO_PAGE = -1


class Codes(dict[Hashable, int]):
    """Numbers for things, as they are met: equal things have one number."""

    def __missing__(self, thing: Hashable) -> int:
        self[thing] = len(self)
        return self[thing]


class Canonical:
    """Forms of the states of one exploration. Forms of different instances cannot be compared."""

    def __init__(self) -> None:
        self._samplers = Codes()
        self._contents = Codes()
        self._domains = Codes()

    def digest(self, s: State, beside: Beside, details: Details = NO_DETAILS, whole: Any = None) -> bytes:
        """128 bits of a state's form.

        Args:
            s: the state.
            beside: of each live request, what else two states must have in common to be the same.
            details: of each page in use, the same.
            whole: the same of the whole.
        """
        form = (self.form(s, beside, details), whole)
        # Version 2 writes equal values as equal bytes; later versions refer back to objects that are the same.
        return blake2b(marshal.dumps(form, 2), digest_size=16).digest()

    def form(self, s: State, beside: Beside, details: Details = NO_DETAILS) -> Form:
        """The state under its renaming, as tuples of numbers."""
        arrived = sorted(s.requests.items(), key=_by_arrival)
        names = {r: number for number, (r, _) in enumerate(arrived)}
        pages: dict[PageId, int] = {}
        for _, request in arrived:
            for page_id in request.table:
                pages.setdefault(page_id, len(pages))
        unheld = [page_id for page_id in s.pages if page_id not in pages]
        if len(unheld) == 1:
            pages[unheld[0]] = len(pages)
        elif unheld:
            _number_unheld(s, unheld, pages, details)
        requests = []
        before, rank = None, -1
        for r, request in arrived:
            rank += request.arrival != before
            before = request.arrival
            requests.append(
                (
                    request.prompt,
                    request.output,
                    request.draft,
                    self._samplers[request.sampler],
                    request.cached,
                    tuple([pages[page_id] for page_id in request.table]),
                    self._domains[request.domain],
                    rank,
                    r in s.seen,
                    beside[r],
                )
            )
        used = []
        for page_id in list(pages):
            page = s.pages.get(page_id)
            form = None if page is None else self._page(page, names, pages)
            used.append((page_id in s.capacity, form, details.get(page_id)))
        absent = [page_id in s.capacity for page_id in list(pages)[len(used) :]]
        strangers = [r in s.seen for r in list(names)[len(arrived) :]]
        return (s.page_size, len(s.capacity), len(s.seen), requests, used, absent, strangers)

    def _page(self, page: Page, names: dict[RequestId, int], pages: dict[PageId, int]) -> Form:
        holders = 0
        for r in page.holders:
            holders |= 1 << names.setdefault(r, len(names))
        return (
            self._contents[page.prefix, page.tokens, page.kv],
            holders,
            page.registered,
            NO_PAGE if page.parent is None else pages.setdefault(page.parent, len(pages)),
            self._domains[page.domain],
        )


def _by_arrival(item: tuple[RequestId, Request]) -> int:
    return item[1].arrival


def _number_unheld(s: State, unheld: list[PageId], pages: dict[PageId, int], details: Details) -> None:
    """Number the pages that are in no table: each parent's together, those without a numbered parent last.

    Of siblings, what stands in them and below them decides; those that agree in all of it are interchangeable.
    """
    children: dict[PageId | None, list[PageId]] = {}
    for page_id in unheld:
        children.setdefault(s.pages[page_id].parent, []).append(page_id)

    def tree(page_id: PageId) -> tuple[object, ...]:
        page = s.pages[page_id]
        below = sorted(map(tree, children.get(page_id, ())))
        return (page.prefix, page.tokens, page.domain, page.registered, repr(page.kv), details.get(page_id), below)

    def number_children(parent: PageId | None) -> None:
        siblings = children.get(parent, [])
        if len(siblings) > 1:
            siblings = sorted(siblings, key=tree)
        for page_id in siblings:
            pages[page_id] = len(pages)
        for page_id in siblings:
            number_children(page_id)

    for parent in (*pages, None):
        number_children(parent)
    for page_id in unheld:  # those whose ancestors are not in use, or go round in a circle: Inv forbids both
        pages.setdefault(page_id, len(pages))
