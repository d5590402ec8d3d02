"""The parser of typed IR: it reads what four versions of Triton print of our kernels, and refuses everything else."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

import triton
import triton.language as tl

from ttir_samples import FOLDER, SAMPLES, sample
from vosti.kernels.catalogue import KERNELS, SAMPLER, TARGETS, Instance, instances
from vosti.kernels.contract import Buffer, Constant, Contract, Descriptor
from vosti.kernels.launch import Kernel as Launched
from vosti.kernels.shapes import SHAPES, operations
from vosti.kernels.tables import load
from vosti.kernels.tile import Tile
from vosti.kernels.verifier.entries import Case
from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.front import compiled, located
from vosti.kernels.verifier.ir import Kernel, Kind, Type, float_bits, float_value
from vosti.kernels.verifier.parse import parse
from vosti.kernels.verifier.prove import prove

TARGET = TARGETS["sm_90"]
VERSIONS = ("3.6", "3.7", "3.8", "3.9")


def text_of(kernel: str, version: str = "3.7") -> str:
    """A kept text."""
    return Path(FOLDER, version, f"{kernel}.ttir").read_text()


def is_that_of(kernel: Kernel, instance: Instance) -> bool:
    """Whether the parameters are those of the instance's contract, in order, a descriptor being five of them."""
    expected = []
    for parameter in instance.kernel.contract.parameters:
        if not isinstance(parameter, Constant):
            expected += [parameter.name] * (5 if isinstance(parameter, Descriptor) else 1)
    return expected == [parameter.source for parameter in kernel.parameters]


# ---------------------------------------------------------------- what is read


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kernel", SAMPLES)
def test_kept_texts_are_read(kernel: str, version: str) -> None:
    """Of every version; the grid's first axis is always used."""
    read = parse(text_of(kernel, version))

    assert f"{kernel}_kernel" == read.name
    assert "x" in {op.word("axis") for op in read.body.walk() if op.name == "tt.get_program_id"}


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kernel", sorted(SAMPLES))
def test_kept_texts_are_proved(kernel: str, version: str) -> None:
    """What every version of the front end makes of a kernel computes the row program."""
    instance = sample(kernel)
    case = Case(instance, "sm_90")

    proof = prove(
        parse(text_of(kernel, version)), instance.kernel.contract, case.constants, instance.elements, case.earlier()
    )
    assert proof.obligations["value"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("kernel", SAMPLES)
def test_kept_texts_are_those_of_the_kernels(kernel: str) -> None:
    """`ttir_samples` says how to write them anew, for each version."""
    version = triton.__version__.rpartition(".")[0]

    assert parse(text_of(kernel, version)).digest == parse(sample(kernel).ttir(TARGET)).digest


def emitted(kernel: str, version: str) -> Counter[str]:
    """The operations of a kept text, with how often each occurs."""
    return Counter(f"{op.name} {op.attributes}" for op in parse(text_of(kernel, version)).body.walk())


def test_versions_differ_in_what_they_emit() -> None:
    """The same operations, in another order; since 3.8, a negation is no subtraction from 0, and digests cast less."""
    for kernel in SAMPLES:
        assert emitted(kernel, "3.6") == emitted(kernel, "3.7")
        assert emitted(kernel, "3.8") == emitted(kernel, "3.9")
        same = emitted(kernel, "3.7") == emitted(kernel, "3.8")
        assert same or kernel in ("digest", "digest_merge", "draw_from_all", "gate_up_stream")
    before, after = (emitted("gate_up_stream", version) for version in ("3.7", "3.8"))
    assert ["arith.subf ()"] == [op for op in before - after if "constant" not in op]
    assert {"arith.negf ()": 1} == after - before


def check(models: tuple[str, ...]) -> int:
    """Read every instance that some models launch; how many there are."""
    table = load("sm_90")
    count = 0
    for operation, dimensions in sorted({entry for model in models for entry in operations(SHAPES[model])}):
        for instance in instances(table.entry(operation, **dict(dimensions))):
            kernel = parse(instance.ttir(TARGET))
            assert is_that_of(kernel, instance)
            assert instance.kernel.function.__name__ == kernel.name
            count += 1
    return count


def test_kernels_of_some_models_are_read() -> None:
    """Every table entry of the bundled checkpoints."""
    assert check(("tiny-llama3", "tiny-gemma3")) > 60


@pytest.mark.slow
def test_kernels_of_all_models_are_read() -> None:
    """Every table entry."""
    assert check(tuple(SHAPES)) > 400


def test_locations_are_lines_of_the_source_and_change_nothing() -> None:
    """An operation that was inlined names the caller too; the digest is that of the compilation without lines."""
    instance = sample("attention_merge")
    kernel = located(instance.kernel, instance.constants, instance.tile, TARGET)

    assert parse(instance.ttir(TARGET)).digest == kernel.digest
    exponentials = [op for op in kernel.body.walk() if op.name == "math.exp"]
    assert 2 == len(exponentials)
    for op in exponentials:
        assert op.location is not None
        line = Path(op.location.file).read_text().splitlines()[op.location.line - 1]
        assert "tl.exp(" in line
        assert re.fullmatch(r"math\.exp at attention_tiles\.py:\d+, called at attention_split\.py:\d+", str(op))


def test_a_binary_has_the_same_ir() -> None:
    """What a compilation in full was made from, as a launch has it at hand."""
    instance = sample("embedding")

    binary = instance.compiled(TARGET)
    assert parse(instance.ttir(TARGET)).digest == compiled(binary).digest


def test_what_is_read_of_a_loop() -> None:
    """Operands in the order of the text; values by number; the block's variable first."""
    kernel = parse(text_of("linear"))
    (loop,) = [op for op in kernel.body.walk() if op.name == "scf.for"]
    lower, upper, step, initial = loop.operands
    (body,) = loop.regions
    variable, carried = body.arguments
    defined = {value.number: op for op in kernel.body.walk() for value in op.results}

    assert [0, 256] == [defined[value.number].integer("value") for value in (lower, upper)]
    assert 256 % defined[step.number].integer("value") == 0
    assert initial.type == carried.type == loop.result.type
    assert Type("i32") == variable.type
    assert "scf.yield" == body.terminator.name
    assert [carried.type] == [value.type for value in body.terminator.operands]
    (product,) = [op for op in body.ops if op.name == "tt.dot"]
    assert (carried, product.result) == (product.operands[2], body.terminator.operands[0])
    assert Type("bf16", (), Kind.POINTER) == {one.source: one.value.type for one in kernel.parameters}["x"]
    assert [16, 16, 16, 1] == [parameter.divisibility for parameter in kernel.parameters]


@pytest.mark.parametrize(
    ("element", "text", "bits"),
    [
        ("f32", "1.000000e+00", 0x3F800000),
        ("f32", "-0.000000e+00", 0x80000000),
        ("f32", "0.797884583", 0x3F4C422A),
        ("f32", "0xFF800000", 0xFF800000),
        ("bf16", "1.000000e+00", 0x3F80),
        ("bf16", "0xFF80", 0xFF80),
        ("f16", "5.000000e-01", 0x3800),
        ("f64", "1.000000e-01", 0x3FB999999999999A),
        ("i32", "-7", -7),
        ("i1", "true", 1),
        ("i64", "9223372036854775807", 2**63 - 1),
    ],
)
def test_constants_are_exact(element: str, text: str, bits: int) -> None:
    """A number is its bit pattern, so that zeros of both signs differ."""
    kernel = parse(
        f"module {{\ntt.func public @k() attributes {{noinline = false}} {{\n%c = arith.constant dense<{text}> : "
        f"tensor<4x{element}>\ntt.return\n}}\n}}\n"
    )

    assert bits == kernel.body.ops[0].integer("value")


def test_numbers_are_rounded_to_nearest() -> None:
    """Ties go to the even neighbour, and beyond the range to infinity."""
    assert 0x3F80 == float_bits("bf16", 1.0 + 2.0**-8)
    assert 0x3F82 == float_bits("bf16", 1.0 + 3 * 2.0**-8)
    assert 0x7F800000 == float_bits("f32", 1e39)
    assert -(2.0**-7) == float_value("bf16", float_bits("bf16", -(2.0**-7)))


# ---------------------------------------------------------------- what is refused

STORE = r"(tt\.store (%\w+), (%\w+), (%\w+)) : (tensor<128x32x!tt\.ptr<bf16>>)"
REFUSED = {
    "an atomic addition": (
        STORE,
        r"%a = tt.atomic_rmw fadd, acq_rel, gpu, \2, \3, \4 : (\5, tensor<128x32xbf16>, tensor<128x32xi1>) -> "
        "tensor<128x32xbf16>",
        r"the operation tt\.atomic_rmw is not understood",
    ),
    "a gather": (r"= arith\.truncf", "= tt.gather", r"the operation tt\.gather is not understood"),
    "another function's call": (
        r"tt\.return",
        "tt.call @other() : () -> ()\n tt.return",
        r"tt\.call is not understood",
    ),
    "a volatile load": (r"(tt\.load [^:]*) :", r"\1 {isVolatile = true} :", r"tt\.load is not understood in this form"),
    "a load past a cache": (r"(tt\.load [^:]*) :", r"\1 cacheModifier = cv :", "not understood in this form"),
    "fast arithmetic": (
        r"tt\.return",
        "%f = arith.constant 1.0 : f32\n%g = arith.addf %f, %f fastmath<fast> : f32\ntt.return",
        r"arith\.addf is not understood in this form",
    ),
    "a function of another library": (
        r"tt\.return",
        '%f = arith.constant 1.0 : f32\n%g = tt.extern_elementwise %f {libname = "", libpath = "other.bc", '
        'pure = true, symbol = "__nv_tanhf"} : (f32) -> f32\ntt.return',
        r"tt\.extern_elementwise has types that do not fit",
    ),
    "a promise of no overflow": (r"(arith\.muli [^:]*) :", r"\1 overflow<nsw> :", "not understood in this form"),
    "a predicate that is none": (r"cmpi slt", "cmpi lt", r"arith\.cmpi is not understood in this form"),
    "an axis that is none": (r"get_program_id x", "get_program_id w", "not understood in this form"),
    "an attribute that is not known": (r"\{axis = 1 : i32\}", "{axis = 1 : i32, odd}", "not understood in this form"),
    "an attribute of another form": (r"\{axis = 1 : i32\}", "{axis = #odd<1>}", "the attributes .* are not understood"),
    "an attribute that is missing": (r" \{axis = 1 : i32\}", "", "not understood in this form"),
    "a loop that is specialised": (r"\n(    \}) loc", r"\n\1 {tt.warp_specialize} loc", "scf.for has an attribute"),
    "a loop over unsigned numbers": (r"scf\.for %", "scf.for unsigned %", r"the operation scf\.for is not understood"),
    "a loop until something": (r"tt\.return", r"scf.while (%i = %c0_i32) : (i32) -> i32 {", r"scf\.while is not"),
    "a parameter with another attribute": (
        r"tt\.divisibility = 16",
        "tt.constancy = 16",
        "a parameter is not understood",
    ),
    "a function that is not inlined": (r"noinline = false", "noinline = true", "unexpected text"),
    "a module with attributes": (r"module \{", "module attributes {odd = 1 : i32} {", "unexpected text"),
    "an encoding": (r"tensor<128x32xbf16>", "tensor<128x32xbf16, #blocked>", "the type .* is not understood"),
    "a type that is not known": (r"to tensor<128x32xbf16>", "to tensor<128x32xf8>", "the type .* is not understood"),
    "a constant of many values": (r"dense<0\.000000e\+00>", "dense<[0.0, 1.0]>", "arith.constant is not understood"),
    "a constant that is not finite": (r"dense<0\.000000e\+00>", "dense<inf>", "the constant inf is not understood"),
    "a constant beyond its type": (
        r"constant \d+ : i32",
        "constant 4294967296 : i32",
        "the constant .* is not understood",
    ),
    "a name without a value": (r"(arith\.muli %)\w+", r"\1odd", "%odd is not defined"),
    "a name of two values": (r"%1 = ", "%0 = ", "%0 is defined twice"),
    "a result too many": (r"%1 = ", "%1, %odd = ", "1 results are needed"),
    "operands of two types": (r"(arith\.muli %\w+), %\w+ : i32", r"\1, %c64_i32_x : i32", "is not defined"),
    "operands of another type": (STORE, r"tt.store \2, \4, \4 : \5", r"tt\.store has operands whose types"),
    "an operand too few": (r"(tt\.dot %\w+, %\w+), %\w+ :", r"\1 :", r"tt\.dot is not understood in this form"),
    "a shape that does not fit": (r"(expand_dims.*)x1xi32>", r"\1x2xi32>", "types that do not fit"),
    "an end before the end": (r"tt\.return", "tt.return\ntt.return", "a block does not end in tt.return"),
    "a loop without a next value": (r"scf\.yield[^\n]*\n", "", "a block does not end in scf.yield"),
    "text after the module": (r"\Z", "\nmodule {", "unexpected text after the module"),
    "a text cut short": (r"    tt\.return.*", "", "The typed IR ends within a block"),
    "a line that is no operation": (r"tt\.return", "^bb1:\n tt.return", "this is not an operation"),
}
"""What is wrong → an edit of the text of a linear layer, and what the parser says."""


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_the_table_does_not_have_is_refused(wrong: str) -> None:
    """The text that is one edit away is read."""
    pattern, replacement, message = REFUSED[wrong]
    text = text_of("linear")
    edited = re.sub(pattern, replacement, text, count=1, flags=re.DOTALL if "cut" in wrong else 0)

    assert edited != text
    assert parse(text)
    with pytest.raises(RefusedError, match=message):
        parse(edited)


@pytest.mark.parametrize(
    ("pattern", "replacement", "message"),
    [
        (r'"tt\.reduce"\((%\w+)\)', r'"tt.reduce"(\1, \1)', r"the operation tt\.reduce is not understood"),
        (r"\^bb0\((%\w+): f32", r"^bb0(\1: i32", r"tt\.reduce has a block of other types"),
        (r"<\{axis = 1 : i32\}>", "<{axis = 0 : i32}>", "types that do not fit"),
        (r"tt\.reduce\.return[^\n]*\n", "", r"does not end in tt\.reduce\.return"),
        (r"tt\.precise_divf", "tt.imprecise_divf", r"tt\.imprecise_divf is not understood"),
        (r"tt\.reshape (%\w+) :", r"tt.reshape \1 allow_reorder :", r"tt\.reshape is not understood in this form"),
    ],
)
def test_what_a_norm_may_not_have_is_refused(pattern: str, replacement: str, message: str) -> None:
    """Reductions fold one tensor with the operation of their block."""
    edited, count = re.subn(pattern, replacement, text_of("rms_norm"), count=1)

    assert 1 == count
    with pytest.raises(RefusedError, match=message):
        parse(edited)


@triton.jit
def adding_kernel(x, out, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """An addition in the order of arrival."""
    column = tl.arange(0, WIDTH)
    tl.atomic_add(out + column, tl.load(x + column))


@triton.jit
def rounding_kernel(x, out, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """A product whose operands are rounded."""
    place = tl.arange(0, WIDTH)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    product = tl.dot(tl.load(x + place), tl.load(x + place))
    tl.store(out + place, product)


@pytest.mark.parametrize(
    ("function", "message", "words"),
    [
        (adding_kernel, r"the operation tt\.atomic_rmw is not understood", "tl.atomic_add(out"),
        (rounding_kernel, r"tt\.dot has types that do not fit", "product = tl.dot"),
    ],
)
def test_a_refusal_names_the_line_of_the_source(function: object, message: str, words: str) -> None:
    """The line that a reader has to change."""
    buffers = Buffer("x", "fp32", ("WIDTH",)), Buffer("out", "fp32", ("WIDTH",))
    contract = Contract("twin", "", (*buffers, Constant("WIDTH")), ("1", "1", "1"), (), (), (), "")
    lines = Path(__file__).read_text().splitlines()
    (line,) = [number for number, line in enumerate(lines, 1) if line.strip().startswith(words)]

    with pytest.raises(RefusedError, match=rf"{message}, at test_parse\.py:{line}:"):
        located(Launched(function, contract), {"WIDTH": 32}, Tile((), 4, 1), TARGET)


def test_every_kernel_has_a_kept_text() -> None:
    """Of the tables, and of those that no table has."""
    assert {*KERNELS, *SAMPLER} == set(SAMPLES)
