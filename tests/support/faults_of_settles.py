"""Faults in what a settle does with the values of a forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from event_streams import NOBODY, OTHER, Fault, Stream, at_action, at_event
from vosti.spec.determinism import Record
from vosti.spec.events import (
    ForwardEvent,
    PlanEvent,
    SettleEvent,
)
from vosti.spec.sampling import SamplerState
from vosti.spec.state import Logits, Sampler, State, Token, history
from vosti.spec.step import (
    Action,
    Admit,
    Emit,
    Fail,
    Finish,
    Observe,
    Publish,
    Retract,
)


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


def exhaust_sampler(s: Stream) -> Stream | None:
    """A request comes with the last sampler index there is, and emits all the same."""
    for i, plan in enumerate(s.events):
        for j, action in enumerate(plan.actions if isinstance(plan, PlanEvent) else ()):
            if isinstance(action, Admit) and isinstance(plan, PlanEvent):
                settled = s.events[i + 2]
                assert isinstance(settled, SettleEvent)
                assert isinstance(action.sampler, SamplerState)
                last = replace(action, sampler=Sampler(replace(action.sampler, index=2**64 - 1)))
                if any(isinstance(emit, Emit) and emit.request == action.request for emit in settled.actions):
                    return s.with_event(i, replace(plan, actions=(*plan.actions[:j], last, *plan.actions[j + 1 :])))
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
    Fault(
        "an emit reports other logits",
        "emitted_logits",
        at_action(Emit, lambda a, s: (replace(a, record=replace(a.record, logits=Logits(OTHER))),)),
    ),
    Fault("a value that is not finite is ignored", "history_finite", at_action(Fail, emit_instead)),
    Fault("logits that are not finite are sampled", "finite_logits", at_event(ForwardEvent, sick_logits)),
    Fault("another token for the same logits", "sampled_token", token_seen_before),
    Fault("a sampler index is skipped", "next_sampler", at_action(Emit, skip_index)),
    Fault("an output follows the last sampler index", "next_sampler", exhaust_sampler),
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
