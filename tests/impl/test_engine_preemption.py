"""Preempted and cancelled requests: nothing is lost, repeated or damaged, neither theirs nor anybody else's."""

from collections import Counter
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from company import Arrival, Run, Workload, assert_at_rest, assert_same, random_workload, serve, serve_alone, tokens
from hashing_backend import HashingBackend
from progress import assert_progress
from vosti.impl.engine import Engine
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.impl.planning import pages_needed
from vosti.spec.events import PlanEvent, SettleEvent, Snapshot
from vosti.spec.state import Request, history
from vosti.spec.step import Admit, Attach, Emit, Preempt

FEW = SamplingParams(max_tokens=6, temperature=0.9, seed=2)


# ---------------------------------------------------------------- preemption and resumption


def preemptions(run: Run) -> list[tuple[str, Request]]:
    """Who was preempted, and what they were before that step."""
    lost: list[tuple[str, Request]] = []
    before: Snapshot | None = None
    for event in run.events:
        if isinstance(event, PlanEvent) and before is not None:
            lost += [
                (action.request, before.requests[action.request])
                for action in event.actions
                if isinstance(action, Preempt) and action.request in before.requests
            ]
        if isinstance(event, SettleEvent):
            before = event.after
    return lost


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("page_size", [2, 4])
def test_a_preemption_at_every_length_modulo_the_page_size(page_size: int, caching: bool) -> None:
    """Hazard: the prefill of a preempted sequence drops its newest token, or emits one twice, when it has a full page
    and one token. Preempted at every length modulo the page size, each request goes on as if nothing had happened.
    """
    lengths = set()
    for a, b, spare in product(range(page_size), range(page_size), range(3)):
        params = replace(FEW, max_tokens=5 * page_size)
        prompts = (tokens(seed=1, count=page_size + a), tokens(seed=2, count=1 + b))
        workload = Workload((Arrival("a", prompts[0], params), Arrival("b", prompts[1], params)))
        options = EngineOptions(page_size=page_size, pages=workload.pages(page_size) + spare, prefix_caching=caching)
        run = serve(workload, options)
        lengths |= {len(history(request)) % page_size for _, request in preemptions(run) if request.output}
        assert_same(run, serve_alone(workload))
        for event in run.settled():
            for request in event.after.requests.values():
                assert len(request.table) <= pages_needed(len(history(request)), page_size)
    assert set(range(page_size)) == lengths


@pytest.mark.parametrize("caching", [True, False])
def test_a_long_generated_tail_is_recomputed_in_chunks(caching: bool) -> None:
    """Hazard: a resumed request's generated tail is decoded instead of prefilled, or sampled again. After 256 tokens
    from a prompt of 3, preempted many times, also during its own recomputation: no token is lost, repeated or sampled
    early, and the first request is never disturbed.
    """
    arrivals = (
        Arrival("first", (1, 2, 3), SamplingParams(max_tokens=390, temperature=0)),
        Arrival("second", (4, 5, 6), SamplingParams(max_tokens=300, temperature=0.8, seed=1)),
        Arrival("third", (4, 5, 7), SamplingParams(max_tokens=40, temperature=0.8, seed=2), step=250),
    )
    workload = Workload(arrivals)
    run = serve(workload, EngineOptions(page_size=4, pages=132, token_budget=16, prefix_caching=caching))
    lost = preemptions(run)
    assert Counter(name for name, _ in lost)["second"] >= 3
    assert any(len(request.output) >= 250 for name, request in lost if name == "second")
    assert any(0 < request.cached < len(history(request)) - 1 for _, request in lost)
    assert 16 in {count for _, count, _ in run.schedule("second")[5:]}
    assert_same(run, serve_alone(workload))
    assert_progress(run)
    assert 390 == len(run.schedule("first"))


def test_a_resumed_request_keeps_the_border_of_its_prompt() -> None:
    """Hazard: recomputation turns generated tokens into prompt. Prompt, output and sampler state of a preempted request
    stay apart and unchanged, whatever it loses.
    """
    workload = random_workload(Random(21), requests=8)
    run = serve(workload, EngineOptions(page_size=2, pages=workload.pages(2) + 2))
    prompts = {action.request: action.prompt for action in run.actions() if isinstance(action, Admit)}
    before: Snapshot | None = None
    checked = 0
    for event in run.events:
        if not isinstance(event, SettleEvent):
            continue
        for name, request in event.after.requests.items():
            assert prompts[name] == request.prompt
            emitted = sum(isinstance(a, Emit) and a.request == name for a in event.actions)
            if before is not None and name in before.requests:
                earlier = before.requests[name].output
                assert earlier == request.output[: len(earlier)]
                assert len(earlier) + emitted == len(request.output)
                checked += len(request.table) < len(before.requests[name].table)
        before = event.after
    assert checked > 0
    assert_same(run, serve_alone(workload))


# ---------------------------------------------------------------- cancellation


@pytest.mark.parametrize("when", [1, 2, 3])
@pytest.mark.parametrize("pages", [12, 40])
def test_cancel_and_retry_in_a_shared_prefix(when: int, pages: int) -> None:
    """Hazard: a cancellation in a shared prefix damages bystanders. Requests with 128 tokens in common are called off
    in the second or third step and sent again, unrelated ones come in between: bystanders and retries are what they
    are alone, and no page stays live at the end.
    """
    common = tokens(seed=4, count=128)
    params = replace(FEW, max_tokens=8)
    arrivals = (
        Arrival("bystander", (*common, 1), params),
        Arrival("cancelled", (*common, 2), params),
        Arrival("cancelled too", (*common, 3, 4), params, step=1),
        Arrival("unrelated", tokens(seed=5, count=30), params, step=when),
        Arrival("retried", (*common, 2), params, step=when + 1),
        Arrival("retried too", (*common, 3, 4), params, step=when + 1),
    )
    workload = Workload(arrivals, cancels=((when, "cancelled"), (when, "cancelled too")))
    run = serve(workload, EngineOptions(page_size=16, pages=pages, token_budget=64))
    assert {"cancelled", "cancelled too"} == {n for n, o in run.outputs.items() if o.finish_reason == "cancelled"}
    assert any(isinstance(action, Attach) for action in run.actions())
    assert_same(run, serve_alone(workload))
    assert_at_rest(run)


def test_a_cancellation_takes_effect_in_the_next_plan() -> None:
    """A request called off before its first step is admitted and leaves in one; later ones leave in the plan phase of
    the next step, once, and with what they had got by then; those that have ended stay as they are.
    """
    engine = Engine(HashingBackend(), EngineOptions(page_size=4, pages=20))
    for name in ("early", "late", "done"):
        engine.add_request((1, 2, 3), replace(FEW, max_tokens=1 if name == "done" else 6), request_id=name)
    engine.cancel("early")
    first = {output.request_id: output for output in engine.step()}
    assert ("cancelled", ()) == (first["early"].finish_reason, first["early"].token_ids)
    assert ("length", 1) == (first["done"].finish_reason, len(first["done"].token_ids))
    engine.cancel("late")
    engine.cancel("late")
    engine.cancel("done")
    engine.cancel("early")
    (output,) = engine.step()
    assert ("late", "cancelled", (), first["late"].token_ids) == (
        output.request_id,
        output.finish_reason,
        output.new_token_ids,
        output.token_ids,
    )
    assert not engine.unfinished
    assert [] == engine.step()


def test_everybody_leaves() -> None:
    """When all requests are called off in one step, no forward runs, and every page is free or retained."""
    arrivals = tuple(Arrival(f"r{i}", tokens(seed=i, count=9), FEW) for i in range(4))
    workload = Workload(arrivals, cancels=tuple((2, f"r{i}") for i in range(4)))
    run = serve(workload, EngineOptions(page_size=4, pages=20))
    assert () == run.forwards()[-1]
    assert 3 == run.engine.steps
    assert_at_rest(run)
    assert_same(run, serve_alone(workload))
