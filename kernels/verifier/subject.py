"""A contract at one configuration, as terms: its names, premises, buffers and cells."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from vosti.kernels.contract import Buffer, Constant, Contract, Descriptor, Fact, Integer, Output, Real
from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.expressions import condition, free_names, number
from vosti.kernels.verifier.integers import Atom, Cond, Int, alone, conj, disj, integer, neg, symbol
from vosti.kernels.verifier.integers import element as element_of
from vosti.kernels.verifier.ir import INTEGER_WIDTHS
from vosti.kernels.verifier.queries import Prover
from vosti.kernels.verifier.tensors import Described, flat
from vosti.kernels.verifier.terms import Argument
from vosti.kernels.verifier.vocabulary import BufferArray

_WITHIN = -1
"""In place of a fact's number: the range of a buffer's elements."""

ELEMENTS: Mapping[str, str] = {"bf16": "bf16", "fp16": "f16", "fp32": "f32", "fp64": "f64", "i32": "i32", "i64": "i64"}
"""Element types as contracts name them, and as the typed IR does."""

LONGEST_GRID = (2**31 - 1, 65535, 65535)
"""Programs along each axis of a grid: the driver refuses more."""


@dataclass(frozen=True)
class Stored:
    """A buffer of the contract."""

    name: str
    element: str
    lengths: tuple[Int, ...]

    @property
    def size(self) -> Int:
        """Elements in all."""
        size = integer(1)
        for length in self.lengths:
            size = size * length
        return size


_Trigger = tuple[str, tuple[str | Int, ...]]
"""A buffer, and of each axis the name or the number that indexes it."""


class Subject:
    """See the module's docstring."""

    def __init__(
        self, contract: Contract, constants: Mapping[str, int], elements: Mapping[str, str] | None = None
    ) -> None:
        self.contract, self.constants = contract, dict(constants)
        self.prover = Prover(self._instances)
        self.scope: dict[str, object] = dict(constants)
        self.integers: dict[str, Int] = {}
        parameters = (*contract.parameters, *contract.context)
        for parameter in parameters:
            if isinstance(parameter, Integer):
                low = number(parameter.low, {}).constant
                self.integers[parameter.name] = symbol(parameter.name, low, 2**31 - 1)
            elif isinstance(parameter, Real):
                self.scope[parameter.name] = Argument(parameter.name, element="f32")
            elif isinstance(parameter, Constant) and parameter.name not in constants:
                self.integers[parameter.name] = symbol(parameter.name, 0, 2**31 - 1)
        self.scope |= self.integers
        shaped = [parameter for parameter in parameters if isinstance(parameter, Buffer | Descriptor)]
        sizes = [text for one in shaped for text in one.shape]
        known = {*self.scope, *(parameter.name for parameter in parameters), *dict(contract.definitions)}
        for name in free_names([*contract.grid, *contract.premises, *sizes], known):
            self.scope[name] = symbol(name, 0)
        for name, text in contract.definitions:
            self.scope[name] = number(text, self.scope)
        self.buffers: dict[str, Stored] = {}
        for parameter in shaped:
            element = ELEMENTS[(elements or {}).get(parameter.name, parameter.element)]
            lengths = tuple(number(text, self.scope) for text in parameter.shape)
            self.buffers[parameter.name] = Stored(parameter.name, element, lengths)
            words = isinstance(parameter, Buffer) and parameter.words
            exact = element.startswith("i") and not words
            self.scope[parameter.name] = BufferArray(parameter.name, element, lengths, exact)
        self.described = {
            parameter.name: Described(parameter.name, self.buffers[parameter.name].lengths)
            for parameter in shaped
            if isinstance(parameter, Descriptor)
        }
        self._within = {one.name: one.within for one in shaped if isinstance(one, Buffer) and one.within}
        self._facts = [(fact, list(_triggers(fact))) for fact in contract.facts]
        self._places: dict[Atom, tuple[Int, ...] | None] = {}
        self._made: dict[tuple[int, str, tuple[Int, ...]], Cond] = {}
        self.extents = tuple(number(text, self.scope) for text in contract.grid)
        self.programs = {axis: self._program(axis, extent) for axis, extent in zip("xyz", self.extents, strict=True)}
        self.premises = (
            *(condition(text, self.scope) for text in contract.premises),
            *(extent <= most for extent, most in zip(self.extents, LONGEST_GRID, strict=True)),
        )

    def _program(self, axis: str, extent: Int) -> Int:
        if extent.constant == 1:
            return integer(0)
        return self.prover.ranged(axis, extent)

    # ------------------------------------------------------------ what integer buffers hold

    def element(self, buffer: str, offset: Int) -> Int | None:
        """An element of a buffer of integers; None of one that holds numbers, or words."""
        array = self.scope.get(buffer)
        if not isinstance(array, BufferArray) or not array.integers:
            return None
        half = 1 << INTEGER_WIDTHS[self.buffers[buffer].element] - 1
        return element_of(buffer, offset, -half, half - 1)

    def _instances(self, met: Atom, before: Iterable[Atom]) -> Iterator[Cond]:
        """The premises on the contents of integer buffers, of an element and of those met before it."""
        place = self._place(met)
        if place is None:
            return
        buffer = met.name
        if buffer in self._within:
            yield self._instance(_WITHIN, buffer, place)
        places: dict[str, list[tuple[Int, ...]]] = {buffer: [place]}
        for other in before:
            known = self._place(other)
            if known is not None:
                places.setdefault(other.name, []).append(known)
        for number_, (fact, triggers) in enumerate(self._facts):
            if any(name == buffer for name, _ in triggers):
                yield from self._instantiated(number_, fact, triggers, buffer, place, places)

    def _place(self, element: Atom) -> tuple[Int, ...] | None:
        """The index of an element of a buffer of the contract."""
        if element not in self._places:
            stored, index = self.buffers.get(element.name), element.parts[1]
            assert isinstance(index, Int)
            self._places[element] = (coordinates(index, stored.lengths) if stored else ()) or None
        return self._places[element]

    def _instantiated(
        self,
        fact_number: int,
        fact: Fact,
        triggers: list[_Trigger],
        buffer: str,
        place: tuple[Int, ...],
        places: Mapping[str, list[tuple[Int, ...]]],
    ) -> Iterator[Cond]:
        """A fact at all indices that were met, at least one of them the given one."""
        choices: dict[str, dict[Int, None]] = {name: {} for name in fact.names}
        for name, indices in triggers:
            for met in places.get(name, ()):
                for index, at in zip(indices, met, strict=True):
                    if isinstance(index, str):
                        choices[index][at] = None
        for values in itertools.product(*(choices[name] for name in fact.names)):
            named = dict(zip(fact.names, values, strict=True))
            if any(n == buffer and _named(indices, named) == place for n, indices in triggers):
                yield self._instance(fact_number, "", values)

    def _instance(self, which: int, buffer: str, values: tuple[Int, ...]) -> Cond:
        """One instance of a premise, made once."""
        key = which, buffer, values
        if key not in self._made:
            if which == _WITHIN:
                array, (low, high) = self.scope[buffer], self._within[buffer]
                assert isinstance(array, BufferArray)
                value = array.at(values)
                assert isinstance(value, Int)
                holds = conj(value >= number(low, self.scope), value < number(high, self.scope))
                exists = inside(values, self.buffers[buffer].lengths)
            else:
                fact, triggers = self._facts[which]
                scope = {**self.scope, **dict(zip(fact.names, values, strict=True))}
                holds = condition(fact.holds, scope)
                named = dict(zip(fact.names, values, strict=True))
                exists = conj(*(inside(_named(indices, named), self.buffers[n].lengths) for n, indices in triggers))
            self._made[key] = disj(neg(exists), holds)
        return self._made[key]

    # ------------------------------------------------------------ cells

    def names(self, output: Output) -> tuple[str, ...]:
        """The names of a cell."""
        own = [part for part in output.cell if part.isidentifier() and part not in self.scope]
        return tuple(dict.fromkeys([*own, *(name for name, _ in output.names)]))

    def place(self, output: Output, offset: Int) -> tuple[Int, ...]:
        """The index of an offset in a buffer."""
        place = coordinates(offset, self.buffers[output.buffer].lengths)
        if len(place) != len(output.cell):
            raise RefusedError(f"An offset in {output.buffer} is not understood: {offset}")
        return place

    def named(self, output: Output, place: tuple[Int, ...], coordinate: Mapping[str, Int]) -> dict[str, object]:
        """The scope in which the names are those of the cell at an index that a program writes."""
        scope, writer = dict(self.scope), {**self.scope, **coordinate}
        for part, index in zip(output.cell, place, strict=True):
            if part in self.names(output):
                scope[part] = index
        for name, text in output.names:
            scope[name] = number(text, writer)
        return scope

    def index(self, output: Output, scope: Mapping[str, object]) -> tuple[Int, ...]:
        """The index of the cell that the scope names."""
        return tuple(number(part, scope) for part in output.cell)

    def exists(self, output: Output, scope: Mapping[str, object]) -> Cond:
        """Whether the cell that the scope names is one, and is written."""
        place, lengths = self.index(output, scope), self.buffers[output.buffer].lengths
        return conj(condition(output.when, scope), inside(place, lengths))

    def offset(self, output: Output, scope: Mapping[str, object]) -> Int:
        """Where the cell that the scope names lies."""
        return flat(self.index(output, scope), self.buffers[output.buffer].lengths)


def inside(place: Iterable[Int], lengths: Iterable[Int]) -> Cond:
    """Whether an index lies within the lengths."""
    return conj(*(conj(i >= 0, i < n) for i, n in zip(place, lengths, strict=True)))


def coordinates(offset: Int, lengths: tuple[Int, ...]) -> tuple[Int, ...]:
    """The index of an element, guessed from the shape of its offset; flattened, it is that offset again."""
    place = []
    rest = offset
    for axis in range(len(lengths)):
        stride = integer(1)
        for length in lengths[axis + 1 :]:
            stride = stride * length
        if len(stride.terms) != 1:
            return ()
        ((unit, factor),) = stride.terms
        index = integer(0)
        for monomial, coefficient in rest.terms:
            left = _without(monomial, unit)
            if left is None or (coefficient % factor and left):
                continue
            part = integer(coefficient // factor)
            for atom in left:
                part = part * alone(atom)
            index = index + part
        place.append(index)
        rest = rest - index * stride
    return tuple(place)


def _without(monomial: tuple[Atom, ...], unit: tuple[Atom, ...]) -> tuple[Atom, ...] | None:
    left = list(monomial)
    for atom in unit:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _triggers(fact: Fact) -> Iterator[_Trigger]:
    """The buffers that a fact indexes by its names and by numbers alone."""
    found: dict[_Trigger, None] = {}
    for node in ast.walk(ast.parse(fact.holds, mode="eval")):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            if fact.at and node.value.id not in fact.at:
                continue
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            indices = [_index(part, fact) for part in parts]
            if None not in indices and any(isinstance(index, str) for index in indices):
                found[node.value.id, tuple(index for index in indices if index is not None)] = None
    yield from found


def _index(part: ast.expr, fact: Fact) -> str | Int | None:
    """One of the fact's names, or a number."""
    if isinstance(part, ast.Constant):
        return integer(part.value)  # type: ignore[arg-type]
    return part.id if isinstance(part, ast.Name) and part.id in fact.names else None


def _named(indices: Iterable[str | Int], names: Mapping[str, Int]) -> tuple[Int, ...]:
    """The index that some names and numbers are."""
    return tuple(names[index] if isinstance(index, str) else index for index in indices)
