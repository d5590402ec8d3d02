"""Definition 2.1: every execution shows, of every request, a prefix of one and the same sequence of records.

The sequence is the reference run of (prompt, sampler₀): with h₀ = prompt, z₀ = sampler₀,

    recordₖ = (Forward(W, hₖ), sample(…, zₖ, hₖ, |prompt|)),    hₖ₊₁ = hₖ + ⟨recordₖ.token⟩,    zₖ₊₁ = next(zₖ)

`Past` is what an observer has noted of an execution so far: what each request brought, the records that it has shown,
and which requests failed. The statements of `CONJUNCTS` are shown to hold initially and to be preserved by every
action, in company with Inv. They say that a live request has the history and sampler state of the reference run after
as many records as it has shown, that every view is a prefix of the reference run, that no record was drawn where the
run is blocked by a value that is not finite, and that a request that has failed stopped exactly there.

Two executions, with different schedules, page sizes and requests, then agree: `agree` is Definition 2.1 for a request
of each, errors included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from vosti.proofs.book import Book, Replaced, Transition, state, transitions
from vosti.proofs.canonical_output import emits_forward, reads_canonical, reads_history
from vosti.refinement.smt.obligation import Obligation
from vosti.refinement.smt.terms import Term
from vosti.refinement.smt.values import Value
from vosti.spec import step
from vosti.spec.determinism import Admission, Record, View, prefix_comparable
from vosti.spec.reference import (
    canonical_kv,
    finite_kv,
    finite_logits,
    forward,
    next_sampler,
    opaque,
    reference_record,
    reference_run,
)
from vosti.spec.state import Domain, PageId, RequestId, Sampler, State, Token, history, initial

# ---------------------------------------------------------------- the reference run, by index


@opaque
def reference_output(prompt: tuple[Token, ...], sampler: Sampler, k: int) -> tuple[Token, ...]:
    """The tokens of the cold machine's first k records."""
    return tuple(record.token for record in reference_run(prompt, sampler, k))


@opaque
def reference_sampler(prompt: tuple[Token, ...], sampler: Sampler, k: int) -> Sampler:
    """The cold machine's sampler state after k records."""
    return sampler if k <= 0 else next_sampler(reference_sampler(prompt, sampler, k - 1))


def record_at(prompt: tuple[Token, ...], sampler: Sampler, k: int) -> Record:
    """Record k of the reference run."""
    return reference_record(
        prompt + reference_output(prompt, sampler, k), reference_sampler(prompt, sampler, k), len(prompt)
    )


def run_begins(prompt: tuple[Token, ...], sampler: Sampler) -> bool:
    """The defining equations of the reference run, at its start."""
    return reference_output(prompt, sampler, 0) == () and reference_sampler(prompt, sampler, 0) == sampler


def run_goes_on(prompt: tuple[Token, ...], sampler: Sampler, k: int) -> bool:
    """The defining equations of the reference run, from k ≥ 0 records to k + 1."""
    return k < 0 or (
        reference_output(prompt, sampler, k + 1)
        == reference_output(prompt, sampler, k) + (record_at(prompt, sampler, k).token,)
        and reference_sampler(prompt, sampler, k + 1) == next_sampler(reference_sampler(prompt, sampler, k))
    )


@opaque
def blocked(tokens: tuple[Token, ...]) -> bool:
    """After this history no record is drawn: a value of it, or the row of logits after it, is not finite."""
    return any(not finite_kv(canonical_kv(tokens[: p + 1])) for p in range(len(tokens))) or not finite_logits(
        forward(tokens)
    )


def blocked_at(prompt: tuple[Token, ...], sampler: Sampler, k: int) -> bool:
    """The reference run is blocked before its record k."""
    return blocked(prompt + reference_output(prompt, sampler, k))


# ---------------------------------------------------------------- what an observer notes


@dataclass(frozen=True)
class Past:
    """An execution so far, as an observer sees it."""

    admitted: Mapping[RequestId, Admission]
    views: Mapping[RequestId, View]
    failed: frozenset[RequestId]


def nothing_yet() -> Past:
    """Before the first action."""
    return Past(admitted={}, views={}, failed=frozenset())


def after_admit(
    past: Past, r: RequestId, prompt: tuple[Token, ...], sampler: Sampler, domain: Domain, arrival: int
) -> Past:
    """A request comes, with an empty view."""
    return replace(
        past,
        admitted={**past.admitted, r: Admission(prompt=prompt, sampler=sampler)},
        views={**past.views, r: ()},
    )


def after_emit(past: Past, r: RequestId, record: Record, sampler: Sampler) -> Past:
    """A view grows by a record."""
    return replace(past, views={**past.views, r: past.views[r] + (record,)})


def after_fail(past: Past, r: RequestId) -> Past:
    """An error is shown."""
    return replace(past, failed=past.failed | {r})


OBSERVED: Mapping[type, Callable[..., Past]] = {step.Admit: after_admit, step.Emit: after_emit, step.Fail: after_fail}
"""What the observer notes of an action; of every other, nothing."""


# ---------------------------------------------------------------- what is true of every execution


def life_follows(s: State, past: Past, r: RequestId) -> bool:
    """A live request is where the reference run is after as many records."""
    request = s.requests[r]
    return (
        r in past.admitted
        and r in past.views
        and r not in past.failed
        and request.prompt == past.admitted[r].prompt
        and len(past.views[r]) == len(request.output)
        and request.output == reference_output(request.prompt, past.admitted[r].sampler, len(past.views[r]))
        and request.sampler == reference_sampler(request.prompt, past.admitted[r].sampler, len(past.views[r]))
    )


def lives_follow(s: State, past: Past) -> bool:
    """Every live request follows the reference run."""
    return all(life_follows(s, past, r) for r in s.requests)


def noted_were_seen(s: State, past: Past) -> bool:
    """What is noted is of requests that were seen, each with what it brought and its view."""
    return (
        all(r in s.seen and r in past.views for r in past.admitted)
        and all(r in past.admitted for r in past.views)
        and all(r in past.views for r in past.failed)
    )


def view_follows(past: Past, r: RequestId, k: int) -> bool:
    """Record k of a view is record k of the reference run, which is not blocked there."""
    admission = past.admitted[r]
    return past.views[r][k] == record_at(admission.prompt, admission.sampler, k) and not blocked_at(
        admission.prompt, admission.sampler, k
    )


def views_follow(s: State, past: Past) -> bool:
    """Every view is a prefix of its request's reference run, short of where that is blocked."""
    return all(view_follows(past, r, k) for r in past.admitted for k in range(len(past.views[r])))


def failed_are_blocked(s: State, past: Past) -> bool:
    """A request that has failed stopped exactly where the reference run is blocked."""
    return all(blocked_at(past.admitted[r].prompt, past.admitted[r].sampler, len(past.views[r])) for r in past.failed)


def emit_is_finite(s: State, r: RequestId, p: int) -> bool:
    """Where a request emits, the canonical values of its history are finite."""
    tokens = history(s.requests[r])
    return not 0 <= p < len(tokens) or finite_kv(canonical_kv(tokens[: p + 1]))


def history_is_finite(s: State, r: RequestId) -> bool:
    """The same, of all positions."""
    tokens = history(s.requests[r])
    return all(finite_kv(canonical_kv(tokens[: p + 1])) for p in range(len(tokens)))


def is_open(s: State, r: RequestId) -> bool:
    """A record may be drawn after a request's history."""
    return not blocked(history(s.requests[r]))


def is_blocked(s: State, r: RequestId) -> bool:
    """No record may be drawn after a request's history."""
    return blocked(history(s.requests[r]))


CONJUNCTS = (lives_follow, noted_were_seen, views_follow, failed_are_blocked)


def agree(first: Past, r1: RequestId, second: Past, r2: RequestId) -> bool:
    """Definition 2.1 for a request of each execution: equal admissions, so comparable views that end alike."""
    if r1 not in first.admitted or r2 not in second.admitted or first.admitted[r1] != second.admitted[r2]:
        return True
    return (
        prefix_comparable(first.views[r1], second.views[r2])
        and (r1 not in first.failed or len(second.views[r2]) <= len(first.views[r1]))
        and (r2 not in second.failed or len(first.views[r1]) <= len(second.views[r2]))
    )


# ---------------------------------------------------------------- obligations


def acting_goes_on(past: Past, r: RequestId) -> bool:
    """The equations for the request's next record."""
    return (
        r not in past.admitted
        or r not in past.views
        or run_goes_on(past.admitted[r].prompt, past.admitted[r].sampler, len(past.views[r]))
    )


def history_of(s: State, r: RequestId) -> tuple[Token, ...]:
    """The history of a live request."""
    return history(s.requests[r])


def lemmas(book: Book, s: Value, past: Value, action: Transition, have: list[Term]) -> list[Term]:
    """What is known of an action besides its guard: equations of the reference run, and whether it is blocked."""
    match action.kind:
        case step.Admit:
            return [book.term(run_begins, action.arguments["prompt"], action.arguments["sampler"])]
        case step.Emit:
            r, p = action.arguments["r"], book.symbol("p", int)
            book.holds("emit_is_finite", [*have, book.term(reads_canonical, s, r, p)], emit_is_finite, s, r, p)
            meaning = book.definition("emit", blocked, book.run(history_of, s, r).value)
            logits = book.term(emits_forward, s, *action.arguments.values())
            finite = [*have, book.term(history_is_finite, s, r), logits, meaning]
            book.holds("emit is not blocked", finite, is_open, s, r)
            return [book.term(is_open, s, r), logits, book.term(acting_goes_on, past, r)]
        case step.Fail:
            r = action.arguments["r"]
            meaning = book.definition("fail", blocked, book.run(history_of, s, r).value)
            book.holds("fail is blocked", [*have, book.term(reads_history, s, r), meaning], is_blocked, s, r)
            return [book.term(is_blocked, s, r)]
        case _:
            return []


def obligations(replaced: Replaced | None = None) -> list[Obligation]:
    """Nothing noted yet; each action; then two executions."""
    book = Book("determinism", replaced)
    start = book.run(initial, book.symbol("capacity", frozenset[PageId]), book.symbol("page_size", int)).value
    none = book.run(nothing_yet).value
    for statement in CONJUNCTS:
        book.holds(f"initial: {statement.__name__}", [], statement, start, none)
    s, past = state(book), book.symbol("past", Past)
    inv = book.invariant(s)
    follows = [book.term(statement, s, past) for statement in CONJUNCTS]
    for number, statement in enumerate(CONJUNCTS):
        book.defined(statement.__name__, [*inv, *follows[:number]], book.run(statement, s, past).needs)
    for action in transitions(book, s):
        have = [*inv, *follows, action.guard.term]
        have += lemmas(book, s, past, action, [*inv, action.guard.term])
        noted = past
        if action.kind in OBSERVED:
            compiled = book.run(OBSERVED[action.kind], past, *action.arguments.values())
            book.defined(f"{action.name}: what is noted", have, compiled.needs)
            noted = compiled.value
        for statement in CONJUNCTS:
            book.prove(f"{action.name}: {statement.__name__}", have, book.term(statement, action.after.value, noted))
    t, other = state(book, "t"), book.symbol("other_past", Past)
    both = [*follows, *(book.term(statement, t, other) for statement in CONJUNCTS)]
    r1, r2 = book.symbol("r1", RequestId), book.symbol("r2", RequestId)
    book.holds("two executions agree", both, agree, past, r1, other, r2)
    return book.obligations
