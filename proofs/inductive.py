"""Inv is inductive.

The initial state satisfies Inv, and every action preserves it:

    Inv(initial)        and        Inv(s) ∧ guard(s, a) ⟹ Inv(effect(s, a))

for states of any size. There is one obligation for each action and conjunct. So Inv holds in every reachable state; it
is what the other theorems assume.
"""

from __future__ import annotations

from vosti.proofs.book import Book, Replaced, state, transitions
from vosti.refinement.smt.obligation import Obligation
from vosti.spec.invariants import CONJUNCTS
from vosti.spec.state import PageId, initial


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
        for conjunct in CONJUNCTS:
            goal = book.term(conjunct.whole, action.after.value)
            book.prove(f"{action.name}: {conjunct.name}", [*assumed, action.guard.term], goal)
    return book.obligations
