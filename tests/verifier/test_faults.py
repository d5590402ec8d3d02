"""What fails in the verifier or in a solver is a fault of theirs: the kernel is not proved, and the others go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

import z3

from command_line import vosti
from vosti.kernels.catalogue import KERNELS
from vosti.kernels.verifier import prove as proving
from vosti.kernels.verifier.entries import Case, cases, decide
from vosti.kernels.verifier.errors import FaultError, RefusedError
from vosti.kernels.verifier.evaluate import Machine
from vosti.kernels.verifier.match import Matcher
from vosti.refinement.smt import solve

FAULT = "This is an internal fault of the verifier, and no finding about the kernel: "


def case() -> Case:
    """A small one."""
    return next(one for one in cases(model="tiny-llama3") if one.kernel == "embedding")


def raising(error: type[BaseException], words: str) -> Callable[..., Any]:
    """A function that raises."""

    def fails(*_: object, **__: object) -> None:
        raise error(words)

    return fails


def endless(*arguments: object) -> None:
    """A function that calls itself."""
    endless(*arguments)


@pytest.mark.parametrize(
    ("place", "name", "seeded", "words"),
    [
        (Matcher, "match", raising(KeyError, "cell"), "KeyError: 'cell' (prove.py:"),
        (Matcher, "match", endless, "RecursionError: maximum recursion depth exceeded"),
        (Machine, "run", raising(AssertionError, ""), "AssertionError (prove.py:"),
        (solve.Refuter, "refute", raising(z3.Z3Exception, "out of memory"), "Z3Exception: out of memory (queries.py:"),
        (solve.Refuter, "refute", raising(MemoryError, ""), "MemoryError (queries.py:"),
    ],
)
def test_a_fault_is_no_proof(
    place: type, name: str, seeded: Callable[..., Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what was raised, and where; nothing is counted as shown."""
    monkeypatch.setattr(place, name, seeded)
    result = decide(case())

    assert result.refusal is not None
    assert result.refusal.startswith(FAULT + words)
    assert result.obligations is None


def test_a_fault_of_the_second_solver_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Z3 proved is not proved again by cvc5."""
    monkeypatch.setattr(solve, "with_cvc5", raising(RuntimeError, "crash"))

    assert decide(case()).refusal is None
    assert f"{FAULT}RuntimeError: crash (entries.py:" in str(decide(case(), again=True).refusal)


def test_an_interruption_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever ends the command ends it."""
    monkeypatch.setattr(Matcher, "match", raising(KeyboardInterrupt, ""))

    with pytest.raises(KeyboardInterrupt):
        decide(case())


def test_a_finding_is_no_fault() -> None:
    """Twin: a contract that its constants break, and IR that is refused, are told in their own words."""
    one = case()
    contract = KERNELS["embedding"].contract
    broken = replace(one.instance.kernel, contract=replace(contract, premises=(*contract.premises, "WIDTH == 7")))
    wrong = replace(one.instance.kernel, contract=replace(contract, outputs=()))
    refusals = [str(decide(replace(one, instance=replace(one.instance, kernel=k))).refusal) for k in (broken, wrong)]

    assert "WIDTH == 7" in refusals[0]
    assert "The contract does not say what is written to" in refusals[1]
    assert not any(FAULT in refusal for refusal in refusals)
    assert not issubclass(FaultError, RefusedError)


def test_the_other_kernels_are_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault at one configuration: exit code 1, that one is named, the rest is proved."""
    prove = proving.prove

    def fails_at_some(kernel: Any, contract: Any, constants: Any, *others: Any) -> proving.Proof:
        if constants["WIDTH"] == 256:
            raise IndexError("no lane")
        return prove(kernel, contract, constants, *others)

    monkeypatch.setattr(proving, "prove", fails_at_some)
    path = tmp_path / "out.json"
    ended = vosti("prove", "kernels", "--kernel", "embedding", "--jobs", "1", "--json", path)
    results = json.loads(path.read_text())["kernels"]["results"]
    failed = [one for one in results if one["refusal"] is not None]

    assert 1 == ended.code, ended.err
    assert 0 < len(failed) < len(results)
    assert f"Not proved: {len(failed)} of {len(results)}" in ended.out
    assert all(one["refusal"].startswith(FAULT + "IndexError: no lane") for one in failed)
    assert all("WIDTH=256" in one["name"] for one in failed)
