"""What a kernel promises: a typed description that stands beside the kernel and can be read by a program.

A contract says, of one kernel: what its parameters are, over which grid it runs, which premises a launch must meet,
what the logical inputs of one row are, and which row program of `vosti.spec.numerics` each output row equals. Sizes,
bounds and premises are Python expressions over the parameters' names, so that a launcher can evaluate them and a
verifier can parse them; `cdiv`, `min` and `max` are the only functions in them. The premises that are not arithmetic
are common to all kernels: buffers do not overlap (but where one is updated in place), pointers are multiples of
`ALIGNMENT` bytes, and integers fit 32 bits. What `vosti.kernels.verifier` proves of a kernel is its `outputs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from types import CodeType

from vosti.kernels.errors import PremiseError

ALIGNMENT = 16
"""Bytes that every pointer is a multiple of."""


class Access(Enum):
    """What a kernel does with a buffer."""

    READ = "read"
    WRITE = "write"
    UPDATE = "update"
    """Reads and writes; each element is read and written by one program alone."""


@dataclass(frozen=True)
class Buffer:
    """A pointer to the first element of a contiguous array."""

    name: str
    element: str
    """Element type, as Triton names it."""

    shape: tuple[str, ...]
    """Lengths of the axes, the last varying fastest."""

    access: Access = Access.READ
    within: tuple[str, str] | None = None
    """Of integers: the lowest value and one more than the highest."""

    or_element: str | None = None
    """Another element type that the buffer may have."""

    words: bool = False
    """Whether its integers are words: bits, whose arithmetic is that of numbers modulo a power of 2."""


@dataclass(frozen=True)
class Descriptor:
    """A tensor descriptor of a contiguous array, made by the launcher; a read beyond the array gives 0."""

    name: str
    element: str
    shape: tuple[str, ...]
    block: tuple[str, ...]
    access: Access = Access.READ


@dataclass(frozen=True)
class Integer:
    """A 32-bit integer that the compiled kernel must not depend on: excluded from specialisation."""

    name: str
    low: str = "0"


@dataclass(frozen=True)
class Real:
    """A binary32 number."""

    name: str


@dataclass(frozen=True)
class Constant:
    """A compile-time parameter."""

    name: str


Parameter = Buffer | Descriptor | Integer | Real | Constant


@dataclass(frozen=True)
class Output:
    """The cells of a buffer that are written, what they equal, and who writes each; every other cell keeps its value.

    All are expressions over the parameters, the integer buffers, the contract's definitions, and the names of a cell.
    """

    buffer: str
    cell: tuple[str, ...]
    """The cell's index. A part that is a name by itself ranges over its axis."""

    value: str
    """The row program's result that is stored there, before it is rounded to the buffer's element type.

    Over the row programs of `vosti.spec.numerics`, their first argument left out, and the words of
    `vosti.kernels.verifier.vocabulary`.
    """

    program: tuple[str, str, str]
    """The number of the program that writes the cell: x, y, z."""

    lanes: tuple[str, ...] = ()
    """The lane that holds it, of each axis of what is stored."""

    iterations: tuple[str, ...] = ()
    """The numbers of the iterations of the loops around the store, outermost first."""

    names: tuple[tuple[str, str], ...] = ()
    """The names of a cell that are no part of its index, from the program (x, y, z), the lanes (l0, l1, …) and the
    iterations (t0, …) that write it."""

    when: str = "True"
    """Which cells are written."""

    stated: str = "True"
    """Of which cells that are written the value is stated."""


@dataclass(frozen=True)
class Fact:
    """A premise on what integer buffers hold, for all indices that its names can be."""

    names: tuple[str, ...]
    holds: str
    kept: str
    """Where it is seen to."""

    at: tuple[str, ...] = ()
    """The buffers at whose elements it is looked at; all that it indexes by its names, if none is named."""


@dataclass(frozen=True, eq=False)
class Contract:
    """See the module's docstring."""

    kernel: str
    row_program: str
    """The function of `vosti.spec.numerics`, or a composition of several, that one row computes."""

    parameters: tuple[Parameter, ...]
    grid: tuple[str, str, str]
    premises: tuple[str, ...]
    """Of a launch. One that mentions compile-time parameters alone is decided once, when the tile is chosen."""

    row_inputs: tuple[str, ...]
    """All that an output row is a function of."""

    outputs: tuple[Output, ...]
    conclusion: str
    """The claim in words."""

    definitions: tuple[tuple[str, str], ...] = ()
    """Names that stand for expressions."""

    facts: tuple[Fact, ...] = ()
    """Premises on the contents of integer buffers, beside those of `Buffer.within`."""

    in_place: tuple[tuple[str, str, str], ...] = ()
    """(written, read, condition): two parameters that may be one buffer if the condition holds."""

    own_programs: tuple[Callable[..., object], ...] = ()
    """Row programs of its own, in the form of `vosti.spec.numerics`: outputs' values call them by name."""

    context: tuple[Parameter, ...] = ()
    """Parameters of an earlier launch, of which this one reads results, and numbers that facts define and no launch
    has: names in the outputs' values and in facts."""

    sums: tuple[str, ...] = ()
    """What sums of integers over lanes may come to: of the lanes below `l`, in the program x, y, z. Where a sum is said
    to be one of these, that is shown."""

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of all parameters."""
        return frozenset(parameter.name for parameter in self.parameters)

    @cached_property
    def constants(self) -> tuple[str, ...]:
        """Names of the compile-time parameters, in order."""
        return tuple(parameter.name for parameter in self.parameters if isinstance(parameter, Constant))

    @cached_property
    def _premises_by_kind(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The premises that constants alone decide, and the others."""
        decided = set(self.constants) | set(_FUNCTIONS)
        kinds = [set(_compiled(premise).co_names) <= decided for premise in self.premises]
        constant = tuple(premise for premise, alone in zip(self.premises, kinds, strict=True) if alone)
        return constant, tuple(premise for premise in self.premises if premise not in constant)

    def check_constants(self, values: Mapping[str, object]) -> None:
        """Raise `PremiseError` for the first premise on constants alone that is false of these values."""
        self._check(self._premises_by_kind[0], values)

    def check_launch(self, values: Mapping[str, object]) -> None:
        """Raise `PremiseError` for the first of the other premises that is false of these values."""
        self._check(self._premises_by_kind[1], values)

    def _check(self, premises: tuple[str, ...], values: Mapping[str, object]) -> None:
        for premise in premises:
            if not _evaluate(premise, values):
                known = {name: values[name] for name in _compiled(premise).co_names if name in values}
                raise PremiseError(f"{self.kernel} needs {premise}, which is false of {known}.")

    def programs(self, values: Mapping[str, object]) -> tuple[int, int, int]:
        """The grid for these values of the parameters."""
        x, y, z = (size(axis, values) for axis in self.grid)
        return x, y, z


def size(expression: str, values: Mapping[str, object]) -> int:
    """The value of an expression that is an integer."""
    return int(str(_evaluate(expression, values)))


def cdiv(x: int, y: int) -> int:
    """⌈x / y⌉ for y > 0."""
    return -(-x // y)


_FUNCTIONS = {"cdiv": cdiv, "min": min, "max": max}
_GLOBALS = {"__builtins__": {}, **_FUNCTIONS}


@cache
def _compiled(expression: str) -> CodeType:
    return compile(expression, "contract", "eval")


def _evaluate(expression: str, values: Mapping[str, object]) -> object:
    # The expressions are this folder's own text, never a user's.
    return eval(_compiled(expression), _GLOBALS, values)
