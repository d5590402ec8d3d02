"""Kernels are proved equal to their row programs, and kernels that compute something else are refused, for a reason."""

from __future__ import annotations

import gc
import re
from contextlib import nullcontext
from dataclasses import replace

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from triton import knobs

from kernel_mutants.operators import mutants
from vosti.kernels.catalogue import FIXED, KERNELS, SAMPLER, TARGETS
from vosti.kernels.contract import Contract, Fact, Output
from vosti.kernels.probe.consequences import RULES_OF
from vosti.kernels.verifier import prove as proving
from vosti.kernels.verifier import rules
from vosti.kernels.verifier.entries import Case, cases, decide
from vosti.kernels.verifier.errors import RefusedError, VerifierError
from vosti.kernels.verifier.integers import symbol
from vosti.kernels.verifier.ir import Kernel
from vosti.kernels.verifier.parse import parse
from vosti.kernels.verifier.prove import Proof, prove

HEAVY = ("attention", "attention_split", "attention_merge")
FAST = ("tiny-llama3", "tiny-gemma3", "llama-3.1-8b")
PROVED = sorted({*KERNELS, *SAMPLER})
OF_ALL_MODELS = {"digest", "digest_merge", *(one.kernel.contract.kernel for one in FIXED)}
"""Kernels with one configuration, whatever the model."""


def chosen(model: str, kernel: str) -> list[Case]:
    """A kernel's cases at a model's sizes."""
    return [case for case in cases(model=model) if case.kernel == kernel]


TEXTS: dict[tuple[str, str], str] = {}
"""The typed IR of each case that was asked for."""


def text(case: Case) -> str:
    """The typed IR, with the lines of the source, compiled once."""
    one, key = case.instance, (case.architecture, case.name)
    if key not in TEXTS:
        with knobs.compilation.scope():
            knobs.compilation.disable_line_info = False
            TEXTS[key] = one.kernel.ttir(one.constants, one.tile, TARGETS[case.architecture], one.elements)
    return TEXTS[key]


def proved(case: Case, changed: Kernel | None = None, contract: Contract | None = None) -> Proof:
    """The proof of a case, or of one whose IR or contract was changed."""
    one = case.instance
    said = contract or one.kernel.contract
    return prove(changed or parse(text(case)), said, case.constants, one.elements, case.earlier())


# ---------------------------------------------------------------- what is proved


@pytest.mark.parametrize("kernel", PROVED)
def test_kernels_of_the_bundled_models_are_proved(kernel: str) -> None:
    """Every kernel at the sizes of the bundled checkpoints; of the longest proofs, one for each window."""
    own = list({case.name: case for model in FAST[:2] for case in chosen(model, kernel)}.values())
    if kernel in HEAVY:
        own = list({case.constants["WINDOW"]: case for case in own}.values())
    elif kernel.endswith("_stream"):
        own = own[:1]
    results = [decide(case) for case in own]

    assert results
    assert [] == [one.refusal for one in results if one.refusal is not None]
    for one in results:
        assert one.obligations is not None
        assert {"premises", "bounds", "cells", "coverage", "value"} <= set(one.obligations)
        assert set(one.rules) <= set(rules.RULES)
        assert {rule for rule in one.rules if rules.RULES[rule].probed} <= RULES_OF.get(kernel, frozenset())
        assert one.model is not None


@pytest.mark.parametrize("kernel", sorted(set(PROVED) - set(HEAVY) - OF_ALL_MODELS))
def test_kernels_of_a_large_model_are_proved(kernel: str) -> None:
    """Llama-3.1-8B: its first entry and its last."""
    own = chosen(FAST[2], kernel)
    own = own[:1] if kernel.endswith("_stream") else [own[0], own[-1]]

    assert [None] * len(own) == [decide(case).refusal for case in own]


@pytest.mark.parametrize("apart", [True, False])
def test_a_proof_does_not_depend_on_those_before_it(apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queries are the same, to the letter, whatever the process keeps; twin: unless atoms are those from before."""
    if not apart:
        monkeypatch.setattr(proving, "anew", nullcontext)
    stream = chosen("tiny-llama3", "linear_stream")[0]
    first = stream.prove().tally.scripts
    gc.collect()
    program = symbol("x!0", 0)  # older now than what it was younger than

    assert apart is (first == stream.prove().tally.scripts)
    assert program.low == 0


@pytest.mark.slow
@pytest.mark.parametrize("kernel", PROVED)
def test_kernels_of_the_whole_table_are_proved(kernel: str) -> None:
    """Every entry of the table for sm_90, of all families."""
    own = [case for case in cases() if case.kernel == kernel]

    assert len(own) >= (1 if kernel in OF_ALL_MODELS else 8)
    results = [decide(case) for case in own]
    assert [] == [one.refusal for one in results if one.refusal is not None]
    used = {rule for one in results for rule in one.rules if rules.RULES[rule].probed}
    assert RULES_OF.get(kernel, frozenset()) == used


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["attention", "attention_split"])
def test_every_page_size_is_proved(kernel: str) -> None:
    """Pages of 1 to 256 slots, at the sizes of the bundled checkpoints."""
    own = [case for case in cases(model="tiny-gemma3", every_page=True) if case.kernel == kernel]

    assert {1, 2, 4, 16, 64, 256} == {case.constants["PAGE"] for case in own}
    assert [] == [one.refusal for one in map(decide, own) if one.refusal is not None]


@pytest.mark.parametrize("kernel", ["linear", "rotary_store", "attention_merge", "digest", "digest_merge", "weights"])
def test_a_second_solver_repeats_the_proof(kernel: str) -> None:
    """cvc5 refutes every query of which Z3's proof consists."""
    result = decide(chosen("tiny-llama3", kernel)[0], again=True)

    assert result.refusal is None
    assert result.again == result.refuted > 0


@pytest.mark.slow
@pytest.mark.parametrize("model", FAST)
def test_a_second_solver_repeats_every_proof(model: str) -> None:
    """The same for every kernel of some models."""
    assert [] == [one.name for one in (decide(case, again=True) for case in cases(model=model)) if one.refusal]


def test_every_kernel_is_proved_of_something() -> None:
    """No kernel is launched that there is no case of."""
    assert {*KERNELS, *SAMPLER} == {case.kernel for case in cases()}


# ---------------------------------------------------------------- mutants of the typed IR


@pytest.mark.parametrize(
    ("kernel", "model", "change", "finding"),
    [
        ("linear", "llama-3.1-8b", r"%a_\d+ = tt\.load: no mask", "An access to x is out of bounds"),
        ("linear", "llama-3.1-8b", r"tt\.store: no mask", "An access to out is out of bounds"),
        ("linear", "llama-3.1-8b", r"%weight_row = arith\.constant: 4095 for 4096", "another element of weight"),
        ("linear", "llama-3.1-8b", r"%accumulator = arith\.constant: 2 for 0", "Two constants differ"),
        (
            "linear",
            "llama-3.1-8b",
            r"%row_1 = arith\.muli: arith\.addi instead",
            "is written by another than the contract says",
        ),
        ("linear", "llama-3.1-8b", r"%live = arith\.constant: 128255 for 128256", "A cell of out is not written"),
        ("linear", "llama-3.1-8b", r"%live_24 = arith\.cmpi: operands 0 and 1 exchanged", "A store never takes place"),
        ("linear", "llama-3.1-8b", r"%column = tt\.get_program_id: x", "An integer leaves its type"),
        (
            "gate_up",
            "tiny-llama3",
            r".*math\.exp: math\.exp2 instead",
            "The kernel has exp2 where the row program has exp",
        ),
        (
            "gate_up",
            "tiny-llama3",
            r".*tt\.precise_divf: arith\.divf instead",
            "divf where the row program has precise_divf",
        ),
        ("rms_norm", "tiny-llama3", r".*arith\.addf: arith\.subf instead", "The kernel has subf"),
        (
            "rotary_store",
            "tiny-gemma3",
            r".*arith\.subf: operands 0 and 1 exchanged",
            "The kernel reads another element",
        ),
        ("kv_store", "tiny-llama3", r"%stored_\d+ = arith\.cmpi: sgt for sge", "A cell of keys is not written"),
        ("embedding", "tiny-llama3", r"%value_\d+ = arith\.muli: arith\.addi instead", "An access to table is out of"),
    ],
)
def test_a_mutant_is_refused(kernel: str, model: str, change: str, finding: str) -> None:
    """Each for its own reason, with the line of the source where it deviates (`test_mutants.py` tries all)."""
    case = chosen(model, kernel)[0]
    found = [one for one in mutants(parse(text(case))) if re.fullmatch(change, one.change)]

    assert found
    with pytest.raises(VerifierError) as refusal:
        proved(case, found[0].made())

    assert finding in str(refusal.value)
    assert f"{case.instance.kernel.function.fn.__module__.rpartition('.')[2]}.py:" in str(refusal.value)


# ---------------------------------------------------------------- contracts that say too much


def with_output(contract: Contract, number: int, **changes: object) -> Contract:
    """The contract with an output that says something else."""
    outputs = list(contract.outputs)
    outputs[number] = replace(outputs[number], **changes)  # type: ignore[arg-type]
    return replace(contract, outputs=tuple(outputs))


def changed(kernel: str, number: int, **changes: object) -> Contract:
    """A kernel's contract with an output that says something else."""
    return with_output(KERNELS[kernel].contract, number, **changes)


@pytest.mark.parametrize(
    ("kernel", "contract", "finding"),
    [
        (
            "linear",
            changed("linear", 0, value="linear(x[i, :], weight.T)[j] if N == 1 else linear(x[0, :], weight.T)[j]"),
            "another element of x",
        ),
        ("linear", changed("linear", 0, lanes=("i % BLOCK_M", "(j + 1) % BLOCK_N")), "by another than the contract"),
        ("linear", changed("linear", 0, when="i > 0"), "goes to no cell of the contract"),
        ("linear", replace(KERNELS["linear"].contract, outputs=()), "does not say what is written to out"),
        ("linear_stream", replace(KERNELS["linear_stream"].contract, premises=("rows <= 2**40",)), "leaves its type"),
        ("linear", replace(KERNELS["linear"].contract, premises=("rows <= 5", "rows > 6")), "contradict one another"),
        ("kv_store", replace(KERNELS["kv_store"].contract, facts=()), "One cell of keys has two names"),
        ("kv_store", changed("kv_store", 0, value="new_values[i, g, d]"), "The kernel reads another buffer"),
        ("kv_store", changed("kv_store", 2, value="flags[i, g]"), "computes something else"),
        (
            "rms_norm",
            changed("rms_norm", 1, value="rms_norm(x[i, :], weight, WIDTH + 1, epsilon)[j]"),
            "Two constants differ",
        ),
        ("rms_norm", replace(KERNELS["rms_norm"].contract, in_place=()), ""),
    ],
)
def test_a_contract_that_the_kernel_does_not_keep_is_refused(kernel: str, contract: Contract, finding: str) -> None:
    """A wrong value, writer, cell, premise or fact; each is refused for its reason (and a weaker claim is not)."""
    case = chosen("tiny-llama3", kernel)[0]
    if not finding:
        assert proved(case, contract=contract).obligations["value"] == 1
        return
    with pytest.raises(RefusedError) as refusal:
        proved(case, contract=contract)

    assert finding in str(refusal.value)


def without_fact(contract: Contract, part: str) -> Contract:
    """The contract without the premises on buffers that mention something."""
    kept: tuple[Fact, ...] = tuple(fact for fact in contract.facts if part not in fact.holds)
    assert kept != contract.facts
    return replace(contract, facts=kept)


@pytest.mark.parametrize(
    ("part", "finding"),
    [
        ("tables[b, c]", "An access to keys is out of bounds"),
        ("starts[b] + counts[b] <= rows", "An access to queries is out of bounds"),
        ("starts[c]", "One cell of out has two names"),
        ("tiles * BLOCK_Q", "A cell of out is not written"),
    ],
)
def test_attention_needs_each_of_its_premises(part: str, finding: str) -> None:
    """Without one, what it is there for is not shown."""
    case = chosen("tiny-llama3", "attention")[0]
    with pytest.raises(RefusedError) as refusal:
        proved(case, contract=without_fact(KERNELS["attention"].contract, part))

    assert finding in str(refusal.value)


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("lengths[b] - counts[b] + i", "lengths[b] - counts[b] + i + 1", "row program"),
        ("WINDOW, lambda", "WINDOW + 63, lambda", "row program"),
        ("* PAGE + j % PAGE", "* PAGE + (j + 1) % PAGE", "another element of keys"),
        ("[h // GROUP, h % GROUP, d]", "[0, h % GROUP, d]", "another element of"),
    ],
)
def test_attention_of_something_else_is_refused(old: str, new: str, finding: str) -> None:
    """Another position, window, slot or head."""
    case = chosen("tiny-llama3", "attention")[0]
    contract = KERNELS["attention"].contract
    said: Output = contract.outputs[0]
    assert old in said.value
    with pytest.raises(RefusedError) as refusal:
        proved(case, contract=with_output(contract, 0, value=said.value.replace(old, new)))

    assert finding in str(refusal.value)
