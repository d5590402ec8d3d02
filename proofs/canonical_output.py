"""Theorem 4.1: what an engine step emits is a function of the request's history.

In a state s that satisfies Inv, for an emit of record (ℓ, y) by request r, with the sampler state z′ that it leaves:

    ℓ = Forward(W, history(r)),    y = sample(ℓ, r.sampler, history(r), |prompt|),    z′ = next(r.sampler)

and for an observe of logits ℓ at position p:    ℓ = Forward(W, history(r)[: p + 1]).

The lemma behind all of it is that the values that a request reads through its page table are canonical:

    ∀ p < cached :  E.kv[r.slot(p)] = f_KV(W, history + draft, p)

so that the kernel contract gives a canonical value for the next position, whatever is computed beside it.
"""

from __future__ import annotations

from vosti.proofs.book import Book, Replaced, state, transition
from vosti.refinement.smt.obligation import Obligation
from vosti.spec.determinism import Record
from vosti.spec.reference import canonical_kv, forward, kernel_kv, next_sampler, reference_record
from vosti.spec.state import Logits, RequestId, Sampler, State, cached_value, cached_values, history, sequence
from vosti.spec.step import Compute, Emit, Observe


def reads_canonical(s: State, r: RequestId, p: int) -> bool:
    """What r reads at a cached position is the canonical value."""
    return (
        r not in s.requests
        or not 0 <= p < s.requests[r].cached
        or cached_value(s, r, p) == canonical_kv(sequence(s.requests[r])[: p + 1])
    )


def reads_history(s: State, r: RequestId) -> bool:
    """The same, of all cached positions of the history: ∀ p < min(cached, |history|)."""
    return r not in s.requests or all(
        cached_value(s, r, p) == canonical_kv(history(s.requests[r])[: p + 1])
        for p in range(min(s.requests[r].cached, len(history(s.requests[r]))))
    )


def computes_canonical(s: State, r: RequestId) -> bool:
    """What a compute writes is the canonical value of its position."""
    request = s.requests[r]
    prefix = sequence(request)[: request.cached + 1]
    return kernel_kv(cached_values(s, r, request.cached), prefix) == canonical_kv(prefix)


def emits_forward(s: State, r: RequestId, record: Record, sampler: Sampler) -> bool:
    """An emitted record is the reference machine's, and so is the sampler state."""
    request = s.requests[r]
    return (
        record.logits == forward(history(request))
        and record == reference_record(history(request), request.sampler, len(request.prompt))
        and sampler == next_sampler(request.sampler)
    )


def observes_forward(s: State, r: RequestId, position: int, logits: Logits) -> bool:
    """Observed logits are the reference machine's."""
    return logits == forward(history(s.requests[r])[: position + 1])


def obligations(replaced: Replaced | None = None) -> list[Obligation]:
    """The lemmas, and the theorem at emit and at observe."""
    book = Book("canonical_output", replaced)
    s = state(book)
    assumed = book.invariant(s)
    r = book.symbol("r", RequestId)
    book.holds("reads_canonical", assumed, reads_canonical, s, r, book.symbol("p", int))
    book.holds("reads_history", assumed, reads_history, s, r)
    for kind, statement in ((Compute, computes_canonical), (Emit, emits_forward), (Observe, observes_forward)):
        action = transition(book, s, kind)
        book.holds(action.name, [*assumed, action.guard.term], statement, s, *action.arguments.values())
    return book.obligations
