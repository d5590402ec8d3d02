"""The closed table of operations: what a kernel may consist of, and what each operation means.

An entry says how the text of an operation looks and which types it has; whatever no entry describes is refused,
attributes and flags included. scf.for and scf.if, whose text is their own, are `vosti.kernels.verifier.parse`'s: a
loop's variable takes lower, lower + step, … below upper, for a step above 0.

In the meanings, x, y and z are the operands. Integers have two's complement of their width and are signed where nothing
else is said. Pointers count elements. Floating-point operations are those of IEEE 754, rounded to nearest, ties to
even. Operations on tensors act lane by lane where nothing else is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vosti.kernels.verifier.ir import FLOAT_WIDTHS, INTEGER_WIDTHS, Attribute, Kind, Type

Types = tuple[Type, ...]
Attributes = Mapping[str, Attribute]
Sides = Callable[[Types], tuple[Types, Types]]
Fits = Callable[[Types, Attributes], bool]


@dataclass(frozen=True)
class Form:
    """An entry of the table."""

    middle: str
    """A regular expression for what stands between name and types: % is an operand, a named group an attribute."""

    types: str
    """A regular expression for the types: T is one."""

    sides: Sides
    """From the types written, those of the operands (the first ones, if some are left out) and of the results."""

    fits: Fits
    """Whether the types written and the attributes are legal."""

    meaning: str
    attributes: frozenset[str] = frozenset()
    """Names in braces, all of them required."""


# ---------------------------------------------------------------- which types fit


def _number(type_: Type) -> bool:
    return type_.is_integer and not type_.is_boolean


def _integer(type_: Type) -> bool:
    return type_.is_integer


def _float(type_: Type) -> bool:
    return type_.is_float


def _single(type_: Type) -> bool:
    return type_.is_float and type_.element == "f32"


def _bits(type_: Type) -> int:
    """Bits of an element that is a number."""
    return (INTEGER_WIDTHS | FLOAT_WIDTHS)[type_.element] if type_.kind is Kind.NUMBER else -1


def _lengths(attributes: Attributes, name: str) -> tuple[int, ...]:
    value = attributes[name]
    return value if isinstance(value, tuple) else (int(value),)


def _repeats(source: Type, target: Type, _: Attributes) -> bool:
    pairs = list(zip(source.shape, target.shape, strict=False))
    return len(pairs) == len(source.shape) == len(target.shape) and all(a in (1, b) for a, b in pairs)


def _inserts(source: Type, target: Type, attributes: Attributes) -> bool:
    (axis,) = _lengths(attributes, "axis")
    return target.shape[axis : axis + 1] == (1,) and target.shape[:axis] + target.shape[axis + 1 :] == source.shape


def _regroups(source: Type, target: Type, _: Attributes) -> bool:
    return source.shape != () != target.shape and math.prod(source.shape) == math.prod(target.shape)


def _permutes(source: Type, target: Type, attributes: Attributes) -> bool:
    order = _lengths(attributes, "order")
    fits = sorted(order) == list(range(len(source.shape)))
    return fits and tuple(source.shape[axis] for axis in order) == target.shape


def _removes(source: Type, target: Type, attributes: Attributes) -> bool:
    (axis,) = _lengths(attributes, "axis")
    return 0 <= axis < len(source.shape) and source.shape[:axis] + source.shape[axis + 1 :] == target.shape


def _along(source: Type, target: Type, attributes: Attributes) -> bool:
    (axis,) = _lengths(attributes, "axis")
    return 0 <= axis < len(source.shape) and source == target


def _halves(whole: Type, half: Type, _: Attributes) -> bool:
    return whole.shape == (*half.shape, 2)


def _spans(written: Types, attributes: Attributes) -> bool:
    (start,), (end,) = _lengths(attributes, "start"), _lengths(attributes, "end")
    return 0 <= start < end and written == (Type("i32", (end - start,)),)


def _selects(written: Types, _: Attributes) -> bool:
    return len(written) == 1 or (written[0].is_boolean and written[0].shape in ((), written[1].shape))


def _multiplies(written: Types, attributes: Attributes) -> bool:
    if not all(type_.is_float and len(type_.shape) == 2 for type_ in written):
        return False
    left, right, out = written
    exact = left.element != "f32" or attributes.get("precision", "ieee") == "ieee"
    fits = left.shape[1] == right.shape[0] and out == Type("f32", (left.shape[0], right.shape[1]))
    return exact and fits and left.element == right.element


def _moves(written: Types, _: Attributes) -> bool:
    pointer, offset = written
    return pointer.is_pointer and offset in (pointer.of("i32"), pointer.of("i64"))


def _points(written: Types, _: Attributes) -> bool:
    return written[0].is_pointer


def _describes(written: Types, _: Attributes) -> bool:
    pointer, descriptor = written
    return descriptor.kind is Kind.DESCRIPTOR and pointer == Type(descriptor.element, (), Kind.POINTER)


def _holds_blocks(written: Types, _: Attributes) -> bool:
    descriptor, block = written
    return descriptor.kind is Kind.DESCRIPTOR and block == Type(descriptor.element, descriptor.shape)


# ---------------------------------------------------------------- kinds of entries


def _alike(count: int, fits: Callable[[Type], bool], meaning: str) -> Form:
    """Operands and result have one type."""
    middle = ", ".join("%" * count)
    return Form(middle, "T", lambda w: (w * count, w), lambda w, _: fits(w[0]), meaning)


def _compare(predicates: str, fits: Callable[[Type], bool], meaning: str) -> Form:
    middle = f"(?P<predicate>{predicates}), %, %"
    return Form(middle, "T", lambda w: (w * 2, (w[0].of("i1"),)), lambda w, _: fits(w[0]), meaning)


def _across(w: Types) -> tuple[Types, Types]:
    """From the first type written to the second."""
    return w[:1], w[1:]


def _cast(fits: Callable[[Type, Type], bool], meaning: str, types: str = "T to T") -> Form:
    """Other numbers in the same shape."""
    return Form("%", types, _across, lambda w, _: w[0].shape == w[1].shape and fits(w[0], w[1]), meaning)


def _shape(
    fits: Callable[[Type, Type, Attributes], bool], meaning: str, *attributes: str, types: str = "T -> T"
) -> Form:
    """The same numbers or pointers in another shape."""

    def both(w: Types, given: Attributes) -> bool:
        return w[0].with_shape() == w[1].with_shape() and fits(w[0], w[1], given)

    return Form("%", types, _across, both, meaning, frozenset(attributes))


def _program(meaning: str) -> Form:
    return Form("(?P<axis>x|y|z)", "T", lambda w: ((), w), lambda w, _: w == (Type("i32"),), meaning)


def _indices(w: Types) -> Types:
    return (Type("i32"),) * len(w[0].shape)


def _any(_: Types, __: Attributes) -> bool:
    return True


_TANH: Attributes = {"libname": "", "libpath": "", "pure": 1, "symbol": "__nv_tanhf"}
"""Of the target's own library, not of another one."""

# ---------------------------------------------------------------- the table

FORMS: Mapping[str, Form] = {
    "arith.constant": Form(
        r"(?P<value>dense<[\w.+-]+>|[\w.+-]+)",
        "T",
        lambda w: ((), w),
        lambda w, _: w[0].kind is Kind.NUMBER,
        "see `vosti.kernels.verifier.ir`",
    ),
    # integers
    "arith.addi": _alike(2, _number, "x + y"),
    "arith.subi": _alike(2, _number, "x − y"),
    "arith.muli": _alike(2, _number, "x · y"),
    "arith.divsi": _alike(2, _number, "x / y rounded towards zero; y = 0 and overflow are undefined"),
    "arith.remsi": _alike(2, _number, "x − y · divsi(x, y): the sign is that of x"),
    "arith.divui": _alike(2, _number, "⌊x / y⌋, unsigned; y = 0 is undefined"),
    "arith.remui": _alike(2, _number, "x − y · divui(x, y), unsigned"),
    "arith.minsi": _alike(2, _number, "the smaller"),
    "arith.maxsi": _alike(2, _number, "the larger"),
    "arith.minui": _alike(2, _number, "the smaller, unsigned"),
    "arith.maxui": _alike(2, _number, "the larger, unsigned"),
    "arith.andi": _alike(2, _integer, "bitwise and"),
    "arith.ori": _alike(2, _integer, "bitwise or"),
    "arith.xori": _alike(2, _integer, "bitwise exclusive or"),
    "arith.shli": _alike(2, _number, "x shifted left by y; undefined unless 0 <= y < width"),
    "arith.shrsi": _alike(2, _number, "x shifted right by y, copying the sign; undefined unless 0 <= y < width"),
    "arith.shrui": _alike(2, _number, "x shifted right by y, zeros coming in; undefined unless 0 <= y < width"),
    "tt.mulhiui": _alike(2, _number, "the upper half of the unsigned product of double width"),
    "arith.cmpi": _compare("eq|ne|slt|sle|sgt|sge|ult|ule|ugt|uge", _integer, "comparison; s signed, u unsigned"),
    "arith.extsi": _cast(lambda s, t: s.is_integer and t.is_integer and _bits(s) < _bits(t), "as signed; true is −1"),
    "arith.extui": _cast(lambda s, t: s.is_integer and t.is_integer and _bits(s) < _bits(t), "as unsigned"),
    "arith.trunci": _cast(lambda s, t: s.is_integer and t.is_integer and _bits(s) > _bits(t), "the lower bits"),
    # floating-point numbers
    "arith.addf": _alike(2, _float, "x + y"),
    "arith.subf": _alike(2, _float, "x − y"),
    "arith.mulf": _alike(2, _float, "x · y"),
    "arith.divf": _alike(2, _float, "x / y as the target divides: f32 is not always rounded to nearest"),
    "tt.precise_divf": _alike(2, _single, "x / y, rounded to nearest"),
    "tt.precise_sqrt": _alike(1, _single, "√x, rounded to nearest"),
    "arith.negf": _alike(1, _float, "the sign flipped"),
    "arith.maxnumf": _alike(2, _float, "the larger; the other one if one is NaN"),
    "arith.minnumf": _alike(2, _float, "the smaller; the other one if one is NaN"),
    "arith.maximumf": _alike(2, _float, "the larger; NaN if one is NaN"),
    "arith.minimumf": _alike(2, _float, "the smaller; NaN if one is NaN"),
    "math.absf": _alike(1, _float, "the sign cleared"),
    "math.exp": _alike(1, _single, "the target's e^x"),
    "math.exp2": _alike(1, _single, "the target's 2^x"),
    "math.log": _alike(1, _single, "the target's natural logarithm"),
    "math.log2": _alike(1, _single, "the target's logarithm to base 2"),
    "math.sqrt": _alike(1, _single, "the target's √x"),
    "math.rsqrt": _alike(1, _single, "the target's 1/√x"),
    "math.floor": _alike(1, _float, "⌊x⌋"),
    "math.ceil": _alike(1, _float, "⌈x⌉"),
    "math.fma": _alike(3, _single, "x · y + z, rounded once"),
    "tt.extern_elementwise": Form(
        "%",
        r"\(T\) -> T",
        _across,
        lambda w, a: w[0] == w[1] and _single(w[0]) and a == _TANH,
        "the target's tanh",
        frozenset(_TANH),
    ),
    "arith.cmpf": _compare(
        "oeq|ogt|oge|olt|ole|one|ord|ueq|ugt|uge|ult|ule|une|uno",
        _float,
        "comparison; with a NaN, false for o and true for u",
    ),
    "arith.extf": _cast(lambda s, t: s.is_float and t.is_float and _bits(s) < _bits(t), "the same number"),
    "arith.truncf": _cast(lambda s, t: s.is_float and t.is_float and _bits(s) > _bits(t), "rounded"),
    "arith.sitofp": _cast(lambda s, t: s.is_integer and t.is_float and _bits(t) >= 32, "the nearest number"),
    "arith.uitofp": _cast(lambda s, t: s.is_integer and t.is_float and _bits(t) >= 32, "as unsigned"),
    "arith.fptosi": _cast(lambda s, t: s.is_float and _number(t), "rounded towards zero; undefined out of range"),
    "tt.bitcast": _cast(lambda s, t: _bits(s) == _bits(t) > 0, "what has the same bits", types="T -> T"),
    "arith.bitcast": _cast(lambda s, t: _bits(s) == _bits(t) > 0, "what has the same bits"),
    "arith.select": Form(
        "%, %, %",
        "T(?:, T)?",
        lambda w: ((w[0] if len(w) == 2 else Type("i1"), w[-1], w[-1]), w[-1:]),
        _selects,
        "y where x is true, z elsewhere",
    ),
    # lanes
    "tt.get_program_id": _program("the program's index along an axis of the grid"),
    "tt.get_num_programs": _program("the length of an axis of the grid"),
    "tt.make_range": Form("", "T", lambda w: ((), w), _spans, "lane i is start + i", frozenset({"start", "end"})),
    "tt.splat": _shape(lambda s, t, _: s.shape == () != t.shape, "every lane is x"),
    "tt.unsplat": _shape(lambda s, t, _: math.prod(s.shape) == 1 and t.shape == () != s.shape, "the only lane"),
    "tt.broadcast": _shape(_repeats, "axes of length 1 repeated"),
    "tt.expand_dims": _shape(_inserts, "an axis of length 1 inserted", "axis"),
    "tt.reshape": _shape(_regroups, "the lanes in the same order, the last axis running fastest"),
    "tt.trans": _shape(_permutes, "axis i is the operand's axis order[i]", "order"),
    "tt.join": Form(
        "%, %",
        "T -> T",
        lambda w: ((w[0], w[0]), w[1:]),
        lambda w, a: w[0].with_shape() == w[1].with_shape() and _halves(w[1], w[0], a),
        "lanes (…, 0) are x, lanes (…, 1) are y",
    ),
    "tt.split": Form(
        "%",
        "T -> T",
        lambda w: (w[:1], (w[1], w[1])),
        lambda w, a: w[0].with_shape() == w[1].with_shape() and _halves(w[0], w[1], a),
        "lanes (…, 0), and lanes (…, 1)",
    ),
    "tt.reduce": _shape(_removes, "an axis folded by the operation of the block", "axis", types=r"\(T\) -> T"),
    "tt.scan": _shape(
        _along,
        "lane i of an axis is what lanes 0 to i fold to by the operation of the block; in reverse, lanes i to the last",
        "axis",
        "reverse",
        types=r"\(T\) -> T",
    ),
    "tt.dot": Form(
        "%, %, %(?:, inputPrecision = (?P<precision>ieee|tf32))?",
        r"T \* T -> T",
        lambda w: (w, w[2:]),
        _multiplies,
        "z(i, j) + Σₖ x(i, k) · y(k, j); f32 operands are not rounded",
    ),
    # memory
    "tt.addptr": Form("%, %", "T, T", lambda w: (w, w[:1]), _moves, "the pointer moved by y elements"),
    "tt.load": Form(
        "%(?:, %){0,2}",
        "T",
        lambda w: ((w[0], w[0].of("i1"), w[0].of(w[0].element)), (w[0].of(w[0].element),)),
        _points,
        "what x points to; where the mask y is false, z, or an undefined value without it",
    ),
    "tt.store": Form(
        "%, %(?:, %)?",
        "T",
        lambda w: ((w[0], w[0].of(w[0].element), w[0].of("i1")), ()),
        _points,
        "y written where x points, where the mask z is true",
    ),
    "tt.make_tensor_descriptor": Form(
        r"%, \[%(?:, %)*\], \[%(?:, %)*\]",
        "T, T",
        lambda w: ((w[0], *_indices(w[1:]), *(Type("i64"),) * len(w[1].shape)), w[1:]),
        _describes,
        "the array at a pointer, of a shape, with strides",
    ),
    "tt.descriptor_load": Form(
        r"%\[%(?:, %)*\]",
        "T -> T",
        lambda w: ((w[0], *_indices(w)), w[1:]),
        _holds_blocks,
        "the block at these indices; +0 beyond the array",
    ),
    "tt.descriptor_store": Form(
        r"%\[%(?:, %)*\], %",
        "T, T",
        lambda w: ((w[0], *_indices(w), w[1]), ()),
        _holds_blocks,
        "the block at these indices written, as far as it is within the array",
    ),
    # terminators
    "scf.yield": Form("(?:%(?:, %)*)?", "(?:T(?:, T)*)?", lambda w: (w, ()), _any, "the next values, or the results"),
    "tt.reduce.return": Form("%", "T", lambda w: (w, ()), _any, "what two lanes combine to"),
    "tt.scan.return": Form("%", "T", lambda w: (w, ()), _any, "what two lanes combine to"),
    "tt.return": Form("", "", lambda w: ((), ()), _any, "the end"),
}

TERMINATORS = frozenset({"scf.yield", "tt.reduce.return", "tt.return", "tt.scan.return"})
"""What a block ends with, and has nowhere else."""

LOOP_HINTS = frozenset({"tt.flatten", "tt.num_stages"})
"""Attributes that scf.for may have: how the loop is scheduled, which changes no value."""
