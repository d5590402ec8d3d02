"""The difference of two successive snapshots, and back.

A step changes little of an engine's state, so a trace holds differences. There is exactly one difference between two
snapshots, and nothing is lost: `applied(before, difference(before, after)) == after`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from msgspec import UNSET, UnsetType

from vosti.refinement.parts import (
    Difference,
    FreeDifference,
    PageChange,
    PageFields,
    PagesDifference,
    RequestChange,
    RequestFields,
    RequestsDifference,
    Tail,
)
from vosti.refinement.samplers import sampler_fields, sampler_from
from vosti.spec.events import PageView, Snapshot
from vosti.spec.state import PageId, Request, RequestId, Token

EMPTY = Snapshot(requests={}, pages={}, free=frozenset())
"""The snapshot that the first difference starts from."""

Element = TypeVar("Element", Token, PageId)
Key = TypeVar("Key", RequestId, PageId)
Whole = TypeVar("Whole")
Part = TypeVar("Part")


class NoSuchDifference(ValueError):
    """A difference speaks of something that the snapshot before does not have."""


def difference(before: Snapshot, after: Snapshot) -> Difference:
    """What turns `before` into `after`."""
    requests, pages = before.requests, after.pages
    changed_requests = []
    for r, request in after.requests.items():
        old_request = requests.get(r)
        if old_request is not None and old_request is not request and old_request != request:
            changed_requests.append((r, _request_change(old_request, request)))
    changed_pages = []
    for page_id, page in pages.items():
        old_page = before.pages.get(page_id)
        if old_page is not None and old_page is not page and old_page != page:
            changed_pages.append((page_id, _page_change(old_page, page)))
    return Difference(
        requests=RequestsDifference(
            removed=_missing(before.requests, after.requests),
            added=tuple((r, _request_fields(after.requests[r])) for r in _missing(after.requests, before.requests)),
            changed=tuple(sorted(changed_requests, key=_first)),
        ),
        pages=PagesDifference(
            removed=_missing(before.pages, after.pages),
            added=tuple((p, _page_fields(after.pages[p])) for p in _missing(after.pages, before.pages)),
            changed=tuple(sorted(changed_pages, key=_first)),
        ),
        free=FreeDifference(
            removed=tuple(sorted(before.free - after.free)), added=tuple(sorted(after.free - before.free))
        ),
    )


def applied(before: Snapshot, change: Difference) -> Snapshot:
    """What `change` turns `before` into. What it does not mention is shared with `before`.

    Raises:
        NoSuchDifference: if it changes a request or page that `before` does not have.
        ValueError, TypeError: if a sampler state is none.
    """
    requests = _without(before.requests, change.requests.removed)
    for r, fields in change.requests.added:
        requests[r] = _request(fields)
    for r, request_change in change.requests.changed:
        requests[r] = _changed_request(_known(before.requests, r), request_change)
    pages = _without(before.pages, change.pages.removed)
    for page_id, page_fields in change.pages.added:
        pages[page_id] = _page(page_fields)
    for page_id, page_change in change.pages.changed:
        pages[page_id] = _changed_page(_known(before.pages, page_id), page_change)
    free = before.free
    if change.free.removed or change.free.added:
        free = (free - frozenset(change.free.removed)) | frozenset(change.free.added)
    return Snapshot(requests=requests, pages=pages, free=free)


def is_minimal(change: Difference, before: Snapshot, after: Snapshot) -> bool:
    """Whether `change`, which turns `before` into `after`, is `difference(before, after)`.

    It is if nothing in it can be left out, and each part is in order. This costs what the difference holds, and not
    what the snapshots do.
    """
    requests, pages, free = change.requests, change.pages, change.free
    return (
        _is_apart(before.requests, requests.removed, requests.added, requests.changed)
        and _is_apart(before.pages, pages.removed, pages.added, pages.changed)
        and all(part == _request_change(before.requests[r], after.requests[r]) for r, part in requests.changed)
        and all(part == _page_change(before.pages[p], after.pages[p]) for p, part in pages.changed)
        and all(before.requests[r] != after.requests[r] for r, _ in requests.changed)
        and all(before.pages[p] != after.pages[p] for p, _ in pages.changed)
        and _ascends(free.removed)
        and _ascends(free.added)
        and before.free.issuperset(free.removed)
        and before.free.isdisjoint(free.added)
    )


def _is_apart(
    before: Mapping[Key, object],
    removed: Sequence[Key],
    added: Sequence[tuple[Key, object]],
    changed: Sequence[tuple[Key, object]],
) -> bool:
    """Whether removed and changed keys were there before, added ones were not, each once and in order."""
    new, other = [key for key, _ in added], [key for key, _ in changed]
    return (
        _ascends(removed)
        and _ascends(new)
        and _ascends(other)
        and all(key in before for key in removed)
        and all(key in before for key in other)
        and not any(key in before for key in new)
        and not set(removed) & set(other)
    )


def _ascends(keys: Sequence[Key]) -> bool:
    return all(a < b for a, b in pairwise(keys))


def _first(pair: tuple[Key, object]) -> Key:
    return pair[0]


def _missing(here: Mapping[Key, object], there: Mapping[Key, object]) -> tuple[Key, ...]:
    """The keys of `here` that `there` lacks, sorted."""
    return tuple(sorted(here.keys() - there.keys()))


def _without(mapping: Mapping[Key, Whole], keys: Iterable[Key]) -> dict[Key, Whole]:
    copy = dict(mapping)
    for key in keys:
        copy.pop(key, None)
    return copy


def _known(mapping: Mapping[Key, Whole], key: Key) -> Whole:
    if key not in mapping:
        raise NoSuchDifference(f"{key!r} is said to change, and was not there before")
    return mapping[key]


# ---------------------------------------------------------------- tuples


def common_prefix(a: tuple[Element, ...], b: tuple[Element, ...]) -> int:
    """How many elements a and b begin with in common."""
    shorter = min(len(a), len(b))
    if a is b or a[:shorter] == b[:shorter]:
        return shorter
    return next(i for i in range(shorter) if a[i] != b[i])


def _tail(old: tuple[Element, ...], new: tuple[Element, ...]) -> Tail[Element] | UnsetType:
    if old is new or old == new:
        return UNSET
    kept = common_prefix(old, new)
    return Tail(kept, new[kept:])


def _with_tail(old: tuple[Element, ...], tail: Tail[Element] | UnsetType) -> tuple[Element, ...]:
    return old if isinstance(tail, UnsetType) else old[: max(0, tail.kept)] + tail.rest


def _new(old: Part, new: Part) -> Part | UnsetType:
    return UNSET if old == new else new


def _chosen(new: Part | UnsetType, old: Part) -> Part:
    return old if isinstance(new, UnsetType) else new


# ---------------------------------------------------------------- requests


def _request_fields(request: Request) -> RequestFields:
    return RequestFields(
        prompt=request.prompt,
        output=request.output,
        draft=request.draft,
        sampler=sampler_fields(request.sampler),
        cached=request.cached,
        table=request.table,
        domain=request.domain,
        arrival=request.arrival,
    )


def _request(fields: RequestFields) -> Request:
    return Request(
        prompt=fields.prompt,
        output=fields.output,
        draft=fields.draft,
        sampler=sampler_from(fields.sampler),
        cached=fields.cached,
        table=fields.table,
        domain=fields.domain,
        arrival=fields.arrival,
    )


def _request_change(old: Request, new: Request) -> RequestChange:
    return RequestChange(
        prompt=_tail(old.prompt, new.prompt),
        output=_tail(old.output, new.output),
        draft=_tail(old.draft, new.draft),
        sampler=UNSET if old.sampler == new.sampler else sampler_fields(new.sampler),
        cached=_new(old.cached, new.cached),
        table=_tail(old.table, new.table),
        domain=_new(old.domain, new.domain),
        arrival=_new(old.arrival, new.arrival),
    )


def _changed_request(old: Request, change: RequestChange) -> Request:
    return Request(
        prompt=_with_tail(old.prompt, change.prompt),
        output=_with_tail(old.output, change.output),
        draft=_with_tail(old.draft, change.draft),
        sampler=old.sampler if isinstance(change.sampler, UnsetType) else sampler_from(change.sampler),
        cached=_chosen(change.cached, old.cached),
        table=_with_tail(old.table, change.table),
        domain=_chosen(change.domain, old.domain),
        arrival=_chosen(change.arrival, old.arrival),
    )


# ---------------------------------------------------------------- pages


def _page_fields(page: PageView) -> PageFields:
    return PageFields(
        registered=page.registered,
        parent=page.parent,
        domain=page.domain,
        refcount=page.refcount,
        tokens=page.tokens,
        indexed=page.indexed,
    )


def _page(fields: PageFields) -> PageView:
    return PageView(
        registered=fields.registered,
        parent=fields.parent,
        domain=fields.domain,
        refcount=fields.refcount,
        tokens=fields.tokens,
        indexed=fields.indexed,
    )


def _page_change(old: PageView, new: PageView) -> PageChange:
    return PageChange(
        registered=_new(old.registered, new.registered),
        parent=_new(old.parent, new.parent),
        domain=_new(old.domain, new.domain),
        refcount=_new(old.refcount, new.refcount),
        tokens=_tail(old.tokens, new.tokens),
        indexed=_new(old.indexed, new.indexed),
    )


def _changed_page(old: PageView, change: PageChange) -> PageView:
    return PageView(
        registered=_chosen(change.registered, old.registered),
        parent=_chosen(change.parent, old.parent),
        domain=_chosen(change.domain, old.domain),
        refcount=_chosen(change.refcount, old.refcount),
        tokens=_with_tail(old.tokens, change.tokens),
        indexed=_chosen(change.indexed, old.indexed),
    )
