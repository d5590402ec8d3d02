"""Who runs when: progress, capacity, budgets. And that none of it changes a record."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from company import (
    Arrival,
    Workload,
    assert_at_rest,
    assert_same,
    drive,
    random_options,
    random_workload,
    serve,
    serve_alone,
    tokens,
    with_drafts,
)
from hashing_backend import HashingBackend
from plan_rules import checked_plans
from progress import NoProgress, assert_progress
from vosti.impl.engine import Engine
from vosti.impl.errors import CapacityError, InvalidOptionError
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.impl.planning import pages_needed
from vosti.spec.events import SettleEvent
from vosti.spec.state import RequestId
from vosti.spec.step import Emit, Finish, Preempt

FEW = SamplingParams(max_tokens=6, temperature=0.9, seed=2)


# ---------------------------------------------------------------- progress


@pytest.mark.parametrize("page_size", [1, 2, 4, 16])
def test_plans_keep_the_rules_and_make_progress(page_size: int) -> None:
    """In random runs every plan keeps its rules: exact hits, free pages, eviction of the least recently used leaf,
    preemption of the latest in favour of an earlier one and only when nothing else helps, budget and max_seqs, and
    whoever needs no page runs, whoever else waits. The earliest request emits within ⌈remaining / budget⌉ + 2 steps.
    """
    counts = Counter[str]()
    together = 0
    for seed in range(8):
        random = Random(1000 * page_size + seed)
        workload = random_workload(random, requests=8, longest=30)
        workload = with_drafts(workload, serve_alone(workload), random)
        with checked_plans() as plans:
            run = serve(workload, random_options(random, workload, page_size))
        assert len(plans) == run.engine.steps
        assert_progress(run)
        assert_at_rest(run)
        counts += run.counts()
        together += sum(sum(isinstance(action, Preempt) for action in plan.actions) > 1 for plan in plans)
    assert min(counts[kind] for kind in ("Attach", "Evict", "Preempt", "Propose")) > 0
    assert together > 0 or page_size == 16  # few pages hold any of these requests: one preemption is enough


def test_a_stalled_request_is_noticed() -> None:
    """The measure of progress fails for a run in which the earliest request's emits are missing."""
    run = serve(Workload((Arrival("r", (1, 2, 3), FEW),)), EngineOptions(page_size=4, pages=9))
    assert_progress(run)
    silent = tuple(
        replace(e, actions=tuple(a for a in e.actions if not isinstance(a, Emit | Finish)))
        if isinstance(e, SettleEvent)
        else e
        for e in run.events
    )
    with pytest.raises(NoProgress, match="r gets nothing from step 0 to step 3"):
        assert_progress(replace(run, events=silent))


def test_a_request_that_needs_no_page_runs_beside_one_that_waits() -> None:
    """Hazard: the head of a queue that waits for pages stops everybody. While one request waits, those whose tables
    have room get a token in every step.
    """
    runs_on = Arrival("runs on", (1, 2, 3), replace(FEW, max_tokens=13))
    waits = Arrival("waits", (4,) * 20, FEW, step=1)
    run = serve(Workload((runs_on, waits)), EngineOptions(page_size=16, pages=2))
    assert [(0, 3, 3), (3, 1, 17), *((position, 1, 1) for position in range(4, 15))] == list(run.schedule("runs on"))
    assert [0, 16, 20] == [start for start, _, _ in run.schedule("waits")][:3]
    assert_same(run, serve_alone(Workload((runs_on, waits))))


def test_a_long_output_does_not_hold_up_short_ones() -> None:
    """Hazard: capacity is reserved for a whole output, so that short requests wait behind a long one. A request that
    may need the whole pool later leaves its pages to others until it does.
    """
    long = Arrival("long", (1, 2), SamplingParams(max_tokens=31, temperature=0))
    short = tuple(Arrival(f"short{i}", (3, i), replace(FEW, max_tokens=3), step=1) for i in range(3))
    run = serve(Workload((long, *short)), EngineOptions(page_size=4, pages=8))
    ends = {
        action.request: event.step for event in run.settled() for action in event.actions if isinstance(action, Finish)
    }
    assert all(ends[RequestId(arrival.name)] <= 4 for arrival in short)
    assert_same(run, serve_alone(Workload((long, *short))))


def test_several_prompts_are_cut_in_one_step() -> None:
    """Hazard: only the first prompt of a step may be cut. A budget is used up to its last row, wherever it cuts, and
    max_seqs sequences share it.
    """
    arrivals = tuple(Arrival(f"r{i}", tokens(seed=i, count=10), FEW) for i in range(3))
    run = serve(Workload(arrivals), EngineOptions(page_size=4, pages=20, token_budget=16, max_seqs=2))
    first = Counter(row.request for row in run.forwards()[0])
    second = Counter(row.request for row in run.forwards()[1])
    assert {"r0": 10, "r1": 6} == first
    assert {"r0": 1, "r1": 4} == second
    assert_same(run, serve_alone(Workload(arrivals)))


# ---------------------------------------------------------------- capacity


def test_what_can_never_fit_is_refused_at_once() -> None:
    """Hazard: a request larger than the pool blocks the queue for ever, or ends in an assertion that loses all others.
    In a pool of 10 pages of 16, a prompt of 200 is refused, and so is one that could outgrow the pool; those before
    and after it are served.
    """
    engine = Engine(HashingBackend(), EngineOptions(page_size=16, pages=10))
    engine.add_request((1, 2), FEW, request_id="before")
    pool = engine._pool
    with pytest.raises(CapacityError, match="may need 13 pages of 16 slots, and the pool has 10"):
        engine.add_request((1,) * 200, FEW)
    with pytest.raises(CapacityError, match="may need 11 pages"):
        engine.add_request((1,) * 150, replace(FEW, max_tokens=12))
    assert pool is engine._pool
    engine.add_request((1,) * 150, replace(FEW, max_tokens=11), request_id="just fits")
    engine.add_request((3,), FEW, request_id="after")
    outputs = drive(engine, Workload(()))
    assert {"before", "just fits", "after"} == set(outputs)
    assert {"length"} == {output.finish_reason for output in outputs.values()}


def test_the_models_positions_are_a_limit() -> None:
    """A request that could pass the model's longest sequence is refused; one that reaches it exactly is served."""
    engine = Engine(HashingBackend(max_positions=20), EngineOptions(page_size=4, pages=50))
    with pytest.raises(CapacityError, match=r"may reach 21 tokens \(15 of prompt .*\), and the model takes 20"):
        engine.add_request((1,) * 15, FEW)
    engine.add_request((1,) * 14, FEW, request_id="r")
    assert 6 == len(drive(engine, Workload(()))["r"].token_ids)


@pytest.mark.parametrize("page_size", [1, 2, 4, 16])
def test_the_smallest_pool_is_enough(page_size: int) -> None:
    """A request that is not refused runs to its end, if the pool holds it exactly; with one page less it is refused."""
    for length in (1, page_size - 1, page_size, page_size + 1, 2 * page_size, 2 * page_size + 1):
        if length >= 1:
            workload = Workload((Arrival("r", (1,) * length, replace(FEW, max_tokens=page_size + 1)),))
            pages = pages_needed(length + page_size, page_size)
            assert_same(serve(workload, EngineOptions(page_size=page_size, pages=pages)), serve_alone(workload))
            if pages > 1:
                with pytest.raises(CapacityError):
                    serve(workload, EngineOptions(page_size=page_size, pages=pages - 1))


def test_two_holders_who_each_need_one_more_page() -> None:
    """Hazard: both wait for the other for ever. In a pool of 7 pages one holds 4 and needs a fifth, the other holds 3
    and needs a fourth: the later one gives way, and both finish.
    """
    workload = Workload(
        (
            Arrival("a", tokens(seed=1, count=14), replace(FEW, max_tokens=7)),
            Arrival("b", tokens(seed=2, count=10), FEW),
        )
    )
    run = serve(workload, EngineOptions(page_size=4, pages=7))
    assert [("b", "a")] == [(a.request, a.in_favour_of) for a in run.actions() if isinstance(a, Preempt)]
    assert_same(run, serve_alone(workload))
    assert_at_rest(run)


def test_a_budget_of_one_serves_any_prompt() -> None:
    """Hazard: a prompt above the token budget, or a chunk above it, is never scheduled. A chunk is what the budget
    leaves, so that a budget of one token a step serves everything.
    """
    workload = Workload((Arrival("r", tokens(seed=3, count=23), FEW),))
    run = serve(workload, EngineOptions(page_size=4, pages=9, token_budget=1))
    assert [1] * 28 == [count for _, count, _ in run.schedule("r")]
    assert_same(run, serve_alone(workload))


@pytest.mark.parametrize("option", ["token_budget", "max_seqs", "pages", "page_size"])
def test_limits_under_which_nothing_runs_are_refused(option: str) -> None:
    """A limit of 0 is refused when the options are made, and not found out by a queue that stands still."""
    with pytest.raises(InvalidOptionError, match=f"{option} is 0: it must be an integer of at least 1"):
        EngineOptions.from_keywords(**{option: 0})
