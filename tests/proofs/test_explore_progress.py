"""The engine's planner in small worlds: the earliest request is served in time, and planners that break a rule are
caught.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from explore_faults import FAULTS
from vosti.impl.planning import Candidate, Limits, Plan, plan_step
from vosti.impl.pool_state import Pool
from vosti.proofs.explore import Effect, Guard
from vosti.proofs.explore_bounds import tokens
from vosti.proofs.explore_counterexample import DEFINEDNESS, PROGRESS, REFINEMENT
from vosti.proofs.explore_engine import EngineBounds, Job, Planner
from vosti.proofs.explore_progress import ENGINES, explore_progress
from vosti.spec import step
from vosti.spec.reference import NON_FINITE
from vosti.spec.state import State
from vosti.spec.step import Allocate, Preempt, Propose

SMALL = EngineBounds(
    "small engine", requests=3, pages=3, page_size=1, token_budget=2, max_seqs=2, jobs=(Job(tokens(0, 0), 2),)
)

NARROW = replace(SMALL, name="one at a time", token_budget=1, max_seqs=1)

DRAFTS = replace(SMALL, name="drafts", requests=2, pages=4, token_budget=3, drafts=(tokens(0), tokens(1)))

SICK = replace(SMALL, name="failures", requests=2, jobs=(Job(tokens(0, NON_FINITE), 2), Job(tokens(0), 2)))


@pytest.mark.parametrize("bounds", [SMALL, NARROW, DRAFTS, SICK], ids=lambda bounds: bounds.name)
def test_earliest_request_is_served_in_time(bounds: EngineBounds) -> None:
    """Whoever comes, goes or guesses, the earliest request gets its next token within ⌈remaining / budget⌉ + 2 steps.

    In fact within ⌈remaining / budget⌉: two of the steps that are allowed are never needed.
    """
    exploration = explore_progress(bounds)

    assert exploration.counterexample is None
    assert exploration.exhausted
    assert exploration.spare == 2
    assert f"{exploration.states:,} distinct states" in str(exploration)


def test_small_engines_do_what_engines_do() -> None:
    """Preemption, eviction, reuse, wrong and right drafts, and failures all happen."""
    taken = [explore_progress(bounds).taken for bounds in (SMALL, DRAFTS, SICK)]

    assert {"observe"} == {name for name in taken[0] if not any(counts[name] for counts in taken)}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("bounds", ENGINES, ids=lambda bounds: bounds.name)
def test_default_engines_are_exhausted_and_nothing_is_found(bounds: EngineBounds) -> None:
    """Within the default bounds the planner keeps its promise, and every step is one of the specification."""
    exploration = explore_progress(bounds)

    assert exploration.counterexample is None
    assert exploration.exhausted


def test_a_job_that_can_never_fit_is_refused() -> None:
    """Bounds with such a job are refused, as an engine refuses such a request."""
    with pytest.raises(ValueError, match="does not fit"):
        replace(SMALL, jobs=(Job(tokens(0, 0), 3),))


# ---------------------------------------------------------------- planners with a fault


def idles(pool: Pool, candidates: Sequence[Candidate], limits: Limits) -> Plan:
    """Plan nothing."""
    return Plan((), (), pool)


def serves_the_latest(pool: Pool, candidates: Sequence[Candidate], limits: Limits) -> Plan:
    """Serve the requests in the opposite order: the later one gets what the earlier one holds."""
    return plan_step(pool, candidates[::-1], limits)


def waits_for_pages(pool: Pool, candidates: Sequence[Candidate], limits: Limits) -> Plan:
    """Do nothing rather than preempt somebody."""
    plan = plan_step(pool, candidates, limits)
    return idles(pool, candidates, limits) if any(isinstance(action, Preempt) for action in plan.actions) else plan


def edited(change: Callable[[Plan], Plan]) -> Planner:
    """The engine's planner, and then a change to its plan."""
    return lambda pool, candidates, limits: change(plan_step(pool, candidates, limits))


def without(kind: type) -> Planner:
    """The engine's planner, which does not tell of its actions of one kind."""
    return edited(lambda plan: replace(plan, actions=tuple(a for a in plan.actions if not isinstance(a, kind))))


def one_row_more(plan: Plan) -> Plan:
    """Chunks reach beyond the slots that there are."""
    return replace(plan, chunks=tuple(replace(chunk, count=chunk.count + 1) for chunk in plan.chunks))


def anybody(s: State, action: Any) -> bool:
    """Preempt in favour of anybody."""
    if isinstance(action, Preempt):
        return action.request in s.requests and action.in_favour_of in s.requests
    return step.guard(s, action)


@dataclass(frozen=True)
class PlannerFault:
    """An engine with a fault, and what it breaks."""

    name: str
    theorem: str
    broken: str
    planner: Planner = plan_step
    guard: Guard = step.guard
    effect: Effect = step.effect
    bounds: EngineBounds = SMALL


KEEPS_SLOTS = next(fault.effect for fault in FAULTS if fault.name == "retract keeps the draft's slots")
KEEPS_PAGES = next(fault.effect for fault in FAULTS if fault.name == "preempt gives no page back")

PLANNER_FAULTS = (
    PlannerFault("plan nothing", PROGRESS, "earliest_is_served", idles),
    PlannerFault("wait instead of preempting", PROGRESS, "earliest_is_served", waits_for_pages),
    PlannerFault(
        "serve the latest, one at a time", PROGRESS, "earliest_is_served", serves_the_latest, anybody, bounds=NARROW
    ),
    PlannerFault("preempt in favour of a later arrival", REFINEMENT, "preempt_guard", serves_the_latest),
    PlannerFault("allocate in secret", REFINEMENT, "compute_guard", without(Allocate)),
    PlannerFault("preempt in secret", REFINEMENT, "evict_guard", without(Preempt)),
    PlannerFault("draft in secret", REFINEMENT, "compute_guard", without(Propose), bounds=DRAFTS),
    PlannerFault("compute beyond the table", DEFINEDNESS, "the engine's step", edited(one_row_more)),
    PlannerFault(
        "retract keeps the draft's slots", REFINEMENT, "request_cached_agrees", effect=KEEPS_SLOTS, bounds=DRAFTS
    ),
    PlannerFault("preempt gives no page back", REFINEMENT, "evict_guard", effect=KEEPS_PAGES),
)


@pytest.mark.parametrize("fault", PLANNER_FAULTS, ids=lambda fault: fault.name)
def test_planner_fault_is_found(fault: PlannerFault) -> None:
    """A planner that breaks a rule is refuted by the statement that the rule is there for."""
    exploration = explore_progress(fault.bounds, fault.planner, fault.guard, fault.effect)
    found = exploration.counterexample
    assert found is not None

    assert (fault.theorem, fault.broken) == (found.theorem, found.broken)
    assert not exploration.exhausted
    assert len(found.run.actions) == sum(found.run.steps)


def test_a_run_without_progress_reads_as_steps() -> None:
    """The text has the steps with their actions, and what was expected of them."""
    found = explore_progress(SMALL, idles).counterexample

    assert str(found).splitlines() == [
        "progress: earliest_is_served is false of request r0",
        "expected  a token of the earliest request within ⌈remaining / budget⌉ + 2 steps",
        "actual    none",
        "after these actions (bounds: small engine):",
        "  step 0:",
        "   1. admit(request='r0', prompt=(0, 0), sampler=(temperature 0, seed 0, index 0), domain='one', arrival=0)",
        "  step 1:",
        "  step 2:",
    ]
