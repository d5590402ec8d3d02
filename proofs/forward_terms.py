"""What one row holds, as terms: the row programs of `vosti.spec.numerics` over symbols.

A term stands for a function of a row's history h and position p. Its leaves are the token h[p], the position p, and
what is shared by all rows: stored tensors and numbers. A row program is run as it stands, its primitives building
terms instead of numbers; nothing is known of a primitive but its name, and two terms are equal if they are the same
primitives, in the same order, of equal terms. No addition is reordered, no zero added.

A row's numbers are *vectors*: columns of terms, side by side. So a product with weights that are stacked is the
products with each, one after the other, and half of a vector, or a head, is its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, TypeAlias

from vosti.impl.models.plan import KVShape, Parameter


class Refused(Exception):
    """A launch of which nothing can be concluded; the message says why, after the launch's name."""


class Piece(NamedTuple):
    """The columns from `first` to `end` − 1 of a term; of head i among several, those i · `step` further on."""

    term: int
    first: int
    end: int
    step: int = 0


Vector: TypeAlias = tuple[Piece, ...]
"""Columns side by side; neighbours in one term are one piece."""


def joined(*vectors: Vector) -> Vector:
    """One vector after the other."""
    found: list[Piece] = []
    for piece in (piece for vector in vectors for piece in vector):
        if found and found[-1].term == piece.term and found[-1].end == piece.first and found[-1].step == piece.step:
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
    for piece in vector:
        low, high = max(first, column), min(end, column + piece.end - piece.first)
        if low < high:
            found.append(Piece(piece.term, piece.first + low - column, piece.first + high - column, piece.step))
        column += piece.end - piece.first
    return tuple(found)


def holds(whole: Vector, part: Vector) -> bool:
    """Whether the columns of `part` are neighbours in `whole`."""
    column = 0
    for piece in whole:
        if piece.term == part[0].term and piece.first <= part[0].first < piece.end:
            first = column + part[0].first - piece.first
            if cut(whole, first, first + width(part)) == part:
                return True
        column += piece.end - piece.first
    return False


class Heads(NamedTuple):
    """Neighbouring heads that are made alike."""

    number: int
    vector: Vector
    """Of the first; the others' by the steps of its pieces."""

    def part(self, first: int, end: int) -> Heads:
        """Some of them."""
        if end - first == self.number:
            return self
        moved = (Piece(p.term, p.first + first * p.step, p.end + first * p.step, p.step) for p in self.vector)
        return Heads(end - first, tuple(p._replace(step=0) if end - first == 1 else p for p in moved))


@dataclass(frozen=True)
class Range:
    """An index that stands for each of `count` neighbouring ones."""

    first: int
    count: int
    divided: str = ""
    """"//" or "%": the index divided by `divisor`, or what is left."""

    divisor: int = 1

    def __add__(self, other: int) -> Range:
        return Range(self.first + other, self.count)

    __radd__ = __add__

    def __floordiv__(self, other: int) -> Range:
        return Range(self.first, self.count, "//", other)

    def __mod__(self, other: int) -> Range:
        return Range(self.first, self.count, "%", other)


COLUMN = Range(0, 0)
"""The index of a column that stands for each of them."""


@dataclass(frozen=True)
class Array:
    """A vector for each index of the leading axes, a head."""

    lead: tuple[int, ...]
    heads: tuple[Heads, ...]

    @staticmethod
    def of(vector: Vector, shape: Sequence[int]) -> Array:
        """The columns of a vector as an array. Raises `Refused` if there are more or fewer."""
        *lead, columns = shape
        if width(vector) != prod(shape):
            raise Refused(f"{width(vector)} numbers stand where {prod(shape)} belong")
        if prod(lead) == 1:
            return Array(tuple(lead), (Heads(1, vector),))
        found: list[Heads] = []
        for piece in vector:
            count, rest = divmod(piece.end - piece.first, columns)
            if rest:
                raise Refused(f"a head of {columns} numbers is no part of one result")
            step = columns if count > 1 else 0
            found.append(Heads(count, (Piece(piece.term, piece.first, piece.first + columns, step),)))
        return Array(tuple(lead), tuple(found))

    @property
    def columns(self) -> int:
        """Of each vector."""
        return width(self.heads[0].vector)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return (*self.lead, self.columns)

    def among(self, first: int, end: int) -> tuple[Heads, ...]:
        """The heads from `first` to `end` − 1."""
        if len(self.heads) == 1:
            return (self.heads[0].part(first, end),)
        found, at = [], 0
        for heads in self.heads:
            low, high = max(first, at), min(end, at + heads.number)
            if low < high:
                found.append(heads.part(low - at, high - at))
            at += heads.number
        return tuple(found)

    def __getitem__(self, key: Any) -> Array:
        """The vectors at some indices of the leading axes; the last index is that of each column."""
        *indices, column = key if isinstance(key, tuple) else (key,)
        if not indices and column is COLUMN:
            return self  # of one head, or of each of those that a range has chosen
        if len(indices) != len(self.lead) or not (column is COLUMN or column == slice(None)):
            raise Refused(f"an array with axes {self.lead} is indexed by {key}")
        chosen = indices[0]
        # The head h of groups is the head h % group of group h // group.
        if len(indices) == 2:
            group = self.lead[1]
            chosen = Range(chosen.first, chosen.count)
            if indices != [chosen // group, chosen % group]:
                raise Refused(f"heads of groups of {group} are indexed by {indices}")
        if not (isinstance(chosen, Range) and 0 <= chosen.first <= chosen.first + chosen.count <= prod(self.lead)):
            raise Refused(f"{prod(self.lead)} heads are indexed by {chosen}")
        return Array((chosen.count,), self.among(chosen.first, chosen.first + chosen.count))


@dataclass(frozen=True)
class Matrix:
    """A stored table or weight [n, width], of which each row is a row of some stored tensor."""

    terms: Terms
    rows: tuple[Vector, ...]
    """Of one vector, in order; of several, they take turns."""

    width: int

    @property
    def shape(self) -> tuple[int, int]:
        """Lengths of the axes."""
        return sum(width(rows) for rows in self.rows), self.width

    @property
    def T(self) -> Columns:
        """[width, n]. Raises `Refused` where rows take turns."""
        if len(self.rows) != 1:
            raise Refused("a weight whose rows alternate is read in another order")
        return Columns(self.rows[0], self.width)

    def __getitem__(self, key: Any) -> Any:
        """[index, :], a row; or [first::count, :] where `count` tensors take turns: the rows of one of them."""
        turns, every = key
        if every != slice(None):
            raise Refused(f"a table or weight is indexed by {key}")
        if not isinstance(turns, slice):
            return self.terms.take(self, turns)
        if (turns.stop, turns.step) != (None, len(self.rows)):
            raise Refused(f"a weight in which {len(self.rows)} tensors take turns is indexed by {key}")
        return Matrix(self.terms, (self.rows[turns.start],), self.width)


@dataclass(frozen=True)
class Columns:
    """A weight [height, n], of which each column is a row of some stored tensor."""

    columns: Vector
    height: int


@dataclass(frozen=True)
class Cache:
    """What attention finds of each position that the row sees: j ↦ the key and the value of h at j, of all heads."""

    keys: Vector
    values: Vector


class Terms:
    """Terms by number, and the primitives that make them: an instance of `vosti.spec.numerics.ops.Ops`."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._attended: dict[Vector, Array] = {}
        self.parts: list[tuple[object, ...]] = []

    def make(self, *parts: object) -> int:
        """The number of the term with these parts: a name, then vectors and what else it is made of."""
        number = self._numbers.setdefault(parts, len(self.parts))
        if number == len(self.parts):
            self.parts.append(parts)
        return number

    def vector(self, columns: int, *parts: object) -> Vector:
        """All columns of a term."""
        return (Piece(self.make(*parts), 0, columns),)

    def flat(self, array: Array) -> Vector:
        """All columns of an array, head after head."""
        return joined(*(self._flat(heads) for heads in array.heads))

    def _flat(self, heads: Heads) -> Vector:
        if heads.number == 1:
            return heads.vector
        if len(heads.vector) == 1 and heads.vector[0].step == width(heads.vector):
            piece = heads.vector[0]
            return (Piece(piece.term, piece.first, piece.first + heads.number * piece.step),)
        return self.vector(heads.number * width(heads.vector), "heads", heads)

    # ------------------------------------------------------------ what is shared by all rows

    def parameter(self, parameter: Parameter) -> Array | Matrix | Columns:
        """A parameter as it is kept: a vector, one for each head, a table, or a weight."""
        sources = [self.vector(source.shape[0], "stored", source.name) for source in parameter.sources]
        if len(parameter.sources[0].shape) == 1:
            if not parameter.repeats:
                return Array((), (Heads(1, joined(*sources)),))
            return Array((sum(parameter.repeats),), tuple(map(Heads, parameter.repeats, sources)))
        (inputs,) = {source.shape[1] for source in parameter.sources}
        if parameter.interleaved:
            return Matrix(self, tuple(sources), inputs)
        stacked = joined(*sources)
        return Columns(stacked, inputs) if parameter.transposed else Matrix(self, (stacked,), inputs)

    def table(self, name: str, columns: int) -> Matrix:
        """A table that is computed from the configuration."""
        # It has as many rows as there are positions; one that reaches further is never read.
        return Matrix(self, (self.vector(1, "table", name),), columns)

    # ------------------------------------------------------------ primitives, element by element

    def _each(self, name: str, *operands: Array | float) -> Array:
        arrays = [one for one in operands if isinstance(one, Array)]
        wide = max(arrays, key=lambda one: prod(one.lead))
        count, columns = prod(wide.lead), max(one.columns for one in arrays)
        if any(prod(one.lead) not in (1, count) or one.columns not in (1, columns) for one in arrays):
            raise Refused(f"{name} of arrays of {' and '.join(str(list(one.shape)) for one in arrays)} numbers")
        if count == 1:
            vectors = (one.heads[0].vector if isinstance(one, Array) else one for one in operands)
            return Array(wide.lead, (self._made(1, columns, name, *vectors),))
        found = []
        at = 0
        while at < count:
            # As many heads as are alike in every operand.
            alike = [one.among(at, count)[0] for one in arrays if prod(one.lead) == count]
            number = min(heads.number for heads in alike)
            parts = [
                one
                if not isinstance(one, Array)
                else (one if prod(one.lead) == 1 else Array((), one.among(at, at + number))).heads[0].vector
                for one in operands
            ]
            found.append(self._made(number, columns, name, *parts))
            at += number
        return Array(wide.lead, tuple(found))

    def _made(self, count: int, columns: int, name: str, *parts: object) -> Heads:
        """As many heads, each a result of parts that are its own."""
        if count == 1:
            return Heads(1, self.vector(columns, name, *parts))
        whole = self.make(name, *parts, f"for {count} heads")
        return Heads(count, (Piece(whole, 0, columns, columns),))

    def __getattr__(self, name: str) -> Callable[..., Array]:
        """An exact or opaque function, element by element."""
        if name not in ELEMENTWISE:
            raise AttributeError(name)
        return lambda *operands: self._each(name, *operands)

    def tree_sum(self, x: Array) -> Array:
        """[..., n] → [..., 1]."""
        return Array(x.lead, tuple(self._made(one.number, 1, "tree_sum", one.vector) for one in x.heads))

    def chain(self, x: Array, weight: Columns) -> Array:
        """[k], [k, n] → [n]: a chain for each column. Raises `Refused` if the two lengths differ."""
        if x.lead or x.columns != weight.height:
            raise Refused(f"{x.columns} numbers are multiplied by weights of {weight.height}")
        row = self.flat(x)
        found = (piece._replace(term=self.make("chain", row, self.parts[piece.term])) for piece in weight.columns)
        return Array((), (Heads(1, joined(tuple(found))),))

    # ------------------------------------------------------------ primitives that move numbers

    def take(self, table: Matrix, index: object) -> Array:
        """A row of a table."""
        return Array((), (Heads(1, self.vector(table.width, "row", table.rows, index)),))

    def halves(self, x: Array) -> tuple[Array, Array]:
        """The first and the second half of the last axis."""
        n = x.columns // 2
        first, second = (tuple(Heads(one.number, cut(one.vector, at, at + n)) for one in x.heads) for at in (0, n))
        return Array(x.lead, first), Array(x.lead, second)

    def join(self, x: Array, y: Array) -> Array:
        """The inverse of `halves`. Raises `Refused` if the two do not have the same heads."""
        if [one.number for one in x.heads] != [one.number for one in y.heads]:
            raise Refused("halves of different heads are joined")
        both = zip(x.heads, y.heads, strict=True)
        return Array(x.lead, tuple(Heads(one.number, joined(one.vector, other.vector)) for one, other in both))

    # ------------------------------------------------------------ what is no primitive

    def attention(self, queries: Vector, cache: Cache, kv: KVShape, scale: float, window: int | None) -> Array:
        """`vosti.spec.numerics.attention` of all heads, over the positions j that `visible(p, j, window)` says."""
        columns = width(queries)
        if width(cache.keys) != width(cache.values) or width(cache.keys) != kv.heads * kv.head_dim:
            raise Refused(f"a cache of {kv.heads} heads of {kv.head_dim} holds {width(cache.keys)} numbers")
        whole = self.vector(columns, "attention", queries, cache.keys, cache.values, kv, scale, window)
        if whole not in self._attended:
            self._attended[whole] = Array.of(whole, (kv.heads, columns // (kv.heads * kv.head_dim), kv.head_dim))
        return self._attended[whole]

    def rounded(self, vector: Vector, element: str) -> Vector:
        """Each number, in an element type."""
        return self.vector(width(vector), element, vector)

    # ------------------------------------------------------------ in words

    def shown(self, value: object, depth: int = 2) -> str:
        """A value in words, so deep."""
        if isinstance(value, tuple) and all(isinstance(part, Piece) for part in value):
            return " | ".join(self.shown(piece, depth) for piece in value)
        if isinstance(value, Piece):
            name, *parts = self.parts[value.term]
            if name in ("stored", "table"):
                return str(parts[0])
            inside = ", ".join(self.shown(part, depth - 1) for part in parts) if depth else "…"
            return f"{name}({inside})"
        if isinstance(value, tuple):
            return " ".join(self.shown(part, depth) for part in value if part not in ("stored", "table"))
        return str(value)

    def difference(self, found: object, expected: object) -> str:
        """Where two different values first differ, in words."""
        pairs = self._pairs(found, expected)
        for one, other in pairs or ():
            if one != other:
                return self.difference(one, other)
        return f"{self.shown(found)} stands where {self.shown(expected)} belongs"

    def _pairs(self, found: object, expected: object) -> list[tuple[object, object]] | None:
        """The parts of two values that are made alike; None if they are not."""
        if isinstance(found, Piece) and isinstance(expected, Piece):
            if found[1:] != expected[1:]:
                return None
            found, expected = self.parts[found.term], self.parts[expected.term]
            if found[0] != expected[0] or found[0] in ("stored", "table"):
                return None
        if isinstance(found, tuple) and isinstance(expected, tuple) and len(found) == len(expected):
            return list(zip(found, expected, strict=True))
        return None


ELEMENTWISE = frozenset({"add", "sub", "mul", "div", "negate", "rsqrt", "exp", "tanh"})
"""The primitives that work on each element by itself."""


def parts_of(vector: Vector, widths: Sequence[int]) -> Iterator[Vector]:
    """The columns, divided in order."""
    first = 0
    for columns in widths:
        yield cut(vector, first, first + columns)
        first += columns
