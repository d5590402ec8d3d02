"""The engine's page pool refines the specification.

The functions of `vosti.impl.pool` that run are the ones that are proved. For every transition X that stands for an
action A (`SIMULATIONS`), for every pool and state of any size, with any page size:

    Inv(s) ∧ agrees(pool, s) ∧ the pool's invariants ∧ X_owed(s, ...) ∧ X_guard(pool, ...)
        ⟹  A_guard(s, ...)                            what the pool allows, the specification allows
          ∧  agrees(X(pool, ...), A(s, ...))           and both end up in the same place
          ∧  the pool's invariants of X(pool, ...)     reference counts, free and idle pages, the index: all exact
          ∧  nothing raises                            not the guard, not the transition

The last two need the pool's invariants alone: they hold whatever a caller says. `remove` is proved for finish, for
cancel and for fail. Actions that are none of the pool's business (`ELSEWHERE`) leave a pool and a state that agree in
agreement. The empty pool agrees with the initial state. Inv of the state afterwards is `vosti.proofs.inductive`; so
every run of the pool, whose caller keeps his word, is a run of the specification.

A reference count is the number of holders, a page's `children` the number of pages whose parent it is: numbers of
elements of finite sets, about which little is known beyond what one element more does (`vosti.proofs.axioms` proves
it). Transitions change such a set by at most one element, and `focus` names it. What the counts say of members is
proved first, and used instead of them (`CONSEQUENCES`, `LEMMAS`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vosti.impl import pool as engine
from vosti.impl.pool_invariants import INVARIANTS, children_count, refcounts_count
from vosti.impl.pool_state import Pool, empty
from vosti.proofs import pool_relation as relation
from vosti.proofs.book import Book, Replaced, state
from vosti.refinement.smt.compiler import Compiled
from vosti.refinement.smt.obligation import Obligation
from vosti.refinement.smt.terms import FALSE, Term, conj, neg
from vosti.refinement.smt.theory import FiniteSets
from vosti.refinement.smt.values import NamedType, Scalar, Value
from vosti.spec import actions
from vosti.spec.state import PageId, RequestId, initial

Function = Callable[..., object]
Arguments = Mapping[str, Value]


@dataclass(frozen=True)
class Simulation:
    """A transition of the pool, and the action that it stands for. Parameters of one name have one value."""

    transition: str
    action: str
    owed: Function | None
    """What the caller owes, if anything."""


SIMULATIONS = (
    Simulation("admit", "admit", actions.admit_guard),
    Simulation("attach", "attach", relation.attach_owed),
    Simulation("allocate", "allocate", None),
    Simulation("compute", "compute", relation.compute_owed),
    Simulation("retract", "retract", relation.retract_owed),
    Simulation("publish", "publish", relation.publish_owed),
    Simulation("evict", "evict", None),
    Simulation("preempt", "preempt", relation.preempt_owed),
    Simulation("remove", "finish", actions.finish_guard),
    Simulation("remove", "cancel", None),
    Simulation("remove", "fail", actions.fail_guard),
)
"""Every transition that is no composite of others. The identifier of an admitted request is new: that is owed."""

PROVED_ALONE = tuple({simulation.transition: simulation for simulation in SIMULATIONS}.values())
"""One simulation of each transition."""

COUNTS: tuple[Function, ...] = (refcounts_count, children_count)
"""The invariants that count elements of sets."""

CONSEQUENCES: tuple[Function, ...] = (relation.held_are_counted, relation.private_are_alone)
"""What the counts say of members: they follow from the invariants."""

LEMMAS: Mapping[str, Function] = {"allocate": relation.free_is_unheld, "evict": relation.leaf_is_childless}
"""What helps with a transition; proved on its own."""

ELSEWHERE = ("propose", "emit", "observe")
"""The actions that are none of the pool's business."""

NO_HINTS: Mapping[Function, Term] = {}


class PoolBook(Book):
    """Obligations about a pool and a state that agree."""

    def __init__(self, theorem: str, replaced: Replaced | None = None):
        super().__init__(theorem, replaced)
        self.pool, self.s = self.symbol("pool", Pool), state(self)

    def related(self, pool: Value, s: Value, *counts: Function) -> list[Term]:
        """Inv, agreement, and what `sound` gives."""
        return [*self.invariant(s), *(self.term(f, pool, s) for f in relation.RELATION), *self.sound(pool, *counts)]

    def sound(self, pool: Value, *counts: Function) -> list[Term]:
        """The pool's invariants and what follows from them; of `COUNTS` those that are named.

        Most proofs need no count, but what it says of members, and are found sooner without.
        """
        kept = [f for f in (*INVARIANTS, *CONSEQUENCES) if f not in COUNTS or f in counts]
        return [self.term(f, pool) for f in kept]

    def proves_agreement(self, part: str, assumptions: list[Term], pool: Value, s: Value) -> None:
        """Each part of agreement."""
        for f in relation.RELATION:
            self.prove(f"{part} {f.__name__}", assumptions, self.term(f, pool, s))

    def proves_invariants(
        self, part: str, have: list[Term], before: Value, after: Value, hints: Mapping[Function, Term] = NO_HINTS
    ) -> None:
        """Each invariant of the pool after, from those of the pool before, and a hint where there is one."""
        for f in INVARIANTS:
            hint = [hints[f]] if f in hints else []
            self.prove(f"{part} {f.__name__}", [*self.sound(before, f), *have, *hint], self.term(f, after))

    def arguments(self, *functions: Function) -> dict[str, Value]:
        """A value of which nothing is known for each parameter of the functions after the first, by its name."""
        parameters = [p for f in functions for p in self.compiler.parameters(f)[1:]]
        return {name: self.compiler.symbolic(ty, name) for name, ty in parameters}

    def of(self, f: Function, subject: Value, arguments: Arguments) -> Compiled:
        """A function of a pool or a state, and of those arguments that it takes."""
        return self.run(f, subject, *(arguments[name] for name, _ in self.compiler.parameters(f)[1:]))

    def focus(self, *values: Value) -> list[Term]:
        """Names the elements by which the sets that are counted may have grown or shrunk."""
        scalars = [v for v in values if isinstance(v, Scalar) and isinstance(v.type, NamedType)]
        return [FiniteSets(v.term.sort).focus(v.term) for v in scalars if v.term.sort in ("RequestId", "PageId")]


def obligations(replaced: Replaced | None = None) -> list[Obligation]:
    """The relation, the beginning, each transition, and what is none of the pool's business."""
    book = PoolBook("pool_refinement", replaced)
    relation_is_sound(book)
    beginning(book)
    for simulation in SIMULATIONS:
        simulates(book, simulation)
    for action in ELSEWHERE:
        changes_nothing(book, action)
    return book.obligations


def relation_is_sound(book: PoolBook) -> None:
    """Agreement and the invariants are defined; the holders of a page are those whose table contains it."""
    have = book.invariant(book.s)
    for part in relation.RELATION:
        compiled = book.run(part, book.pool, book.s)
        book.defined(part.__name__, have, compiled.needs)
        have.append(compiled.term)
    have = []
    for invariant in INVARIANTS:
        compiled = book.run(invariant, book.pool)
        book.defined(invariant.__name__, have, compiled.needs)
        have.append(compiled.term)
    r, page_id = book.symbol("r", RequestId), book.symbol("page_id", PageId)
    book.holds("private_is_uncounted", [*have, *book.focus(r)], relation.private_is_uncounted, book.pool, r, page_id)
    book.holds("held_are_counted", have, relation.held_are_counted, book.pool)
    alone = book.run(relation.private_are_alone, book.pool)
    book.defined("private_are_alone", have, alone.needs)
    book.prove("private_are_alone", [book.term(relation.private_are_uncounted, book.pool)], alone.term)
    book.holds("holders_agree", book.related(book.pool, book.s), relation.holders_agree, book.pool, book.s)


def positive(page_size: int, key_space: int) -> bool:
    """What an engine owes at its start."""
    return page_size >= 1 and key_space >= 1


def beginning(book: PoolBook) -> None:
    """The empty pool agrees with the initial state."""
    capacity, size, keys = (
        book.symbol("capacity", frozenset[PageId]),
        book.symbol("page_size", int),
        book.symbol("key_space", int),
    )
    pool, s = book.run(empty, capacity, size, keys), book.run(initial, capacity, size)
    have = [book.term(positive, size, keys)]
    book.defined("empty", have, pool.needs)
    book.proves_agreement("empty:", have, pool.value, s.value)
    for invariant in INVARIANTS:
        book.prove(f"empty: {invariant.__name__}", have, book.term(invariant, pool.value))


def simulates(book: PoolBook, simulation: Simulation) -> None:
    """One transition: nothing raises and the invariants stay, whoever calls it; then, if its caller keeps his word,
    the action may happen, and agreement stays.
    """
    name = simulation.action
    guard_of, effect_of = getattr(engine, simulation.transition + "_guard"), getattr(engine, simulation.transition)
    allowed_of, action_of = getattr(actions, simulation.action + "_guard"), getattr(actions, simulation.action)
    owed_of = [simulation.owed] if simulation.owed else []
    arguments = book.arguments(guard_of, allowed_of, *owed_of)
    guard, after = book.of(guard_of, book.pool, arguments), book.of(effect_of, book.pool, arguments)
    focus = book.focus(*arguments.values())
    if "block" in arguments:
        focus += book.focus(book.of(relation.page_of_block, book.pool, arguments).value)
    sound = book.sound(book.pool)
    lemma_of = LEMMAS.get(simulation.transition)
    lemma = [book.of(lemma_of, book.pool, arguments).term] if lemma_of else []
    if simulation in PROVED_ALONE:
        if lemma_of:
            counted = book.sound(book.pool, *COUNTS)
            book.holds(lemma_of.__name__, counted, lemma_of, book.pool, arguments["page_id"])
        book.defined(f"{simulation.transition}_guard", sound, guard.needs)
        book.defined(simulation.transition, [*sound, guard.term], after.needs)
        book.proves_invariants(f"{simulation.transition}:", [*lemma, guard.term, *focus], book.pool, after.value)
    have = [*book.related(book.pool, book.s), *lemma]
    for owed in (book.of(f, book.s, arguments) for f in owed_of):
        book.defined(f"{name}, owed", book.invariant(book.s), owed.needs)
        have.append(owed.term)
    have.append(guard.term)
    book.prove(f"{name}: allowed", have, conditions(book.of(allowed_of, book.s, arguments).term))
    book.proves_agreement(f"{name}:", have, after.value, book.of(action_of, book.s, arguments).value)


def conditions(guard: Term) -> Term:
    """A guard as a conjunction, also where it begins with `if not c: return False`."""
    if guard.op == "and":
        return conj(*map(conditions, guard.args))
    if guard.op == "ite" and guard.args[1] is FALSE:
        return conj(neg(guard.args[0]), conditions(guard.args[2]))
    return guard


def changes_nothing(book: PoolBook, action: str) -> None:
    """One action that leaves the pool as it is."""
    guard_of, effect_of = getattr(actions, action + "_guard"), getattr(actions, action)
    arguments = book.arguments(guard_of)
    have = [*book.related(book.pool, book.s), book.of(guard_of, book.s, arguments).term]
    book.proves_agreement(f"{action}:", have, book.pool, book.of(effect_of, book.s, arguments).value)
