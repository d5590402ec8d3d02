"""Faulty runs: one edit of a valid stream each, and the check that must find it.

The edits are what a forger would do who recomputes the chain: the events are written anew, so every entry of the
trace is well formed and in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from event_streams import Edit, Stream, at_action, at_event
from vosti.spec.determinism import Record
from vosti.spec.events import (
    Event,
    ForwardEvent,
    OutputEvent,
    PageView,
    PlanEvent,
    Reading,
    SettleEvent,
    Snapshot,
)
from vosti.spec.sampling import SamplerState
from vosti.spec.state import Domain, Logits, PageId, RequestId, Sampler, State, Token, history
from vosti.spec.step import (
    Action,
    Admit,
    Allocate,
    Attach,
    Cancel,
    Emit,
    Evict,
    Fail,
    Finish,
    Observe,
    Preempt,
    Propose,
    Publish,
    Retract,
    Row,
)

OTHER = "0" * 32
"""A digest of nothing."""

NOBODY = RequestId("nobody")


@dataclass(frozen=True)
class Fault:
    """An edit, and the check that finds it."""

    name: str
    check: str
    edit: Edit


# ---------------------------------------------------------------- order


def swap_plan_and_forward(s: Stream) -> Stream:
    """The forward is recorded before its plan."""
    return s.with_events((s.events[1], s.events[0], *s.events[2:]))


def drop_a_step(s: Stream) -> Stream:
    """A whole step is missing."""
    return s.with_events(event for event in s.events if event.step != 3)


def cut_off_after(phase: type[Event]) -> Edit:
    """The trace ends after this phase of its last step."""

    def edit(s: Stream) -> Stream:
        last = max(i for i, event in enumerate(s.events) if isinstance(event, phase))
        return s.with_events(s.events[: last + 1])

    return edit


def renumber(kind: Any) -> Edit:
    """An event claims to belong to the step after."""
    return at_event(kind, lambda event, _: replace(event, step=event.step + 1) if event.step == 2 else None)


def move_publish(s: Stream) -> Stream | None:
    """A publish happens in the plan phase."""
    for i, event in enumerate(s.events):
        if isinstance(event, SettleEvent):
            published = [action for action in event.actions if isinstance(action, Publish)]
            plan = s.events[i - 2]
            if published and isinstance(plan, PlanEvent):
                moved = s.with_event(i - 2, replace(plan, actions=(*plan.actions, published[0])))
                rest = tuple(action for action in event.actions if action is not published[0])
                return moved.with_event(i, replace(event, actions=rest))
    return None


ORDER = [
    Fault("the forward comes first", "phases_are_in_order", swap_plan_and_forward),
    Fault("a settle is missing", "phases_are_in_order", at_event(SettleEvent, lambda event, s: ())),
    Fault(
        "a forward is recorded twice", "phases_are_in_order", at_event(ForwardEvent, lambda event, s: (event, event))
    ),
    Fault("a step is missing", "steps_are_consecutive", drop_a_step),
    Fault("a plan of the step after", "steps_are_consecutive", renumber(PlanEvent)),
    Fault("a forward of the step after", "steps_are_consecutive", renumber(ForwardEvent)),
    Fault("a settle of the step after", "steps_are_consecutive", renumber(SettleEvent)),
    Fault("an output of the step after", "steps_are_consecutive", renumber(OutputEvent)),
    Fault("the end comes after a plan", "step_is_complete", cut_off_after(PlanEvent)),
    Fault("the end comes after a forward", "step_is_complete", cut_off_after(ForwardEvent)),
    Fault("the end comes before the outputs", "outputs_are_complete", cut_off_after(SettleEvent)),
    Fault("a page is published in the plan", "action_is_in_its_phase", move_publish),
]

# ---------------------------------------------------------------- actions of the plan


def insert(kind: Any, new: Any) -> Edit:
    """Put an action that `new(state)` gives before the first action of a kind for which there is one."""

    def change(action: Action, s: State) -> Sequence[Action] | None:
        extra = new(s)
        return None if extra is None else (extra, action)

    return at_action(kind, change)


def later_than(s: State, r: RequestId) -> RequestId | None:
    """A request that arrived later."""
    mine = s.requests[r].arrival
    return next((other for other, request in s.requests.items() if request.arrival > mine), None)


def read(s: State, page_id: PageId) -> Reading:
    """An honest reading."""
    return Reading(page_id, tuple(map(str, s.pages[page_id].kv)))


def attach_another(event: PlanEvent, s: State) -> PlanEvent | None:
    """Another page is attached, and read: a hash found it, and nobody compared."""
    if not event.actions or not isinstance(event.actions[0], Attach):
        return None
    right = s.pages[event.actions[0].page]
    for page_id, page in s.pages.items():
        if page.registered and (page.tokens, page.parent) != (right.tokens, right.parent):
            actions = (replace(event.actions[0], page=page_id), *event.actions[1:])
            return replace(event, actions=actions, readings=(read(s, page_id), *event.readings[1:]))
    return None


def attach_foreign(event: PlanEvent, s: State) -> PlanEvent | None:
    """The right tokens, and another domain's page."""
    for r, request in s.requests.items():
        for page_id, page in s.pages.items():
            end = request.cached + s.page_size
            if (
                page.registered
                and page.domain != request.domain
                and page.parent == (request.table[-1] if request.table else None)
                and request.cached == len(request.table) * s.page_size
                and page.tokens == history(request)[request.cached : end]
                and end < len(history(request))
            ):
                actions = (Attach(r, page_id), *event.actions)
                return replace(event, actions=actions, readings=(read(s, page_id), *event.readings))
    return None


def evict_one(wanted: Any) -> Edit:
    """A page is evicted for which `wanted(s, page_id)` holds."""

    def change(event: PlanEvent, s: State) -> PlanEvent | None:
        for page_id in s.pages:
            if wanted(s, page_id):
                actions, readings = (Evict(page_id), *event.actions), (read(s, page_id), *event.readings)
                return replace(event, actions=actions, readings=readings)
        return None

    return at_event(PlanEvent, change)


def is_idle_parent(s: State, page_id: PageId) -> bool:
    """A retained page that nobody holds, with a child."""
    page = s.pages[page_id]
    return page.registered and not page.holders and any(child.parent == page_id for child in s.pages.values())


def change_reading(event: PlanEvent, s: State) -> PlanEvent | None:
    """A slot of a page changed since it was written."""
    if not event.readings:
        return None
    reading = event.readings[0]
    return replace(event, readings=(replace(reading, slots=(*reading.slots[:-1], OTHER)), *event.readings[1:]))


PLAN = [
    Fault(
        "an identifier is used again",
        "admit_guard",
        insert(Admit, lambda s: next((Admit(r, (Token(1),), _sampler(), Domain(""), 10**6) for r in s.seen), None)),
    ),
    Fault("a request is admitted twice", "admit_guard", at_action(Admit, lambda a, s: (a, a))),
    Fault("a prompt is empty", "admit_guard", at_action(Admit, lambda a, s: (replace(a, prompt=()),))),
    Fault(
        "a request arrives before those who are here",
        "admit_guard",
        at_action(Admit, lambda a, s: (replace(a, arrival=-1),) if s.requests else None),
    ),
    Fault("a draft is empty", "propose_guard", at_action(Propose, lambda a, s: (replace(a, draft=()),))),
    Fault("a second draft is set", "propose_guard", at_action(Propose, lambda a, s: (a, a))),
    Fault("a draft is set for nobody", "propose_guard", at_action(Propose, lambda a, s: (replace(a, request=NOBODY),))),
    Fault("another page is attached", "attach_guard", at_event(PlanEvent, attach_another)),
    Fault("another domain's page is attached", "attach_guard", at_event(PlanEvent, attach_foreign)),
    Fault(
        "a page in use is allocated",
        "allocate_guard",
        at_action(Allocate, lambda a, s: (replace(a, page=min(s.pages)),) if s.pages else None),
    ),
    Fault(
        "a page outside the pool is allocated",
        "allocate_guard",
        at_action(Allocate, lambda a, s: (replace(a, page=PageId(10**6)),)),
    ),
    Fault("a parent is evicted before its child", "evict_guard", evict_one(is_idle_parent)),
    Fault("a page that is held is evicted", "evict_guard", evict_one(lambda s, p: bool(s.pages[p].holders))),
    Fault(
        "a request is preempted for a later one",
        "preempt_guard",
        at_action(Preempt, lambda a, s: (Preempt(a.in_favour_of, a.request),)),
    ),
    Fault("a request is called off twice", "cancel_guard", at_action(Cancel, lambda a, s: (a, a))),
    Fault("a reading is missing", "readings_match_actions", at_event(PlanEvent, lambda e, s: _fewer_readings(e))),
    Fault("a reading too many", "readings_match_actions", at_event(PlanEvent, lambda e, s: _more_readings(e))),
    Fault("a page changed before it was read", "reading_agrees", at_event(PlanEvent, change_reading)),
]


def _sampler() -> Sampler:
    return Sampler(SamplerState(temperature=0.0, top_k=0, top_p=1, min_p=0, seed=0, index=0))


def _fewer_readings(event: PlanEvent) -> PlanEvent | None:
    return replace(event, readings=event.readings[1:]) if event.readings else None


def _more_readings(event: PlanEvent) -> PlanEvent:
    return replace(event, readings=(*event.readings, Reading(PageId(0), ())))


# ---------------------------------------------------------------- the forward


def at_row(change: Any) -> Edit:
    """Change the first row for which `change(row, state, rows)` has something to offer."""

    def edit(event: ForwardEvent, s: State) -> ForwardEvent | None:
        for i, row in enumerate(event.rows):
            new = change(row, s, event.rows)
            if new is not None:
                return replace(event, rows=(*event.rows[:i], new, *event.rows[i + 1 :]))
        return None

    return at_event(ForwardEvent, edit)


def live(change: Any) -> Any:
    """Only rows that are not padding."""
    return lambda row, s, rows: None if row.request is None else change(row, s, rows)


def other_table(row: Row, s: State, rows: Sequence[Row]) -> Row | None:
    """The row reads through another request's table."""
    tables = [other.table for other in rows if other.request not in (None, row.request)]
    return replace(row, table=tables[0]) if tables and tables[0][:1] != row.table[:1] else None


def exchange_logits(event: ForwardEvent, s: State) -> ForwardEvent | None:
    """The logits of two requests are exchanged: each gets the other's row."""
    last = [
        k
        for k, bits in enumerate(event.logits)
        for row in [event.rows[bits.row]]
        if row.request is not None and row.position == len(history(s.requests[row.request])) - 1
    ]
    if len(last) < 2:
        return None
    logits = list(event.logits)
    a, b = last[:2]
    logits[a], logits[b] = (
        replace(logits[a], logits=logits[b].logits),
        replace(logits[b], logits=logits[a].logits),
    )
    return replace(event, logits=tuple(logits))


def seen_before(kind: str, change: Any) -> Edit:
    """Change what a row yielded where the same was yielded before: `kind` is "written" or "logits"."""

    def edit(s: Stream) -> Stream | None:
        seen: set[str] = set()
        for i, event in enumerate(s.events):
            values = getattr(event, kind, ())
            for k, bits in enumerate(values if isinstance(event, ForwardEvent) else ()):
                name = bits.kv if kind == "written" else str(bits.logits)
                if name in seen:
                    changed: dict[str, Any] = {kind: (*values[:k], change(bits), *values[k + 1 :])}
                    return s.with_event(i, replace(event, **changed))
                seen.add(name)
        return None

    return edit


def limit(**limits: int) -> Edit:
    """The header promises a smaller limit."""

    def edit(s: Stream) -> Stream:
        values = {field: getattr(s.header, field) for field in s.header.__struct_fields__}
        return replace(s, header=type(s.header)(**{**values, **limits}))

    return edit


FORWARD = [
    Fault(
        "a padding row writes",
        "padding_is_inert",
        at_row(lambda row, s, rows: replace(row, write=(PageId(0), 0)) if row.request is None else None),
    ),
    Fault("a row of nobody", "row_is_live", at_row(live(lambda row, s, rows: replace(row, request=NOBODY)))),
    Fault(
        "a row skips a position",
        "row_is_next",
        at_row(live(lambda row, s, rows: replace(row, position=row.position + 1))),
    ),
    Fault(
        "a row has another token",
        "row_has_its_token",
        at_row(live(lambda row, s, rows: replace(row, token=Token(row.token + 1)))),
    ),
    Fault(
        "a row writes the slot beside its own",
        "row_writes_its_slot",
        at_row(live(lambda row, s, rows: replace(row, write=(row.write[0], row.write[1] + 1)))),
    ),
    Fault("a row writes nothing", "row_writes_its_slot", at_row(live(lambda row, s, rows: replace(row, write=None)))),
    Fault(
        "a row reads a slot too many",
        "row_reads_its_prefix",
        at_row(live(lambda row, s, rows: replace(row, readable=row.readable + 1))),
    ),
    Fault("a row reads another's pages", "row_reads_its_prefix", at_row(live(other_table))),
    Fault("more rows than the budget", "within_token_budget", limit(token_budget=1)),
    Fault("more requests than allowed", "within_max_seqs", limit(max_seqs=1)),
    Fault(
        "a written value is missing",
        "written_matches_rows",
        at_event(ForwardEvent, lambda e, s: replace(e, written=e.written[1:]) if e.written else None),
    ),
    Fault(
        "a row of logits is missing",
        "logits_match_rows",
        at_event(ForwardEvent, lambda e, s: replace(e, logits=e.logits[1:]) if e.logits else None),
    ),
    Fault(
        "bits in mode digest",
        "values_fit_the_mode",
        at_event(ForwardEvent, lambda e, s: replace(e, values={OTHER: b"bits"})),
    ),
    Fault(
        "the same prefix gives another value",
        "values_are_canonical",
        seen_before("written", lambda bits: replace(bits, kv=OTHER)),
    ),
    Fault(
        "the same history gives other logits",
        "logits_are_canonical",
        seen_before("logits", lambda bits: replace(bits, logits=Logits(OTHER))),
    ),
    Fault(
        "the same value is finite, and then not",
        "finiteness_follows_bits",
        seen_before("written", lambda bits: replace(bits, finite=not bits.finite)),
    ),
    Fault(
        "the same logits are finite, and then not",
        "finiteness_follows_bits",
        seen_before("logits", lambda bits: replace(bits, finite=not bits.finite)),
    ),
]

# ---------------------------------------------------------------- actions of the settle


def emit_early(event: SettleEvent, s: State) -> SettleEvent | None:
    """A request emits whose history is not yet computed."""
    for r, request in s.requests.items():
        if request.cached < len(history(request)):
            assert isinstance(request.sampler, SamplerState)
            emit = Emit(r, Record(Logits(OTHER), Token(0)), Sampler(request.sampler.advanced()))
            return replace(event, actions=(*event.actions, emit))
    return None


def skip_index(emit: Emit, s: State) -> Sequence[Action]:
    """The sampler state is advanced twice."""
    assert isinstance(emit.sampler, SamplerState)
    return (replace(emit, sampler=Sampler(emit.sampler.advanced())),)


def emit_instead(fail: Fail, s: State) -> Sequence[Action] | None:
    """A request with a value that is not finite goes on."""
    request = s.requests[fail.request]
    if request.cached < len(history(request)):
        return None
    assert isinstance(request.sampler, SamplerState)
    return (Emit(fail.request, Record(Logits(OTHER), Token(0)), Sampler(request.sampler.advanced())),)


def token_seen_before(s: Stream) -> Stream | None:
    """Equal logits and sampler state give another token."""
    seen: set[object] = set()
    for i, event in enumerate(s.events):
        for j, action in enumerate(event.actions if isinstance(event, SettleEvent) else ()):
            if isinstance(action, Emit) and isinstance(event, SettleEvent):
                key = (action.record.logits, action.sampler)
                request = s.states[i].requests.get(action.request) if key in seen else None
                if request is not None and request.draft == ():
                    wrong = replace(action.record, token=Token(action.record.token + 1))
                    actions = (*event.actions[:j], replace(action, record=wrong), *event.actions[j + 1 :])
                    return s.with_event(i, replace(event, actions=actions))
                seen.add(key)
    return None


def publish_partly(event: SettleEvent, s: State) -> SettleEvent | None:
    """A page is published that is not full."""
    for r, request in s.requests.items():
        if request.cached % s.page_size and r not in {getattr(action, "request", None) for action in event.actions}:
            return replace(event, actions=(*event.actions, Publish(r, request.cached // s.page_size)))
    return None


def sick_page(s: Stream) -> Stream | None:
    """A page is published that holds a new value that is not finite, by a request that does not emit in this step."""
    seen: set[str] = set()
    for i, event in enumerate(s.events):
        forward = s.events[i - 1]
        if isinstance(event, SettleEvent) and isinstance(forward, ForwardEvent):
            busy = {action.request for action in event.actions if isinstance(action, Emit)}
            for publish in event.actions:
                for k, bits in enumerate(forward.written if isinstance(publish, Publish) else ()):
                    row = forward.rows[bits.row]
                    here = (row.request, row.position // s.header.page_size)
                    mine = isinstance(publish, Publish) and here == (publish.request, publish.block)
                    if mine and row.request not in busy and bits.kv not in seen:
                        written = (*forward.written[:k], replace(bits, finite=False), *forward.written[k + 1 :])
                        return s.with_event(i - 1, replace(forward, written=written))
            seen |= {bits.kv for bits in forward.written}
    return None


def sick_logits(event: ForwardEvent, s: State) -> ForwardEvent | None:
    """Logits are not finite, and a token is sampled from them all the same."""
    for k, bits in enumerate(event.logits):
        row = event.rows[bits.row]
        if row.request is not None and bits.finite and row.position == len(history(s.requests[row.request])) - 1:
            return replace(event, logits=(*event.logits[:k], replace(bits, finite=False), *event.logits[k + 1 :]))
    return None


SETTLE = [
    Fault("a request emits too early", "emit_ready", at_event(SettleEvent, emit_early)),
    Fault(
        "a token contradicts its draft",
        "emit_ready",
        at_action(
            Emit,
            lambda a, s: (
                (replace(a, record=replace(a.record, token=Token(a.record.token + 1))),)
                if s.requests[a.request].draft
                else None
            ),
        ),
    ),
    Fault(
        "a request emits twice",
        "emit_ready",
        at_action(Emit, lambda a, s: None if s.requests[a.request].draft else (a, a)),
    ),
    Fault(
        "a position is observed that was not asked for",
        "logits_were_taken",
        at_action(Observe, lambda a, s: (a, replace(a, position=a.position - 1)) if a.position else None),
    ),
    Fault("logits of two requests are exchanged", "emitted_logits", at_event(ForwardEvent, exchange_logits)),
    Fault(
        "an emit reports other logits",
        "emitted_logits",
        at_action(Emit, lambda a, s: (replace(a, record=replace(a.record, logits=Logits(OTHER))),)),
    ),
    Fault("a value that is not finite is ignored", "history_finite", at_action(Fail, emit_instead)),
    Fault("logits that are not finite are sampled", "finite_logits", at_event(ForwardEvent, sick_logits)),
    Fault("another token for the same logits", "sampled_token", token_seen_before),
    Fault("a sampler index is skipped", "next_sampler", at_action(Emit, skip_index)),
    Fault(
        "an observe reports other logits",
        "observes",
        at_action(Observe, lambda a, s: (replace(a, logits=Logits(OTHER)),)),
    ),
    Fault(
        "a position is observed beyond the cached ones",
        "observe_ready",
        at_action(Observe, lambda a, s: (replace(a, position=s.requests[a.request].cached),)),
    ),
    Fault("logits are taken and forgotten", "taken_logits_are_used", at_action(Observe, lambda a, s: ())),
    Fault(
        "a draft is dropped that is none",
        "retract_guard",
        at_action(Emit, lambda a, s: (a, Retract(a.request)) if not s.requests[a.request].draft[1:] else None),
    ),
    Fault("a page is published before it is full", "publish_ready", at_event(SettleEvent, publish_partly)),
    Fault("a page is published twice", "publish_ready", at_action(Publish, lambda a, s: (a, a))),
    Fault("a page that is not finite is published", "publishes", sick_page),
    Fault("a request fails without a cause", "fail_guard", at_action(Emit, lambda a, s: (Fail(a.request),))),
    Fault("nobody fails", "fail_guard", at_action(Fail, lambda a, s: (Fail(NOBODY), a))),
    Fault(
        "a request is done before it emitted",
        "finish_guard",
        at_action(Emit, lambda a, s: None if s.requests[a.request].output else (Finish(a.request),)),
    ),
]

# ---------------------------------------------------------------- snapshots, readings, outputs


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

FAULTS = [*ORDER, *PLAN, *FORWARD, *SETTLE, *SNAPSHOTS, *OUTPUTS]


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
