"""Inv is inductive.

The initial state satisfies Inv, and every action preserves it:

    Inv(initial)        and        Inv(s) ∧ guard(s, a) ⟹ Inv(effect(s, a))

for states of any size. There is one obligation for each action and conjunct. So Inv holds in every reachable state; it
is what the other theorems assume. Of what a compute writes, the lemma `computes_canonical` is used, which
`vosti.proofs.canonical_output` proves of any state that satisfies Inv.
"""

from __future__ import annotations

from vosti.proofs.book import Book, Replaced, state, transitions
from vosti.proofs.canonical_output import computes_canonical
from vosti.refinement.smt.obligation import Obligation
from vosti.spec.invariants import CONJUNCTS
from vosti.spec.state import PageId, initial
from vosti.spec.step import Compute


def positive(page_size: int) -> bool:
    """What an engine owes at its start."""
    return page_size >= 1


def obligations(replaced: Replaced | None = None) -> list[Obligation]:
    """The initial state, then each action."""
    book = Book("inductive", replaced)
    capacity, page_size = book.symbol("capacity", frozenset[PageId]), book.symbol("page_size", int)
    start = book.run(initial, capacity, page_size)
    for conjunct in CONJUNCTS:
        book.prove(
            f"initial: {conjunct.name}", [book.term(positive, page_size)], book.term(conjunct.whole, start.value)
        )
    s = state(book)
    assumed = book.invariant(s)
    for action in transitions(book, s):
        have = [*assumed, action.guard.term]
        if action.kind is Compute:
            have.append(book.term(computes_canonical, s, *action.arguments.values()))
        for conjunct in CONJUNCTS:
            book.prove(f"{action.name}: {conjunct.name}", have, book.term(conjunct.whole, action.after.value))
    return book.obligations
