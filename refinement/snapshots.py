"""The state that the recorded actions lead to, compared with the engine's own structures."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import fields

from vosti.refinement.touched import Touched
from vosti.refinement.violation import Place
from vosti.spec.events import PAGE_FIELDS, PageView, Snapshot
from vosti.spec.state import Page, PageId, Request, RequestId, State

REQUEST_FIELDS = tuple(field.name for field in fields(Request))


class SnapshotComparison:
    """Compares a state with the snapshot that was recorded, step by step.

    What did not change since the step before, on either side, was compared then.
    """

    def __init__(self) -> None:
        self._snapshot = Snapshot(requests={}, pages={}, free=frozenset())

    def compare(self, s: State, snapshot: Snapshot, touched: Touched, place: Place) -> None:
        """Refute the run if the two do not agree, field by field.

        Args:
            s: the state after a step.
            snapshot: what was recorded of it.
            touched: what differs between the state before and s.
            place: where the run is.
        """
        _compare_pages_in_use(s, snapshot, place)
        if snapshot.requests.keys() != s.requests.keys():
            there, expected = sorted(snapshot.requests), sorted(s.requests)
            odd = min(set(there) ^ set(expected))
            place.refute("requests_agree", expected=expected, actual=there, request=odd)
        for r, recorded in snapshot.requests.items():
            if (r in touched.requests or recorded is not self._snapshot.requests.get(r)) and recorded != s.requests[r]:
                _compare_request(r, s.requests[r], recorded, place)
        before = self._snapshot.pages
        others = {page_id for page_id, view in snapshot.pages.items() if before.get(page_id) is not view}
        for page_id in touched.contents | touched.held | others:
            _compare_page(page_id, s.pages[page_id], snapshot.pages[page_id], place)
        # A copy: the engine may go on to change its own mappings.
        self._snapshot = Snapshot(dict(snapshot.requests), dict(snapshot.pages), snapshot.free)


def _compare_pages_in_use(s: State, snapshot: Snapshot, place: Place) -> None:
    if snapshot.pages.keys() != s.pages.keys():
        _require_in_range(snapshot.pages.keys() - s.capacity, place)
        odd = min(snapshot.pages.keys() ^ s.pages.keys())
        place.refute(
            "pages_agree",
            expected=f"{'in' if odd in s.pages else 'not in'} use",
            actual=f"{'in' if odd in snapshot.pages else 'not in'} use",
            page=odd,
        )
    # Sets that together have as many pages as the pool, none twice and none from elsewhere, make up the pool.
    if not (
        len(snapshot.free) + len(s.pages) == len(s.capacity)
        and snapshot.free.isdisjoint(s.pages)
        and snapshot.free <= s.capacity
    ):
        _require_in_range(snapshot.free - s.capacity, place)
        odd = min(snapshot.free ^ (s.capacity - s.pages.keys()))
        place.refute(
            "free_list_agrees",
            expected=f"{'not free' if odd in s.pages else 'free'}",
            actual=f"{'free' if odd in snapshot.free else 'not free'}",
            page=odd,
        )


def _require_in_range(outside: AbstractSet[PageId], place: Place) -> None:
    if outside:
        place.refute("page_ids_in_range", expected="pages of the pool", actual=sorted(outside), page=min(outside))


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
