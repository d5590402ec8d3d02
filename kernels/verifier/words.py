"""Digests as terms: the text of `vosti.spec.digests` over words whose bits are not known.

The text's integers have no bound, and are taken modulo 2⁶⁴ where it says so. A `Word` is such an integer, of which the
lower 64 bits are a term; it knows how many bits the integer can have. Sums, products, shifts to the left and bitwise
operations give the lower bits whatever the upper ones are; a shift to the right, and a result, need that there are
none (`Word.whole`).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from vosti.kernels.verifier.canonical import Array, recompiled
from vosti.kernels.verifier.integers import Int, integer
from vosti.kernels.verifier.terms import Apply, Sum, Term, Whole
from vosti.spec import digests

BITS = 64
ELEMENT = "i64"
_MASK = 2**BITS - 1


@dataclass(frozen=True, eq=False)
class Word:
    """An integer, 0 or more."""

    term: Term
    """Its lower 64 bits."""

    bits: int
    """It is below 2 to this power."""

    def whole(self) -> Word:
        """Itself. Raises TypeError if it may have more than 64 bits."""
        if self.bits > BITS:
            raise TypeError(f"an integer of up to {self.bits} bits is not cut to {BITS}")
        return self

    def __and__(self, mask: int) -> Word:
        if mask != _MASK:
            raise TypeError(f"a mask other than 2**{BITS} - 1")
        return Word(self.term, min(self.bits, BITS))

    def __xor__(self, other: Word | int) -> Word:
        return self._with("xori", other, max)

    def __or__(self, other: Word | int) -> Word:
        return self._with("ori", other, max)

    # The order of operands does not matter, and the compiler puts constants second.
    __rxor__, __ror__ = __xor__, __or__

    def __add__(self, other: Word | int) -> Word:
        return self._with("addi", other, lambda a, b: max(a, b) + 1)

    def __mul__(self, other: Word | int) -> Word:
        return self._with("muli", other, operator.add)

    def __lshift__(self, count: int) -> Word:
        return Word(self._applied("shli", _constant(count).term), self.bits + count)

    def __rshift__(self, count: int) -> Word:
        return Word(self.whole()._applied("shrui", _constant(count).term), self.bits)

    def _with(self, name: str, other: Word | int, bits: Callable[[int, int], int]) -> Word:
        second = other if isinstance(other, Word) else _constant(other)
        return Word(self._applied(name, second.term), bits(self.bits, second.bits))

    def _applied(self, name: str, second: Term) -> Term:
        return Apply(name, (self.term, second), element=ELEMENT)


@dataclass(frozen=True, eq=False)
class Position:
    """An exact integer below 2³² that the text adds to, and shifts to where a word's upper half is.

    Shifted is what remains of it modulo 2³²: that it is below is shown where a kernel's own position is equal.
    """

    value: Int

    def __add__(self, other: Int | int) -> Position:
        return Position(self.value + other)

    def __lshift__(self, count: int) -> Word:
        return low_half(self.value) << count


@dataclass(frozen=True, eq=False)
class Stretch:
    """A sequence of words, whose length is not known."""

    length: Int
    at: Callable[[Int], Word]

    def __getitem__(self, index: Int) -> Word:
        return self.at(index)


def low_half(value: Int | Term) -> Word:
    """The lower 32 bits of an integer, or the 32 bits of a word."""
    if isinstance(value, Int):
        return Word(Whole(value % 2**32, element=ELEMENT), 32)
    return Word(Apply(f"extui:{ELEMENT}", (value,), element=ELEMENT), 32)


def _constant(value: int) -> Word:
    """A number as the typed IR writes it: signed."""
    low = value & _MASK
    return Word(Whole(integer(low - (low >> BITS - 1 << BITS)), element=ELEMENT), value.bit_length())


def _sum(over: Int | range, body: Callable[[Any], Word]) -> Word:
    """sum(body(k) for k in over)."""
    if isinstance(over, range):
        return reduce(operator.add, map(body, over))
    return Word(Sum(over, lambda k: body(k).whole().term, element=ELEMENT), 2 * BITS)


class _Sums(ast.NodeTransformer):
    """sum(term for k in over) → __sum__(over, term as a function of k)."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A call of `sum`."""
        if not (isinstance(node.func, ast.Name) and node.func.id == "sum"):
            return self.generic_visit(node)
        (terms,) = node.args
        assert isinstance(terms, ast.GeneratorExp)
        ((target, over),) = [(one.target, one.iter) for one in terms.generators if not one.ifs]
        assert isinstance(target, ast.Name)
        body = ast.Lambda(ast.arguments([], [ast.arg(target.id)], None, [], [], None, []), terms.elt)
        return ast.Call(ast.Name("__sum__", ast.Load()), [over, body], [])


_NAMES = {
    "__sum__": _sum,
    "len": lambda words: words.length if isinstance(words, Stretch) else len(words),
    "range": lambda count: count if isinstance(count, Int) else range(count),
}
_share = recompiled(digests.share, _Sums(), _NAMES)
_stream_sum = recompiled(digests.stream_sum, _Sums(), {**_NAMES, "share": _share})


def share(words: Stretch, first: Int | int, stream: digests.Stream) -> Term:
    """`digests.share`."""
    found: Word = _share(words, Position(integer(first)), stream)
    return found.whole().term


def stream_sum(count: Int, shares: Callable[[Int], Term], length: Int, stream: digests.Stream) -> Term:
    """`digests.stream_sum` of as many shares."""
    found: Word = _stream_sum(Stretch(count, lambda p: Word(shares(p), BITS)), low_half(length), stream)
    return found.whole().term


def stretch(words: Array, begin: Int | int, length: Int | int) -> Stretch:
    """Adjacent words of a buffer of one axis."""
    return Stretch(integer(length), lambda j: low_half(words.term((begin + j,))))


def stream(number: Int | int) -> digests.Stream:
    """One of `digests.STREAMS`."""
    known = integer(number).constant
    if known is None:
        raise TypeError("the number of a stream is not known")
    return digests.STREAMS[known]


WORDS = {one.__name__: one for one in (share, stream_sum, stretch, stream)}
"""What contracts say of digests."""
