"""How a theorem's obligations are put together: symbolic states, what is assumed of them, what is to follow."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from vosti.refinement.smt.compiler import Compiled, Compiler
from vosti.refinement.smt.obligation import Obligation, obligation
from vosti.refinement.smt.terms import Term, conjuncts
from vosti.refinement.smt.values import Value, type_of
from vosti.spec import invariants, step
from vosti.spec.state import State

Replaced = Mapping[str, ast.FunctionDef]
"""Other texts for some functions, by qualified name: how a mutant is tried."""


class Book:
    """The obligations of one theorem. Statements are Python functions, compiled like the specification itself."""

    def __init__(self, theorem: str, replaced: Replaced | None = None):
        self.theorem = theorem
        self.compiler = Compiler(replaced)
        self.obligations: list[Obligation] = []

    def symbol(self, name: str, annotation: object) -> Value:
        """A value of which nothing is known."""
        return self.compiler.symbolic(type_of(annotation), name)

    def run(self, f: Callable[..., object], *args: Value) -> Compiled:
        """The value of a function, and what it needs."""
        return self.compiler.run(f, *args)

    def term(self, f: Callable[..., object], *args: Value) -> Term:
        """The truth of a predicate. That it is defined is another obligation's matter."""
        return self.compiler.run(f, *args).term

    def prove(self, part: str, assumptions: Iterable[Term], goal: Term) -> None:
        """The assumptions imply the goal. Of a conjunction, each part is an obligation, those before it assumed."""
        assumptions, parts = list(assumptions), list(conjuncts([goal])) or [goal]
        for number, formula in enumerate(parts, start=1):
            name = f"{self.theorem}/{part}" + (f" ({number} of {len(parts)})" if len(parts) > 1 else "")
            self.obligations.append(self.stated(name, assumptions, formula))
            assumptions.append(formula)

    def stated(self, name: str, assumptions: Iterable[Term], goal: Term) -> Obligation:
        """One obligation, with what is known of all that it mentions."""
        return obligation(name, assumptions, goal, self.compiler.definitions)

    def defined(self, part: str, assumptions: Iterable[Term], needs: Iterable[Term]) -> None:
        """What a text needs holds: one obligation each, those before it assumed."""
        assumptions = list(assumptions)
        for number, need in enumerate(needs, start=1):
            self.prove(f"{part} is defined, {number}", assumptions, need)
            assumptions.append(need)

    def holds(self, part: str, assumptions: Iterable[Term], statement: Callable[..., object], *args: Value) -> None:
        """The assumptions imply that a statement is defined, and true."""
        assumptions = list(assumptions)
        compiled = self.run(statement, *args)
        self.defined(part, assumptions, compiled.needs)
        self.prove(part, assumptions, compiled.term)

    def definition(self, part: str, f: Callable[..., object], *args: Value) -> Term:
        """The definition of an opaque function, for these arguments; its body must be defined."""
        compiled = self.compiler.definition(f, *args)
        self.defined(f"{part}: {f.__name__}", [], compiled.needs)
        return compiled.term

    def invariant(self, s: Value) -> list[Term]:
        """Inv of a state."""
        return [self.term(conjunct.whole, s) for conjunct in invariants.CONJUNCTS]


@dataclass(frozen=True)
class Transition:
    """One action on a symbolic state."""

    kind: type
    """The action's class in `vosti.spec.step`."""

    arguments: Mapping[str, Value]
    before: Value
    guard: Compiled
    after: Compiled

    @property
    def name(self) -> str:
        """The action's name."""
        return step.RULES[self.kind].effect.__name__

    @property
    def request(self) -> Value | None:
        """Whose action it is."""
        return self.arguments.get("r")


def transitions(book: Book, s: Value, suffix: str = "") -> Iterator[Transition]:
    """Every action of the specification, on one state. The suffix tells the arguments of two runs apart."""
    for kind in step.RULES:
        yield transition(book, s, kind, suffix)


def transition(book: Book, s: Value, kind: type, suffix: str = "") -> Transition:
    """One action of the specification, on one state."""
    rule = step.RULES[kind]
    parameters = book.compiler.parameters(rule.guard)[1:]
    arguments = {name: book.compiler.symbolic(ty, name + suffix) for name, ty in parameters}
    values = tuple(arguments.values())
    return Transition(kind, arguments, s, book.run(rule.guard, s, *values), book.run(rule.effect, s, *values))


def state(book: Book, name: str = "s") -> Value:
    """A state of any size of which nothing is known."""
    return book.symbol(name, State)
