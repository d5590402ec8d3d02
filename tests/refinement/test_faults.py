"""Every fault in the tables of `event_faults` is found, under its name; and so is the loss of any recorded action."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from event_faults import CANDIDATE_FAULTS, FAULTS, FULL_FAULTS, REREAD_FAULTS
from event_streams import Fault, Stream, stream
from event_walk import Habits
from event_worlds import FloatWorld
from vosti.refinement.audit import audit
from vosti.spec.events import OutputEvent, PlanEvent, SettleEvent

PLAIN = Habits(pages=9, sick=0.1, preempt=0.1)


def faulty(fault: Fault, habits: Habits, count: int) -> list[Stream]:
    """The fault in several runs."""
    world = FloatWorld() if habits.full or habits.candidates else None
    edited = (fault.edit(stream(seed, 40, habits, world)) for seed in range(60))
    return list(islice((run for run in edited if run is not None), count))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    """The checker names the check that the table names, in memory and from a trace whose chain is whole."""
    runs = faulty(fault, PLAIN, 3)
    found = [run.violation() for run in runs]

    assert 3 == len(runs)
    assert [fault.check] * 3 == [violation and violation.check for violation in found]

    if fault.check != "values_fit_the_mode":  # a trace in mode digest has no place for bits
        runs[0].write(tmp_path / "trace")
        (violation,) = audit([tmp_path / "trace"]).violations

        here = violation.expected.replace(str(tmp_path / "trace"), "this run")
        assert found[0] == replace(violation, trace="this run", expected=here)


@pytest.mark.parametrize("fault", REREAD_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_behind_the_actions_is_found(fault: Fault) -> None:
    """Reading everything again after each step finds what no action tells of."""
    found = [run.violation() for run in faulty(fault, replace(PLAIN, reread=True), 3)]

    assert [fault.check] * 3 == [violation and violation.check for violation in found]


@pytest.mark.parametrize("fault", FULL_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_in_the_bits_is_found(fault: Fault) -> None:
    """In mode full, tokens and finiteness are those of the bits."""
    found = [run.violation() for run in faulty(fault, replace(PLAIN, full=True, sick=0.0), 3)]

    assert [fault.check] * 3 == [violation and violation.check for violation in found]


@pytest.mark.parametrize("fault", CANDIDATE_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_in_the_candidates_is_found(fault: Fault, tmp_path: Path) -> None:
    """In mode candidates, tokens are drawn from candidates, and those are what they were; from a trace, too."""
    runs = faulty(fault, replace(PLAIN, candidates=True, sick=0.0), 3)
    runs[0].write(tmp_path / "trace")

    assert [fault.check] * 3 == [violation and violation.check for violation in map(Stream.violation, runs)]
    assert [fault.check] == [violation.check for violation in audit([tmp_path / "trace"]).violations]


@pytest.mark.parametrize("seed", range(4))
def test_the_loss_of_any_action_is_found(seed: int) -> None:
    """Without any one of its recorded actions, a run is not one of the specification."""
    run = stream(seed, 14, replace(PLAIN, page_size=2))
    survivors = []
    tried = 0
    for i, event in enumerate(run.events):
        if isinstance(event, PlanEvent | SettleEvent):
            for j, action in enumerate(event.actions):
                fewer = replace(event, actions=(*event.actions[:j], *event.actions[j + 1 :]))
                tried += 1
                if run.with_event(i, fewer).violation() is None:
                    survivors.append((event.step, action))

    assert [] == survivors
    assert tried > 50


@pytest.mark.parametrize("seed", range(4))
def test_the_loss_of_any_event_is_found(seed: int) -> None:
    """Without any one of its events, a run is not one of the specification."""
    run = stream(seed, 14, PLAIN)
    survivors = [event for i, event in enumerate(run.events) if run.with_event(i).violation() is None]

    # Without its last event a run is one that ended a moment before: of an idle step nothing else would tell.
    assert [] == survivors


@pytest.mark.parametrize("seed", range(4))
def test_any_exchange_of_neighbours_is_found(seed: int) -> None:
    """Two events that follow each other cannot be exchanged, but for two outputs of one step."""
    run = stream(seed, 14, PLAIN)
    survivors = []
    for i in range(len(run.events) - 1):
        a, b = run.events[i : i + 2]
        exchanged = run.with_events((*run.events[:i], b, a, *run.events[i + 2 :]))
        if not (isinstance(a, OutputEvent) and isinstance(b, OutputEvent)) and exchanged.violation() is None:
            survivors.append((a, b))

    assert [] == survivors


def test_a_report_says_where_and_what() -> None:
    """A violation names the step, the phase, the action, the request and page, and both sides, as text and JSON."""
    fault = next(fault for fault in FAULTS if fault.name == "another page is attached")
    violation = faulty(fault, PLAIN, 1)[0].violation()

    assert violation is not None
    assert ("attach_guard", "plan") == (violation.check, violation.phase)
    assert violation.action is not None
    assert violation.action.startswith("Attach(")
    assert violation.request is not None
    assert violation.page is not None
    assert violation.expected in (
        "page.tokens == history(request)[start:end]",
        "page.parent == (request.table[-1] if request.table else None)",
        "page.domain == request.domain",
    )
    assert " is " in violation.actual
    for text in ("attach_guard", violation.expected, violation.actual, f"step      {violation.step}"):
        assert text in str(violation)
    assert violation.expected in violation.to_json()
