"""An interpreter of the tile IR: runs a kernel on arrays, to test that the front reads what the compiler means.

It follows the meanings in `vosti.kernels.verifier.legal`, one program of the grid after another, with numpy for lanes.
It is exact but for sums of products, which are rounded once from binary64, and for functions, which are numpy's. bf16
numbers are held as binary32 numbers, and in buffers as their upper 16 bits.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from vosti.kernels.verifier.errors import VerifierError
from vosti.kernels.verifier.ir import Block, Kernel, Op, Type, Value, float_value

Lanes = np.ndarray[Any, np.dtype[Any]]

_HELD = {
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "bf16": np.float32,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
}
"""How an element is held in a register."""


class InterpretationError(VerifierError):
    """A program does what the IR leaves undefined; the message names the operation."""


@dataclass(frozen=True, eq=False)
class Pointers:
    """Lanes of pointers into one buffer."""

    buffer: Lanes
    offsets: Lanes


@dataclass(frozen=True, eq=False)
class Array:
    """What a tensor descriptor describes: axis i has shape[i] elements, strides[i] apart; the first is offset's."""

    buffer: Lanes
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


Held = Lanes | Pointers | Array
Argument = Lanes | Array | int | float


def run(kernel: Kernel, arguments: Mapping[str, Argument], grid: tuple[int, int, int]) -> None:
    """Run every program of a grid on `arguments`, which are named as in the kernel's source; buffers are changed.

    A buffer is a one-dimensional array: of bf16, of uint16. Raises `InterpretationError` for what is undefined: an
    access outside a buffer, two lanes that store different values in one place, a division by zero.
    """
    environment: dict[int, Held] = {}
    seen: set[str] = set()
    for parameter in kernel.parameters:
        if parameter.source not in seen:
            environment[parameter.value.number] = _argument(parameter.value.type, arguments[parameter.source])
        seen.add(parameter.source)
    with np.errstate(all="ignore"):
        for z, y, x in itertools.product(*(range(length) for length in reversed(grid))):
            _Program(dict(zip("xyz", (x, y, z), strict=True)), dict(zip("xyz", grid, strict=True))).block(
                kernel.body, dict(environment)
            )


def _argument(type_: Type, argument: Argument) -> Held:
    if isinstance(argument, Array):
        return argument
    if type_.is_pointer:
        return Pointers(np.asarray(argument), np.zeros((), np.int64))
    return np.asarray(argument, _HELD[type_.element])


@dataclass(frozen=True)
class _Program:
    """One program of the grid."""

    ids: Mapping[str, int]
    counts: Mapping[str, int]

    def block(self, block: Block, environment: dict[int, Held]) -> list[Held]:
        """Run the operations; what the terminator gives."""
        for op in block.ops[:-1]:
            operands = [environment[value.number] for value in op.operands]
            if op.name == "scf.for":
                results = self.loop(op, operands, environment)
            elif op.name == "scf.if":
                results = self.block(op.regions[0 if operands[0] else 1], dict(environment))
            else:
                results = self.results(op, operands)
            environment.update((value.number, held) for value, held in zip(op.results, results, strict=True))
        return [environment[value.number] for value in block.terminator.operands]

    def loop(self, op: Op, operands: list[Held], environment: dict[int, Held]) -> list[Held]:
        """A loop over a range; what is carried after the last iteration."""
        lower, upper, step = (_integer(bound) for bound in operands[:3])
        if step <= 0:
            raise InterpretationError(f"{op} has the step {step}.")
        (body,) = op.regions
        carried = operands[3:]
        for index in range(lower, upper, step):
            inner = dict(environment)
            variable: Lanes = np.asarray(index, _HELD[op.operands[0].type.element])
            inner.update((value.number, held) for value, held in zip(body.arguments, (variable, *carried), strict=True))
            carried = self.block(body, inner)
        return carried

    def results(self, op: Op, operands: list[Held]) -> list[Held]:
        """The results of an operation without blocks, or of a reduction or a scan."""
        if op.name in ("tt.get_program_id", "tt.get_num_programs"):
            indices = self.ids if op.name == "tt.get_program_id" else self.counts
            return [np.asarray(indices[op.word("axis")], np.int32)]
        if op.name in ("tt.reduce", "tt.scan"):
            return [self.folded(op, operands[0])]
        if op.name in _MOVES:
            return _MOVES[op.name](op, *operands)
        result = _NUMBERS[op.name](op, *operands)
        return [np.asarray(result).astype(_HELD[op.result.type.element])]

    def folded(self, op: Op, lanes: Held) -> Held:
        """An axis folded in ascending order: as a whole, or up to each lane."""
        (body,) = op.regions
        assert isinstance(lanes, np.ndarray)

        def combine(x: Lanes, y: Lanes) -> Lanes:
            environment: dict[int, Held] = dict(zip((value.number for value in body.arguments), (x, y), strict=True))
            (result,) = self.block(body, environment)
            return np.asarray(result)

        axis = op.integer("axis")
        along = np.moveaxis(lanes, axis, 0)
        if op.name == "tt.reduce":
            return np.asarray(reduce(combine, along))
        order = slice(None, None, -1 if op.integer("reverse") else 1)
        found: list[Lanes] = []
        for lane in along[order]:
            found.append(combine(found[-1], lane) if found else lane)
        return np.moveaxis(np.stack(found)[order], 0, axis)


def _integer(held: Held) -> int:
    assert isinstance(held, np.ndarray)
    return int(held)


def _map(held: Held, function: Callable[[Lanes], Lanes]) -> list[Held]:
    """The lanes, moved."""
    if isinstance(held, Pointers):
        return [replace(held, offsets=function(held.offsets))]
    assert isinstance(held, np.ndarray)
    return [function(held)]


# ---------------------------------------------------------------- numbers


def _unsigned(x: Lanes) -> Lanes:
    return x if x.dtype == np.bool_ else x.view(f"u{x.dtype.itemsize}")


def _divided(op: Op, x: Lanes, y: Lanes) -> Lanes:
    if not y.all():
        raise InterpretationError(f"{op} divides by zero.")
    quotient = np.abs(x) // np.abs(y)
    return np.where((x < 0) != (y < 0), -quotient, quotient)


def _divided_unsigned(op: Op, x: Lanes, y: Lanes) -> Lanes:
    if not y.all():
        raise InterpretationError(f"{op} divides by zero.")
    return _unsigned(x) // _unsigned(y)


def _upper_half(_: Op, x: Lanes, y: Lanes) -> Lanes:
    product = _unsigned(x).astype(object) * _unsigned(y).astype(object) >> 8 * x.dtype.itemsize
    return np.asarray(product).astype(_unsigned(x).dtype)


def _shifted(function: Callable[[Lanes, Lanes], Any]) -> Callable[..., Any]:
    def shift(op: Op, x: Lanes, y: Lanes) -> Any:
        if not ((y >= 0) & (y < 8 * x.dtype.itemsize)).all():
            raise InterpretationError(f"{op} shifts by the width or more.")
        return function(x, y)

    return shift


def _compared(op: Op, x: Lanes, y: Lanes) -> Any:
    predicate = op.word("predicate")
    if op.name == "arith.cmpi":
        if predicate.startswith("u"):
            x, y = _unsigned(x), _unsigned(y)
        return getattr(operator, predicate if predicate in ("eq", "ne") else predicate[1:])(x, y)
    unordered = np.isnan(x) | np.isnan(y)
    if predicate in ("ord", "uno"):
        return unordered == (predicate == "uno")
    return np.where(unordered, predicate[0] == "u", getattr(operator, predicate[1:])(x, y))


def _constant(op: Op) -> Lanes:
    type_ = op.result.type
    number = float_value(type_.element, op.integer("value")) if type_.is_float else op.integer("value")
    return np.full(type_.shape, number, _HELD[type_.element])


def _rounded(op: Op, x: Lanes) -> Lanes:
    """To a narrower format; to bf16, the upper half of the bits after adding half a unit, ties to even."""
    if op.result.type.element != "bf16":
        return x
    single = np.asarray(x, np.float32)
    bits = single.view(np.uint32)
    return np.where(np.isnan(single), single, _upper_bits(bits + 0x7FFF + (bits >> 16 & 1)))


def _upper_bits(bits: Lanes) -> Lanes:
    return np.asarray(bits & np.uint32(0xFFFF0000)).view(np.float32)


def _bits(op: Op, x: Lanes) -> Lanes:
    source, target = op.operands[0].type.element, op.result.type.element
    raw = _stored(source, x)
    return _fetched(target, raw.view(raw.dtype if target == "bf16" else _HELD[target]))


def _product(_: Op, x: Lanes, y: Lanes, z: Lanes) -> Lanes:
    return np.asarray(np.matmul(x.astype(np.float64), y.astype(np.float64)) + z)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, *operands: function(*operands)


_NUMBERS: Mapping[str, Callable[..., Any]] = {
    "arith.constant": _constant,
    "arith.addi": _plain(operator.add),
    "arith.subi": _plain(operator.sub),
    "arith.muli": _plain(operator.mul),
    "arith.divsi": _divided,
    "arith.remsi": lambda op, x, y: x - y * _divided(op, x, y),
    "arith.divui": _divided_unsigned,
    "arith.remui": lambda op, x, y: _unsigned(x) - _unsigned(y) * _divided_unsigned(op, x, y),
    "arith.minsi": _plain(np.minimum),
    "arith.maxsi": _plain(np.maximum),
    "arith.minui": lambda _, x, y: np.minimum(_unsigned(x), _unsigned(y)),
    "arith.maxui": lambda _, x, y: np.maximum(_unsigned(x), _unsigned(y)),
    "arith.andi": _plain(operator.and_),
    "arith.ori": _plain(operator.or_),
    "arith.xori": _plain(operator.xor),
    "arith.shli": _shifted(operator.lshift),
    "arith.shrsi": _shifted(operator.rshift),
    "arith.shrui": _shifted(lambda x, y: _unsigned(x) >> _unsigned(y)),
    "tt.mulhiui": _upper_half,
    "arith.cmpi": _compared,
    "arith.extsi": _plain(lambda x: -x.astype(np.int64) if x.dtype == np.bool_ else x),
    "arith.extui": _plain(_unsigned),
    "arith.trunci": lambda op, x: x & 1 if op.result.type.is_boolean else x,
    "arith.addf": lambda op, x, y: _rounded(op, x + y),
    "arith.subf": lambda op, x, y: _rounded(op, x - y),
    "arith.mulf": lambda op, x, y: _rounded(op, x * y),
    "arith.divf": lambda op, x, y: _rounded(op, x / y),
    "tt.precise_divf": _plain(operator.truediv),
    "tt.precise_sqrt": _plain(np.sqrt),
    "arith.negf": _plain(operator.neg),
    "arith.maxnumf": _plain(np.fmax),
    "arith.minnumf": _plain(np.fmin),
    "arith.maximumf": _plain(np.maximum),
    "arith.minimumf": _plain(np.minimum),
    "math.absf": _plain(np.abs),
    "math.exp": _plain(np.exp),
    "math.exp2": _plain(np.exp2),
    "math.log": _plain(np.log),
    "math.log2": _plain(np.log2),
    "math.sqrt": _plain(np.sqrt),
    "math.rsqrt": _plain(lambda x: np.float32(1) / np.sqrt(x)),
    "math.floor": _plain(np.floor),
    "math.ceil": _plain(np.ceil),
    "math.fma": _plain(lambda x, y, z: x.astype(np.float64) * y + z),
    "tt.extern_elementwise": _plain(np.tanh),
    "arith.cmpf": _compared,
    "arith.extf": _plain(lambda x: x),
    "arith.truncf": _rounded,
    "arith.sitofp": lambda op, x: _rounded(op, -x.astype(np.float32) if x.dtype == np.bool_ else x),
    "arith.uitofp": lambda op, x: _rounded(op, _unsigned(x)),
    "arith.fptosi": _plain(np.trunc),
    "tt.bitcast": _bits,
    "arith.bitcast": _bits,
    "tt.make_range": lambda op: np.arange(op.integer("start"), op.integer("end")),
    "tt.dot": _product,
}


# ---------------------------------------------------------------- lanes and memory


def _fetched(element: str, raw: Lanes) -> Lanes:
    """What is held of elements in memory."""
    if element == "bf16":
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw


def _stored(element: str, lanes: Lanes) -> Lanes:
    """What memory has of elements that are held."""
    if element == "bf16":
        return (np.asarray(lanes, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return lanes


def _within(op: Op, pointers: Pointers, mask: Lanes) -> None:
    outside = mask & ((pointers.offsets < 0) | (pointers.offsets >= len(pointers.buffer)))
    if outside.any():
        place = int(pointers.offsets[outside].flat[0])
        raise InterpretationError(f"{op} touches element {place} of a buffer of {len(pointers.buffer)}.")


def _undefined(type_: Type) -> Lanes:
    """A value that is unlikely to be right."""
    return np.asarray(np.nan if type_.is_float else 0x5A, _HELD[type_.element])


def _load(op: Op, pointers: Pointers, mask: Lanes | None = None, other: Lanes | None = None) -> list[Held]:
    type_ = op.result.type
    seen = np.broadcast_to(True if mask is None else mask, type_.shape)
    _within(op, pointers, seen)
    raw = pointers.buffer[np.where(seen, pointers.offsets, 0)]
    return [np.where(seen, _fetched(type_.element, raw), _undefined(type_) if other is None else other)]


def _store(op: Op, pointers: Pointers, lanes: Lanes, mask: Lanes | None = None) -> list[Held]:
    type_ = op.operands[1].type
    seen = np.broadcast_to(True if mask is None else mask, type_.shape)
    _within(op, pointers, seen)
    places, raw = pointers.offsets[seen], _stored(type_.element, lanes)[seen]
    pointers.buffer[places] = raw
    if not np.array_equal(pointers.buffer[places], raw, equal_nan=type_.is_float and type_.element != "bf16"):
        raise InterpretationError(f"{op} stores different values in one place.")
    return []


def _blocks(array: Array, block: tuple[int, ...], indices: tuple[Held, ...]) -> tuple[Lanes, Lanes]:
    """The offsets of a block's elements, and which of them are within the array."""
    offsets: Lanes = np.full(block, array.offset, np.int64)
    within: Lanes = np.full(block, True)
    for axis, index in enumerate(indices):
        place = np.arange(block[axis]) + _integer(index)
        along = tuple(-1 if other == axis else 1 for other in range(len(block)))
        offsets = offsets + (place * array.strides[axis]).reshape(along)
        within = within & ((place >= 0) & (place < array.shape[axis])).reshape(along)
    return offsets, within


def _descriptor_load(op: Op, array: Array, *indices: Held) -> list[Held]:
    type_ = op.result.type
    offsets, within = _blocks(array, type_.shape, indices)
    raw = array.buffer[np.where(within, offsets, 0)]
    return [np.where(within, _fetched(type_.element, raw), np.zeros((), _HELD[type_.element]))]


def _descriptor_store(op: Op, array: Array, *operands: Held) -> list[Held]:
    *indices, lanes = operands
    type_ = op.operands[-1].type
    assert isinstance(lanes, np.ndarray)
    offsets, within = _blocks(array, type_.shape, tuple(indices))
    array.buffer[offsets[within]] = _stored(type_.element, lanes)[within]
    return []


def _select(_: Op, condition: Lanes, x: Held, y: Held) -> list[Held]:
    assert isinstance(x, np.ndarray)
    assert isinstance(y, np.ndarray)
    return [np.where(condition, x, y)]


def _shaped(value: Value, function: Callable[[Lanes, tuple[int, ...]], Lanes], held: Held) -> list[Held]:
    return _map(held, lambda lanes: function(lanes, value.type.shape))


_MOVES: Mapping[str, Callable[..., list[Held]]] = {
    "arith.select": _select,
    "tt.splat": lambda op, x: _shaped(op.result, np.broadcast_to, x),
    "tt.unsplat": lambda op, x: _shaped(op.result, np.reshape, x),
    "tt.broadcast": lambda op, x: _shaped(op.result, np.broadcast_to, x),
    "tt.expand_dims": lambda op, x: _map(x, lambda lanes: np.expand_dims(lanes, op.integer("axis"))),
    "tt.reshape": lambda op, x: _shaped(op.result, np.reshape, x),
    "tt.trans": lambda op, x: _map(x, lambda lanes: np.transpose(lanes, op.integers("order"))),
    "tt.join": lambda _, x, y: [np.stack((x, y), -1)],
    "tt.split": lambda _, x: [x[..., 0], x[..., 1]],
    "tt.addptr": lambda _, x, y: _map(x, lambda offsets: offsets + y),
    "tt.load": _load,
    "tt.store": _store,
    "tt.descriptor_load": _descriptor_load,
    "tt.descriptor_store": _descriptor_store,
}
