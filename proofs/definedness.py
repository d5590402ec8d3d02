"""The specification never raises.

In a state that satisfies Inv every guard is defined, and where a guard holds, its effect is. A conjunct of Inv is
defined wherever those listed before it hold. A row's predicates, likewise, are defined where those before them hold of
all rows. Defined means: every key looked up is there, every index and slice lies within range, every divisor is
positive. How many pages a row reads is a matter of rounding up: that is the lemma `ceiling`, and `vosti.proofs.axioms`
proves it.
"""

from __future__ import annotations

from vosti.proofs.book import Book, Replaced, state, transitions
from vosti.refinement.smt.obligation import Obligation
from vosti.refinement.smt.terms import Term
from vosti.spec.invariants import CONJUNCTS
from vosti.spec.rows import Rows, forward_ok
from vosti.spec.state import State


def ceiling(n: int, page_size: int) -> bool:
    """A lemma of arithmetic: n ≥ 1 slots lie in (n - 1) // page_size + 1 pages, and none in none."""
    return page_size < 1 or n < 0 or (n + page_size - 1) // page_size == (0 if n == 0 else (n - 1) // page_size + 1)


def ceilings(s: State, rows: Rows) -> bool:
    """The lemma, of each row's readable slots."""
    return all(ceiling(row.readable, s.page_size) for row in rows)


def obligations(replaced: Replaced | None = None) -> list[Obligation]:
    """Conjuncts, guards, effects, and the forward's premises."""
    book = Book("definedness", replaced)
    s = state(book)
    assumed: list[Term] = []
    for conjunct in CONJUNCTS:
        compiled = book.run(conjunct.whole, s)
        book.defined(conjunct.name, assumed, compiled.needs)
        assumed.append(compiled.term)
    for action in transitions(book, s):
        book.defined(f"{action.name}_guard", assumed, action.guard.needs)
        book.defined(action.name, [*assumed, action.guard.term], action.after.needs)
    rows = book.symbol("rows", Rows)
    with_lemma = [*assumed, book.term(ceilings, s, rows)]
    book.defined("forward_ok", with_lemma, book.run(forward_ok, s, rows).needs)
    return book.obligations
