"""Faults in snapshots, readings and outputs, and in recorded bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from event_streams import NOBODY, OTHER, Edit, Fault, Stream, at_action, at_event
from vosti.spec.events import (
    ForwardEvent,
    OutputEvent,
    PageView,
    SettleEvent,
    Snapshot,
)
from vosti.spec.state import Domain, Logits, PageId, Sampler, State, Token
from vosti.spec.step import (
    Emit,
)


def at_snapshot(change: Any) -> Edit:
    """Change the first snapshot for which `change(snapshot)` has something to offer."""

    def edit(event: SettleEvent, s: State) -> SettleEvent | None:
        new = change(event.after)
        return None if new is None else replace(event, after=new)

    return at_event(SettleEvent, edit)


def at_request(wanted: Any, change: Any) -> Edit:
    """Change the first recorded request that is as wanted."""

    def edit(after: Snapshot) -> Snapshot | None:
        for r, request in after.requests.items():
            if wanted(request):
                return replace(after, requests={**after.requests, r: change(request)})
        return None

    return at_snapshot(edit)


def at_page(wanted: Any, change: Any) -> Edit:
    """Change the first recorded page that is as wanted."""

    def edit(after: Snapshot) -> Snapshot | None:
        for page_id, page in after.pages.items():
            if wanted(page):
                return replace(after, pages={**after.pages, page_id: change(page)})
        return None

    return at_snapshot(edit)


def anything(thing: object) -> bool:
    """Whatever it is."""
    return True


REQUEST_EDITS: dict[str, Any] = {
    "prompt": lambda q: replace(q, prompt=(*q.prompt[:-1], Token(q.prompt[-1] + 1))),
    "output": lambda q: replace(q, output=(*q.output, Token(0))),
    "draft": lambda q: replace(q, draft=(*q.draft, Token(0))),
    "sampler": lambda q: replace(q, sampler=Sampler(q.sampler.advanced())),
    "cached": lambda q: replace(q, cached=q.cached + 1),
    "table": lambda q: replace(q, table=(*q.table, PageId(0))),
    "domain": lambda q: replace(q, domain=Domain(q.domain + "!")),
    "arrival": lambda q: replace(q, arrival=q.arrival + 1),
}

PAGE_EDITS: dict[str, Any] = {
    "registered": lambda p: replace(p, registered=True),
    "parent": lambda p: replace(p, parent=PageId(0) if p.parent is None else None),
    "domain": lambda p: replace(p, domain=Domain(p.domain + "!")),
    "tokens": lambda p: replace(p, tokens=(*p.tokens[:-1], Token(p.tokens[-1] + 1))),
    "refcount": lambda p: replace(p, refcount=p.refcount + 1),
}


def lose_request(after: Snapshot) -> Snapshot | None:
    """A request is gone."""
    return replace(after, requests=dict(list(after.requests.items())[1:])) if after.requests else None


def lose_page(after: Snapshot) -> Snapshot | None:
    """A page is neither in use nor free."""
    return replace(after, pages=dict(list(after.pages.items())[1:])) if after.pages else None


def keep_page(after: Snapshot) -> Snapshot | None:
    """A free page is in use."""
    view = PageView(registered=False, parent=None, domain=Domain(""), refcount=0, tokens=(), indexed=False)
    return replace(after, pages={**after.pages, min(after.free): view}) if after.free else None


def free_used(after: Snapshot) -> Snapshot | None:
    """A page in use is free as well."""
    return replace(after, free=after.free | {min(after.pages)}) if after.pages else None


SNAPSHOTS = [
    Fault("a request is lost", "requests_agree", at_snapshot(lose_request)),
    *(
        Fault(f"a request's {name} is another", f"request_{name}_agrees", at_request(anything, change))
        for name, change in REQUEST_EDITS.items()
    ),
    Fault("a page is lost", "pages_agree", at_snapshot(lose_page)),
    Fault("a page is not freed", "pages_agree", at_snapshot(keep_page)),
    *(
        Fault(
            f"a page's {name} is another",
            f"page_{name}_agrees",
            at_page(lambda p: not p.registered and p.tokens and p.refcount, change),
        )
        for name, change in PAGE_EDITS.items()
    ),
    Fault("a page is free and in use", "free_list_agrees", at_snapshot(free_used)),
    Fault(
        "a page is missing from the free list",
        "free_list_agrees",
        at_snapshot(lambda a: replace(a, free=frozenset()) if a.free else None),
    ),
    Fault(
        "a page outside the pool is free",
        "page_ids_in_range",
        at_snapshot(lambda a: replace(a, free=a.free | {PageId(10**6)})),
    ),
    Fault(
        "a page outside the pool is in use",
        "page_ids_in_range",
        at_snapshot(
            lambda a: replace(a, pages={**a.pages, PageId(-1): next(iter(a.pages.values()))}) if a.pages else None
        ),
    ),
    Fault(
        "the index leads to a private page",
        "indexed_only_if_registered",
        at_page(lambda p: not p.registered, lambda p: replace(p, indexed=True)),
    ),
]


def exchange_outputs(s: Stream) -> Stream | None:
    """Two requests' tokens of one step are exchanged on the way to their callers."""
    for i, (a, b) in enumerate(zip(s.events, s.events[1:], strict=False)):
        if isinstance(a, OutputEvent) and isinstance(b, OutputEvent) and a.tokens != b.tokens:
            return s.with_event(i, replace(a, tokens=b.tokens)).with_event(i + 1, replace(b, tokens=a.tokens))
    return None


def with_tokens(change: Any) -> Edit:
    """Change the first output that has tokens."""
    return at_event(OutputEvent, lambda e, s: change(e) if e.tokens else None)


OUTPUTS = [
    Fault("an output is missing", "outputs_are_complete", at_event(OutputEvent, lambda e, s: ())),
    Fault("an output is given twice", "outputs_are_explained", at_event(OutputEvent, lambda e, s: (e, e))),
    Fault(
        "an output goes to nobody",
        "outputs_are_explained",
        at_event(OutputEvent, lambda e, s: replace(e, request=NOBODY)),
    ),
    Fault("outputs of two requests are exchanged", "output_tokens_agree", exchange_outputs),
    Fault(
        "a token is lost at the API",
        "output_tokens_agree",
        with_tokens(lambda e: replace(e, tokens=e.tokens[1:], logits=e.logits[1:])),
    ),
    Fault(
        "logits are exchanged at the API",
        "output_logits_agree",
        with_tokens(lambda e: replace(e, logits=(Logits(OTHER), *e.logits[1:]))),
    ),
    Fault(
        "an end is not told",
        "output_end_agrees",
        at_event(OutputEvent, lambda e, s: replace(e, ended=None) if e.ended else None),
    ),
    Fault(
        "a wrong end is told",
        "output_end_agrees",
        at_event(OutputEvent, lambda e, s: replace(e, ended="error") if e.ended == "length" else None),
    ),
    Fault(
        "an end is told too early",
        "output_end_agrees",
        at_event(OutputEvent, lambda e, s: None if e.ended else replace(e, ended="stop")),
    ),
]


def change_rereading(event: SettleEvent, s: State) -> SettleEvent | None:
    """A slot changed without a row that wrote to it."""
    for i, reading in enumerate(event.rereadings):
        if reading.slots:
            changed = replace(reading, slots=(OTHER, *reading.slots[1:]))
            return replace(event, rereadings=(*event.rereadings[:i], changed, *event.rereadings[i + 1 :]))
    return None


def drop_rereading(event: SettleEvent, s: State) -> SettleEvent | None:
    """A page is not read again."""
    for i, reading in enumerate(event.rereadings):
        if reading.slots:
            return replace(event, rereadings=(*event.rereadings[:i], *event.rereadings[i + 1 :]))
    return None


REREAD_FAULTS = [
    Fault("a slot changed behind everybody's back", "rereading_agrees", at_event(SettleEvent, change_rereading)),
    Fault("a page is not read again", "rereadings_are_complete", at_event(SettleEvent, drop_rereading)),
]
"""Of runs that read everything again after each step."""


def with_values(change: Any) -> Edit:
    """Change the bits of the first forward that has some."""

    def edit(event: ForwardEvent, s: State) -> ForwardEvent | None:
        return replace(event, values=change(event)) if event.logits else None

    return at_event(ForwardEvent, edit)


def other_token(s: Stream) -> Stream | None:
    """A token that the sampler does not draw, told to the caller as well."""
    edit = at_action(
        Emit,
        lambda a, s: (
            None
            if s.requests[a.request].draft
            else (replace(a, record=replace(a.record, token=Token(a.record.token ^ 1))),)
        ),
    )
    return edit(s)


FULL_FAULTS = [
    Fault("another token than the sampler's", "sampled_token", other_token),
    Fault(
        "bits are missing",
        "values_fit_the_mode",
        with_values(lambda e: {name: data for name, data in e.values.items() if name != e.logits[0].logits}),
    ),
    Fault(
        "bits have another digest",
        "values_have_their_digest",
        with_values(lambda e: {**e.values, str(e.logits[0].logits): b"other bits"}),
    ),
    Fault(
        "logits are said not to be finite",
        "finiteness_follows_bits",
        at_event(
            ForwardEvent,
            lambda e, s: (
                replace(e, logits=(replace(e.logits[0], finite=not e.logits[0].finite), *e.logits[1:]))
                if e.logits
                else None
            ),
        ),
    ),
]
"""Of runs with all their bits."""
