"""Runs in company and alone: when requests come and go, what the runs alone vary, and how runs are compared."""

from dataclasses import replace

import pytest

from hashing_backend import HashingBackend
from vosti.impl import checking, workload
from vosti.impl.engine import Engine
from vosti.impl.errors import CapacityError, StalledError
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.impl.outputs import RequestOutput
from vosti.impl.sampling import Logprobs
from vosti.impl.workload import Job
from vosti.spec.events import Event, ForwardEvent, PlanEvent
from vosti.spec.step import Admit, Attach, Cancel, Propose

OPTIONS = EngineOptions(page_size=2, pages=20, token_budget=6, max_seqs=4)


def job(name: str, *, prompt: tuple[int, ...] = (1, 2, 3), tokens: int = 4, **fields: object) -> Job:
    """A greedy request; by default it arrives at once and stays."""
    params = SamplingParams(max_tokens=tokens, temperature=0.0, seed=0)
    rest: dict[str, object] = {"at": 0, "domain": "", "cancel_at": None, "draft": None, **fields}
    return Job(id=name, prompt=prompt, params=params, **rest)  # type: ignore[arg-type]


class Recorder:
    """Keeps events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        """Keep one."""
        self.events.append(event)

    def planned(self, kind: type) -> list[tuple[int, str]]:
        """Step and request of each action of a kind."""
        plans = [event for event in self.events if isinstance(event, PlanEvent)]
        return [
            (plan.step, str(getattr(action, "request")))  # noqa: B009 - not every action has one
            for plan in plans
            for action in plan.actions
            if isinstance(action, kind)
        ]


def together(*jobs: Job, expected: dict[str, tuple[int, ...]] | None = None) -> tuple[checking.Run, Recorder]:
    """A run in company, and its events."""
    recorder = Recorder()
    return checking.run_together(HashingBackend(), jobs, OPTIONS, expected or {}, tracer=recorder), recorder


def test_requests_come_and_go_when_the_workload_says() -> None:
    """Arrivals and cancellations happen before the step that they name; the file's order breaks ties."""
    run, recorder = together(
        job("a", tokens=12), job("late", at=3), job("b", at=1, cancel_at=4, tokens=12), job("c", at=1, cancel_at=1)
    )

    assert [(0, "a"), (1, "b"), (1, "c"), (3, "late")] == recorder.planned(Admit)
    assert [(1, "c"), (4, "b")] == recorder.planned(Cancel)
    assert {"a": "length", "b": "cancelled", "c": "cancelled", "late": "length"} == {
        name: output.finish_reason for name, output in run.outputs.items()
    }


def test_the_clock_jumps_while_nothing_is_live() -> None:
    """There are no steps without requests, and a cancellation of one that has ended is nothing."""
    run, recorder = together(job("a", tokens=1, cancel_at=50), job("b", at=1000, tokens=2, cancel_at=1001))

    assert 3 == run.steps
    assert [(0, "a"), (1, "b")] == recorder.planned(Admit)
    assert [(2, "b")] == recorder.planned(Cancel)
    assert ["length", "cancelled"] == [output.finish_reason for output in run.outputs.values()]


def test_who_watches_hears_of_the_requests_that_ended() -> None:
    """After each step comes the number of requests that have ended."""
    heard: list[int] = []
    jobs = [job("a", tokens=2), job("b", tokens=3)]
    run = checking.run_together(HashingBackend(), jobs, OPTIONS, {}, on_step=heard.append)

    assert [0, 1, 2] == heard
    assert run.steps == len(heard)


def test_drafts_are_right_as_far_as_the_workload_says() -> None:
    """Right tokens come from what is expected, so that k of them are accepted, and one is wrong."""
    lonely = checking.run_alone(HashingBackend(), job("a", tokens=9), OPTIONS)
    expected = {"a": lonely.outputs["a"].token_ids}
    drafted = job("a", tokens=9, draft=workload.Draft(length=3, right=2))
    run, recorder = together(drafted, expected=expected)

    assert expected["a"] == run.outputs["a"].token_ids
    assert 3 == len(recorder.planned(Propose))
    assert lonely.steps > run.steps


def test_a_run_alone_is_alone() -> None:
    """It has no drafts, no cancellation, starts at once, and ends where it is told to."""
    recorder = Recorder()
    late = job("a", at=7, cancel_at=9, draft=workload.Draft(length=1, right=1), tokens=9)
    run = checking.run_alone(HashingBackend(), late, OPTIONS, tokens=5, tracer=recorder)

    assert 5 == len(run.outputs["a"].token_ids)
    assert "length" == run.outputs["a"].finish_reason
    assert [(0, "a")] == recorder.planned(Admit)
    assert [] == recorder.planned(Propose) + recorder.planned(Cancel)


@pytest.mark.parametrize("number", range(16))
def test_every_run_alone_has_room_and_differs(number: int) -> None:
    """Whatever its page size, a request fits, is computed without sharing, and gives what it gives in company."""
    one = job("a", prompt=tuple(range(9)), tokens=12)
    options = checking.alone_options(one, number)
    recorder = Recorder()
    run = checking.run_alone(HashingBackend(), one, options, tracer=recorder)

    assert (True, False, 1) == (options.poison, options.prefix_caching, options.max_seqs)
    assert OPTIONS.page_size != options.page_size
    assert OPTIONS.page_seed != options.page_seed
    assert [] == recorder.planned(Attach)
    assert together(one)[0].outputs["a"].token_ids == run.outputs["a"].token_ids


def test_misfits_are_refused_before_anything_runs() -> None:
    """The whole workload is looked at first, also what arrives late."""
    backend = HashingBackend()
    with pytest.raises(CapacityError, match="'b' may need 25 pages of 2 slots"):
        checking.refuse_misfits(backend, [job("a"), job("b", at=99, tokens=48)], OPTIONS)

    assert 0 == backend.forwards


def test_an_engine_that_makes_no_progress_is_stopped() -> None:
    """An engine that never gives anybody a token is an error, not an endless run."""

    class Idle(Engine):
        def step(self) -> list[RequestOutput]:
            return []

    with pytest.raises(StalledError, match="No request got a token in 5 steps"):
        checking.serve(Idle(HashingBackend(), OPTIONS), [job("a")])


def output(tokens: tuple[int, ...], reason: str = "length") -> RequestOutput:
    """What a request came to."""
    run = checking.run_alone(HashingBackend(), job("a", tokens=1), OPTIONS)
    return replace(run.outputs["a"], token_ids=tokens, finish_reason=reason)


@pytest.mark.parametrize(
    ("company", "alone", "found"),
    [
        (output((1, 2)), output((1, 2)), None),
        (output((1,), "cancelled"), output((1, 2)), None),
        (output((), "cancelled"), output((1, 2)), None),
        (output((1, 3)), output((1, 2)), (1, 3, 2)),
        (output((3,), "cancelled"), output((1, 2)), (0, 3, 1)),
        (output((1, 2, 3)), output((1, 2)), (2, 3, None)),
        (output((1,), "error"), output((1, 2)), (1, None, 2)),
        (output((1, 2)), output((1, 2), "error"), (2, "length", "error")),
        (output((1, 2), "error"), output((1, 2), "error"), None),
    ],
)
def test_outputs_in_company_are_a_beginning_of_those_alone(
    company: RequestOutput, alone: RequestOutput, found: tuple[int, int | str | None, int | str | None] | None
) -> None:
    """The first output that differs is named, or the end; only a request that was called off may stop early."""
    difference = checking.difference(company, alone)

    assert found == (difference and (difference.index, difference.company, difference.alone))
    if difference is not None and found is not None:
        assert f"at output {found[0]} in company" in str(difference)


def test_what_is_reported_is_compared() -> None:
    """A log-probability that differs is named, of an output or of a token of the prompt, and one that is missing or too
    much; only a request that was called off may be told less.
    """
    one, two = Logprobs(1, -0.5, ()), Logprobs(1, -0.25, ())
    alone = replace(output((1, 2)), logprobs=(one, one), prompt_logprobs=(None, one, one))
    shorter = replace(alone, logprobs=(one,), prompt_logprobs=(None, one))

    assert None is checking.difference(alone, alone)
    assert None is checking.difference(replace(shorter, finish_reason="cancelled"), alone)
    assert "reported None at output 1 in company" in str(checking.difference(shorter, alone))
    assert "reported None at prompt token 2 in company" in str(
        checking.difference(replace(shorter, logprobs=alone.logprobs), alone)
    )
    assert "at prompt token 2 in company, and None alone." in str(
        checking.difference(replace(alone, finish_reason="cancelled"), replace(alone, prompt_logprobs=(None, one)))
    )
    assert "reported Logprobs(token=1, logprob=-0.25, top=()) at output 1 in company, and Logprobs(" in str(
        checking.difference(replace(alone, logprobs=(one, two)), alone)
    )
    assert "reported None at prompt token 2 in company, and Logprobs(token=1, logprob=-0.5, top=()) alone." in str(
        checking.difference(replace(alone, prompt_logprobs=(None, one, None)), alone)
    )


def test_rows_of_the_runs_alone_are_one_request_at_a_time() -> None:
    """No forward of a run alone has a row of anybody else."""
    recorder = Recorder()
    one = job("a", prompt=tuple(range(9)))
    checking.run_alone(HashingBackend(), one, checking.alone_options(one, 5), tracer=recorder)
    rows = [row for event in recorder.events if isinstance(event, ForwardEvent) for row in event.rows]

    assert {"a", None} >= {row.request for row in rows}
