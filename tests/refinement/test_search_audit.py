"""What an audit says of a step that the recorded actions do not explain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from command_line import vosti, vosti_without
from event_streams import OTHER, Stream, at_event, stream
from search_cases import CROWDED, swapped
from vosti.refinement.audit import audit
from vosti.refinement.search import Answer, Limits
from vosti.spec.events import Event, ForwardEvent, PlanEvent, SettleEvent
from vosti.spec.state import State


def refcount_too_high(event: SettleEvent, s: State) -> SettleEvent | None:
    """The engine counts a holder too many, and goes on as if it did not."""
    if not event.after.pages:
        return None
    p, view = max(event.after.pages.items())
    after = replace(event.after, pages={**event.after.pages, p: replace(view, refcount=view.refcount + 1)})
    return replace(event, after=after)


def written(s: Stream | None, path: Path) -> Path:
    """The stream as a trace."""
    assert s is not None
    s.write(path)
    return path


@pytest.fixture
def wrong_order(tmp_path: Path) -> Path:
    """A trace in which two actions change places."""
    return written(swapped(stream(3, 12, CROWDED))[0], tmp_path / "swapped")


@pytest.fixture
def nothing_explains(tmp_path: Path) -> Path:
    """A trace in which a page is counted once too often."""
    return written(at_event(SettleEvent, refcount_too_high)(stream(3, 12, CROWDED)), tmp_path / "counted")


def test_an_explanation_is_part_of_the_report(wrong_order: Path) -> None:
    """A violation stays one; the report says which actions would have explained the step."""
    verdict = audit([wrong_order], explain=Limits())
    (summary,) = verdict.traces
    (violation,) = verdict.violations

    assert not verdict.refines
    assert summary.search is not None
    assert Answer.EXPLAINED == summary.search.answer
    assert f"the recorded actions do not explain the step; {summary.search}" == violation.search
    assert f"search    {violation.search}" in str(violation).splitlines()
    assert "explained by [" in verdict.to_json()


def test_nobody_searches_unasked(wrong_order: Path) -> None:
    """Without being asked an audit says what is wrong, and no more."""
    (violation,) = audit([wrong_order]).violations

    assert violation.search is None
    assert not [line for line in str(violation).splitlines() if line.startswith("search")]


def test_the_exit_code_is_that_of_a_violation(wrong_order: Path, nothing_explains: Path) -> None:
    """Explained or impossible: 1, with the sentence on the screen."""
    explained, impossible = (vosti("audit", "--explain", path) for path in (wrong_order, nothing_explains))

    assert (1, 1) == (explained.code, impossible.code)
    assert "search    the recorded actions do not explain the step; explained by [" in explained.out
    assert "search    the recorded actions do not explain the step; impossible within 12 actions" in impossible.out


def test_giving_up_has_its_own_exit_code(wrong_order: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that was asked for and gave up: 2, with the violation on the screen all the same."""
    monkeypatch.setattr("vosti.refinement.search.LIMITS", Limits(terms=10))
    ended = vosti("audit", "--explain", wrong_order)

    assert 2 == ended.code
    assert "Not a run of the specification:" in ended.out
    assert "the step; gave up before an answer for 12 actions was found" in ended.out
    assert "vosti: The search for an explanation gave up, and answers nothing.\n" == ended.err


def test_a_search_needs_a_solver(wrong_order: Path) -> None:
    """Without one, a search is refused before anything is read; an audit without a search needs none."""
    refused, audited = (vosti_without(("cvc5", "z3"), "audit", *option, wrong_order) for option in (("--explain",), ()))

    assert (2, 1) == (refused.code, audited.code)
    assert "which is not installed: pip install 'vosti[proofs]'." in refused.err


def other_value(event: ForwardEvent, s: State) -> ForwardEvent | None:
    """A value that was observed to be another one before is written."""
    if not event.written or event.step < 4:
        return None
    return replace(event, written=(replace(event.written[0], kv=OTHER), *event.written[1:]))


def test_values_are_no_matter_of_actions(tmp_path: Path) -> None:
    """Where the recorded actions lead to the recorded state, there is no search, and the report says so."""
    path = tmp_path / "value"
    for seed in range(20):
        edited = at_event(ForwardEvent, other_value)(stream(seed, 12, CROWDED))
        violation = None if edited is None else edited.violation()
        if edited is not None and violation is not None and violation.check == "values_are_canonical":
            break
    (violation,) = audit([written(edited, path)], explain=Limits()).violations

    assert "none: the recorded actions lead to the recorded state, and something else is wrong" == violation.search


def test_a_step_that_was_cut_off_is_not_searched(tmp_path: Path) -> None:
    """Where the state after the step is not recorded, nothing can be searched for, and the report says so."""
    wrong, _, _ = swapped(stream(3, 12, CROWDED))
    violation = wrong.violation()
    assert violation is not None
    events: list[Event] = []
    for event in wrong.events:
        if not (isinstance(event, SettleEvent) and event.step == violation.step):
            events.append(event)
        if isinstance(event, PlanEvent) and event.step == violation.step:
            break
    (found,) = audit([written(wrong.with_events(events), tmp_path / "cut")], explain=Limits()).violations

    assert "none: the trace does not hold the whole step" == found.search
