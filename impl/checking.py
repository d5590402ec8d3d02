"""Runs that are worth checking: a workload in company, and each of its requests alone (section 5.1 of the paper).

The run in company shares, evicts, preempts and speculates. The runs alone avoid all of that, and differ from it in
whatever must not matter: each has a fresh engine, an empty pool full of NaN whose pages are taken in an order of their
own, no prefix cache, no drafts, another page size and another token budget.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from vosti.impl.drafting import Script, ScriptedDrafter, drafter_of
from vosti.impl.errors import StalledError
from vosti.impl.options import EngineOptions
from vosti.impl.workload import Job
from vosti.spec.events import Tracer
from vosti.spec.state import RequestId, Token

if TYPE_CHECKING:
    from vosti.impl.backend import Backend
    from vosti.impl.engine import Engine
    from vosti.impl.outputs import RequestOutput
    from vosti.impl.sampling import Logprobs

T = TypeVar("T")

ALONE_PAGE_SIZES = (1, 4, 16, 64)
"""Page sizes of the runs alone, in turn."""

ALONE_BUDGETS = (64, 16, 31, 7)
"""Token budgets of the runs alone, in turn."""


@dataclass(frozen=True)
class Run:
    """What a run returned."""

    outputs: Mapping[str, RequestOutput]
    """The last output of each request."""

    steps: int


@dataclass(frozen=True)
class Difference:
    """A request that is answered otherwise in company than alone."""

    request: str
    index: int
    """The first output, or token of the prompt, that differs."""

    company: int | Logprobs | str | None
    alone: int | Logprobs | str | None
    """The tokens, what was reported of them, or how they ended; None where there is none."""

    what: str = "emitted token"
    """What differs."""

    where: str = "output"

    def __str__(self) -> str:
        return (
            f"Request {self.request!r} {self.what} {self.company} at {self.where} {self.index} in company, "
            f"and {self.alone} alone."
        )


def refuse_misfits(backend: Backend, jobs: Iterable[Job], options: EngineOptions) -> None:
    """Raise what `Engine.add_request` raises for the first job that it would refuse, before anything runs."""
    from vosti.impl.engine import Engine

    engine = Engine(backend, options)
    for job in jobs:
        engine.add_request(job.prompt, job.params, request_id=job.id, domain=job.domain)


def run_together(
    backend: Backend,
    jobs: Sequence[Job],
    options: EngineOptions,
    expected: Mapping[str, tuple[int, ...]],
    *,
    tracer: Tracer | None = None,
    full: bool = False,
    candidates: bool = False,
    on_step: Callable[[int], None] = lambda finished: None,
) -> Run:
    """Serve a workload.

    Args:
        backend: the model; its pool is allocated anew.
        jobs: the workload's requests.
        options: of the engine.
        expected: for each job with drafts, what it emits without: right drafts come from here.
        tracer: takes the ghost events, if any are wanted.
        full: whether the events carry bits.
        candidates: whether the events say what each token was drawn from.
        on_step: called after each step with the number of requests that have ended.
    """
    from vosti.impl.engine import Engine

    scripts = {
        RequestId(job.id): Script(tuple(map(Token, expected[job.id])), job.draft.length, job.draft.right)
        for job in jobs
        if job.draft is not None
    }
    drafter = ScriptedDrafter(scripts, backend.vocab_size, otherwise=drafter_of(options))
    return serve(
        Engine(backend, options, drafter=drafter, tracer=tracer, full=full, candidates=candidates), jobs, on_step
    )


def run_alone(
    backend: Backend,
    job: Job,
    options: EngineOptions,
    *,
    tokens: int | None = None,
    tracer: Tracer | None = None,
    candidates: bool = False,
) -> Run:
    """Serve one request: no company, no drafts, no cancellation.

    Args:
        backend: the model; its pool is allocated anew.
        job: the request.
        options: of the engine.
        tokens: after how many tokens it ends, if that is sooner than it would.
        tracer: takes the ghost events, if any are wanted.
        candidates: whether the events say what each token was drawn from.
    """
    from vosti.impl.engine import Engine

    limit = job.params.max_tokens if tokens is None else min(tokens, job.params.max_tokens)
    params = replace(job.params, max_tokens=limit)
    lonely = replace(job, params=params, at=0, cancel_at=None, draft=None)
    return serve(Engine(backend, options, tracer=tracer, candidates=candidates), [lonely])


def alone_options(job: Job, number: int) -> EngineOptions:
    """The options for the run alone of the workload's request with this number: other than anybody else's."""
    size = ALONE_PAGE_SIZES[number % len(ALONE_PAGE_SIZES)]
    needed = -(-(len(job.prompt) + job.params.max_tokens) // size)
    return EngineOptions(
        page_size=size,
        pages=2 * needed + 3,  # so that the order in which pages are taken can differ
        max_seqs=1,
        token_budget=ALONE_BUDGETS[number // len(ALONE_PAGE_SIZES) % len(ALONE_BUDGETS)],
        prefix_caching=False,
        page_seed=number + 1,
        poison=True,
    )


def serve(engine: Engine, jobs: Sequence[Job], on_step: Callable[[int], None] = lambda finished: None) -> Run:
    """Drive an engine through a workload: arrivals and cancellations come between its steps.

    While nothing is live the clock jumps to the next arrival.

    Raises:
        StalledError: if nobody gets a token for longer than the engine promises.
    """
    arriving = deque(sorted(jobs, key=lambda job: job.at))
    leaving = deque(sorted((job for job in jobs if job.cancel_at is not None), key=lambda job: job.cancel_at or 0))
    longest = max((len(job.prompt) + job.params.max_tokens for job in jobs), default=0)
    patience = -(-longest // engine.options.token_budget) + 2
    outputs: dict[str, RequestOutput] = {}
    finished = silent = now = 0
    while True:
        while arriving and arriving[0].at <= now:
            job = arriving.popleft()
            engine.add_request(job.prompt, job.params, request_id=job.id, domain=job.domain)
        while leaving and (leaving[0].cancel_at or 0) <= now:
            engine.cancel(leaving.popleft().id)
        if engine.unfinished:
            news = engine.step()
            outputs.update((output.request_id, output) for output in news)
            finished += sum(output.finish_reason is not None for output in news)
            silent = 0 if news else silent + 1
            if silent > patience:
                raise StalledError(f"No request got a token in {silent} steps, although some are live.")
            on_step(finished)
            now += 1
        elif arriving:
            now = arriving[0].at
        else:
            return Run(outputs=outputs, steps=engine.steps)


def difference(together: RequestOutput, alone: RequestOutput) -> Difference | None:
    """Where a request's outputs in company are not its outputs alone; of one that was called off, no beginning of them.

    Both are views of one request from one sampler state: they are prefix-comparable (Definition 2.1), and the one
    alone, which nobody calls off, is at least as long. What is reported of their tokens, and of the prompt's, is a
    function of the same logits; how they end, of the same tokens.
    """
    called_off = together.finish_reason == "cancelled"
    for what, where, company, expected in (
        ("emitted token", "output", together.token_ids, alone.token_ids),
        ("reported", "output", together.logprobs, alone.logprobs),
        ("reported", "prompt token", together.prompt_logprobs, alone.prompt_logprobs),
    ):
        for i in range(len(company) if called_off else max(len(company), len(expected))):
            if company[i : i + 1] != expected[i : i + 1]:
                return Difference(together.request_id, i, _at(company, i), _at(expected, i), what, where)
    if not called_off and together.finish_reason != alone.finish_reason:
        i = len(together.token_ids)
        return Difference(together.request_id, i, together.finish_reason, alone.finish_reason, "ended with")
    return None


def _at(some: Sequence[T], i: int) -> T | None:
    return some[i] if i < len(some) else None
