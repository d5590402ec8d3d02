"""The typed tile IR: what a kernel is to the verifier, and which operations it may have.

A `Kernel` is the typed IR (TTIR) that Triton's front end emits and the compiler consumes, as frozen data. Names are
resolved: every SSA value is a `Value` with a number of its own in the kernel, defined once, by a parameter, a block
argument or an operation's result. Every block ends with its terminator, also where the text leaves it out.

`vosti.kernels.verifier.legal` is the closed table of operations: their operands, attributes, types and meaning. An
`Op` that was made by `vosti.kernels.verifier.parse` is legal. What to know of single operations:

- Operands come in the order of the text. `scf.for`: lower bound, upper bound, step, initial values; its block has the
  induction variable and then the carried values. `tt.load`: pointer, then mask, then other, each only with what is
  before it. `tt.store`: pointer, value, then mask. `tt.descriptor_load`: descriptor, indices. `tt.descriptor_store`:
  descriptor, indices, value.
- `scf.if` has two blocks; the second one has only its terminator where the text has no else.
- A constant has the attribute `value`: an integer as it is (i1: 0 or 1), a floating-point number as its bit pattern,
  so that 0.0 and −0.0 differ and NaN equals itself. A tensor constant has that value in every lane.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

INTEGER_WIDTHS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
"""Bits of the integer elements. i1 is a truth value; the others are signed where the operation says so."""

FLOAT_WIDTHS = {"bf16": 16, "f16": 16, "f32": 32, "f64": 64}
"""Bits of the floating-point elements."""


class Kind(Enum):
    """What an element of a type is."""

    NUMBER = "number"
    POINTER = "pointer"
    """A pointer to elements of global memory."""

    DESCRIPTOR = "descriptor"
    """A tensor descriptor; the type's shape is that of the blocks it loads and stores."""


@dataclass(frozen=True)
class Type:
    """The type of a value."""

    element: str
    """One of `INTEGER_WIDTHS` or `FLOAT_WIDTHS`; of a pointer or a descriptor, the element it points to."""

    shape: tuple[int, ...] = ()
    """Lengths of the axes; () for a scalar."""

    kind: Kind = Kind.NUMBER

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer or a tensor of integers, truth values included."""
        return self.kind is Kind.NUMBER and self.element in INTEGER_WIDTHS

    @property
    def is_boolean(self) -> bool:
        """Whether it is a truth value or a tensor of truth values."""
        return self.kind is Kind.NUMBER and self.element == "i1"

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point number or a tensor of such."""
        return self.kind is Kind.NUMBER and self.element in FLOAT_WIDTHS

    @property
    def is_pointer(self) -> bool:
        """Whether it is a pointer or a tensor of pointers."""
        return self.kind is Kind.POINTER

    def of(self, element: str) -> Type:
        """Numbers of this shape."""
        return Type(element, self.shape)

    def with_shape(self, *shape: int) -> Type:
        """The same elements in another shape."""
        return Type(self.element, shape, self.kind)

    def __str__(self) -> str:
        """As TTIR writes it."""
        lengths = "".join(f"{length}x" for length in self.shape)
        if self.kind is Kind.DESCRIPTOR:
            return f"!tt.tensordesc<tensor<{lengths}{self.element}>>"
        element = f"!tt.ptr<{self.element}>" if self.is_pointer else self.element
        return f"tensor<{lengths}{element}>" if self.shape else element


@dataclass(frozen=True)
class Location:
    """A line of a kernel's source."""

    file: str
    line: int
    column: int
    caller: Location | None = None
    """Where the function that holds the line was called, if it was inlined."""

    def __str__(self) -> str:
        """The file's last name and the line, innermost function first."""
        place = f"{self.file.rpartition('/')[2]}:{self.line}"
        return place if self.caller is None else f"{place}, called at {self.caller}"


@dataclass(frozen=True)
class Value:
    """An SSA value."""

    number: int
    """Of its own in the kernel; values are equal if their numbers are."""

    name: str = field(compare=False)
    """In the text, without the percent sign. Not unique: sibling regions repeat names."""

    type: Type = field(compare=False)


Attribute = int | str | tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Op:
    """An operation. Compared by identity."""

    name: str
    """With its dialect, as in arith.addi."""

    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    regions: tuple[Block, ...] = ()
    location: Location | None = None
    """None where the compilation was made without line information, and for constants that it moved."""

    line: int = 0
    """In the text of the typed IR, from 1."""

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    def integer(self, name: str) -> int:
        """An attribute that is an integer."""
        value = dict(self.attributes)[name]
        assert isinstance(value, int)
        return value

    def word(self, name: str) -> str:
        """An attribute that is a word, such as a predicate."""
        value = dict(self.attributes)[name]
        assert isinstance(value, str)
        return value

    def integers(self, name: str) -> tuple[int, ...]:
        """An attribute that is a sequence of integers."""
        value = dict(self.attributes)[name]
        assert isinstance(value, tuple)
        return value

    def __str__(self) -> str:
        """For messages: the operation and where it stands."""
        return f"{self.name} at {self.location}" if self.location else f"{self.name} (line {self.line} of the typed IR)"


@dataclass(frozen=True, eq=False)
class Block:
    """A sequence of operations, the last one its terminator."""

    arguments: tuple[Value, ...]
    ops: tuple[Op, ...]

    @property
    def terminator(self) -> Op:
        """tt.return, scf.yield, tt.reduce.return or tt.scan.return."""
        return self.ops[-1]

    def walk(self) -> Iterator[Op]:
        """Every operation, those of inner blocks after the operation that holds them."""
        for op in self.ops:
            yield op
            for block in op.regions:
                yield from block.walk()


@dataclass(frozen=True)
class Parameter:
    """A parameter of the compiled function."""

    value: Value
    source: str
    """The name in the kernel's source. A descriptor has further parameters of its name: shape (i32), strides (i64)."""

    divisibility: int = 1
    """What the compiler may take the integer or the address to be a multiple of: a premise of the launch."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel."""

    name: str
    parameters: tuple[Parameter, ...]
    body: Block

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of all that is here but names, locations and lines."""
        lines = [self.name, *(f"{_canonical(p.value)} {p.divisibility}" for p in self.parameters)]
        _write(self.body, lines)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _canonical(value: Value) -> str:
    return f"%{value.number}: {value.type}"


def _write(block: Block, lines: list[str]) -> None:
    lines.append(f"({', '.join(map(_canonical, block.arguments))})")
    for op in block.ops:
        operands = [value.number for value in op.operands]
        lines.append(f"{op.name} {operands} {sorted(op.attributes)} {', '.join(map(_canonical, op.results))}")
        for region in op.regions:
            _write(region, lines)
        lines.extend(["end"] * len(op.regions))


_FORMATS = {"f16": ("e", "H"), "f32": ("f", "I"), "f64": ("d", "Q")}


def float_value(element: str, bits: int) -> float:
    """The number with this bit pattern."""
    if element == "bf16":
        element, bits = "f32", bits << 16
    number, pattern = _FORMATS[element]
    return float(struct.unpack(number, struct.pack(pattern, bits))[0])


def float_bits(element: str, value: float) -> int:
    """The bit pattern of a number, rounded to nearest, ties to even; infinite beyond the range."""
    if element == "bf16":
        bits = float_bits("f32", value)
        return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 if value == value else 0x7FC0
    number, pattern = _FORMATS[element]
    try:
        packed = struct.pack(number, value)
    except OverflowError:
        packed = struct.pack(number, math.copysign(math.inf, value))
    return int(struct.unpack(pattern, packed)[0])
