"""Numbers as terms: which operations, in which order, on which elements of memory.

A term says how a floating-point number is made; nothing is known of its value but what a rule says
(`vosti.kernels.verifier.rules`). Integers that depend on numbers (flags) are terms too, and so are *words*: integers of
which a contract says that their arithmetic wraps around on purpose, whatever bitwise operations yield, and what is made
of words. All other integers and conditions are exact (`vosti.kernels.verifier.integers`). Binders are Python functions
of an index, so that nothing is ever renamed: to compare two of them, both are applied to one fresh index. Every term
that stands for an operation of a kernel knows it, for messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from vosti.kernels.verifier.integers import Cond, Int, symbol
from vosti.kernels.verifier.ir import Op, float_value

if TYPE_CHECKING:
    from collections.abc import Sequence

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
class Test:
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
class Joined:
    """and, or: over conditions of which one is a comparison of terms."""

    name: str
    parts: tuple[Condition, Condition]

    def __str__(self) -> str:
        return f"({self.parts[0]} {self.name} {self.parts[1]})"


Condition: TypeAlias = Cond | Test | Joined


def number(value: Constant) -> float:
    """The number that a constant is."""
    return float_value(value.element, value.bits)


def shown(term: Term, depth: int = 6) -> str:
    """For messages: the term, down to some depth."""
    if depth == 0:
        return "…"

    def listed(terms: Sequence[Term]) -> str:
        return ", ".join(shown(one, depth - 1) for one in terms)

    index = symbol("k")
    if isinstance(term, Constant):
        return f"{number(term):g}" if term.element[0] != "i" else str(term.bits)
    if isinstance(term, Load):
        return f"{term.buffer}[{term.offset}]"
    if isinstance(term, Argument):
        return term.name
    if isinstance(term, Whole):
        return str(term.value)
    if isinstance(term, Truth):
        return f"truth({term.condition})"
    if isinstance(term, Apply):
        return f"{term.name}({listed(term.arguments)})"
    if isinstance(term, Select):
        return f"({shown(term.yes, depth - 1)} if {term.condition} else {shown(term.no, depth - 1)})"
    if isinstance(term, Chain):
        factors = f"{shown(term.left(index), depth - 1)} · {shown(term.right(index), depth - 1)}"
        return f"chain({shown(term.start, depth - 1)} + Σ k < {term.length}: {factors})"
    if isinstance(term, Reduce):
        return f"{term.name} over k < {term.length} of {shown(term.body(index), depth - 1)}"
    if isinstance(term, Sum):
        return f"Σ k < {term.length}: {shown(term.body(index), depth - 1)}"
    if isinstance(term, Said):
        return shown(term.term, depth)
    assert isinstance(term, State | Result)
    return f"{'state' if isinstance(term, State) else 'result'} {term.cell} of loop {term.fold.name}"
