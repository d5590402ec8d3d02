"""Faults made by rule in the engine's control plane are found by `vosti check`: it records, replays and audits.

A fixed sample is tried with every run of the tests, and many behind `-m slow`.
"""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import vosti.impl
from automatic_mutants.campaign import (
    ENOUGH,
    FEW,
    MANY,
    MODULES,
    MOST,
    Outcome,
    Report,
    all_mutants,
    campaign,
    reasons,
    shown,
    unused,
)
from automatic_mutants.checks import CHECKS, FOLDER
from automatic_mutants.operators import Mutant, mutants
from automatic_mutants.trial import End, Verdict

ENGINE = Path(vosti.impl.__file__).parent
KNOWN = Path(__file__).with_name("equivalent.tsv")


@cache
def everything() -> list[Mutant]:
    """All mutants of the engine as it is."""
    return all_mutants(ENGINE)


SOURCE = '''
def f(a, b):
    """Says something."""
    assert a < 9
    if a < b and not b:
        g(a, b)
    c = [a, 1]
    return max(c[0:2]) + 1
'''


def changes(source: str) -> set[str]:
    """What is changed, by operator."""
    return {mutant.change for mutant in mutants("m", source)}


def test_every_operator_changes_one_thing() -> None:
    """Comparisons, constants, arithmetic, connectives, conditions, bounds, choices, arguments, elements, statements."""
    found = changes(SOURCE)
    assert {
        "comparison: a < b -> a <= b",
        "connective: a < b and (not b) -> a < b or not b",
        "condition: if a < b and (not b): -> if not (a < b and (not b)):",
        "argument: g(a, b) -> g(b, a)",
        "statement: g(a, b) -> pass",
        "element: [a, 1] -> [1]",
        "constant: 1 -> 2",
        "constant: 1 -> 0",
        "bound: 0:2 -> :2",
        "bound: 0:2 -> 0:",
        "choice: max(c[0:2]) -> min(c[0:2])",
        "arithmetic: max(c[0:2]) + 1 -> max(c[0:2]) - 1",
    } <= found
    assert not [change for change in found if "9" in change or "Says" in change]


def test_a_mutant_differs_in_one_place() -> None:
    """Its text parses, and differs from the module's in a line or two."""
    for mutant in mutants("m", SOURCE):
        lines = ast.unparse(ast.parse(SOURCE)).splitlines()
        other = ast.unparse(ast.parse(mutant.source)).splitlines()
        assert len(lines) == len(other)
        assert 1 == sum(a != b for a, b in zip(lines, other, strict=True))


def test_there_are_many_mutants_of_every_module() -> None:
    """The order is fixed, names are unique, and the first ones come from everywhere."""
    assert len(everything()) == len({mutant.name for mutant in everything()}) >= 3 * MANY
    assert MANY >= 200
    assert set(MODULES) == Counter(mutant.module for mutant in everything()[:MANY]).keys()
    assert everything() == all_mutants(ENGINE)


def test_every_reason_says_something() -> None:
    """A survivor is no fault for a reason, and that is a sentence."""
    assert all(len(reason.split()) >= 4 for reason in reasons(KNOWN).values())


def test_what_the_engine_does_not_call_is_no_mutant() -> None:
    """The simple attach, of which attach_prefix is a sequence, is there for proofs; is_block serves both."""
    idle = unused({module: (ENGINE / f"{module}.py").read_text(encoding="utf-8") for module in MODULES})
    assert {("pool", "attach"), ("pool", "attach_guard"), ("pool", "compute")} <= idle
    assert not idle & {("pool", "attach_prefix"), ("pool", "is_block"), ("pool", "released")}
    assert not [mutant for mutant in everything() if (mutant.module, mutant.function) in idle]


def test_every_workload_is_checked() -> None:
    """Of each file there is a check, which requires something of it."""
    assert {path.stem for path in FOLDER.glob("*.json")} == {check.workload for check in CHECKS}
    assert all(check.require for check in CHECKS)


def test_a_survivor_without_a_reason_counts() -> None:
    """Killed ones, equivalent ones and survivors are counted apart, and by how the command ended."""
    mutant = Mutant("pool", "evict", "constant", "constant: 1 -> 2", "")
    survived = Verdict(End.SURVIVED, "", "")
    report = Report(
        (
            Outcome(mutant, Verdict(End.AUDIT, "evict_guard", "twins"), None),
            Outcome(mutant, survived, "which one is chosen does not matter"),
            Outcome(mutant, survived, None),
            Outcome(mutant, Verdict(End.ERROR, "KeyError", "twins", "pages_agree"), None),
        )
    )
    assert ["killed", "equivalent", "survivor", "killed"] == [outcome.kind for outcome in report.outcomes]
    assert 2 / 3 == report.share
    assert "survivor: pool:evict: constant: 1 -> 2" in str(report)
    assert [
        "    1 a step, a value or a state is not the specification's",
        "         1 evict_guard",
        "    1 the command ends in an error",
        "         1 KeyError",
        "    1 of the errors come after a step that is not the specification's",
        "         1 pages_agree",
    ] == str(report).splitlines()[1:7]


FOUND = {
    "settling:settle: statement: actions.append(Fail(r)) -> pass": (End.AUDIT, "taken_logits_are_used"),
    "engine:Engine.add_request: comparison: params.seed is not None -> params.seed is None": (
        End.REPLAY,
        "prefix_comparable",
    ),
    "engine:Engine.cancel: statement: self._cancelled.append(name) -> pass": (End.UNMET, "cancellations"),
    "packing:pack: argument: np.repeat(starts - begins, counts) -> np.repeat(counts, starts - begins)": (
        End.ERROR,
        "ValueError",
    ),
}
"""What is changed → how the first command that finds it ends, and what it says."""


def test_ends_are_told_apart() -> None:
    """Whether the audit finds something, the replay, an unmet requirement, or the command comes to an error."""
    some = [mutant for mutant in everything() if mutant.name in FOUND]
    report = campaign(some, {}, jobs=2)
    assert FOUND == {o.mutant.name: (o.verdict.end, o.verdict.what) for o in report.outcomes}


def test_a_sample_is_killed() -> None:
    """Most of some mutants that are not equivalent are found, and the checkout stays as it was."""
    before = {path: path.read_bytes() for path in ENGINE.glob("*.py")}
    report = campaign(everything()[:FEW], reasons(KNOWN), jobs=2)
    assert MOST <= report.share, str(report)
    assert len(report.of("killed")) >= FEW / 2, str(report)
    assert before == {path: path.read_bytes() for path in ENGINE.glob("*.py")}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_are_killed() -> None:
    """Of many mutants nine in ten of those that are not equivalent are found by `vosti check` alone; and
    nothing is excused that is no mutant any more.
    """
    report = campaign(everything()[:MANY], reasons(KNOWN), jobs=2, progress=lambda outcome: print(shown(outcome)))
    print(report)
    assert ENOUGH <= report.share
    assert set() == reasons(KNOWN).keys() - {mutant.name for mutant in everything()}
