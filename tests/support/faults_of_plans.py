"""Faults in the order of events, and in what a plan does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from event_streams import NOBODY, OTHER, Edit, Fault, Stream, at_action, at_event
from vosti.spec.events import (
    Event,
    ForwardEvent,
    OutputEvent,
    PlanEvent,
    Reading,
    SettleEvent,
)
from vosti.spec.sampling import SamplerState
from vosti.spec.state import Domain, PageId, Sampler, State, Token, history
from vosti.spec.step import (
    Action,
    Admit,
    Allocate,
    Attach,
    Cancel,
    Evict,
    Preempt,
    Propose,
    Publish,
)

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
