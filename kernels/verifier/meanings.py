"""What single operations mean: how a lane of the result comes from lanes of the operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.integers import (
    TRUE,
    Cond,
    Int,
    choose,
    conj,
    disj,
    element,
    equal,
    integer,
    least,
    most,
    neg,
)
from vosti.kernels.verifier.ir import INTEGER_WIDTHS, Op, Type
from vosti.kernels.verifier.tensors import Described, Lane, LaneOf, Pointer, Tensor, as_term, flat
from vosti.kernels.verifier.terms import Chain, Index, Joined, Load, Select, Test

INTEGERS: Mapping[str, Callable[[Int, Int], Int]] = {
    "arith.addi": lambda x, y: x + y,
    "arith.subi": lambda x, y: x - y,
    "arith.muli": lambda x, y: x * y,
    "arith.minsi": least,
    "arith.maxsi": most,
    "arith.divsi": lambda x, y: x // y,
    "arith.divui": lambda x, y: x // y,
    "arith.remsi": lambda x, y: x % y,
    "arith.remui": lambda x, y: x % y,
}
EXACT = INTEGERS.keys() | {"arith.trunci", "tt.mulhiui", "tt.reduce", "tt.scan"}
"""What yields an integer that must fit its type."""

DIVISIONS = frozenset({"arith.divsi", "arith.divui", "arith.remsi", "arith.remui"})
_PREDICATES: Mapping[str, Callable[[Int, Int], Cond]] = {
    "eq": equal,
    "ne": lambda x, y: neg(equal(x, y)),
    "slt": lambda x, y: x < y,
    "sle": lambda x, y: x <= y,
    "sgt": lambda x, y: x > y,
    "sge": lambda x, y: x >= y,
}
MOVES = frozenset({"tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans"})
SHIFTS = frozenset({"arith.shli", "arith.shrsi", "arith.shrui"})
BITCASTS = frozenset({"arith.bitcast", "tt.bitcast"})
EXACT_CASTS = frozenset({"arith.extsi", "arith.extui", "arith.trunci"})
_ZERO = integer(0)


@dataclass(frozen=True)
class BlockOf:
    """A block of an array behind a descriptor."""

    described: Described
    indices: tuple[Tensor, ...]

    def index(self, place: Index) -> Index:
        """Where a lane is in the array."""
        return tuple(index.int(()) + lane for index, lane in zip(self.indices, place, strict=True))

    def pointer(self, place: Index) -> Pointer:
        """Where a lane is."""
        return Pointer(self.described.buffer, flat(self.index(place), self.described.shape))

    def mask(self, place: Index) -> Cond:
        """Whether a lane is within the array."""
        pairs = zip(self.index(place), self.described.shape, strict=True)
        return conj(*(conj(i >= 0, i < n) for i, n in pairs))


def always(place: Index) -> Cond:
    """A mask that lets everything through."""
    return TRUE


def moved(op: Op, operand: Tensor) -> LaneOf:
    """The same lanes in another shape."""
    source, target = operand.type.shape, op.result.type.shape
    if op.name == "tt.splat":
        return lambda _: operand[()]
    if op.name == "tt.unsplat":
        return lambda _: operand[(_ZERO,) * len(source)]
    if op.name == "tt.broadcast":
        return lambda place: operand[tuple(_ZERO if n == 1 else i for i, n in zip(place, source, strict=True))]
    if op.name == "tt.expand_dims":
        axis = op.integer("axis")
        return lambda place: operand[place[:axis] + place[axis + 1 :]]
    if op.name == "tt.trans":
        order = op.integers("order")
        return lambda place: operand[tuple(place[order.index(axis)] for axis in range(len(order)))]
    return lambda place: operand[_unravelled(flat(place, tuple(map(integer, target))), source)]


def _unravelled(flat: Int, shape: tuple[int, ...]) -> Index:
    place = []
    for axis in range(len(shape)):
        inner = math.prod(shape[axis + 1 :])
        place.append((flat // inner) % shape[axis])
    return tuple(place)


def joined(pair: tuple[Tensor, ...], place: Index) -> Lane:
    """A lane of one of two tensors."""
    last = place[-1].constant
    if last is None:
        raise RefusedError("a lane of a join is not known to be one of the two")
    return pair[last][place[:-1]]


def half_of(whole: Tensor, half: int, place: Index) -> Lane:
    """A lane of one of the two tensors that are joined."""
    return whole[(*place, integer(half))]


def dot(op: Op, left: Tensor, right: Tensor, start: Tensor, place: Index) -> Lane:
    """A chain for each lane."""
    i, j = place
    length, element = integer(left.type.shape[1]), start.type.element
    elements = left.type.element, right.type.element, element
    factors = (lambda k: left.term((i, k))), (lambda k: right.term((k, j)))
    return Chain(length, *factors, start.term(place), elements, element=element, op=op)


def upper_half(x: Int, y: Int, values: int) -> Int:
    """Of the product of two integers without sign, each of as many values."""
    return choose(x >= 0, x, x + values) * choose(y >= 0, y, y + values) // values


def selected(op: Op, lanes: tuple[Lane, ...], type_: Type) -> Lane:
    """One of two lanes."""
    test, yes, no = lanes
    assert isinstance(test, Cond | Test | Joined)
    if isinstance(test, Cond) and test.value is not None:
        return yes if test.value else no
    if isinstance(yes, Pointer | Described) or isinstance(no, Pointer | Described):
        raise RefusedError("a choice between pointers is not understood")
    if isinstance(test, Cond) and isinstance(yes, Int) and isinstance(no, Int):
        return choose(test, yes, no)
    if type_.is_boolean:
        if all(isinstance(lane, Cond) for lane in lanes):
            return disj(conj(test, yes), conj(neg(test), no))  # type: ignore[arg-type]
        raise RefusedError("a choice between conditions depends on a floating-point number")
    return Select(test, as_term(yes, type_.element), as_term(no, type_.element), element=type_.element, op=op)


def compared(op: Op, lanes: tuple[Lane, ...], element: str) -> Lane:
    """A comparison."""
    x, y = lanes
    predicate = op.word("predicate")
    if not (isinstance(x, Int) and isinstance(y, Int)):
        return Test(predicate, as_term(x, element), as_term(y, element), op)
    if predicate not in _PREDICATES:
        raise RefusedError(f"an unsigned comparison ({predicate}) is not understood")
    return _PREDICATES[predicate](x, y)


def logic(op: Op, lanes: tuple[Lane, ...]) -> Lane:
    """And, or, exclusive or of conditions."""
    name = {"arith.andi": "and", "arith.ori": "or", "arith.xori": "xor"}.get(op.name)
    match lanes:
        case (Cond() as x, Cond() as y) if name:
            return {"and": conj(x, y), "or": disj(x, y), "xor": disj(conj(x, neg(y)), conj(neg(x), y))}[name]
        case (Cond() | Test() | Joined() as x, Cond() | Test() | Joined() as y) if name in ("and", "or"):
            return Joined(name, (x, y))
        case (Cond() | Test() | Joined(), Cond() | Test() | Joined()) if name:
            raise RefusedError("an exclusive or depends on a floating-point number")
    raise RefusedError("a condition is made in a way that is not understood")


def loaded(op: Op, pointer: Pointer, mask: Cond, other: LaneOf, place: Index, words: Set[str]) -> Lane:
    """What a load yields: an element of a buffer, which may be one of words, or the other value where it is masked."""
    type_ = op.result.type
    value: Lane
    if type_.is_integer and pointer.buffer not in words:
        half = 1 << (INTEGER_WIDTHS[type_.element] - 1)
        value = element(pointer.buffer, pointer.offset, -half, half - 1)
    else:
        value = Load(pointer.buffer, pointer.offset, element=type_.element, op=op)
    return selected(op, (mask, value, TRUE if mask is TRUE else other(place)), type_)
