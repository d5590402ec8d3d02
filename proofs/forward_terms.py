"""What one row holds, as terms: the row programs of `vosti.spec.numerics` over symbols.

A term stands for a function of a row's history h and position p. Its leaves are the token h[p], the position p, what is
shared by all rows (stored tensors and numbers), and what an earlier layer hands over. A row program is run as it
stands, its primitives building terms instead of numbers; nothing is known of a primitive but its name, and two terms
are equal if they are the same primitives, in the same order, of equal terms. No addition is reordered, no zero added.
Of a rounding two things are known: it is done number by number, and what is rounded already it leaves alone.

A row's numbers are *vectors*: columns of terms, side by side. So a product with weights that are stacked is the
products with each, one after the other, and half of a vector, or a head, is its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple, TypeAlias

from vosti.impl.models.plan import KVShape, Parameter, Source


class Refused(Exception):
    """A launch of which nothing can be concluded; the message says why, after the launch's name."""


class Piece(NamedTuple):
    """The columns from `first` to `end` − 1 of a term."""

    term: int
    first: int
    end: int


Vector: TypeAlias = tuple[Piece, ...]
"""Columns side by side; neighbours in one term are one piece."""


def joined(*vectors: Vector) -> Vector:
    """One vector after the other."""
    found: list[Piece] = []
    for piece in (piece for vector in vectors for piece in vector):
        if found and (found[-1].term, found[-1].end) == (piece.term, piece.first):
            found[-1] = found[-1]._replace(end=piece.end)
        else:
            found.append(piece)
    return tuple(found)


def width(vector: Vector) -> int:
    """How many columns it has."""
    return sum(piece.end - piece.first for piece in vector)


def cut(vector: Vector, first: int, end: int) -> Vector:
    """The columns from `first` to `end` − 1."""
    found, column = [], 0
    for term, start, stop in vector:
        low, high = max(first, column), min(end, column + stop - start)
        if low < high:
            found.append(Piece(term, start + low - column, start + high - column))
        column += stop - start
    return tuple(found)


EVERY = slice(None)
"""The index of a column that stands for each of them."""


@dataclass(frozen=True)
class Array:
    """A vector for each index of the leading axes: one, or one for each head."""

    lead: tuple[int, ...]
    vectors: tuple[Vector, ...]

    @staticmethod
    def of(vector: Vector, shape: Sequence[int]) -> Array:
        """The columns of a vector as an array. Raises `Refused` if there are more or fewer."""
        *lead, columns = shape
        if width(vector) != prod(shape):
            raise Refused(f"{width(vector)} numbers stand where {prod(shape)} belong")
        starts = range(0, prod(shape), columns)
        return Array(tuple(lead), tuple(cut(vector, first, first + columns) for first in starts))

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return (*self.lead, width(self.vectors[0]))

    @property
    def flat(self) -> Vector:
        """All columns, head after head."""
        return joined(*self.vectors)

    def __getitem__(self, key: Any) -> Array:
        """The vector at some indices of the leading axes; the last index is that of each column."""
        *indices, column = key if isinstance(key, tuple) else (key,)
        if all(one == EVERY for one in (*indices, column)):
            return self
        inside = all(
            isinstance(one, int) and 0 <= one < length for one, length in zip(indices, self.lead, strict=False)
        )
        if len(indices) != len(self.lead) or column != EVERY or not inside:
            raise Refused(f"an array with axes {self.lead} is indexed by {key}")
        at = 0
        for index, length in zip(indices, self.lead, strict=True):
            at = at * length + index
        return Array((), (self.vectors[at],))


@dataclass(frozen=True)
class Matrix:
    """A stored table or weight, [n, inputs], or [inputs, n] if transposed: the rows of some stored tensors."""

    terms: Terms
    sources: tuple[Source, ...]
    transposed: bool = False
    in_turns: bool = False
    """Whether the tensors take turns, instead of standing one after the other."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes. Raises `Refused` if the tensors have different ones."""
        (columns,) = {source.shape[1] for source in self.sources}
        shape = (sum(source.shape[0] for source in self.sources), columns)
        return shape[::-1] if self.transposed else shape

    @property
    def T(self) -> Matrix:
        """The matrix transposed."""
        return replace(self, transposed=not self.transposed)

    def __getitem__(self, key: Any) -> Any:
        """[index, :], a row; or [first::count, :] where `count` tensors take turns: the rows of one of them."""
        rows, every = key
        if every == EVERY and not isinstance(rows, slice):
            return self.terms.take(self, rows)
        count = len(self.sources)
        turns = [slice(first, None, count) for first in range(count)]
        if not self.in_turns or self.transposed or every != EVERY or rows not in turns:
            raise Refused(f"a weight of {count} tensors is indexed by {key}")
        return Matrix(self.terms, (self.sources[rows.start],))


class Terms:
    """Terms by number, and the primitives that make them: an instance of `vosti.spec.numerics.ops.Ops`."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self.parts: list[tuple[object, ...]] = []

    def vector(self, columns: int, *parts: object) -> Vector:
        """All columns of the term with these parts: a name, then vectors and what else it is made of."""
        number = self._numbers.setdefault(parts, len(self.parts))
        if number == len(self.parts):
            self.parts.append(parts)
        return (Piece(number, 0, columns),)

    def parameter(self, parameter: Parameter) -> Array | Matrix:
        """A parameter as it is kept: a vector, one for each head, a table, or a weight."""
        if len(parameter.sources[0].shape) > 1:
            return Matrix(self, parameter.sources, parameter.transposed, parameter.interleaved)
        vectors = [self.vector(source.shape[0], "stored", source.name) for source in parameter.sources]
        if not parameter.repeats:
            return Array((), (joined(*vectors),))
        heads = [one for one, count in zip(vectors, parameter.repeats, strict=True) for _ in range(count)]
        return Array((len(heads),), tuple(heads))

    # ------------------------------------------------------------ primitives, element by element

    def __getattr__(self, name: str) -> Callable[..., Array]:
        """An exact or opaque function, element by element."""
        if name not in ELEMENTWISE:
            raise AttributeError(name)
        return lambda *operands: self._each(name, *operands)

    def _each(self, name: str, *operands: Array | float) -> Array:
        arrays = [one for one in operands if isinstance(one, Array)]
        lead = max((one.lead for one in arrays), key=prod)
        columns = max(one.shape[-1] for one in arrays)
        if any(len(one.vectors) not in (1, prod(lead)) or one.shape[-1] not in (1, columns) for one in arrays):
            raise Refused(f"{name} of arrays of {' and '.join(str(list(one.shape)) for one in arrays)} numbers")

        def made(head: int) -> Vector:
            own = (one.vectors[head % len(one.vectors)] if isinstance(one, Array) else one for one in operands)
            return self.vector(columns, name, *own)

        return Array(lead, tuple(made(head) for head in range(prod(lead))))

    def tree_sum(self, x: Array) -> Array:
        """[..., n] → [..., 1]."""
        return Array(x.lead, tuple(self.vector(1, "tree_sum", one) for one in x.vectors))

    def chain(self, x: Array, weight: Matrix) -> Array:
        """[k], [k, n] → [n]: a chain for each column. Raises `Refused` if the two lengths differ."""
        if x.shape != weight.shape[:1] or not weight.transposed or weight.in_turns:
            raise Refused(f"{list(x.shape)} numbers are multiplied by weights {list(weight.shape)}")
        columns = (self.vector(one.shape[0], "chain", x.flat, ("stored", one.name)) for one in weight.sources)
        return Array((), (joined(*columns),))

    # ------------------------------------------------------------ primitives that move numbers

    def take(self, table: Matrix, index: object) -> Array:
        """A row of a table."""
        return Array((), (self.vector(table.shape[1], "row", table, index),))

    def halves(self, x: Array) -> tuple[Array, Array]:
        """The first and the second half of the last axis."""
        n = x.shape[-1] // 2
        first, second = (tuple(cut(one, at, at + n) for one in x.vectors) for at in (0, n))
        return Array(x.lead, first), Array(x.lead, second)

    def join(self, x: Array, y: Array) -> Array:
        """The inverse of `halves`."""
        return Array(x.lead, tuple(map(joined, x.vectors, y.vectors)))

    # ------------------------------------------------------------ what is no primitive

    def attention(self, queries: Vector, keys: Vector, values: Vector, kv: KVShape, *given: object) -> Array:
        """`vosti.spec.numerics.attention` of all heads, given scale and window, over the positions that it says.

        Keys and values are those of each position j of the history that the row sees: these terms, of h and j.
        """
        if {width(keys), width(values)} != {kv.heads * kv.head_dim}:
            raise Refused(f"a cache of {kv.heads} heads of {kv.head_dim} holds {width(keys)} numbers")
        found = self.vector(width(queries), "attention", queries, keys, values, kv, *given)
        return Array.of(found, (kv.heads, width(queries) // (kv.heads * kv.head_dim), kv.head_dim))

    def rounded(self, vector: Vector) -> Vector:
        """Each number in bf16."""
        terms = (
            term if self.parts[term][0] == "bf16" else self.vector(0, "bf16", Piece(term, 0, 0))[0].term
            for term, _, _ in vector
        )
        return joined(tuple(piece._replace(term=term) for piece, term in zip(vector, terms, strict=True)))


ELEMENTWISE = frozenset({"add", "sub", "mul", "div", "negate", "rsqrt", "exp", "tanh"})
"""The primitives that work on each element by itself."""
