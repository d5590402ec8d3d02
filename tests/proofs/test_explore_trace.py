"""Counterexamples as trace files: an audit of the file finds what the exploration found."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from itertools import pairwise
from pathlib import Path

import pytest

from explore_faults import FAULTS, Fault, counterexample
from vosti.proofs.explore import explore
from vosti.proofs.explore_bounds import SMALL, Bounds, tokens
from vosti.proofs.explore_counterexample import INVARIANT
from vosti.proofs.explore_engine import EngineBounds, Job
from vosti.proofs.explore_progress import explore_progress
from vosti.proofs.explore_trace import arranged, events, write_trace
from vosti.refinement.audit import audit
from vosti.refinement.reader import TraceReader
from vosti.spec import step
from vosti.spec.events import PlanEvent
from vosti.spec.step import RULES, Phase

BY_NAME = {fault.name: fault for fault in FAULTS}

FOUND_BY_AUDIT = {
    "evict a parent before its child": "evict_guard",
    "evict a page that is held": "evict_guard",
    "attach whatever the tokens": "attach_guard",
    "attach whatever the domain": "attach_guard",
    "publish a page before its parent": "publish_ready",
    "publish a draft": "publish_ready",
    "publish values that are not finite": "publishes",
    "use an identifier again": "admit_guard",
    "admit an empty prompt": "admit_guard",
    "emit a token that is not the draft's first": "emit_ready",
    "emit any logits": "emitted_logits",
    "emit after a value that is not finite": "history_finite",
    "observe any logits": "observes",
    "allocate a page that is in use": "allocate_guard",
    "fail without a cause": "fail_guard",
    "retract keeps the draft's slots": "request_cached_agrees",
    "preempt gives no page back": "pages_agree",
    "finish frees shared pages": "pages_agree",
    "preempt starts the sampler over": "next_sampler",
    "attach without holding": "page_refcount_agrees",
    "publish without a parent": "page_parent_agrees",
    "admit forgets the name": None,  # the identifiers ever seen are ghost: a trace does not show them
    "emit before the history is cached": "emit_ready",
    "compute without a slot": None,  # raises: what is written ends before it
}
"""Fault → the check that the audit of its counterexample names."""


def written(folder: Path, fault: Fault) -> list[Path]:
    """The counterexample's trace, or its two."""
    found = counterexample(fault)
    assert found is not None
    runs = [found.run] if found.other is None else [found.run, found.other]
    paths = [folder / f"trace-{number}" for number in range(len(runs))]
    for path, run in zip(paths, runs, strict=True):
        write_trace(path, run, fault.guard, fault.effect)
    return paths


@pytest.mark.parametrize(("name", "check"), FOUND_BY_AUDIT.items())
def test_audit_finds_what_the_exploration_found(name: str, check: str | None, tmp_path: Path) -> None:
    """The trace of a counterexample is a trace, and its audit refutes it for the fault's reason, in its last step."""
    verdict = audit(written(tmp_path, BY_NAME[name]))

    assert verdict.refines if check is None else check == verdict.violations[0].check
    for summary in verdict.traces:
        assert summary.violation is None or summary.violation.step == summary.steps - 1


def test_two_runs_that_contradict_each_other_are_two_traces(tmp_path: Path) -> None:
    """Each of the two runs of a contradiction to Definition 2.1 is in order; together they are refuted."""
    one, other = written(tmp_path, BY_NAME["emit any token"])

    assert audit([one]).refines
    assert audit([other]).refines
    assert not audit([one, other]).refines


@pytest.mark.parametrize("bounds", SMALL[:4], ids=lambda bounds: bounds.name)
def test_runs_in_order_pass_the_audit(bounds: Bounds, tmp_path: Path) -> None:
    """A run of the specification that leads to a record is a trace that refines it."""
    for number, (_, run) in enumerate(explore(bounds).views.records.values()):
        path = tmp_path / f"trace-{number}"
        write_trace(path, run)

        assert audit([path]).refines


def test_runs_of_the_engine_pass_the_audit(tmp_path: Path) -> None:
    """A run of the engine's planner keeps its steps, and is a trace that refines the specification."""
    bounds = EngineBounds("engine", 2, 3, 1, 2, 2, jobs=(Job(tokens(0, 0), 2),))
    runs = [run for _, run in explore_progress(bounds).views.records.values()]
    for number, run in enumerate(runs):
        path = tmp_path / f"trace-{number}"
        write_trace(path, run)

        assert audit([path]).refines
        with TraceReader(path) as reader:
            assert len(run.steps) == sum(isinstance(event, PlanEvent) for event in reader)
    assert 2 <= max(len(run.steps) for run in runs)


def test_arranged_actions_are_the_same_run() -> None:
    """To exchange neighbours changes neither the actions, nor the last of them, nor where they lead."""
    for fault in FAULTS:
        found = counterexample(fault)
        if found is None or found.theorem != INVARIANT:
            continue
        start, trace = found.run.start, found.run.actions
        actions = arranged(trace, start, fault.guard, fault.effect)

        assert Counter(trace) == Counter(actions)
        assert trace[-1] == actions[-1]
        assert reduce(fault.effect, trace, start) == reduce(fault.effect, actions, start)
        assert regressions(actions) <= regressions(trace)


def regressions(trace: tuple[step.Action, ...]) -> int:
    """How often the phase goes back."""
    order = [list(Phase).index(RULES[type(action)].phase) for action in trace]
    return sum(b < a for a, b in pairwise(order))


def test_drafts_are_proposed_before_the_forward() -> None:
    """A draft that was proposed between two computes comes to stand before both: one step instead of two."""
    fault = BY_NAME["emit a token that is not the draft's first"]
    found = counterexample(fault)
    assert found is not None
    start, trace = found.run.start, found.run.actions
    steps = [event for event in events(found.run, fault.guard) if isinstance(event, PlanEvent)]

    assert len(steps) == 1 + regressions(arranged(trace, start, fault.guard, fault.effect))
    assert len(steps) <= 1 + regressions(trace)
