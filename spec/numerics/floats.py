"""The primitives in plain Python: their executable meaning, and the oracle of tests.

An array is a shape and a flat tuple of numbers in row-major order. Each operation computes in binary64 and rounds to
binary32; for sums, products, quotients and roots of binary32 numbers that is the correctly rounded binary32 result
(binary64 has more than twice the digits). A chain adds one exact product at a time, as a fused multiply-add does.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

Shape: TypeAlias = tuple[int, ...]
"""Axes, the last of which varies fastest."""


def binary32(x: float) -> float:
    """The binary32 number nearest to x, ties to even; ±∞ beyond the largest."""
    return ctypes.c_float(x).value


@dataclass(frozen=True)
class Array:
    """Numbers (or indices, or truth values) with a shape."""

    shape: Shape
    elements: tuple[float, ...]
    """In row-major order; math.prod(shape) of them."""

    def __post_init__(self) -> None:
        if math.prod(self.shape) != len(self.elements):
            raise ValueError(f"An array of shape {self.shape} cannot hold {len(self.elements)} elements.")

    def rows(self) -> Iterator[tuple[float, ...]]:
        """The slices along the last axis, in order."""
        width = self.shape[-1]
        return (self.elements[i * width : (i + 1) * width] for i in range(math.prod(self.shape[:-1])))


Operand: TypeAlias = Array | float
"""An array, or a number that stands for itself at every place."""

Cache: TypeAlias = tuple[Array, Array]
"""Keys and values, each [slots, kv heads, d]."""


def array(numbers: Iterable[float], *shape: int) -> Array:
    """An array of the given shape, each number rounded to binary32."""
    return Array(shape, tuple(binary32(x) for x in numbers))


def indices(numbers: Iterable[float], *shape: int) -> Array:
    """An array of integers or truth values, taken as they are."""
    return Array(shape, tuple(numbers))


def _broadcast_shape(shapes: Sequence[Shape]) -> Shape:
    """The common shape: axes aligned at the end, one or the common length each. Raises ValueError if there is none."""
    rank = max(len(shape) for shape in shapes)
    result = []
    for axis in range(-rank, 0):
        lengths = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(lengths) > 1:
            raise ValueError(f"Shapes {shapes} do not broadcast.")
        result.append(lengths.pop() if lengths else 1)
    return tuple(result)


def broadcast(x: Operand, shape: Shape) -> Array:
    """x repeated to the given shape."""
    if not isinstance(x, Array):
        return Array(shape, (x,) * math.prod(shape))
    if x.shape == shape:
        return x
    strides = [0] * len(shape)
    step = 1
    for axis in range(-1, -len(x.shape) - 1, -1):
        strides[axis] = 0 if x.shape[axis] == 1 else step
        step *= x.shape[axis]
    places = product(*(range(length) for length in shape))
    return Array(shape, tuple(x.elements[sum(map(int.__mul__, place, strides))] for place in places))


def _elementwise(function: Callable[..., float], *operands: Operand) -> Array:
    """The function of each place's elements, rounded to binary32; a Python number is rounded first."""
    shape = _broadcast_shape([x.shape for x in operands if isinstance(x, Array)])
    columns = [broadcast(x if isinstance(x, Array) else binary32(x), shape).elements for x in operands]
    return Array(shape, tuple(binary32(function(*place)) for place in zip(*columns, strict=True)))


def _by_row(function: Callable[[tuple[float, ...]], float], x: Array) -> Array:
    """[..., n] → [..., 1]: the function of each slice along the last axis."""
    return Array((*x.shape[:-1], 1), tuple(function(row) for row in x.rows()))


def _divide(x: float, y: float) -> float:
    if y:
        return x / y
    return math.nan if x == 0 or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1.0, y)


def _reciprocal_root(x: float) -> float:
    return math.nan if x < 0 or math.isnan(x) else _divide(1.0, binary32(math.sqrt(x)))


def _maximum(x: float, y: float) -> float:
    return math.nan if math.isnan(x) or math.isnan(y) else max(x, y)


def _exponential(x: float) -> float:
    return math.exp(x) if x < 700 or math.isnan(x) else math.inf


def _tree(row: tuple[float, ...]) -> float:
    """The sum by halving of a row whose length is a power of two."""
    while len(row) > 1:
        half = len(row) // 2
        row = tuple(binary32(x + y) for x, y in zip(row[:half], row[half:], strict=True))
    return row[0]


def _chain(x: Iterable[float], y: Iterable[float]) -> float:
    """Σ x(k) · y(k) in ascending k from +0, each product exact, each sum rounded."""
    accumulator = 0.0
    for a, b in zip(x, y, strict=True):
        accumulator = binary32(accumulator + a * b)
    return accumulator


class Floats:
    """The instance of `vosti.spec.numerics.ops.Ops` over `Array`."""

    def add(self, x: Array, y: Operand) -> Array:
        """x + y."""
        return _elementwise(lambda a, b: a + b, x, y)

    def sub(self, x: Array, y: Array) -> Array:
        """x − y."""
        return _elementwise(lambda a, b: a - b, x, y)

    def mul(self, x: Array, y: Operand) -> Array:
        """x · y."""
        return _elementwise(lambda a, b: a * b, x, y)

    def div(self, x: Array, y: Operand) -> Array:
        """x / y."""
        return _elementwise(_divide, x, y)

    def negate(self, x: Array) -> Array:
        """−x."""
        return _elementwise(lambda a: -a, x)

    def rsqrt(self, x: Array) -> Array:
        """1 / √x."""
        return _elementwise(_reciprocal_root, x)

    def maximum(self, x: Array, y: Array) -> Array:
        """The larger of the two."""
        return _elementwise(_maximum, x, y)

    def exp(self, x: Array) -> Array:
        """eˣ."""
        return _elementwise(_exponential, x)

    def tanh(self, x: Array) -> Array:
        """tanh x."""
        return _elementwise(math.tanh, x)

    def is_zero(self, x: Array) -> Array:
        """Whether each element is zero."""
        return Array(x.shape, tuple(element == 0 for element in x.elements))

    def any_lane(self, condition: Array) -> Array:
        """Whether any element of the last axis is true."""
        return _by_row(any, condition)

    def select(self, condition: Array, x: Operand, y: Operand) -> Array:
        """x where the condition is true, y elsewhere."""
        return _elementwise(lambda c, a, b: a if c else b, condition, x, y)

    def tree_sum(self, x: Array) -> Array:
        """The sum of the last axis by halving, padded with +0 to a power of two."""
        width = x.shape[-1]
        padding = (0.0,) * ((1 << (width - 1).bit_length()) - width)
        return _by_row(lambda row: _tree(row + padding), x)

    def chain(self, x: Array, weight: Array) -> Array:
        """x · weight."""
        width, count = weight.shape
        columns = [weight.elements[j::count] for j in range(count)]
        if x.shape[-1] != width:
            raise ValueError(f"A chain over {width} elements cannot take an array of shape {x.shape}.")
        return Array((*x.shape[:-1], count), tuple(_chain(row, column) for row in x.rows() for column in columns))

    def scores(self, query: Array, keys: Array) -> Array:
        """query · keysᵀ, for each leading place."""
        return _products(query, keys, lambda rows: rows)

    def weighted_sum(self, weights: Array, values: Array, start: Array) -> Array:
        """start + weights · values, for each leading place."""
        return self.add(start, _products(weights, values, lambda rows: list(zip(*rows, strict=True))))

    def lane_sum(self, x: Array, start: Array) -> Array:
        """start + the sum of the last axis, in ascending order."""
        return self.add(start, _by_row(lambda row: _chain(row, (1.0,) * len(row)), x))

    def lane_max(self, x: Array) -> Array:
        """The largest element of the last axis."""

        def largest(row: tuple[float, ...]) -> float:
            return math.nan if any(map(math.isnan, row)) else max(row)

        return _by_row(largest, x)

    def fill(self, like: Array, width: int, value: float) -> Array:
        """`value` everywhere."""
        return broadcast(value, (*like.shape[:-1], width))

    def take(self, table: Array, index: Array) -> Array:
        """The table's rows at the given indices."""
        rows = list(table.rows())
        return Array((*index.shape, table.shape[-1]), tuple(x for i in index.elements for x in rows[int(i)]))

    def halves(self, x: Array) -> tuple[Array, Array]:
        """The first and the second half of the last axis."""
        half = x.shape[-1] // 2
        shape = (*x.shape[:-1], half)
        first = tuple(element for row in x.rows() for element in row[:half])
        second = tuple(element for row in x.rows() for element in row[half:])
        return Array(shape, first), Array(shape, second)

    def join(self, x: Array, y: Array) -> Array:
        """The last axes of both, one behind the other."""
        pairs = zip(x.rows(), y.rows(), strict=True)
        return Array((*x.shape[:-1], x.shape[-1] + y.shape[-1]), tuple(e for a, b in pairs for e in (*a, *b)))

    def load(self, cache: Cache, slots: Array, live: Array) -> tuple[Array, Array]:
        """Keys and values of one key tile, 0 where not live."""
        keys, values = cache
        return _loaded(keys, slots, live), _loaded(values, slots, live)


def _products(
    left: Array, right: Array, columns: Callable[[list[tuple[float, ...]]], list[tuple[float, ...]]]
) -> Array:
    """[..., m, k] and [..., n, ·] with the same leading axes → [..., m, columns]: a chain per pair, place by place."""
    places = math.prod(left.shape[:-2])
    lefts, rights = list(left.rows()), list(right.rows())
    m, n = left.shape[-2], right.shape[-2]
    elements: list[float] = []
    width = 0
    for place in range(places):
        chosen = columns(rights[place * n : (place + 1) * n])
        width = len(chosen)
        elements += [_chain(row, column) for row in lefts[place * m : (place + 1) * m] for column in chosen]
    return Array((*left.shape[:-1], width), tuple(elements))


def _loaded(stored: Array, slots: Array, live: Array) -> Array:
    """[slots, heads, d], [..., t] → [..., heads, t, d]."""
    _, heads, width = stored.shape
    rows = list(stored.rows())
    lanes = slots.shape[-1]
    elements: list[float] = []
    for place in range(math.prod(slots.shape[:-1])):
        tile = range(place * lanes, (place + 1) * lanes)
        for head in range(heads):
            for lane in tile:
                row = rows[int(slots.elements[lane]) * heads + head] if live.elements[lane] else (0.0,) * width
                elements += row
    return Array((*slots.shape[:-1], heads, lanes, width), tuple(elements))
