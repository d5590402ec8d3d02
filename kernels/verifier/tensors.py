"""Tensors of a kernel: functions from lanes to what stands there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.integers import Cond, Int, integer
from vosti.kernels.verifier.ir import Type
from vosti.kernels.verifier.terms import Index, Joined, Term, Test, Truth, Whole


@dataclass(frozen=True)
class Pointer:
    """An element of a buffer, in or out of bounds."""

    buffer: str
    offset: Int

    def advanced(self, count: Int) -> Pointer:
        """As many elements further."""
        return Pointer(self.buffer, self.offset + count)


@dataclass(frozen=True)
class Described:
    """A contiguous array behind a tensor descriptor."""

    buffer: str
    shape: tuple[Int, ...]


Lane: TypeAlias = Int | Cond | Test | Joined | Term | Pointer | Described

LaneOf: TypeAlias = Callable[[Index], Lane]


class Tensor:
    """A value of the kernel. Its lanes are made when they are asked for, once."""

    def __init__(self, type_: Type, lane: LaneOf) -> None:
        self.type = type_
        self._lane = lane
        self._known: dict[Index, Lane] = {}

    def __getitem__(self, place: Index) -> Lane:
        if place not in self._known:
            self._known[place] = self._lane(place)
        return self._known[place]

    def place(self, term: Term) -> Index | None:
        """A place at which this very term was met."""
        return next((place for place, lane in self._known.items() if lane is term), None)

    def int(self, place: Index) -> Int:
        """A lane that is an exact integer. Raises `RefusedError` if it depends on floating-point numbers."""
        value = self[place]
        if not isinstance(value, Int):
            raise RefusedError("an address, a bound or a divisor depends on a floating-point number or a word")
        return value

    def cond(self, place: Index) -> Cond:
        """A lane that is an exact condition. Raises `RefusedError` if it depends on floating-point numbers."""
        value = self[place]
        if not isinstance(value, Cond):
            raise RefusedError("a mask or a branch depends on a floating-point number or a word")
        return value

    def term(self, place: Index) -> Term:
        """A lane as a term."""
        return as_term(self[place], self.type.element)

    def pointer(self, place: Index) -> Pointer:
        """A lane that is a pointer."""
        value = self[place]
        assert isinstance(value, Pointer)
        return value


def as_term(value: Lane, element: str) -> Term:
    """A lane as a term."""
    if isinstance(value, Term):
        return value
    if isinstance(value, Int):
        return Whole(value, element=element)
    assert isinstance(value, Cond | Test | Joined)
    return Truth(value, element=element)


def flat(place: Index, shape: tuple[Int, ...]) -> Int:
    """The number of an element in an array whose last axis runs fastest."""
    total = integer(0)
    for index, length in zip(place, shape, strict=True):
        total = total * length + index
    return total
