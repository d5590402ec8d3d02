"""What each operation of the tile IR means: a kernel of that operation alone, read and interpreted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vosti.kernels.verifier.interpret import Array, InterpretationError, run
from vosti.kernels.verifier.ir import Type
from vosti.kernels.verifier.legal import FORMS
from vosti.kernels.verifier.parse import parse

MEMORY = {"i32": np.int32, "i64": np.int64, "i8": np.int8, "f32": np.float32, "f16": np.float16, "bf16": np.uint16}


def function(parameters: str, body: str) -> str:
    """The text of a kernel."""
    return f"module {{\ntt.func public @k({parameters}) attributes {{noinline = false}} {{\n{body}\ntt.return\n}}\n}}\n"


def lanes(pointer: str, element: str, count: int) -> str:
    """Lines that make %pointer_p, pointers to the first elements of a buffer; %range is 0, 1, …"""
    return (
        f"%{pointer}_s = tt.splat %{pointer}.base : !tt.ptr<{element}> -> tensor<{count}x!tt.ptr<{element}>>\n"
        f"%{pointer}_p = tt.addptr %{pointer}_s, %range_{count} : tensor<{count}x!tt.ptr<{element}>>, "
        f"tensor<{count}xi32>"
    )


def applied(operation: str, out: tuple[str, int], *operands: tuple[str, list[Any]]) -> list[Any]:
    """What the lines `operation` make of %x, %y, …, which are one-dimensional tensors, in %out, another one."""
    names = "xyz"[: len(operands)]
    buffers = {name: np.array(values, MEMORY[element]) for name, (element, values) in zip(names, operands, strict=True)}
    buffers["o"] = np.zeros(out[1], MEMORY[out[0]])
    elements = {name: element for name, (element, _) in zip(names, operands, strict=True)} | {"o": out[0]}
    lines = [
        f"%range_{n} = tt.make_range {{end = {n} : i32, start = 0 : i32}} : tensor<{n}xi32>"
        for n in sorted({len(buffer) for buffer in buffers.values()})
    ]
    for name, element in elements.items():
        count = len(buffers[name])
        lines.append(lanes(name, element, count))
        if name != "o":
            lines.append(f"%{name} = tt.load %{name}_p : tensor<{count}x!tt.ptr<{element}>>")
    lines += [operation, f"tt.store %o_p, %out : tensor<{out[1]}x!tt.ptr<{out[0]}>>"]
    parameters = ", ".join(f"%{name}.base: !tt.ptr<{element}>" for name, element in elements.items())
    run(parse(function(parameters, "\n".join(lines))), buffers, (1, 1, 1))
    result: list[Any] = buffers["o"].tolist()
    return result


LOW, HIGH = -(2**31), 2**31 - 1
NAN, INF = math.nan, math.inf

INTEGERS = {
    "arith.addi": ([7, HIGH, -1], [1, 1, -1], [8, LOW, -2]),
    "arith.subi": ([7, LOW, -1], [1, 1, -1], [6, HIGH, 0]),
    "arith.muli": ([7, 65536, -3], [3, 65536, 2], [21, 0, -6]),
    "arith.divsi": ([7, -7, 7, -7], [2, 2, -2, -2], [3, -3, -3, 3]),
    "arith.remsi": ([7, -7, 7, -7], [2, 2, -2, -2], [1, -1, 1, -1]),
    "arith.divui": ([7, -1], [2, 2], [3, HIGH]),
    "arith.remui": ([7, -1], [2, 10], [1, 5]),
    "arith.minsi": ([7, -7], [2, 2], [2, -7]),
    "arith.maxsi": ([7, -7], [2, 2], [7, 2]),
    "arith.minui": ([7, -7], [2, 2], [2, 2]),
    "arith.maxui": ([7, -7], [2, 2], [7, -7]),
    "arith.andi": ([12, -1], [10, 5], [8, 5]),
    "arith.ori": ([12, -2], [10, 5], [14, -1]),
    "arith.xori": ([12, -1], [10, 5], [6, -6]),
    "arith.shli": ([3, 1, 3], [1, 31, 31], [6, LOW, LOW]),
    "arith.shrsi": ([7, -8], [1, 1], [3, -4]),
    "arith.shrui": ([7, -8], [1, 1], [3, 2**31 - 4]),
    "tt.mulhiui": ([-1, 65536, 3], [-1, 65536, 5], [-2, 1, 0]),
}
"""Operation → x, y and the result, as 32-bit numbers."""


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str) -> None:
    """Two's complement; division rounds towards zero, and the remainder has the sign of the dividend."""
    x, y, expected = INTEGERS[name]
    line = f"%out = {name} %x, %y : tensor<{len(x)}xi32>"

    assert expected == applied(line, ("i32", len(x)), ("i32", x), ("i32", y))


def test_wide_products() -> None:
    """The upper half of 128 bits."""
    expected = [0x0123456789ABCDEF * 0xFEDCBA9876543210 >> 64]
    operands = ("i64", [0x0123456789ABCDEF]), ("i64", [0xFEDCBA9876543210 - 2**64])

    assert expected == applied("%out = tt.mulhiui %x, %y : tensor<1xi64>", ("i64", 1), *operands)


FLOATS = {
    "arith.addf": ([1.0, 2.0**24, -0.0, INF], [2.0, 1.0, 0.0, -INF], [3.0, 2.0**24, 0.0, NAN]),
    "arith.subf": ([1.0, 0.0, 0.0], [2.0, 0.0, -0.0], [-1.0, 0.0, 0.0]),
    "arith.mulf": ([3.0, 0.0, 0.0], [2.0, -1.0, INF], [6.0, -0.0, NAN]),
    "arith.divf": ([3.0, 1.0, -1.0], [2.0, 0.0, 0.0], [1.5, INF, -INF]),
    "tt.precise_divf": ([1.0, 0.0], [3.0, 0.0], [float(np.float32(1) / np.float32(3)), NAN]),
    "arith.maxnumf": ([1.0, NAN, 2.0], [2.0, 1.0, NAN], [2.0, 1.0, 2.0]),
    "arith.minnumf": ([1.0, NAN, 2.0], [2.0, 1.0, NAN], [1.0, 1.0, 2.0]),
    "arith.maximumf": ([1.0, NAN, 2.0], [2.0, 1.0, NAN], [2.0, NAN, NAN]),
    "arith.minimumf": ([1.0, NAN, 2.0], [2.0, 1.0, NAN], [1.0, NAN, NAN]),
}
"""Operation → x, y and the result, as binary32 numbers."""

FUNCTIONS = {
    "tt.precise_sqrt": ([4.0, 2.0], [2.0, float(np.sqrt(np.float32(2)))]),
    "arith.negf": ([1.0, 0.0], [-1.0, -0.0]),
    "math.absf": ([-1.0, -0.0], [1.0, 0.0]),
    "math.exp": ([0.0, -INF], [1.0, 0.0]),
    "math.exp2": ([0.0, 3.0], [1.0, 8.0]),
    "math.log": ([1.0, 0.0], [0.0, -INF]),
    "math.log2": ([8.0, 0.0], [3.0, -INF]),
    "math.sqrt": ([4.0], [2.0]),
    "math.rsqrt": ([4.0], [0.5]),
    "math.floor": ([1.5, -1.5], [1.0, -2.0]),
    "math.ceil": ([1.5, -1.5], [2.0, -1.0]),
}
"""Operation → x and the result."""


def same(expected: list[float], found: list[float]) -> bool:
    """To the bit, but that all NaN are one."""
    return [(str(x)) for x in expected] == [str(x) for x in found]


@pytest.mark.parametrize("name", FLOATS)
def test_floating_point_numbers(name: str) -> None:
    """As in IEEE 754, signs of zeros included."""
    x, y, expected = FLOATS[name]
    line = f"%out = {name} %x, %y : tensor<{len(x)}xf32>"

    assert same(expected, applied(line, ("f32", len(x)), ("f32", x), ("f32", y)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    """Of one number."""
    x, expected = FUNCTIONS[name]

    assert same(expected, applied(f"%out = {name} %x : tensor<{len(x)}xf32>", ("f32", len(x)), ("f32", x)))


def test_a_function_of_the_library() -> None:
    """Only tanh, and only by its name."""
    braces = '{libname = "", libpath = "", pure = true, symbol = "__nv_tanhf"}'
    line = f"%out = tt.extern_elementwise %x {braces} : (tensor<2xf32>) -> tensor<2xf32>"

    assert [0.0, 1.0] == applied(line, ("f32", 2), ("f32", [0.0, INF]))


def test_a_product_and_sum_rounded_once() -> None:
    """Where two roundings would give 0."""
    line = "%out = math.fma %x, %y, %z : tensor<1xf32>"
    x = float(np.float32(1 + 2.0**-12))
    minus = -float(np.float32(x) * np.float32(x))

    assert [2.0**-24] == applied(line, ("f32", 1), ("f32", [x]), ("f32", [x]), ("f32", [minus]))


COMPARED = {
    "eq": [0, 0, 1, 0],
    "ne": [1, 1, 0, 1],
    "slt": [0, 1, 0, 1],
    "sle": [0, 1, 1, 1],
    "sgt": [1, 0, 0, 0],
    "sge": [1, 0, 1, 0],
    "ult": [0, 0, 0, 1],
    "ule": [0, 0, 1, 1],
    "ugt": [1, 1, 0, 0],
    "uge": [1, 1, 1, 0],
}
"""Predicate → of (2, 1), (−1, 1), (3, 3) and (1, 2)."""


@pytest.mark.parametrize("predicate", COMPARED)
def test_comparisons_of_integers(predicate: str) -> None:
    """Signed and unsigned."""
    lines = (
        f"%c = arith.cmpi {predicate}, %x, %y : tensor<4xi32>\n%out = arith.extui %c : tensor<4xi1> to tensor<4xi32>"
    )

    assert COMPARED[predicate] == applied(lines, ("i32", 4), ("i32", [2, -1, 3, 1]), ("i32", [1, 1, 3, 2]))


ORDERED = {"eq": [0, 0, 1], "gt": [1, 0, 0], "ge": [1, 0, 1], "lt": [0, 1, 0], "le": [0, 1, 1], "ne": [1, 1, 0]}
"""Of (2, 1), (1, 2) and (0, −0)."""


@pytest.mark.parametrize("relation", [*ORDERED, "ord", "uno"])
def test_comparisons_of_floating_point_numbers(relation: str) -> None:
    """With a NaN, false for the ordered ones and true for the unordered ones; zeros are equal."""
    predicates = {"o": f"o{relation}", "u": f"u{relation}"} if relation in ORDERED else {relation[0]: relation}
    for kind, predicate in predicates.items():
        name = {"one": "one", "une": "une"}.get(predicate, predicate)
        lines = f"%c = arith.cmpf {name}, %x, %y : tensor<5xf32>\n%out = arith.extui %c : tensor<5xi1> to tensor<5xi32>"
        operands = ("f32", [2.0, 1.0, 0.0, NAN, 1.0]), ("f32", [1.0, 2.0, -0.0, 1.0, NAN])
        ordered = ORDERED.get(relation, [int(relation == "ord")] * 3)
        assert [*ordered, *[int(kind == "u")] * 2] == applied(lines, ("i32", 5), *operands)


CASTS: dict[str, tuple[str, list[Any], str, list[Any]]] = {
    "arith.extsi": ("i8", [-1, 127], "i32", [-1, 127]),
    "arith.extui": ("i8", [-1, 127], "i32", [255, 127]),
    "arith.trunci": ("i32", [257, -1], "i8", [1, -1]),
    "arith.extf": ("f16", [1.5, INF], "f32", [1.5, INF]),
    "arith.truncf": ("f32", [1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, INF], "bf16", [0x3F80, 0x3F82, 0x7F80]),
    "arith.sitofp": ("i32", [-1, 2**24 + 1], "f32", [-1.0, 2.0**24]),
    "arith.uitofp": ("i32", [-1, 3], "f32", [2.0**32, 3.0]),
    "arith.fptosi": ("f32", [1.9, -1.9], "i32", [1, -1]),
    "arith.bitcast": ("f32", [1.0, -0.0], "i32", [0x3F800000, LOW]),
    "tt.bitcast": ("bf16", [0x3F80, 0x8000], "f16", [1.875, -0.0]),
}
"""Operation → element and lanes before and after."""


@pytest.mark.parametrize("name", CASTS)
def test_casts(name: str) -> None:
    """To wider and narrower numbers, and to those of the same bits."""
    source, x, target, expected = CASTS[name]
    to = "->" if name == "tt.bitcast" else "to"
    line = f"%out = {name} %x : tensor<{len(x)}x{source}> {to} tensor<{len(x)}x{target}>"

    assert same(expected, applied(line, (target, len(x)), (source, x)))


def test_truth_is_minus_one_as_a_signed_number() -> None:
    """And 1 as an unsigned one."""
    compared = "%c = arith.cmpi slt, %x, %y : tensor<2xi32>\n"
    for name, expected in (("arith.extsi", [-1, 0]), ("arith.extui", [1, 0])):
        lines = compared + f"%out = {name} %c : tensor<2xi1> to tensor<2xi32>"
        assert expected == applied(lines, ("i32", 2), ("i32", [0, 1]), ("i32", [1, 0]))


def test_shapes() -> None:
    """Reshaping keeps the order of lanes; transposing, joining and splitting move them."""
    reshape = "tt.reshape %{} : tensor<{}xi32> -> tensor<{}xi32>"
    x = ("i32", [0, 1, 2, 3, 4, 5])
    transposed = (
        f"%a = {reshape.format('x', '6', '2x3')}\n"
        "%b = tt.trans %a {order = array<i32: 1, 0>} : tensor<2x3xi32> -> tensor<3x2xi32>\n"
        f"%out = {reshape.format('b', '3x2', '6')}"
    )
    split = (
        f"%a = {reshape.format('x', '6', '3x2')}\n%b, %c = tt.split %a : tensor<3x2xi32> -> tensor<3xi32>\n"
        "%d = tt.join %c, %b : tensor<3xi32> -> tensor<3x2xi32>\n"
        f"%out = {reshape.format('d', '3x2', '6')}"
    )
    folded = (
        f"%a = {reshape.format('x', '6', '2x3')}\n"
        '%b = "tt.reduce"(%a) <{axis = 0 : i32}> ({\n^bb0(%l: i32, %r: i32):\n%s = arith.subi %l, %r : i32\n'
        "tt.reduce.return %s : i32\n}) : (tensor<2x3xi32>) -> tensor<3xi32>\n"
        "%c = tt.expand_dims %b {axis = 0 : i32} : tensor<3xi32> -> tensor<1x3xi32>\n"
        "%d = tt.broadcast %c : tensor<1x3xi32> -> tensor<2x3xi32>\n"
        f"%out = {reshape.format('d', '2x3', '6')}"
    )

    assert [0, 3, 1, 4, 2, 5] == applied(transposed, ("i32", 6), x)
    assert [1, 0, 3, 2, 5, 4] == applied(split, ("i32", 6), x)
    assert [-3, -3, -3] * 2 == applied(folded, ("i32", 6), x)


@pytest.mark.parametrize(("axis", "reverse", "expected"), [(1, 0, [1, 3, 6, 4, 9, 15]), (0, 1, [5, 7, 9, 4, 5, 6])])
def test_scans(axis: int, reverse: int, expected: list[int]) -> None:
    """Each lane of an axis is what the lanes up to it fold to; in reverse, those from it on."""
    lines = (
        "%a = tt.reshape %x : tensor<6xi32> -> tensor<2x3xi32>\n"
        f'%b = "tt.scan"(%a) <{{axis = {axis} : i32, reverse = {"true" if reverse else "false"}}}> ({{\n'
        "^bb0(%l: i32, %r: i32):\n%s = arith.addi %l, %r : i32\n"
        "tt.scan.return %s : i32\n}) : (tensor<2x3xi32>) -> tensor<2x3xi32>\n"
        "%out = tt.reshape %b : tensor<2x3xi32> -> tensor<6xi32>"
    )

    assert expected == applied(lines, ("i32", 6), ("i32", [1, 2, 3, 4, 5, 6]))


def test_products_of_matrices() -> None:
    """z + x · y."""
    lines = (
        "%a = tt.reshape %x : tensor<4xbf16> -> tensor<2x2xbf16>\n%b = tt.reshape %y : tensor<4xbf16> -> "
        "tensor<2x2xbf16>\n%c = tt.reshape %z : tensor<4xf32> -> tensor<2x2xf32>\n"
        "%d = tt.dot %a, %b, %c : tensor<2x2xbf16> * tensor<2x2xbf16> -> tensor<2x2xf32>\n"
        "%out = tt.reshape %d : tensor<2x2xf32> -> tensor<4xf32>"
    )
    one, two = 0x3F80, 0x4000
    operands = ("bf16", [one, two, 0, one]), ("bf16", [one, 0, one, one]), ("f32", [0.5, 0.0, 0.0, 0.0])

    assert [3.5, 2.0, 1.0, 1.0] == applied(lines, ("f32", 4), *operands)


def test_control() -> None:
    """A loop carries values from lower to below upper; a branch chooses; a selection chooses lane by lane."""
    lines = (
        "%c0 = arith.constant 0 : i32\n%c7 = arith.constant 7 : i32\n%c3 = arith.constant 3 : i32\n"
        "%true = arith.constant true\n%n = tt.get_num_programs x : i32\n%p = tt.get_program_id y : i32\n"
        "%sum:2 = scf.for %i = %c0 to %c7 step %c3 iter_args(%s = %n, %last = %p) -> (i32, i32)  : i32 {\n"
        "%t = arith.addi %s, %i : i32\nscf.yield %t, %i : i32, i32\n}\n"
        "%b = scf.if %true -> (i32) {\nscf.yield %sum#0 : i32\n} else {\nscf.yield %c0 : i32\n}\n"
        "%d = arith.select %true, %sum#1, %c0 : i32\n"
        "%e = tt.splat %b : i32 -> tensor<2xi32>\n%f = tt.splat %d : i32 -> tensor<2xi32>\n"
        "%g = arith.cmpi eq, %x, %f : tensor<2xi32>\n"
        "%h = arith.select %g, %e, %f : tensor<2xi1>, tensor<2xi32>\n"
        "%u = tt.expand_dims %h {axis = 1 : i32} : tensor<2xi32> -> tensor<2x1xi32>\n"
        "%out = tt.reshape %u : tensor<2x1xi32> -> tensor<2xi32>"
    )

    assert [10, 6] == applied(lines, ("i32", 2), ("i32", [6, 0]))


def test_descriptors() -> None:
    """A block that reaches beyond the array is 0 there, and is not written there."""
    body = (
        "%c2 = arith.constant 2 : i32\n%c1 = arith.constant 1 : i32\n"
        "%v = tt.descriptor_load %x[%c1, %c2] : !tt.tensordesc<tensor<2x2xf32>> -> tensor<2x2xf32>\n"
        "tt.descriptor_store %o[%c1, %c1], %v : !tt.tensordesc<2x2xf32>, tensor<2x2xf32>"
    )
    parameters = (
        '%x: !tt.tensordesc<tensor<2x2xf32>>, %o: !tt.tensordesc<2x2xf32> loc("o"), %o.shape.0: i32 loc("o.shape.0")'
    )
    x, out = np.arange(6, dtype=np.float32), np.full(9, -1, np.float32)
    arguments = {"x": Array(x, (2, 3), (3, 1)), "o": Array(out, (3, 2), (3, 1))}
    run(parse(function(parameters, body)), arguments, (1, 1, 1))

    assert [-1, -1, -1, -1, 5, -1, -1, 0, -1] == out.tolist()


def test_single_lanes() -> None:
    """Scalars and tensors of one lane."""
    lines = "%a = tt.unsplat %x : tensor<1xi32> -> i32\n%out = tt.splat %a : i32 -> tensor<3xi32>"

    assert [5, 5, 5] == applied(lines, ("i32", 3), ("i32", [5]))


def test_masks() -> None:
    """A lane that is masked reads nothing and writes nothing; what it holds without a fill is not 0."""
    lines = (
        "%c = arith.constant dense<1> : tensor<2xi32>\n%m = arith.cmpi slt, %range_2, %c : tensor<2xi32>\n"
        "%far = tt.addptr %o_p, %x : tensor<2x!tt.ptr<i32>>, tensor<2xi32>\n"
        "{}\n%out = tt.load %far, %m{} : tensor<2x!tt.ptr<i32>>"
    )
    x = ("i32", [1, 10**6])
    fill = "%f = arith.constant dense<7> : tensor<2xi32>"

    assert [0, 7] == applied(lines.format(fill, ", %f"), ("i32", 2), x)
    assert 0 not in applied(lines.format("tt.store %far, %range_2, %m : tensor<2x!tt.ptr<i32>>", ""), ("i32", 2), x)[1:]


@pytest.mark.parametrize(
    ("line", "operands", "message"),
    [
        ("%out = arith.divsi %x, %y : tensor<2xi32>", ([1, 2], [1, 0]), "divides by zero"),
        ("%out = arith.remui %x, %y : tensor<2xi32>", ([1, 2], [1, 0]), "divides by zero"),
        ("%out = arith.shli %x, %y : tensor<2xi32>", ([1, 2], [1, 32]), "shifts by the width"),
        (
            "%p = tt.addptr %x_p, %y : tensor<2x!tt.ptr<i32>>, tensor<2xi32>\n"
            "%out = tt.load %p : tensor<2x!tt.ptr<i32>>",
            ([1, 2], [0, 1]),
            "touches element 2 of a buffer of 2",
        ),
        (
            "%out = tt.load %o_p : tensor<2x!tt.ptr<i32>>\ntt.store %o_s, %x : tensor<2x!tt.ptr<i32>>",
            ([1, 2], [0, 0]),
            "stores different values in one place",
        ),
    ],
)
def test_what_is_undefined_is_an_error(line: str, operands: tuple[list[int], list[int]], message: str) -> None:
    """It names the operation."""
    x, y = operands
    with pytest.raises(InterpretationError, match=rf"\(line \d+ of the typed IR\) {message}"):
        applied(line, ("i32", 2), ("i32", x), ("i32", y))


def test_a_loop_that_would_not_end_is_an_error() -> None:
    """Its step is not above 0."""
    lines = (
        "%c0 = arith.constant 0 : i32\nscf.for %i = %c0 to %c0 step %c0  : i32 {\n}\n"
        "%out = arith.addi %x, %x : tensor<1xi32>"
    )
    with pytest.raises(InterpretationError, match="has the step 0"):
        applied(lines, ("i32", 1), ("i32", [1]))


def test_every_operation_is_tested_here() -> None:
    """Each entry of the table occurs in this file."""
    text = Path(__file__).read_text()

    assert [] == [name for name in FORMS if name not in text]
    (parameter,) = parse(function("%n: i32", "")).parameters

    assert ("n", Type("i32")) == (parameter.source, parameter.value.type)
