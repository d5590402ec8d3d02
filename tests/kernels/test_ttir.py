"""The typed IR of every kernel at every entry of the table, produced without a GPU, and what must hold of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

import triton
import triton.language as tl

from vosti.kernels.candidates import starting_entry
from vosti.kernels.catalogue import KERNELS, TARGETS, Instance, instances
from vosti.kernels.contract import Buffer, Constant, Contract, Integer
from vosti.kernels.launch import Kernel
from vosti.kernels.shapes import SHAPES, known_operations, operations
from vosti.kernels.tables import Entry, load
from vosti.kernels.tile import Tile

TARGET = TARGETS["sm_90"]

FAST = ("tiny-llama3", "tiny-gemma3", "llama-3.1-8b")
"""Models whose entries are looked at in every run; `-m slow` looks at all."""


def ordered_problems(text: str) -> list[str]:
    """Where a result could depend on a layout, on contraction or on the caller's integers.

    - A sum over an axis has a fixed order only if the axis has length 2; maxima, `or` and sums of integers have any.
    - A product of float32 must be exact in its operands, not rounded to tf32.
    - An integer argument must carry no promise, such as being a multiple of 16.
    - Nothing may be added atomically.
    """
    found = []
    for body in re.finditer(r'"tt\.reduce"\(.*?\}\) : \((.*?)\) ->', text, re.DOTALL):
        added = "arith.addf" in body[0]
        axis = int(re.search(r"axis = (\d+)", body[0])[1])  # type: ignore[index]
        shape = re.search(r"tensor<([\dx]+)x[a-z]", body[1])[1].split("x")  # type: ignore[index]
        if added and shape[axis] != "2":
            found.append(f"a sum over an axis of length {shape[axis]}")
        if not added and not re.search(r"arith\.(maxnumf|maxsi|ori|addi)", body[0]):
            found.append("a reduction that is neither a sum nor a maximum")
    for line in text.splitlines():
        if "tt.dot" in line and "xf32> * " in line and "inputPrecision = tf32" in line:
            found.append("a product in tf32")
        if "tt.atomic" in line:
            found.append("an atomic operation")
        if re.search(r": i32 \{tt\.divisibility", line):
            found.append("an integer that is promised to be a multiple of 16")
    return found


def entries(models: Iterable[str]) -> list[Entry]:
    """The entries of some models, each once."""
    table = load("sm_90")
    wanted = sorted({operation for model in models for operation in operations(SHAPES[model])})
    return [table.entry(operation, **dict(dimensions)) for operation, dimensions in wanted]


def check(chosen: list[Entry]) -> int:
    """Look at each instance of each entry; return how many there were."""
    count = 0
    for entry in chosen:
        for instance in instances(entry):
            text = instance.ttir(TARGET)
            assert [] == ordered_problems(text), (entry, instance)
            count += 1
    return count


@pytest.mark.parametrize("operation", sorted({operation for operation, _ in load("sm_90").entries}))
def test_kernels_of_some_models(operation: str) -> None:
    """TTIR is produced for each entry of the bundled checkpoints and of Llama-3.1-8B, with every order fixed."""
    chosen = [entry for entry in entries(FAST) if entry.operation == operation]

    assert check(chosen) >= len(chosen) > 0


@pytest.mark.slow
@pytest.mark.parametrize("operation", sorted({operation for operation, _ in load("sm_90").entries}))
def test_kernels_of_the_whole_table(operation: str) -> None:
    """The same for every entry of the table."""
    chosen = [entry for entry in load("sm_90").entries.values() if entry.operation == operation]

    assert check(chosen) >= len(chosen) > 0


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sm_80", "sm_100"])
def test_kernels_of_architectures_that_were_not_run(architecture: str) -> None:
    """Without tensor descriptors, the tiles to start from yield typed IR there too; nothing more is claimed of them."""
    count = 0
    for operation, dimensions in known_operations():
        entry = starting_entry(operation, dimensions, architecture)
        assert not any(choice.kernel.endswith("_stream") for choice in entry.choices)
        for instance in instances(entry):
            assert [] == ordered_problems(instance.ttir(TARGETS[architecture]))
            count += 1
    assert count > 400


def test_every_kernel_is_looked_at() -> None:
    """The entries of the fast models use every kernel of the catalogue."""
    used = {instance.kernel.contract.kernel for entry in entries(FAST) for instance in instances(entry)}

    assert set(KERNELS) == used


# ---------------------------------------------------------------- twins


@triton.jit
def sum_kernel(x, out, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """A sum in whatever order the layout gives."""
    column = tl.arange(0, WIDTH)
    tl.store(out + column, tl.load(x + column) / tl.sum(tl.load(x + column), 0))


@triton.jit
def tf32_kernel(x, out, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """A product of float32 with the default precision."""
    place = tl.arange(0, WIDTH)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(out + place, tl.dot(tl.load(x + place), tl.load(x + place)))


@triton.jit
def atomic_kernel(x, out, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """An addition in the order of arrival."""
    column = tl.arange(0, WIDTH)
    tl.atomic_add(out + column, tl.load(x + column))


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (sum_kernel, "a sum over an axis of length 32"),
        (tf32_kernel, "a product in tf32"),
        (atomic_kernel, "an atomic operation"),
    ],
)
def test_an_order_that_is_not_fixed_is_found(function: object, problem: str) -> None:
    """Each thing that the rules exclude, in a kernel that has it."""
    buffers = Buffer("x", "fp32", ("WIDTH",)), Buffer("out", "fp32", ("WIDTH",))
    contract = Contract("twin", "", (*buffers, Constant("WIDTH")), ("1", "1", "1"), (), (), (), "")
    text = Instance(Kernel(function, contract), {"WIDTH": 32}, Tile((), 4, 1)).ttir(TARGET)

    assert [problem] == ordered_problems(text)


def test_a_promise_about_an_integer_is_found() -> None:
    """An integer that the compiler may take to be a multiple of 16."""
    (line,) = [line for line in LINEAR_TEXT.splitlines() if "tt.func" in line]
    promised = line.replace("%rows: i32", "%rows: i32 {tt.divisibility = 16 : i32}")

    assert promised != line
    assert [] == ordered_problems(line)
    assert ["an integer that is promised to be a multiple of 16"] == ordered_problems(promised)
    assert isinstance(KERNELS["linear"].contract.parameters[3], Integer)


LINEAR_TEXT = next(instances(load("sm_90").entry("linear", n=256, k=256))).ttir(TARGET)


def test_source_locations_are_those_of_the_kernel() -> None:
    """TTIR names its arguments as the contract does, in order."""
    (line,) = [line for line in LINEAR_TEXT.splitlines() if "tt.func" in line]

    assert ["x", "weight", "out", "rows"] == re.findall(r"%(\w+): ", line)
