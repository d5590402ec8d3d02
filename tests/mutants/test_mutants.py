"""Negative controls: faults seeded into the engine, each found by the check that `expected.tsv` names.

The table was written before the faults were. `pytest tests/mutants` prints a line for each of them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from engine_faults import in_forward, in_output, in_plan, in_settle
from engine_faults.edits import Fault, StaleEdit, applied, fault
from engine_faults.finding import expected_tokens, find
from engine_faults.scenarios import SCENARIOS
from vosti.impl import engine, planning
from vosti.refinement.checks import CHECKS

FAULTS: tuple[Fault, ...] = (*in_plan.FAULTS, *in_forward.FAULTS, *in_settle.FAULTS, *in_output.FAULTS)

AT_LEAST = 24


def expected_checks() -> dict[str, tuple[str, str]]:
    """Name of a fault → phase and check, from the table."""
    head, *lines = Path(__file__).with_name("expected.tsv").read_text(encoding="utf-8").splitlines()
    assert "fault\tphase\tcheck" == head
    rows = [line.split("\t") for line in lines]
    assert len(rows) == len({name for name, _, _ in rows})
    return {name: (phase, check) for name, phase, check in rows}


EXPECTED = expected_checks()


@cache
def right_tokens(scenario: str) -> dict[str, tuple[int, ...]]:
    """What the drafts of a scenario are made of, from an engine that is whole."""
    return expected_tokens(SCENARIOS[scenario]())


def test_the_table_has_every_fault_once() -> None:
    """Faults and table have the same names, and the table names checks that exist."""
    assert len(FAULTS) == len({seeded.name for seeded in FAULTS}) >= AT_LEAST
    assert EXPECTED.keys() == {seeded.name for seeded in FAULTS}
    assert all(check in CHECKS for _, check in EXPECTED.values())


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_whole_engine_passes(scenario: str, tmp_path: Path) -> None:
    """Without a fault every scenario refines the specification, every record is observed twice, and nothing stops."""
    finding = find(SCENARIOS[scenario](), right_tokens(scenario), tmp_path)
    assert finding.verdict.refines, finding.verdict
    assert None is finding.stopped
    assert 0 == finding.verdict.keys["records"].once
    assert scenario in {seeded.scenario for seeded in FAULTS}


@pytest.mark.parametrize("seeded", FAULTS, ids=lambda seeded: seeded.name.replace(" ", "-"))
def test_a_seeded_fault_is_found(seeded: Fault, tmp_path: Path, found_faults: list[tuple[str, ...]]) -> None:
    """The audit refutes the faulty engine's run, in the phase and by the check that the table names."""
    expected = right_tokens(seeded.scenario)
    with applied(seeded):
        finding = find(SCENARIOS[seeded.scenario](), expected, tmp_path)
    found = (finding.phase or "", finding.check or "")
    found_faults.append(
        (
            seeded.name,
            "missed" if finding.verdict.refines else "caught",
            finding.trace or "",
            "" if finding.step is None else str(finding.step),
            *found,
            "as expected" if EXPECTED[seeded.name] == found else f"expected {' '.join(EXPECTED[seeded.name])}",
        )
    )
    assert EXPECTED[seeded.name] == found, finding.verdict


def test_a_fault_is_gone_afterwards() -> None:
    """Patched functions are the original ones again, under every name that other modules have for them."""
    original, method = planning.plan_step, engine.Engine._step
    seeded = fault(
        "any",
        ("planning:plan_step", "planner.budget == 0", "False"),
        ("engine:Engine._step", "settled = self._settle(", "settled = self._settle("),
    )
    with applied(seeded):
        assert original is not planning.plan_step is vars(engine)["plan_step"]
        assert method is not engine.Engine._step
    assert original is planning.plan_step is vars(engine)["plan_step"]
    assert method is engine.Engine._step


def test_a_patch_that_does_not_fit_is_an_error() -> None:
    """A fault whose text is not there is no fault: it would be missed, and nobody would know why."""
    with pytest.raises(StaleEdit, match="has 0 times the text"), applied(fault("any", ("pool:evict", "nowhere", ""))):
        pass
