"""Mutants by rule: one small change of one operation of a kernel, after which it still has its types."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from kernel_mutants.edits import Edit, made, placed
from vosti.kernels.verifier.ir import FLOAT_WIDTHS, INTEGER_WIDTHS, Kernel, Op, Type, Value, float_bits

NEIGHBOURS: Mapping[str, tuple[str, ...]] = {
    "arith.addi": ("arith.subi", "arith.muli"),
    "arith.subi": ("arith.addi",),
    "arith.muli": ("arith.addi",),
    "arith.divsi": ("arith.remsi", "arith.muli", "arith.divui"),
    "arith.remsi": ("arith.divsi", "arith.remui"),
    "arith.minsi": ("arith.maxsi", "arith.minui"),
    "arith.maxsi": ("arith.minsi", "arith.maxui"),
    "arith.andi": ("arith.ori", "arith.xori"),
    "arith.ori": ("arith.andi", "arith.xori"),
    "arith.xori": ("arith.ori", "arith.addi"),
    "arith.shli": ("arith.shrui",),
    "arith.shrui": ("arith.shrsi", "arith.shli"),
    "arith.shrsi": ("arith.shrui",),
    "tt.mulhiui": ("arith.muli",),
    "arith.extsi": ("arith.extui",),
    "arith.extui": ("arith.extsi",),
    "arith.addf": ("arith.subf", "arith.mulf", "arith.maxnumf"),
    "arith.subf": ("arith.addf", "arith.mulf"),
    "arith.mulf": ("arith.addf", "arith.divf"),
    "arith.divf": ("tt.precise_divf", "arith.mulf"),
    "tt.precise_divf": ("arith.divf", "arith.mulf"),
    "tt.precise_sqrt": ("math.sqrt", "math.rsqrt"),
    "math.sqrt": ("tt.precise_sqrt",),
    "math.rsqrt": ("math.sqrt",),
    "arith.maxnumf": ("arith.minnumf", "arith.maximumf", "arith.addf"),
    "arith.minnumf": ("arith.maxnumf", "arith.minimumf"),
    "arith.negf": ("math.absf",),
    "math.absf": ("arith.negf",),
    "math.exp": ("math.exp2",),
    "math.exp2": ("math.exp",),
    "math.log": ("math.log2",),
    "tt.extern_elementwise": ("math.exp",),
    "arith.sitofp": ("arith.uitofp",),
}
"""An operation, and those of the same form that it is replaced by."""

_COMMUTE = frozenset({"addi", "muli", "minsi", "maxsi", "minui", "maxui", "andi", "ori", "xori"}) | frozenset(
    {"addf", "mulf", "maxnumf", "minnumf", "maximumf", "minimumf"}
)

_SYMMETRIC = frozenset({"eq", "ne", "oeq", "une", "one", "ueq"})

_PREDICATES: Mapping[str, tuple[str, ...]] = {
    "eq": ("ne", "sle"),
    "ne": ("eq",),
    "slt": ("sle", "sge", "ult"),
    "sle": ("slt", "sgt", "ule"),
    "sgt": ("sge", "sle", "ugt"),
    "sge": ("sgt", "slt", "uge"),
    "oeq": ("ueq", "one", "ole"),
    "une": ("one", "oeq"),
    "olt": ("ole", "oge", "ult"),
    "ole": ("olt", "ogt", "ule"),
    "ogt": ("oge", "ole", "ugt"),
    "oge": ("ogt", "olt", "uge"),
}
"""A comparison, and its boundary, its opposite, and its unsigned or unordered twin."""


@dataclass(frozen=True)
class Mutant:
    """One small change of one operation."""

    kind: str
    op: Op
    """As it was."""

    what: str
    made: Callable[[], Kernel]
    """The changed kernel. Raises `RefusedError` where the front does not read it."""

    @property
    def change(self) -> str:
        """The operation, its result and the change."""
        result = f"%{self.op.results[0].name} = " if self.op.results else ""
        return f"{result}{self.op.name}: {self.what}"

    @property
    def name(self) -> str:
        """The line of the typed IR and the change: of its own in the kernel."""
        return f"{self.op.line}: {self.change}"

    @property
    def rank(self) -> str:
        """In this order, neighbours have nothing in common."""
        return hashlib.sha256(f"{self.kind} {self.name}".encode()).hexdigest()


def mutants(kernel: Kernel) -> list[Mutant]:
    """All mutants of a kernel; of one operation, no two are the same kernel."""
    found = []
    for op, known in placed(kernel):
        seen = {Edit({op: (op,)}).signature}
        for kind, what, edit in _of(op, known):
            if edit.signature not in seen:
                seen.add(edit.signature)
                found.append(Mutant(kind, op, what, partial(edit.of, kernel)))
    return found


Changes = Iterator[tuple[str, str, Edit]]
"""The kind, what is changed, and the change."""


def _of(op: Op, known: tuple[Value, ...]) -> Changes:
    """The changes of one operation."""
    yield from _operation(op)
    yield from _operands(op, known)
    yield from _constant(op)
    yield from _memory(op)
    yield from _control(op)
    yield from _attributes(op)


def _instead(op: Op, *others: Op) -> Edit:
    return Edit({op: others})


def _named(op: Op, name: str) -> Op:
    return replace(op, name=name, attributes=())


# ---------------------------------------------------------------- operations and operands


def _operation(op: Op) -> Changes:
    for name in NEIGHBOURS.get(op.name, ()):
        wide = op.operands[0].type.element
        if name in ("tt.precise_divf", "tt.precise_sqrt") and wide != "f32":
            continue
        if name.startswith("arith.ext") and wide == "i1" and op.result.type.element == "i1":
            continue
        boolean = op.result.type.is_boolean
        if boolean and name.partition(".")[2] not in ("andi", "ori", "xori"):
            continue
        yield "operation", f"{name} instead", _instead(op, _named(op, name))
    if op.name in ("arith.cmpi", "arith.cmpf"):
        for predicate in _PREDICATES[op.word("predicate")]:
            changed = replace(op, attributes=(("predicate", predicate),))
            yield "comparison", f"{predicate} for {op.word('predicate')}", _instead(op, changed)
    if op.name == "scf.for":
        for number, (result, initial) in enumerate(zip(op.results, op.operands[3:], strict=True)):
            yield "left out", f"carried {number} stays as it starts", Edit(values={result: initial})
    elif op.name != "tt.split":
        for number, operand in enumerate(op.operands):
            if len(op.results) == 1 and operand.type == op.result.type:
                yield "left out", f"operand {number}, %{operand.name}, instead", Edit(values={op.result: operand})
    if op.name == "arith.truncf" and op.operands[0].type.element == "f32":
        whole = op.operands[0].type
        half = "f16" if op.result.type.element == "bf16" else "bf16"
        first = made(op, "arith.truncf", whole.of(half), op.operands[0])
        second = made(op, "arith.extf", whole, first.result, number=1)
        last = replace(op, operands=(second.result,))
        yield "conversion", f"through {half}", _instead(op, first, second, last)


def _operands(op: Op, known: tuple[Value, ...]) -> Changes:
    """Operands exchanged, and each replaced by the value of its type that was defined last before it is used."""
    if op.name.partition(".")[2] not in _COMMUTE and dict(op.attributes).get("predicate") not in _SYMMETRIC:
        for i, j in combinations(range(len(op.operands)), 2):
            left, right = op.operands[i], op.operands[j]
            if left.type == right.type and left != right:
                order = {i: right, j: left}
                operands = tuple(order.get(k, value) for k, value in enumerate(op.operands))
                yield "exchange", f"operands {i} and {j} exchanged", _instead(op, replace(op, operands=operands))
    for number, operand in enumerate(op.operands):
        others = [value for value in known if value.type == operand.type and value != operand]
        if others:
            operands = (*op.operands[:number], others[-1], *op.operands[number + 1 :])
            what = f"operand {number} is %{others[-1].name}"
            yield "operand", what, _instead(op, replace(op, operands=operands))
    if op.name == "tt.split":
        yield "exchange", "halves exchanged", _instead(op, replace(op, results=op.results[::-1]))
    if op.name == "scf.if":
        yield "exchange", "blocks exchanged", _instead(op, replace(op, regions=op.regions[::-1]))


# ---------------------------------------------------------------- constants


def _constant(op: Op) -> Changes:
    if op.name != "arith.constant":
        return
    type_, value = op.result.type, op.integer("value")
    if type_.is_boolean:
        others = {"true" if value == 0 else "false": 1 - value}
    elif type_.is_integer:
        others = {str(one): one for one in (value + 1, value - 1, 0)}
    else:
        sign = 1 << (FLOAT_WIDTHS[type_.element] - 1)
        others = {"its negative": value ^ sign, "the next number": value + 1, "2": float_bits(type_.element, 2.0)}
    for what, other in others.items():
        if other != value and _holds(type_, other):
            yield "constant", f"{what} for {value}", _instead(op, replace(op, attributes=(("value", other),)))


def _holds(type_: Type, value: int) -> bool:
    if type_.is_float:
        return value < 1 << FLOAT_WIDTHS[type_.element]
    width = INTEGER_WIDTHS[type_.element]
    return type_.is_boolean or -(1 << (width - 1)) <= value < 1 << (width - 1)


def _one(like: Op, type_: Type, number: int = 0) -> Op:
    """The constant 1."""
    value = float_bits(type_.element, 1.0) if type_.is_float else 1
    return made(like, "arith.constant", type_, number=number, value=value)


# ---------------------------------------------------------------- memory


def _memory(op: Op) -> Changes:
    if op.name == "tt.load" and len(op.operands) > 1:
        yield "mask", "no mask", _instead(op, replace(op, operands=op.operands[:1]))
    if op.name == "tt.load" and len(op.operands) > 2:
        yield "masked value", "undefined", _instead(op, replace(op, operands=op.operands[:2]))
        one = _one(op, op.operands[2].type)
        yield "masked value", "1", _instead(op, one, replace(op, operands=(*op.operands[:2], one.result)))
    if op.name == "tt.store" and len(op.operands) > 2:
        yield "mask", "no mask", _instead(op, replace(op, operands=op.operands[:2]))
    if op.name in ("tt.store", "tt.descriptor_store"):
        yield "left out", "no store", _instead(op)
        yield "store", "twice", _instead(op, op, op)
    if op.name == "tt.store" and op.operands[1].type.is_float:
        changed = made(op, "arith.negf", op.operands[1].type, op.operands[1])
        stored = replace(op, operands=(op.operands[0], changed.result, *op.operands[2:]))
        yield "store", "the negative", _instead(op, changed, stored)


# ---------------------------------------------------------------- loops, dots, attributes


def _control(op: Op) -> Changes:
    if op.name == "scf.for":
        type_ = op.operands[0].type
        one = _one(op, type_)
        for number, name, what in (
            (0, "arith.addi", "lower + 1"),
            (0, "arith.subi", "lower - 1"),
            (1, "arith.addi", "upper + 1"),
            (1, "arith.subi", "upper - 1"),
            (2, "arith.addi", "step + 1"),
        ):
            bound = made(op, name, type_, op.operands[number], one.result, number=1)
            operands = (*op.operands[:number], bound.result, *op.operands[number + 1 :])
            yield "loop", what, _instead(op, one, bound, replace(op, operands=operands))
    first = {"scf.for": 3, "tt.dot": 2}.get(op.name, len(op.operands))
    for number, value in enumerate(op.operands[first:], first):
        if value.type.kind is value.type.kind.NUMBER and not value.type.is_boolean:
            one = _one(op, value.type)
            operands = (*op.operands[:number], one.result, *op.operands[number + 1 :])
            yield "initial", f"operand {number} is 1", _instead(op, one, replace(op, operands=operands))


def _attributes(op: Op) -> Changes:
    if op.name in ("tt.get_program_id", "tt.get_num_programs"):
        for axis in "xyz":
            yield "axis", axis, _instead(op, replace(op, attributes=(("axis", axis),)))
        other = "tt.get_num_programs" if op.name == "tt.get_program_id" else "tt.get_program_id"
        yield "operation", f"{other} instead", _instead(op, replace(op, name=other))
    elif op.name == "tt.make_range":
        start, end = op.integer("start") + 1, op.integer("end") + 1
        yield "range", "1 later", _instead(op, replace(op, attributes=(("start", start), ("end", end))))
    elif op.name == "tt.reduce":
        shape, folded = op.operands[0].type.shape, op.integer("axis")
        for number in range(len(shape)):
            if shape[:number] + shape[number + 1 :] == op.result.type.shape and number != folded:
                yield "axis", str(number), _instead(op, replace(op, attributes=(("axis", number),)))
    elif op.name == "tt.trans" and op.operands[0].type.shape == op.result.type.shape:
        order = tuple(range(len(op.result.type.shape)))
        yield "axis", "not transposed", _instead(op, replace(op, attributes=(("order", order),)))
