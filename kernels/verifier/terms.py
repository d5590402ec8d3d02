"""Numbers as terms: which operations, in which order, on which elements of memory.

A term says how a floating-point number is made; nothing is known of its value but what a rule says
(`vosti.kernels.verifier.rules`). Integers that depend on numbers (flags) are terms too, and so are *words*: integers of
which a contract says that their arithmetic wraps around on purpose, whatever bitwise operations yield, and what is made
of words. All other integers and conditions are exact (`vosti.kernels.verifier.integers`). Binders are Python functions
of an index, so that nothing is ever renamed: to compare two of them, both are applied to one fresh index. Every term
that stands for an operation of a kernel knows it, for messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from vosti.kernels.verifier.integers import Cond, Int, Symbolic, symbol
from vosti.kernels.verifier.ir import Op, float_value

Index: TypeAlias = tuple[Int, ...]
"""A place in a tensor."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Term:
    """A number of some element type."""

    element: str
    op: Op | None = None
    """The operation of the kernel that it stands for; None in a row program."""

    def __str__(self) -> str:
        return shown(self)


@dataclass(frozen=True, eq=False, slots=True)
class Constant(Term):
    """A number with this bit pattern."""

    bits: int


@dataclass(frozen=True, eq=False, slots=True)
class Load(Term):
    """An element of a buffer, as it was before the launch."""

    buffer: str
    offset: Int


@dataclass(frozen=True, eq=False, slots=True)
class Argument(Term):
    """A number given to the launch."""

    name: str


@dataclass(frozen=True, eq=False, slots=True)
class Apply(Term):
    """An operation on single numbers, rounded once; also a conversion, and a function of a library."""

    name: str
    arguments: tuple[Term, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Whole(Term):
    """An exact integer where a term is expected."""

    value: Int


@dataclass(frozen=True, eq=False, slots=True)
class Truth(Term):
    """A condition as an integer: 1 or 0."""

    condition: Condition


@dataclass(frozen=True, eq=False, slots=True)
class Select(Term):
    """One of two numbers."""

    condition: Condition
    yes: Term
    no: Term


@dataclass(frozen=True, eq=False, slots=True)
class Chain(Term):
    """start + Σ left(k) · right(k) for k from 0 to length − 1: ascending groups of k, products added in one chain."""

    length: Int
    left: Callable[[Int], Term]
    right: Callable[[Int], Term]
    start: Term
    elements: tuple[str, str, str]
    """Of the two factors and of the sum."""

    finite: Callable[[Int], Finite] | None = None
    """In a row program: what the contract says of the right factor where the left one is a masked zero."""


@dataclass(frozen=True, slots=True)
class Finite:
    """A premise: the element of this buffer at this offset is finite if the condition holds."""

    when: Cond
    buffer: str
    offset: Int


@dataclass(frozen=True, eq=False, slots=True)
class Reduce(Term):
    """One number from `length` lanes by an operation of two, in an order that is not known."""

    name: str
    length: int
    body: Callable[[Int], Term]


@dataclass(frozen=True, eq=False, slots=True)
class Sum(Term):
    """Σ body(k) for k from 0 to length − 1, of words: modulo 2 to the number of their bits."""

    length: Int
    body: Callable[[Int], Term]


class Fold(Protocol):
    """A loop. Its state is made of cells, each named by a number and a place."""

    @property
    def name(self) -> str:
        """Of its variable."""

    @property
    def low(self) -> Int:
        """The variable's first value."""

    @property
    def high(self) -> Int:
        """What the variable stays below."""

    @property
    def step(self) -> int:
        """From one iteration to the next."""

    @property
    def op(self) -> Op | None:
        """The kernel's operation, if it is one."""

    def initial(self, cell: int, place: Index) -> Term:
        """Before the first iteration."""

    def after(self, cell: int, place: Index, index: Int) -> Term:
        """After the iteration with this index, over the cells before it as `State`."""


@dataclass(frozen=True, eq=False, slots=True)
class State(Term):
    """A cell of a loop at the start of an arbitrary iteration."""

    fold: Fold
    cell: int
    place: Index


@dataclass(frozen=True, eq=False, slots=True)
class Result(Term):
    """A cell of a loop after its last iteration."""

    fold: Fold
    cell: int
    place: Index


@dataclass(frozen=True, eq=False, slots=True)
class Said(Term):
    """What a contract says that a cell of a buffer holds after the launch."""

    buffer: str
    index: Index
    term: Term


@dataclass(frozen=True, eq=False, slots=True)
class Test(Symbolic):
    """A comparison of terms."""

    predicate: str
    left: Term
    right: Term
    op: Op | None = None

    def __or__(self, other: Condition) -> Joined:
        return Joined("or", (self, other))

    def __str__(self) -> str:
        return f"({shown(self.left, 3)} {self.predicate} {shown(self.right, 3)})"


@dataclass(frozen=True, eq=False, slots=True)
class Joined(Symbolic):
    """and, or: over conditions of which one is a comparison of terms."""

    name: str
    parts: tuple[Condition, Condition]

    def __str__(self) -> str:
        return f"({self.parts[0]} {self.name} {self.parts[1]})"


Condition: TypeAlias = Cond | Test | Joined


def number(value: Constant) -> float:
    """The number that a constant is."""
    return float_value(value.element, value.bits)


_SHOWN: Mapping[type[Term], Callable[[Any, Callable[[Term], str], Int], str]] = {
    Constant: lambda term, *_: f"{number(term):g}" if term.element[0] != "i" else str(term.bits),
    Load: lambda term, *_: f"{term.buffer}[{term.offset}]",
    Argument: lambda term, *_: term.name,
    Whole: lambda term, *_: str(term.value),
    Truth: lambda term, *_: f"truth({term.condition})",
    Apply: lambda term, inner, _: f"{term.name}({', '.join(map(inner, term.arguments))})",
    Select: lambda term, inner, _: f"({inner(term.yes)} if {term.condition} else {inner(term.no)})",
    Chain: lambda term, inner, k: (
        f"chain({inner(term.start)} + Σ k < {term.length}: {inner(term.left(k))} · {inner(term.right(k))})"
    ),
    Reduce: lambda term, inner, k: f"{term.name} over k < {term.length} of {inner(term.body(k))}",
    Sum: lambda term, inner, k: f"Σ k < {term.length}: {inner(term.body(k))}",
    Said: lambda term, inner, _: inner(term.term),
    State: lambda term, *_: f"state {term.cell} of loop {term.fold.name}",
    Result: lambda term, *_: f"result {term.cell} of loop {term.fold.name}",
}


def shown(term: Term, depth: int = 6) -> str:
    """For messages: the term, down to some depth."""
    return _SHOWN[type(term)](term, lambda inner: shown(inner, depth - 1), symbol("k")) if depth else "…"
