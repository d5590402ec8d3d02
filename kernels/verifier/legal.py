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
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vosti.kernels.verifier.ir import FLOAT_WIDTHS, INTEGER_WIDTHS, Attribute, Kind, Type

Types = tuple[Type, ...]
Shape = tuple[int, ...]
Attributes = Mapping[str, Attribute]
Sides = tuple[Types, Types] | None


@dataclass(frozen=True)
class Form:
    """An entry of the table."""

    middle: str
    """A regular expression for what stands between name and types: % is an operand, a named group an attribute."""

    types: str
    """A regular expression for the types: T is one."""

    sides: Callable[[Types, Attributes], Sides]
    """From the types written and the attributes, the types of the operands (the first ones, if some are left out) and
    of the results; None where they are not legal."""

    meaning: str
    attributes: frozenset[str] = frozenset()
    """Names in braces, all of them required."""


_WIDTHS = INTEGER_WIDTHS | FLOAT_WIDTHS
_INTEGER, _FLOAT, _SINGLE = frozenset(INTEGER_WIDTHS), frozenset(FLOAT_WIDTHS), frozenset({"f32"})
_NUMBER, _WIDE, _ANY = _INTEGER - {"i1"}, frozenset({"f32", "f64"}), _INTEGER | _FLOAT
"""Elements of numbers: integers with truth values, floating-point numbers, …; integers without them, …"""

_TANH: Attributes = {"libname": "", "libpath": "", "pure": 1, "symbol": "__nv_tanhf"}
"""Of the target's own library, not of another one."""

# ---------------------------------------------------------------- kinds of entries


def _are(type_: Type, elements: frozenset[str]) -> bool:
    return type_.kind is Kind.NUMBER and type_.element in elements


def _alike(count: int, elements: frozenset[str], meaning: str) -> Form:
    """Operands and result have one type."""
    return Form(", ".join("%" * count), "T", lambda w, _: (w * count, w) if _are(w[0], elements) else None, meaning)


def _compare(predicates: str, elements: frozenset[str], meaning: str) -> Form:
    def sides(w: Types, _: Attributes) -> Sides:
        return (w * 2, (w[0].of("i1"),)) if _are(w[0], elements) else None

    return Form(f"(?P<predicate>{predicates}), %, %", "T", sides, meaning)


def _cast(
    sources: frozenset[str],
    targets: frozenset[str],
    meaning: str,
    widths: Callable[[int, int], bool] = lambda source, target: True,
    types: str = "T to T",
) -> Form:
    """Other numbers in the same shape."""

    def sides(w: Types, _: Attributes) -> Sides:
        fits = w[0].shape == w[1].shape and _are(w[0], sources) and _are(w[1], targets)
        return (w[:1], w[1:]) if fits and widths(_WIDTHS[w[0].element], _WIDTHS[w[1].element]) else None

    return Form("%", types, sides, meaning)


def _shape(
    fits: Callable[[Shape, Shape, Attributes], bool], meaning: str, *attributes: str, types: str = "T -> T"
) -> Form:
    """The same numbers or pointers in another shape."""

    def sides(w: Types, given: Attributes) -> Sides:
        same = w[0].with_shape() == w[1].with_shape()
        return (w[:1], w[1:]) if same and fits(w[0].shape, w[1].shape, given) else None

    return Form("%", types, sides, meaning, frozenset(attributes))


def _program(meaning: str) -> Form:
    return Form("(?P<axis>x|y|z)", "T", lambda w, _: ((), w) if w == (Type("i32"),) else None, meaning)


def _end(middle: str, types: str, meaning: str) -> Form:
    """A terminator: what it may give, the operation that holds the block says."""
    return Form(middle, types, lambda w, _: (w, ()), meaning)


# ---------------------------------------------------------------- which shapes and types fit


def _axis(shape: Shape, given: Attributes) -> int | None:
    """The attribute, if it is an axis of the shape."""
    axis = given["axis"]
    return axis if isinstance(axis, int) and 0 <= axis < len(shape) else None


def _repeats(source: Shape, target: Shape, _: Attributes) -> bool:
    return len(source) == len(target) and all(a in (1, b) for a, b in zip(source, target, strict=True))


def _inserts(source: Shape, target: Shape, given: Attributes) -> bool:
    axis = _axis(target, given)
    return axis is not None and target == (*source[:axis], 1, *source[axis:])


def _removes(source: Shape, target: Shape, given: Attributes) -> bool:
    axis = _axis(source, given)
    return axis is not None and target == source[:axis] + source[axis + 1 :]


def _regroups(source: Shape, target: Shape, _: Attributes) -> bool:
    return source != () != target and math.prod(source) == math.prod(target)


def _permutes(source: Shape, target: Shape, given: Attributes) -> bool:
    order = given["order"]
    if not isinstance(order, tuple) or sorted(order) != list(range(len(source))):
        return False
    return target == tuple(source[axis] for axis in order)


def _spans(w: Types, given: Attributes) -> Sides:
    start, end = given["start"], given["end"]
    fits = isinstance(start, int) and isinstance(end, int) and 0 <= start < end and w == (Type("i32", (end - start,)),)
    return ((), w) if fits else None


def _calls(w: Types, given: Attributes) -> Sides:
    return (w[:1], w[1:]) if w[0] == w[1] and _are(w[0], _SINGLE) and given == _TANH else None


def _selects(w: Types, _: Attributes) -> Sides:
    condition = w[0] if len(w) == 2 else Type("i1")
    fits = condition.is_boolean and condition.shape in ((), w[-1].shape)
    return ((condition, w[-1], w[-1]), w[-1:]) if fits else None


def _joins(w: Types, _: Attributes) -> Sides:
    return (w[:1] * 2, w[1:]) if w[1] == w[0].with_shape(*w[0].shape, 2) else None


def _splits(w: Types, _: Attributes) -> Sides:
    return (w[:1], w[1:] * 2) if w[0] == w[1].with_shape(*w[1].shape, 2) else None


def _multiplies(w: Types, given: Attributes) -> Sides:
    left, right, out = w
    exact = left.element != "f32" or given.get("precision", "ieee") == "ieee"
    if not exact or not left.is_float or len(left.shape) != 2 or len(right.shape) != 2:
        return None
    (m, k), (_, n) = left.shape, right.shape
    return (w, w[2:]) if right == left.with_shape(k, n) and out == Type("f32", (m, n)) else None


def _moves(w: Types, _: Attributes) -> Sides:
    return (w, w[:1]) if w[0].is_pointer and w[1] in (w[0].of("i32"), w[0].of("i64")) else None


def _loads(w: Types, _: Attributes) -> Sides:
    value = w[0].of(w[0].element)
    return ((w[0], w[0].of("i1"), value), (value,)) if w[0].is_pointer else None


def _stores(w: Types, _: Attributes) -> Sides:
    return ((w[0], w[0].of(w[0].element), w[0].of("i1")), ()) if w[0].is_pointer else None


def _loads_block(w: Types, _: Attributes) -> Sides:
    holds = w[0].kind is Kind.DESCRIPTOR and w[1] == Type(w[0].element, w[0].shape)
    return ((w[0], *(Type("i32"),) * len(w[0].shape)), w[1:]) if holds else None


def _stores_block(w: Types, given: Attributes) -> Sides:
    sides = _loads_block(w, given)
    return ((*sides[0], *sides[1]), ()) if sides else None


# ---------------------------------------------------------------- the table

FORMS: Mapping[str, Form] = {
    "arith.constant": Form(
        r"(?P<value>dense<[\w.+-]+>|[\w.+-]+)",
        "T",
        lambda w, _: ((), w) if w[0].kind is Kind.NUMBER else None,
        "see `vosti.kernels.verifier.ir`",
    ),
    # integers
    "arith.addi": _alike(2, _NUMBER, "x + y"),
    "arith.subi": _alike(2, _NUMBER, "x − y"),
    "arith.muli": _alike(2, _NUMBER, "x · y"),
    "arith.divsi": _alike(2, _NUMBER, "x / y rounded towards zero; y = 0 and overflow are undefined"),
    "arith.remsi": _alike(2, _NUMBER, "x − y · divsi(x, y): the sign is that of x"),
    "arith.divui": _alike(2, _NUMBER, "⌊x / y⌋, unsigned; y = 0 is undefined"),
    "arith.remui": _alike(2, _NUMBER, "x − y · divui(x, y), unsigned"),
    "arith.minsi": _alike(2, _NUMBER, "the smaller"),
    "arith.maxsi": _alike(2, _NUMBER, "the larger"),
    "arith.minui": _alike(2, _NUMBER, "the smaller, unsigned"),
    "arith.maxui": _alike(2, _NUMBER, "the larger, unsigned"),
    "arith.andi": _alike(2, _INTEGER, "bitwise and"),
    "arith.ori": _alike(2, _INTEGER, "bitwise or"),
    "arith.xori": _alike(2, _INTEGER, "bitwise exclusive or"),
    "arith.shli": _alike(2, _NUMBER, "x shifted left by y; undefined unless 0 <= y < width"),
    "arith.shrsi": _alike(2, _NUMBER, "x shifted right by y, copying the sign; undefined unless 0 <= y < width"),
    "arith.shrui": _alike(2, _NUMBER, "x shifted right by y, zeros coming in; undefined unless 0 <= y < width"),
    "tt.mulhiui": _alike(2, _NUMBER, "the upper half of the unsigned product of double width"),
    "arith.cmpi": _compare("eq|ne|slt|sle|sgt|sge|ult|ule|ugt|uge", _INTEGER, "comparison; s signed, u unsigned"),
    "arith.extsi": _cast(_INTEGER, _INTEGER, "as signed; true is −1", operator.lt),
    "arith.extui": _cast(_INTEGER, _INTEGER, "as unsigned", operator.lt),
    "arith.trunci": _cast(_INTEGER, _INTEGER, "the lower bits", operator.gt),
    # floating-point numbers
    "arith.addf": _alike(2, _FLOAT, "x + y"),
    "arith.subf": _alike(2, _FLOAT, "x − y"),
    "arith.mulf": _alike(2, _FLOAT, "x · y"),
    "arith.divf": _alike(2, _FLOAT, "x / y as the target divides: f32 is not always rounded to nearest"),
    "tt.precise_divf": _alike(2, _SINGLE, "x / y, rounded to nearest"),
    "tt.precise_sqrt": _alike(1, _SINGLE, "√x, rounded to nearest"),
    "arith.negf": _alike(1, _FLOAT, "the sign flipped"),
    "arith.maxnumf": _alike(2, _FLOAT, "the larger; the other one if one is NaN"),
    "arith.minnumf": _alike(2, _FLOAT, "the smaller; the other one if one is NaN"),
    "arith.maximumf": _alike(2, _FLOAT, "the larger; NaN if one is NaN"),
    "arith.minimumf": _alike(2, _FLOAT, "the smaller; NaN if one is NaN"),
    "math.absf": _alike(1, _FLOAT, "the sign cleared"),
    "math.exp": _alike(1, _SINGLE, "the target's e^x"),
    "math.exp2": _alike(1, _SINGLE, "the target's 2^x"),
    "math.log": _alike(1, _SINGLE, "the target's natural logarithm"),
    "math.log2": _alike(1, _SINGLE, "the target's logarithm to base 2"),
    "math.sqrt": _alike(1, _SINGLE, "the target's √x"),
    "math.rsqrt": _alike(1, _SINGLE, "the target's 1/√x"),
    "math.floor": _alike(1, _FLOAT, "⌊x⌋"),
    "math.ceil": _alike(1, _FLOAT, "⌈x⌉"),
    "math.fma": _alike(3, _SINGLE, "x · y + z, rounded once"),
    "tt.extern_elementwise": Form("%", r"\(T\) -> T", _calls, "the target's tanh", frozenset(_TANH)),
    "arith.cmpf": _compare(
        "oeq|ogt|oge|olt|ole|one|ord|ueq|ugt|uge|ult|ule|une|uno",
        _FLOAT,
        "comparison; with a NaN, false for o and true for u",
    ),
    "arith.extf": _cast(_FLOAT, _FLOAT, "the same number", operator.lt),
    "arith.truncf": _cast(_FLOAT, _FLOAT, "rounded", operator.gt),
    "arith.sitofp": _cast(_INTEGER, _WIDE, "the nearest number"),
    "arith.uitofp": _cast(_INTEGER, _WIDE, "as unsigned"),
    "arith.fptosi": _cast(_FLOAT, _NUMBER, "rounded towards zero; undefined out of range"),
    "tt.bitcast": _cast(_ANY, _ANY, "what has the same bits", operator.eq, types="T -> T"),
    "arith.bitcast": _cast(_ANY, _ANY, "what has the same bits", operator.eq),
    "arith.select": Form("%, %, %", "T(?:, T)?", _selects, "y where x is true, z elsewhere"),
    # lanes
    "tt.get_program_id": _program("the program's index along an axis of the grid"),
    "tt.get_num_programs": _program("the length of an axis of the grid"),
    "tt.make_range": Form("", "T", _spans, "lane i is start + i", frozenset({"start", "end"})),
    "tt.splat": _shape(lambda s, t, _: s == () != t, "every lane is x"),
    "tt.unsplat": _shape(lambda s, t, _: math.prod(s) == 1 and t == () != s, "the only lane"),
    "tt.broadcast": _shape(_repeats, "axes of length 1 repeated"),
    "tt.expand_dims": _shape(_inserts, "an axis of length 1 inserted", "axis"),
    "tt.reshape": _shape(_regroups, "the lanes in the same order, the last axis running fastest"),
    "tt.trans": _shape(_permutes, "axis i is the operand's axis order[i]", "order"),
    "tt.join": Form("%, %", "T -> T", _joins, "lanes (…, 0) are x, lanes (…, 1) are y"),
    "tt.split": Form("%", "T -> T", _splits, "lanes (…, 0), and lanes (…, 1)"),
    "tt.reduce": _shape(_removes, "an axis folded by the operation of the block", "axis", types=r"\(T\) -> T"),
    "tt.scan": _shape(
        lambda s, t, given: s == t and _axis(s, given) is not None,
        "lane i of an axis is what lanes 0 to i fold to by the operation of the block; in reverse, lanes i to the last",
        "axis",
        "reverse",
        types=r"\(T\) -> T",
    ),
    "tt.dot": Form(
        "%, %, %(?:, inputPrecision = (?P<precision>ieee|tf32))?",
        r"T \* T -> T",
        _multiplies,
        "z(i, j) + Σₖ x(i, k) · y(k, j); f32 operands are not rounded",
    ),
    # memory
    "tt.addptr": Form("%, %", "T, T", _moves, "the pointer moved by y elements"),
    "tt.load": Form(
        "%(?:, %){0,2}",
        "T",
        _loads,
        "what x points to; where the mask y is false, z, or an undefined value without it",
    ),
    "tt.store": Form("%, %(?:, %)?", "T", _stores, "y written where x points, where the mask z is true"),
    "tt.descriptor_load": Form(r"%\[%(?:, %)*\]", "T -> T", _loads_block, "the block there; +0 beyond the array"),
    "tt.descriptor_store": Form(
        r"%\[%(?:, %)*\], %", "T, T", _stores_block, "the block written there, as far as it is within the array"
    ),
    # terminators
    "scf.yield": _end("(?:%(?:, %)*)?", "(?:T(?:, T)*)?", "the next values, or the results"),
    "tt.reduce.return": _end("%", "T", "what two lanes combine to"),
    "tt.scan.return": _end("%", "T", "what two lanes combine to"),
    "tt.return": _end("", "", "the end"),
}

TERMINATORS = frozenset({"scf.yield", "tt.reduce.return", "tt.return", "tt.scan.return"})
"""What a block ends with, and has nowhere else."""

LOOP_HINTS = frozenset({"tt.flatten", "tt.num_stages"})
"""Attributes that scf.for may have: how the loop is scheduled, which changes no value."""
