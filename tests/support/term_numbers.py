"""Terms as numbers: what a row program's term is worth when memory and lanes are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vosti.kernels.verifier.canonical import Array, Terms
from vosti.kernels.verifier.integers import Atom, Cond, Int, disj, integer, rewritten
from vosti.kernels.verifier.ir import INTEGER_WIDTHS, float_bits
from vosti.kernels.verifier.queries import Prover
from vosti.kernels.verifier.terms import (
    Apply,
    Argument,
    Chain,
    Condition,
    Constant,
    Fold,
    Index,
    Joined,
    Load,
    Reduce,
    Result,
    Select,
    State,
    Sum,
    Term,
    Test,
    Truth,
    Whole,
    number,
)
from vosti.spec.numerics.floats import Array as Numbers
from vosti.spec.numerics.floats import Floats, array, binary32

FLOATS = Floats()
_BINARY = {"addf": "add", "subf": "sub", "mulf": "mul", "precise_divf": "div", "maxnumf": "maximum"}
_WORDS: Mapping[str, Callable[[int, int], int]] = {
    "addi": lambda x, y: x + y,
    "muli": lambda x, y: x * y,
    "andi": lambda x, y: x & y,
    "ori": lambda x, y: x | y,
    "xori": lambda x, y: x ^ y,
    "shli": lambda x, y: x << y,
    "shrui": lambda x, y: x >> y,
}
_UNARY = {"negf": "negate", "exp": "exp", "__nv_tanhf": "tanh"}

Place = tuple[int, ...]
Frame = tuple[tuple[int, int], ...]
"""The loops that are being run, by identity, and the number of the iteration of each."""


class EveryLane(Terms):
    """The primitives as terms, with no lane left to a witness."""

    def any_lane(self, live: Array) -> Array:
        """Whether any of the last axis is true, all of them looked at."""

        def at(place: Index) -> Cond:
            lanes = [live.at((*place[:-1], integer(k))) for k in range(live.shape[-1])]
            return disj(*(lane for lane in lanes if isinstance(lane, Cond)))

        return Array((*live.shape[:-1], 1), at)


def primitives() -> EveryLane:
    """Terms over float32 weights, which no conversion rounds."""
    return EveryLane(Prover(), "f32")


class Memory:
    """Numbers of terms, given buffers, parameters and what integer buffers hold."""

    def __init__(
        self,
        buffers: Mapping[str, Sequence[float]],
        arguments: Mapping[str, float] | None = None,
        integers: Mapping[str, Sequence[int]] | None = None,
        symbols: Mapping[Atom, int] | None = None,
    ) -> None:
        self.buffers, self.arguments, self.integers = buffers, arguments or {}, integers or {}
        self.symbols = symbols or {}
        self._cells: dict[tuple[Any, ...], float] = {}
        self._numbers: dict[tuple[Term, Frame], float] = {}

    def index(self, value: Int) -> int:
        """An integer that depends on nothing but memory."""
        known = self._known(value)
        assert isinstance(known, Int)
        assert known.constant is not None, known
        return known.constant

    def _known(self, part: Int | Cond) -> Int | Cond:
        return rewritten(part, self._element, lambda _: None, {})

    def _element(self, atom: Atom) -> Int | None:
        if atom in self.symbols:
            return integer(self.symbols[atom])
        if atom.kind != "element":
            return None
        index = atom.parts[1]
        assert isinstance(index, Int)
        return integer(int(self.integers[atom.name][self.index(index)]))

    def number(self, term: Term, frame: Frame = ()) -> float:
        """What a term is worth."""
        if (term, frame) not in self._numbers:
            self._numbers[term, frame] = self._number(term, frame)
        return self._numbers[term, frame]

    def _number(self, term: Term, frame: Frame) -> float:
        if isinstance(term, Constant):
            return number(term)
        if isinstance(term, Load):
            found = self.buffers[term.buffer][self.index(term.offset)]
            return int(found) if term.element in INTEGER_WIDTHS else float(found)
        if isinstance(term, Whole):
            return self.index(term.value)
        if isinstance(term, Truth):
            return int(self.holds(term.condition, frame))
        if isinstance(term, Argument):
            return binary32(self.arguments[term.name])
        if isinstance(term, Select):
            return self.number(term.yes if self.holds(term.condition, frame) else term.no, frame)
        if isinstance(term, Apply):
            return self._applied(term, frame)
        if isinstance(term, Reduce):
            lanes = [self.number(term.body(integer(k)), frame) for k in range(term.length)]
            if term.name == "addi":
                return _signed(sum(map(int, lanes)), term.element)
            return binary32(sum(lanes)) if term.name == "addf" else max(lanes)
        if isinstance(term, Sum):
            words = [int(self.number(term.body(integer(k)), frame)) for k in range(self.index(term.length))]
            return _signed(sum(words), term.element)
        if isinstance(term, Chain):
            total = 0.0
            for k in range(self.index(term.length)):
                left, right = (self.number(side(integer(k)), frame) for side in (term.left, term.right))
                total = binary32(total + left * right)
            # Without tensor cores, what a chain starts from is added to it.
            return binary32(self.number(term.start, frame) + total)
        assert isinstance(term, State | Result)
        times = self._times(term, frame)
        return self._cell(term.fold, term.cell, tuple(map(self.index, term.place)), times, frame)

    def _times(self, term: State | Result, frame: Frame) -> int:
        if isinstance(term, State):
            return dict(frame)[id(term.fold)]
        length = self.index(term.fold.high) - self.index(term.fold.low)
        return max(0, -(-length // term.fold.step))

    def _cell(self, fold: Fold, cell: int, place: Place, times: int, frame: Frame) -> float:
        outer = frame[: [key for key, _ in frame].index(id(fold))] if id(fold) in dict(frame) else frame
        key = (id(fold), cell, place, times, outer)
        if key not in self._cells:
            index = tuple(map(integer, place))
            if times == 0:
                self._cells[key] = self.number(fold.initial(cell, index), outer)
            else:
                after = fold.after(cell, index, fold.low + fold.step * (times - 1))
                self._cells[key] = self.number(after, (*outer, (id(fold), times - 1)))
        return self._cells[key]

    def _applied(self, term: Apply, frame: Frame) -> float:
        values = [self.number(argument, frame) for argument in term.arguments]
        if term.name in _WORDS:
            left, right = (int(value) % (1 << INTEGER_WIDTHS[term.element]) for value in values)
            return _signed(_WORDS[term.name](left, right), term.element)
        if term.name == "extui:i64":
            return int(values[0]) % (1 << INTEGER_WIDTHS[term.arguments[0].element])
        if term.name == "bitcast:i32":
            return float_bits("f32", values[0])
        if term.name == "precise_sqrt":
            return binary32(values[0] ** 0.5)
        name = _BINARY.get(term.name) or _UNARY[term.name]
        result: Numbers = getattr(FLOATS, name)(*(array([value], 1) for value in values))
        return result.elements[0]

    def holds(self, one: Condition, frame: Frame = ()) -> bool:
        """Whether a condition holds."""
        if isinstance(one, Cond):
            known = self._known(one)
            assert isinstance(known, Cond)
            assert known.value is not None, known
            return known.value
        if isinstance(one, Joined):
            parts = [self.holds(part, frame) for part in one.parts]
            return any(parts) if one.name == "or" else all(parts)
        assert isinstance(one, Test)
        assert one.predicate in ("oeq", "eq")
        return self.number(one.left, frame) == self.number(one.right, frame)


def _signed(value: int, element: str) -> int:
    """The number of this element type with the same lower bits."""
    width = INTEGER_WIDTHS[element]
    return (value + (1 << width - 1)) % (1 << width) - (1 << width - 1)


def buffer(name: str, *shape: int) -> Array:
    """A whole buffer of float32 as an array of terms."""

    def at(place: Index) -> Term:
        offset = integer(0)
        for index, length in zip(place, shape, strict=True):
            offset = offset * length + index
        return Load(name, offset, element="f32")

    return Array(shape, at)
