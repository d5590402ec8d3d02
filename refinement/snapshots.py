"""The state that the recorded actions lead to, compared with the engine's own structures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from vosti.refinement.violation import Place
from vosti.spec.events import PageView, Snapshot
from vosti.spec.state import Page, PageId, Request, RequestId, State

REQUEST_FIELDS = tuple(field.name for field in fields(Request))

PAGE_FIELDS: dict[str, Callable[[Page], object]] = {
    "registered": lambda page: page.registered,
    "parent": lambda page: page.parent,
    "domain": lambda page: page.domain,
    "tokens": lambda page: page.tokens,
    "refcount": lambda page: len(page.holders),
}
"""Field of a `PageView` → what it says of a page of the specification."""


class SnapshotComparison:
    """Compares a state with the snapshot that was recorded, step by step.

    Objects that are the very ones of the step before, on both sides, were compared then.
    """

    def __init__(self, s: State) -> None:
        self._state = s
        self._snapshot = Snapshot(requests={}, pages={}, free=frozenset())

    def compare(self, s: State, snapshot: Snapshot, place: Place) -> None:
        """Refute the run if the two do not agree, field by field."""
        self._compare_pages_in_use(s, snapshot, place)
        if snapshot.requests.keys() != s.requests.keys():
            there, expected = sorted(snapshot.requests), sorted(s.requests)
            odd = min(set(there) ^ set(expected))
            place.refute("requests_agree", expected=expected, actual=there, request=odd)
        for r, request in s.requests.items():
            recorded = snapshot.requests[r]
            if request is self._state.requests.get(r) and recorded is self._snapshot.requests.get(r):
                continue
            if recorded != request:
                _compare_request(r, request, recorded, place)
        for page_id, page in s.pages.items():
            view = snapshot.pages[page_id]
            if page is self._state.pages.get(page_id) and view is self._snapshot.pages.get(page_id):
                continue
            _compare_page(page_id, page, view, place)
        self._state = s
        # A copy: the engine may go on to change its own mappings.
        self._snapshot = Snapshot(dict(snapshot.requests), dict(snapshot.pages), snapshot.free)

    def _compare_pages_in_use(self, s: State, snapshot: Snapshot, place: Place) -> None:
        outside = (snapshot.pages.keys() | snapshot.free).difference(s.capacity)
        if outside:
            place.refute("page_ids_in_range", expected="pages of the pool", actual=sorted(outside), page=min(outside))
        if snapshot.pages.keys() != s.pages.keys():
            odd = min(snapshot.pages.keys() ^ s.pages.keys())
            place.refute(
                "pages_agree",
                expected=f"{'in' if odd in s.pages else 'not in'} use",
                actual=f"{'in' if odd in snapshot.pages else 'not in'} use",
                page=odd,
            )
        if len(snapshot.free) + len(s.pages) != len(s.capacity) or not snapshot.free.isdisjoint(s.pages):
            odd = min(snapshot.free ^ (s.capacity - s.pages.keys()))
            place.refute(
                "free_list_agrees",
                expected=f"{'not free' if odd in s.pages else 'free'}",
                actual=f"{'free' if odd in snapshot.free else 'not free'}",
                page=odd,
            )


def _compare_request(r: RequestId, request: Request, recorded: Request, place: Place) -> None:
    for name in REQUEST_FIELDS:
        expected, actual = getattr(request, name), getattr(recorded, name)
        if expected != actual:
            place.refute(f"request_{name}_agrees", expected=expected, actual=actual, request=r)


def _compare_page(page_id: PageId, page: Page, view: PageView, place: Place) -> None:
    if (
        view.registered != page.registered
        or view.parent != page.parent
        or view.domain != page.domain
        or view.tokens != page.tokens
        or view.refcount != len(page.holders)
    ):
        for name, of in PAGE_FIELDS.items():
            expected, actual = of(page), getattr(view, name)
            if expected != actual:
                place.refute(f"page_{name}_agrees", expected=expected, actual=actual, page=page_id)
    if view.indexed and not view.registered:
        place.refute("indexed_only_if_registered", expected="not indexed", actual="indexed", page=page_id)
