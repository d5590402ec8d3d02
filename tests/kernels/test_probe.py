"""The probes of numerical rules: each passes a machine that follows its rule, and finds one that does not."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

import torch
from torch import Tensor

from probed_machine import ACROSS, LARGE, SMALLEST, Processor
from vosti.kernels.attention import ATTENTION
from vosti.kernels.candidates import SHARED_MEMORY, make_tile
from vosti.kernels.catalogue import FIXED, KERNELS, TARGETS, Instance
from vosti.kernels.disassembly import compiled_classes
from vosti.kernels.probe import elementwise, products, reductions, repeats
from vosti.kernels.probe.findings import Finding, differing, next_up
from vosti.kernels.probe.machine import (
    FUNCTIONS,
    MAXIMUM,
    TILE,
    TREE,
    TWO_LANES,
    compiled,
    compiled_elementwise,
    compiled_product,
    compiled_reduced,
    compiled_total,
    elementwise_kernel,
    reduced_kernel,
    total_kernel,
)
from vosti.kernels.probe.suite import by_rule, compile_ahead, number_of_probes, probes, wanted
from vosti.kernels.tables import Table, load
from vosti.kernels.tile import Tile
from vosti.kernels.verifier.rules import RULES
from vosti.kernels.workers import Workers

TILES = (SMALLEST, LARGE, ACROSS)
HERE = Path(__file__).parent

Probe = Callable[[Processor], Sequence[Finding]]


def masked_product(machine: Processor) -> Sequence[Finding]:
    """Of which three faults are found."""
    return products.masked_product(machine, torch.bfloat16, TILES, 16, 24)


def function(machine: Processor) -> Sequence[Finding]:
    """Of which two faults are found."""
    return elementwise.function(machine, count=512)


PROBES: dict[str, tuple[Probe, str]] = {
    "chain": (lambda machine: products.chain(machine, torch.bfloat16, TILES, 16, 24), "groups of 8"),
    "chain, order": (lambda machine: products.chain(machine, torch.float16, TILES, 16, 24), "descending"),
    "masked product": (masked_product, "−0 is kept"),
    "masked product, signs": (masked_product, "zeros add as IEEE 754 says"),
    "masked product, subnormal": (masked_product, "subnormal sums are lost"),
    "conversion": (lambda machine: elementwise.conversion(machine, count=512), "truncation"),
    "function, exp": (function, "exp"),
    "function, division": (function, "division"),
    "zero exponent": (lambda machine: elementwise.zero_exponent(machine, count=512), "exp(0 - x)"),
    "free maximum": (lambda machine: reductions.free_maximum(machine, rows=20), "a lane is missed"),
    "two lanes": (lambda machine: reductions.two_lanes(machine, rows=20), "a lane is rounded"),
    "two lanes, trees": (lambda machine: reductions.trees(machine, rows=20), "lanes are moved"),
    "empty total": (lambda machine: reductions.empty_total(machine, rows=60), "a maximum too high"),
    "repeatability": (
        lambda machine: repeats.repeated_products(machine, torch.bfloat16, TILES[:1]),
        "another each time",
    ),
}
"""Each probe, and a fault that breaks its rule."""


@pytest.mark.parametrize("name", {probe: name for name, (probe, _) in reversed(PROBES.items())}.values())
def test_a_rule_that_holds_passes(name: str) -> None:
    """On a machine that follows it, in every form, with the control found in each; each probe once."""
    torch.manual_seed(0)
    found = PROBES[name][0](Processor())

    assert {name.partition(",")[0]} == {finding.rule for finding in found}
    assert [] == [(finding.form, finding.problem) for finding in found if finding.problem is not None]
    assert all(finding.control and finding.compared for finding in found)


@pytest.mark.parametrize("name", PROBES)
def test_a_rule_that_is_broken_is_found(name: str) -> None:
    """On a machine with the fault, some elements differ; the control is still found."""
    probe, fault = PROBES[name]
    torch.manual_seed(0)
    found = probe(Processor(fault))

    problems = [finding.problem for finding in found if finding.problem is not None]
    assert problems
    assert all("elements differ" in problem for problem in problems)


@pytest.mark.parametrize("control", products.CONTROLS)
def test_data_on_which_no_grouping_shows_are_no_evidence(
    control: Callable[[torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small integers add up without rounding: every grouping has their sum, the control is not found, and none pass."""

    def integers(kind: str, element: torch.dtype, rows: int, columns: int, length: int, device: str) -> object:
        return tuple(torch.randint(-3, 4, (size, length)).to(element) for size in (rows, columns))

    monkeypatch.setattr(products, "data", integers)
    monkeypatch.setattr(products, "CONTROLS", (control,))
    found = products.chain(Processor(), torch.bfloat16, TILES, 16, 24)

    assert {0} == {finding.different for finding in found}
    assert {"its control was not found, so that the data show nothing"} == {finding.problem for finding in found}


def test_controls_keep_the_factors() -> None:
    """Groups of 8 and descending groups have the factors of the chain that they are controls of, in pairs."""
    x, w = torch.randint(-9, 9, (3, 64)).float(), torch.randint(-9, 9, (5, 64)).float()

    for control in products.CONTROLS:
        assert torch.equal(x @ w.T, control(x) @ control(w).T)
        assert not torch.equal(x, control(x)[:, :64])


def test_comparison_is_of_bits() -> None:
    """Zeros of both signs differ, NaN is one value; a neighbour is one bit away, and what is not finite has none."""
    nan = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)

    assert 1 == differing(torch.tensor([0.0, 1.0]), torch.tensor([-0.0, 1.0]))
    assert 0 == differing(nan[:1], nan[1:])
    assert [1.0 + 2**-23, -1.0 - 2**-23, torch.inf] == next_up(torch.tensor([1.0, -1.0, torch.inf])).tolist()


def test_every_rule_about_a_gpu_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All probes together speak of each rule that is probed, and of repeatability, and of nothing else."""
    few = Table("sm_90", {})
    chain, masked = products.chain, products.masked_product
    monkeypatch.setattr(
        "vosti.kernels.probe.suite.PRODUCTS",
        (
            lambda machine, element, tiles: chain(machine, element, tiles, 8, 8),
            lambda machine, element, tiles: masked(machine, element, tiles, 8, 8),
            lambda machine, element, tiles: repeats.repeated_products(machine, element, tiles),
        ),
    )
    again = Finding(repeats.REPEATABILITY, "a kernel", (), 1, 0, 1, "kernel")
    monkeypatch.setattr("vosti.kernels.probe.suite.repeated_kernels", lambda table, target, device: [again])
    found = list(probes(Processor(), few))

    assert number_of_probes() == len(found)
    rules = {finding.rule for part in found for finding in part}
    assert {rule.name for rule in RULES.values() if rule.probed} | {repeats.REPEATABILITY} == rules
    assert rules == {rule for rule, _ in by_rule(finding for part in found for finding in part)}


def test_forms_are_those_of_the_table() -> None:
    """Every step along k of linear and gated layers is there, gate and up as one; and attention's three products."""
    forms = products.forms(load("sm_90"))
    blocks = {
        (dict(tile.blocks)["BLOCK_M"], dict(tile.blocks)["BLOCK_N"], dict(tile.blocks)["BLOCK_K"]) for tile in forms
    }

    for (operation, dimensions), entry in load("sm_90").entries.items():
        for choice in entry.choices:
            tile = dict(choice.tile.blocks)
            if operation in ("linear", "head", "gate_up"):
                columns = tile["BLOCK_N"] * (2 if operation == "gate_up" else 1)
                assert (tile["BLOCK_M"], columns, tile["BLOCK_K"]) in blocks
            if operation in ("attention", "attention_split"):
                assert (tile["BLOCK_R"], 64, dict(dimensions)["head_dim"]) in blocks
                assert {(tile["BLOCK_R"], tile["BLOCK_D"], 64), (tile["BLOCK_R"], 16, 64)} <= blocks
    assert 0 == sum(products.LENGTH % tile.block("BLOCK_K") for tile in forms)
    assert all(
        cut % 16 == 0 and cut % tile.block("BLOCK_K") == 0 for tile in forms for cut in products.cuts(tile, 1024)
    )


@pytest.mark.parametrize(
    ("tile", "classes"),
    [(SMALLEST, ("mma",)), (LARGE, ("wgmma",)), (ACROSS, ("wgmma",))],
    ids=["mma", "wgmma", "across"],
)
def test_products_compile_to_both_instructions(tile: Tile, classes: tuple[str, ...]) -> None:
    """For sm_90, without a GPU, within the memory that there is."""
    binary = compiled_product(torch.bfloat16, tile, products.LENGTH, TARGETS["sm_90"])

    assert classes == compiled_classes(binary)
    assert binary.metadata.shared <= SHARED_MEMORY["sm_90"]


def test_forms_are_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each product with both element types, for the table's architecture, and each form that is repeated; their classes
    are told.
    """
    made: list[object] = []
    suite = "vosti.kernels.probe.suite"
    for name in ("compiled_product", "compiled_elementwise", "compiled_reduced", "compiled_total"):
        monkeypatch.setattr(f"{suite}.{name}", lambda *form: form)
    monkeypatch.setattr(Instance, "compiled", lambda self, target: (self, target))
    monkeypatch.setattr(f"{suite}.compiled_classes", made.append)
    done = list(compile_ahead(load("sm_90"), Workers(1)))

    target, tiles, forms = TARGETS["sm_90"], products.forms(load("sm_90")), repeats.kernel_forms(load("sm_90"))
    assert [(one, target) for one in forms] == made[: len(forms)]
    products_made = [(element, tile, products.LENGTH, target) for element in products.FACTORS for tile in tiles]
    assert products_made == made[len(forms) :]
    told, others = wanted(load("sm_90"))
    assert (len(made), len(done)) == (len(told), len(told) + len(others))


class Recording(Processor):
    """Remembers what is launched: arguments of what compiles it, but for the target."""

    def __init__(self) -> None:
        super().__init__()
        self.launched: set[tuple[object, ...]] = set()

    def elementwise(self, function: str, x: Tensor, y: Tensor, to: torch.dtype, tile: Tile) -> Tensor:
        """As the processor."""
        assert x.dtype == y.dtype
        self.launched.add((compiled_elementwise, function, x.dtype, to, tile))
        return super().elementwise(function, x, y, to, tile)

    def reduced(self, operation: int, x: Tensor, tile: Tile) -> Tensor:
        """As the processor."""
        self.launched.add((compiled_reduced, operation, tile))
        return super().reduced(operation, x, tile)

    def total(self, scores: Tensor, seen: Tensor, excess: float, tile: Tile) -> Tensor:
        """As the processor."""
        self.launched.add((compiled_total, tile))
        return super().total(scores, seen, excess, tile)

    def chain(self, x: Tensor, w: Tensor, start: Tensor, tile: Tile, begin: int, end: int) -> Tensor:
        """As the processor."""
        self.launched.add((compiled_product, x.dtype, tile, x.shape[1]))
        return super().chain(x, w, start, tile, begin, end)


def test_nothing_else_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """What probes launch without a table, and their products with a few tiles, is just what is compiled ahead."""
    monkeypatch.setattr("vosti.kernels.probe.suite.forms", lambda table: list(TILES))
    monkeypatch.setattr("vosti.kernels.probe.suite.kernel_forms", lambda table: [])
    monkeypatch.setattr("vosti.kernels.probe.suite.launched_beside", lambda table: [])
    monkeypatch.setattr(products, "DATA", ("random",))
    monkeypatch.setattr(products, "AFTER_SUMS", ())
    machine = Recording()
    for few in (elementwise.conversion, elementwise.function, elementwise.zero_exponent):
        few(machine, count=16)
    for some in (reductions.free_maximum, reductions.two_lanes, reductions.trees, reductions.empty_total):
        some(machine, rows=6)
    for element in products.FACTORS:
        products.chain(machine, element, TILES, 3, 5)

    told, others = wanted(load("sm_90"))
    ahead = [one for one in (*told, *others) if isinstance(one, partial) and not hasattr(one.func, "__self__")]
    assert machine.launched == {(one.func, *one.args[:-1]) for one in ahead}
    assert len(FIXED) == len(told) + len(others) - len(ahead)


def test_every_tile_of_every_kernel_is_repeated() -> None:
    """Those of the table, on products of the probes' own size."""
    table, forms = load("sm_90"), repeats.kernel_forms(load("sm_90"))
    tiles = {(choice.kernel, choice.tile) for entry in table.entries.values() for choice in entry.choices}

    assert tiles == {(one.kernel.contract.kernel, one.tile) for one in forms}
    assert set(KERNELS) == {one.kernel.contract.kernel for one in forms}
    assert {"PAGE": {16, 64}, "HEAD_DIM": {32, 64, 128, 256, 512}} == {
        name: {one.constants[name] for one in forms if one.kernel is ATTENTION} for name in ("PAGE", "HEAD_DIM")
    }
    assert len(forms) == len({repeats.described(one) for one in forms})


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_compile(function: str) -> None:
    """Each of them, for sm_90, and none with matrix instructions."""
    elements = {"x": "fp32", "y": "fp32", "out": "bf16" if function == "conversion" else "fp32"}
    number = {"FUNCTION": FUNCTIONS.index(function)}
    binary = compiled(elementwise_kernel, elements, number, elementwise.FORMS[0], TARGETS["sm_90"])

    assert () == compiled_classes(binary)


@pytest.mark.parametrize("operation", [MAXIMUM, TWO_LANES, TREE])
def test_reductions_compile(operation: int) -> None:
    """All of them, for sm_90."""
    elements = {"x": "fp32", "out": "fp32"}
    binary = compiled(reduced_kernel, elements, {"OPERATION": operation}, reductions.FORMS[0], TARGETS["sm_90"])

    assert () == compiled_classes(binary)


def test_the_running_total_compiles() -> None:
    """For sm_90; its weights add up on matrix units, as in attention."""
    elements = dict.fromkeys(("scores", "seen", "excess", "out"), "fp32")
    binary = compiled(total_kernel, elements, {"TILE": TILE}, make_tile(4, 1, BLOCK_M=32), TARGETS["sm_90"])

    assert ("mma",) == compiled_classes(binary)


def test_kernels_compute_what_they_say() -> None:
    """In Triton's interpreter, the probes of what it computes as a processor does pass."""
    result = subprocess.run(
        [sys.executable, HERE / "interpreted_probes.py"], capture_output=True, text=True, timeout=120, check=False
    )

    assert "7 findings, 0 problems\n" == result.stdout, result.stderr


@pytest.mark.parametrize("element", [torch.bfloat16, torch.float32, torch.int32, torch.int64])
def test_a_buffer_that_does_not_repeat_is_found(element: torch.dtype) -> None:
    """Every run is compared with the first, in each buffer, by bits; NaN that stays is no difference."""

    def finding(changed: int) -> Finding:
        """In one run a number is another."""
        runs = count(1)

        def compute() -> tuple[torch.Tensor, ...]:
            other = torch.zeros(5).to(element)
            other[3] = int(next(runs) == changed)
            return torch.full((6,), math.nan), other

        return repeats.repeated("a kernel", (), compute, kernel="kernel")

    found = [finding(changed) for changed in (0, 3, repeats.TIMES + 1)]
    assert [None, "1 of 88 elements differ", "1 of 88 elements differ"] == [one.problem for one in found]
    assert {(11 * repeats.TIMES, 2, "kernel")} == {(one.compared, one.control, one.kernel) for one in found}
