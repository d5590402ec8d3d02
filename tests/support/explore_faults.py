"""Specifications with one fault each: a guard without one of its conditions, or an effect that forgets something.

A condition is dropped by asking the guard about a state, or an action, in which it holds anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from vosti.proofs.explore import Effect, Guard
from vosti.proofs.explore_bounds import GREEDY, ONE, tokens
from vosti.proofs.explore_counterexample import DEFINEDNESS, DETERMINISM, INVARIANT, OUTPUT, Counterexample
from vosti.proofs.explore_report import refute
from vosti.spec import actions, step
from vosti.spec.reference import canonical_kv, kernel_logits, next_sampler, sampled_token
from vosti.spec.state import Page, Request, State, Token, cached_values, history, sequence
from vosti.spec.step import (
    Admit,
    Allocate,
    Attach,
    Compute,
    Emit,
    Evict,
    Fail,
    Finish,
    Observe,
    Preempt,
    Publish,
    Retract,
)


@dataclass(frozen=True)
class Fault:
    """A specification with a fault, and what it breaks."""

    name: str
    guard: Guard
    effect: Effect
    theorem: str | None
    """None if it is no matter of safety: nothing is found."""

    broken: str | None


@cache
def counterexample(fault: Fault) -> Counterexample | None:
    """What is found of a fault."""
    return refute(fault.guard, fault.effect)


def changed_request(s: State, r: Any, **fields: Any) -> State:
    """The state with some fields of a request changed; as it is if there is no such request."""
    if r not in s.requests:
        return s
    return replace(s, requests={**s.requests, r: replace(s.requests[r], **fields)})


def changed_page(s: State, page_id: Any, **fields: Any) -> State:
    """The state with some fields of a page changed; as it is if there is no such page."""
    if page_id not in s.pages:
        return s
    return replace(s, pages={**s.pages, page_id: replace(s.pages[page_id], **fields)})


def guard_fault(name: str, kind: type, weaker: Guard, theorem: str | None, broken: str | None) -> Fault:
    """A fault in one action's guard."""

    def guard(s: State, action: Any) -> bool:
        return weaker(s, action) if type(action) is kind else step.guard(s, action)

    return Fault(name, guard, step.effect, theorem, broken)


def effect_fault(name: str, kind: type, other: Effect, theorem: str | None, broken: str | None) -> Fault:
    """A fault in one action's effect."""

    def effect(s: State, action: Any) -> State:
        return other(s, action) if type(action) is kind else step.effect(s, action)

    return Fault(name, step.guard, effect, theorem, broken)


def asking(disguised: Callable[[State, Any], State]) -> Guard:
    """The guard of an action, asked about another state."""
    return lambda s, action: step.guard(disguised(s, action), action)


def of_request(s: State, action: Any, change: Callable[[Request], dict[str, Any]]) -> State:
    """The state with the action's request changed."""
    request = s.requests.get(action.request)
    return s if request is None else changed_request(s, action.request, **change(request))


# ---------------------------------------------------------------- weaker guards


def without_children(s: State, action: Any) -> State:
    """No page has the action's page as its parent."""
    pages = {p: replace(page, parent=None) if page.parent == action.page else page for p, page in s.pages.items()}
    return replace(s, pages=pages)


def with_the_tokens(s: State, action: Any) -> State:
    """The page holds whatever tokens are asked for, as if a hash decided."""
    request = s.requests.get(action.request)
    if request is None:
        return s
    start = request.cached
    return changed_page(s, action.page, tokens=history(request)[start : start + s.page_size])


def with_the_parent(s: State, action: Any) -> State:
    """The page continues whatever page the table ends with."""
    request = s.requests.get(action.request)
    return s if request is None else changed_page(s, action.page, parent=request.table[-1] if request.table else None)


def with_the_domain(s: State, action: Any) -> State:
    """The page belongs to the request's domain."""
    request = s.requests.get(action.request)
    return s if request is None else changed_page(s, action.page, domain=request.domain)


def with_published_parent(s: State, action: Any) -> State:
    """The page before the block is registered."""
    request = s.requests.get(action.request)
    if request is None or not 0 < action.block < len(request.table):
        return s
    return changed_page(s, request.table[action.block - 1], registered=True)


def attaches_to_the_end(s: State, action: Any) -> bool:
    """Attach also if nothing is left to be computed."""
    return step.guard(of_request(s, action, lambda q: {"output": (*q.output, Token(0))}), action)


def emits_too_early(s: State, action: Emit) -> bool:
    """Emit before the whole history is cached."""
    ready = of_request(s, action, lambda q: {"cached": len(history(q))})
    return actions.emit_ready(ready, action.request, action.record.token) and actions.emits(
        s, action.request, action.record, action.sampler
    )


def emits_any_logits(s: State, action: Emit) -> bool:
    """Emit whatever logits are claimed."""
    if not actions.emit_ready(s, action.request, action.record.token):
        return False
    request = s.requests[action.request]
    drawn = sampled_token(action.record.logits, request.sampler, history(request), len(request.prompt))
    return action.record.token == drawn and action.sampler == next_sampler(request.sampler)


def emits_any_token(s: State, action: Emit) -> bool:
    """Emit whatever token is claimed."""
    return (
        actions.emit_ready(s, action.request, action.record.token)
        and action.record.logits == actions.emitted_logits(s, action.request)
        and action.sampler == next_sampler(s.requests[action.request].sampler)
    )


def emits_non_finite(s: State, action: Emit) -> bool:
    """Emit whether or not the values are finite."""
    return emits_any_logits(s, action) and action.record.logits == actions.emitted_logits(s, action.request)


def observes_drafts(s: State, action: Observe) -> bool:
    """Observe logits beyond the history."""
    request = s.requests.get(action.request)
    if request is None or not 0 <= action.position < request.cached:
        return False
    past = cached_values(s, action.request, action.position + 1)
    return action.logits == kernel_logits(past, history(request)[: action.position + 1])


# ---------------------------------------------------------------- effects that forget something


def keeps_slots(s: State, action: Any) -> State:
    """Retract drops the draft, and none of its slots."""
    return changed_request(s, action.request, draft=())


def keeps_private_pages(s: State, action: Any) -> State:
    """Preempt empties the table, and gives no page back."""
    return replace(step.effect(s, action), pages=s.pages)


def frees_shared_pages(s: State, action: Any) -> State:
    """Whoever leaves takes his registered pages with him."""
    pages = {p: page for p, page in s.pages.items() if action.request not in page.holders}
    return replace(step.effect(s, action), pages=pages)


def starts_the_sampler_over(s: State, action: Any) -> State:
    """Preempt forgets how far the sampler had come."""
    return changed_request(step.effect(s, action), action.request, sampler=GREEDY)


def attaches_without_holding(s: State, action: Any) -> State:
    """Attach does not count as holding."""
    return replace(step.effect(s, action), pages=s.pages)


def publishes_without_parent(s: State, action: Any) -> State:
    """Publish does not note which page comes before."""
    return changed_page(step.effect(s, action), s.requests[action.request].table[action.block], parent=None)


def forgets_the_past(s: State, action: Any) -> State:
    """Compute attends to its own token only."""
    request = s.requests[action.request]
    return actions.written(s, action.request, canonical_kv((sequence(request)[request.cached],)))


def keeps_the_head(s: State, action: Any) -> State:
    """Emit leaves an accepted token in the draft."""
    return changed_request(step.effect(s, action), action.request, draft=s.requests[action.request].draft)


def forgets_the_name(s: State, action: Any) -> State:
    """Admit does not note that the identifier is used."""
    return replace(step.effect(s, action), seen=s.seen)


def keeps_values(s: State, action: Any) -> State:
    """A page that is allocated keeps what its last owner wrote."""
    stale = Page((), tokens(0), (canonical_kv(tokens(0)),), frozenset({action.request}), False, None, ONE)
    after = step.effect(s, action)
    return replace(after, pages={**after.pages, action.page: stale})


FAULTS = (
    guard_fault("evict a parent before its child", Evict, asking(without_children), INVARIANT, "parents_precede"),
    guard_fault(
        "evict a page that is held",
        Evict,
        asking(lambda s, a: changed_page(s, a.page, holders=frozenset())),
        INVARIANT,
        "tables_hold",
    ),
    guard_fault(
        "evict a private page",
        Evict,
        asking(lambda s, a: changed_page(s, a.page, registered=True, holders=frozenset())),
        INVARIANT,
        "tables_hold",
    ),
    guard_fault("attach whatever the tokens", Attach, asking(with_the_tokens), INVARIANT, "tables_map_sequences"),
    guard_fault("attach whatever the parent", Attach, asking(with_the_parent), INVARIANT, "tables_map_sequences"),
    guard_fault("attach whatever the domain", Attach, asking(with_the_domain), INVARIANT, "tables_stay_in_domain"),
    guard_fault(
        "attach a page that is still written",
        Attach,
        asking(lambda s, a: changed_page(with_the_tokens(s, a), a.page, registered=True)),
        INVARIANT,
        "tables_map_sequences",
    ),
    guard_fault("attach to the end of the history", Attach, attaches_to_the_end, None, None),
    guard_fault(
        "publish a page before its parent", Publish, asking(with_published_parent), INVARIANT, "parents_precede"
    ),
    guard_fault(
        "publish a draft",
        Publish,
        asking(lambda s, a: of_request(s, a, lambda q: {"output": q.output + q.draft, "draft": ()})),
        INVARIANT,
        "drafts_are_private",
    ),
    guard_fault(
        "publish before compute",
        Publish,
        asking(lambda s, a: of_request(s, a, lambda q: {"cached": len(history(q))})),
        INVARIANT,
        "pages_are_filled",
    ),
    guard_fault(
        "publish values that are not finite",
        Publish,
        lambda s, a: actions.publish_ready(s, a.request, a.block),
        INVARIANT,
        "registered_are_finite",
    ),
    guard_fault(
        "use an identifier again",
        Admit,
        asking(lambda s, a: replace(s, seen=frozenset())),
        INVARIANT,
        "holders_map",
    ),
    guard_fault(
        "admit an empty prompt",
        Admit,
        lambda s, a: step.guard(s, replace(a, prompt=tokens(0))),
        INVARIANT,
        "cached_in_range",
    ),
    guard_fault(
        "admit at somebody else's rank",
        Admit,
        lambda s, a: step.guard(s, replace(a, arrival=a.arrival + 1)),
        INVARIANT,
        "arrivals_are_unique",
    ),
    guard_fault(
        "emit a token that is not the draft's first",
        Emit,
        lambda s, a: actions.emit_guard(of_request(s, a, lambda q: {"draft": ()}), a.request, a.record, a.sampler),
        INVARIANT,
        "tables_map_sequences",
    ),
    guard_fault("emit before the history is cached", Emit, emits_too_early, DEFINEDNESS, "emit"),
    guard_fault("emit any logits", Emit, emits_any_logits, OUTPUT, "logits_are_canonical"),
    guard_fault("emit any token", Emit, emits_any_token, DETERMINISM, "prefix_comparable"),
    guard_fault("emit after a value that is not finite", Emit, emits_non_finite, DETERMINISM, "ends_alike"),
    guard_fault("observe a draft's logits", Observe, observes_drafts, OUTPUT, "logits_are_canonical"),
    guard_fault(
        "observe any logits",
        Observe,
        lambda s, a: actions.observe_ready(s, a.request, a.position),
        OUTPUT,
        "logits_are_canonical",
    ),
    guard_fault(
        "compute without a slot",
        Compute,
        lambda s, a: a.request in s.requests and s.requests[a.request].cached < len(sequence(s.requests[a.request])),
        DEFINEDNESS,
        "compute",
    ),
    guard_fault(
        "allocate a page that is in use",
        Allocate,
        asking(lambda s, a: replace(s, pages={p: page for p, page in s.pages.items() if p != a.page})),
        INVARIANT,
        "tables_are_injective",
    ),
    guard_fault(
        "allocate a page that is not the pool's",
        Allocate,
        asking(lambda s, a: replace(s, capacity=s.capacity | {a.page})),
        INVARIANT,
        "pages_are_in_pool",
    ),
    guard_fault("fail without a cause", Fail, lambda s, a: a.request in s.requests, DETERMINISM, "ends_alike"),
    guard_fault(
        "preempt in favour of anybody",
        Preempt,
        lambda s, a: a.request in s.requests and a.in_favour_of in s.requests,
        None,
        None,
    ),
    effect_fault("retract keeps the draft's slots", Retract, keeps_slots, INVARIANT, "cached_in_range"),
    effect_fault("preempt gives no page back", Preempt, keeps_private_pages, INVARIANT, "holders_map"),
    effect_fault("finish gives no page back", Finish, keeps_private_pages, INVARIANT, "holders_map"),
    effect_fault("finish frees shared pages", Finish, frees_shared_pages, INVARIANT, "tables_hold"),
    effect_fault("preempt starts the sampler over", Preempt, starts_the_sampler_over, DETERMINISM, "prefix_comparable"),
    effect_fault("attach without holding", Attach, attaches_without_holding, INVARIANT, "tables_hold"),
    effect_fault("publish without a parent", Publish, publishes_without_parent, INVARIANT, "parents_precede"),
    effect_fault("compute from nothing", Compute, forgets_the_past, INVARIANT, "values_are_canonical"),
    effect_fault("emit keeps the draft's head", Emit, keeps_the_head, INVARIANT, "tables_map_sequences"),
    effect_fault("admit forgets the name", Admit, forgets_the_name, INVARIANT, "requests_were_seen"),
    effect_fault("allocate keeps old values", Allocate, keeps_values, INVARIANT, "tables_map_sequences"),
)
"""Each with the theorem that it breaks, and the conjunct or check that says so."""
