"""The engine's own assertions: with `check_steps` a faulty engine stops before the forward that it planned badly, and
names the predicate of the specification that does not hold.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from engine_faults import in_forward, in_plan, in_settle
from engine_faults.edits import Fault, applied
from engine_faults.finding import expected_tokens
from engine_faults.scenarios import SCENARIOS, KnockingEngine
from hashing_backend import HashingBackend
from vosti.impl.checking import Run, serve
from vosti.impl.drafting import Script, ScriptedDrafter
from vosti.impl.engine import Engine
from vosti.impl.errors import BrokenStepError, EngineStoppedError
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.spec.state import RequestId, Token

FOUND = {
    "page matched by its hash alone": "attach_guard",
    "page matched without its parent": "attach_guard",
    "missing ancestor counted as a hit": "attach_guard",
    "domain ignored in a match": "attach_guard",
    "whole prompt hit, last token written into the shared page": "attach_guard",
    "parent evicted before its child": "evict_guard",
    "page evicted that a request holds": "evict_guard",
    "eviction not recorded": "allocate_guard",
    "preemption not recorded": "allocate_guard",
    "page allocated twice": "allocate_guard",
    "admission not recorded": "allocate_guard",
    "identifier used again": "admit_guard",
    "preempted in favour of a later arrival": "preempt_guard",
    "page published in the plan phase": "action_is_in_its_phase",
    "wrong slot": "row_writes_its_slot",
    "two rows write one slot": "row_writes_its_slot",
    "allocation not recorded": "row_writes_its_slot",
    "stale entry in a page table": "row_reads_its_prefix",
    "padding row writes": "padding_is_inert",
    "position off by one": "row_is_next",
    "hit not recorded": "row_is_next",
    "token of the position before": "row_has_its_token",
    "draft not recorded": "row_has_its_token",
    "sampler starts over on resume": "request_sampler_agrees",
    "token dropped on resume": "request_output_agrees",
    "arrival forgotten on resume": "request_arrival_agrees",
    "domain lost on arrival": "request_domain_agrees",
    "wrong draft not retracted": "emit_ready",
    "retraction not recorded": "emit_ready",
    "page with a draft published": "publish_ready",
    "page published before it is full": "publish_ready",
    "slot counted that was not written": "request_cached_agrees",
    "emit not recorded": "request_output_agrees",
    "publish not recorded": "page_registered_agrees",
    "page published without its parent": "page_parent_agrees",
    "page published with other tokens": "page_tokens_agrees",
    "finish not recorded": "pages_agree",
    "cancelled request keeps its pages": "pages_agree",
    "page freed while another request holds it": "pages_agree",
    "page lost on release": "free_list_agrees",
    "reference count not lowered": "page_refcount_agrees",
    "references taken before a failed admission": "page_refcount_agrees",
    "recycled page still in the index": "indexed_only_if_registered",
}
"""Seeded fault → the predicate that the assertion names. The others show in values, limits or outputs only."""

FEW = SamplingParams(max_tokens=3, temperature=0, ignore_eos=True)

FAULTS: tuple[Fault, ...] = (*in_plan.FAULTS, *in_forward.FAULTS, *in_settle.FAULTS)

BEFORE_THE_FORWARD = {seeded.name for seeded in (*in_plan.FAULTS, *in_forward.FAULTS)} & FOUND.keys()


@cache
def right_tokens(scenario: str) -> dict[str, tuple[int, ...]]:
    """What the drafts of a scenario are made of, from an engine that is whole."""
    return expected_tokens(SCENARIOS[scenario]())


def served(name: str) -> Run:
    """Serve a scenario with assertions, and without a tracer."""
    scenario, expected = SCENARIOS[name](), right_tokens(name)
    backend = scenario.backend()
    scripts = {
        RequestId(job.id): Script(tuple(map(Token, expected[job.id])), job.draft.length, job.draft.right)
        for job in scenario.jobs
        if job.draft is not None
    }
    options = replace(scenario.options, check_steps=True)
    drafter = ScriptedDrafter(scripts, backend.vocab_size)
    engine = KnockingEngine(backend, options, drafter=drafter, key_space=scenario.key_space)
    engine.knocks = scenario.knocks
    return serve(engine, scenario.jobs)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_whole_engine_is_not_stopped(scenario: str) -> None:
    """Every scenario is served to its end: hits, evictions, preemptions, drafts, cancellations, failures."""
    assert all(output.finish_reason is not None for output in served(scenario).outputs.values())


@pytest.mark.parametrize("seeded", [f for f in FAULTS if f.name in FOUND], ids=lambda f: f.name.replace(" ", "-"))
def test_a_fault_is_named(seeded: Fault) -> None:
    """A plan, a row, an action or a structure that is none of the specification's is named by the predicate."""
    right_tokens(seeded.scenario)
    with applied(seeded), pytest.raises(BrokenStepError) as raised:
        served(seeded.scenario)
    assert FOUND[seeded.name] == raised.value.conjunct
    assert f"{FOUND[seeded.name]} does not hold" in str(raised.value)


def test_every_name_is_a_fault() -> None:
    """The table names seeded faults, and every one of the plan and the packing that shows without values and limits."""
    assert set() == FOUND.keys() - {seeded.name for seeded in FAULTS}
    assert 23 == len(BEFORE_THE_FORWARD)


def test_no_value_is_touched() -> None:
    """A batch that is packed wrong never reaches the backend; the error says which row; and the engine has stopped."""
    wrong = next(seeded for seeded in FAULTS if seeded.name == "wrong slot")
    backend = HashingBackend()
    engine = Engine(backend, EngineOptions(page_size=2, pages=8, check_steps=True))
    engine.add_request((1, 2, 3), FEW, request_id="r")
    with applied(wrong), pytest.raises(BrokenStepError, match=r"Step 0 .* row_writes_its_slot .* 'r' \(row 0\)"):
        engine.step()
    assert 0 == backend.forwards
    with pytest.raises(EngineStoppedError):
        engine.step()


def test_without_the_option_a_fault_runs_on() -> None:
    """By default nothing is asserted beyond the pool's guards."""
    wrong = next(seeded for seeded in FAULTS if seeded.name == "token of the position before")
    backend = HashingBackend()
    engine = Engine(backend, EngineOptions(page_size=2, pages=8))
    engine.add_request((1, 2, 3), FEW, request_id="r")
    with applied(wrong):
        engine.step()
        engine.step()
    assert 2 == backend.forwards
