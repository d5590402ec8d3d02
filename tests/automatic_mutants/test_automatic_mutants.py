"""Faults made by rule in the engine's control plane are found by recording, replaying and auditing.

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
    Outcome,
    Report,
    all_mutants,
    campaign,
    reasons,
    shown,
)
from automatic_mutants.operators import Mutant, mutants
from automatic_mutants.trial import Verdict

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


def test_reasons_are_of_mutants() -> None:
    """Nothing is excused that is no mutant any more, and every reason says something."""
    known = reasons(KNOWN)
    assert set() == known.keys() - {mutant.name for mutant in everything()}
    assert all(len(reason.split()) >= 4 for reason in known.values())


def test_a_survivor_without_a_reason_is_unexplained() -> None:
    """Killed, equivalent and unexplained mutants are counted apart."""
    mutant = Mutant("pool", "evict", "constant", "constant: 1 -> 2", "")
    survived = Verdict("survived", "", "")
    report = Report(
        (
            Outcome(mutant, Verdict("evict_guard", "twins", ""), None),
            Outcome(mutant, survived, "which one is chosen does not matter"),
            Outcome(mutant, survived, None),
        )
    )
    assert ["killed", "equivalent", "unexplained"] == [outcome.kind for outcome in report.outcomes]
    assert 0.5 == report.share
    assert "unexplained: pool:evict: constant: 1 -> 2" in str(report)


def test_a_sample_is_killed() -> None:
    """Each of some mutants is found, or is no fault for a reason that is written down; the checkout stays as it was."""
    before = {path: path.read_bytes() for path in ENGINE.glob("*.py")}
    report = campaign(everything()[:FEW], reasons(KNOWN), jobs=2)
    assert not report.of("unexplained"), str(report)
    assert len(report.of("killed")) >= 0.8 * FEW, str(report)
    assert before == {path: path.read_bytes() for path in ENGINE.glob("*.py")}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_are_killed() -> None:
    """Of many mutants nine in ten of those that are faults are found, and none that is not found goes unexplained."""
    report = campaign(everything()[:MANY], reasons(KNOWN), jobs=2, progress=lambda outcome: print(shown(outcome)))
    print(report)
    assert ENOUGH <= report.share
    assert not report.of("unexplained")
