"""A small engine: its control plane as it stands, a forward without a model, and everything that may happen to it.

`EngineStep` does what `vosti.impl.engine.Engine` does in a step, with the same functions: `plan_step` over the page
pool, and `settle` after a forward. The forward's values are the specification's own, and a state of the specification
goes beside the pool, by the very actions that the engine decides on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, product
from typing import NoReturn

from vosti.impl import pool as pools
from vosti.impl.abstraction import snapshot
from vosti.impl.options import SamplingParams
from vosti.impl.planning import Candidate, Chunk, Limits, Plan, chunk_counts, pages_needed
from vosti.impl.pool_state import Pool
from vosti.impl.settling import LiveRecord, YieldedRow, settle
from vosti.proofs.explore_bounds import ONE, Tokens
from vosti.proofs.explore_counterexample import REFINEMENT, Counterexample, Run, described
from vosti.proofs.explore_views import Origins, Watch
from vosti.refinement.explain import explain
from vosti.refinement.snapshots import SnapshotComparison
from vosti.refinement.touched import Touched
from vosti.refinement.violation import Place, Refuted
from vosti.spec.reference import finite_kv, finite_logits, kernel_logits, sampled_token
from vosti.spec.state import (
    Logits,
    PageId,
    RequestId,
    Sampler,
    State,
    Token,
    cached_value,
    cached_values,
    history,
    initial,
    sequence,
)
from vosti.spec.step import RULES, Action, Admit, Cancel, Compute, Phase, arguments

Guard = Callable[[State, Action], bool]
Effect = Callable[[State, Action], State]
Planner = Callable[[Pool, Sequence[Candidate], Limits], Plan]


@dataclass(frozen=True)
class Job:
    """A request that may come."""

    prompt: Tokens
    max_tokens: int


@dataclass(frozen=True)
class EngineBounds:
    """A small engine, and what may happen to it.

    Raises ValueError for a job that could never fit into the pool: an engine refuses it at its door.
    """

    name: str
    requests: int
    """How many come, at most."""

    pages: int
    page_size: int
    token_budget: int
    max_seqs: int
    jobs: tuple[Job, ...]
    drafts: tuple[Tokens, ...] = ()
    """What a drafter may propose, beside nothing."""

    def __post_init__(self) -> None:
        for job in self.jobs:
            if pages_needed(len(job.prompt) + job.max_tokens - 1, self.page_size) > self.pages:
                raise ValueError(f"{job} does not fit into {self.pages} pages of {self.page_size} slots: allow more.")

    @property
    def capacity(self) -> frozenset[PageId]:
        """All pages."""
        return frozenset(map(PageId, range(self.pages)))

    @property
    def start(self) -> State:
        """The specification's state before any request."""
        return initial(self.capacity, self.page_size)

    @property
    def limits(self) -> Limits:
        """As a planner takes them."""
        return Limits(self.max_seqs, self.token_budget, prefix_caching=True, page_seed=0)


# ---------------------------------------------------------------- what happens outside


@dataclass(frozen=True)
class Outside:
    """What happens to an engine before a step, and what its drafter proposes in it."""

    arrivals: tuple[Job, ...]
    cancelled: tuple[RequestId, ...]
    proposals: Mapping[RequestId, Tokens]


def outside(bounds: EngineBounds, s: State, live: Mapping[RequestId, LiveRecord]) -> Iterator[Outside]:
    """Everything that may happen before a step: any requests come, any go, and anything is proposed for anybody."""
    for count in range(bounds.requests - len(s.seen) + 1):
        for arrivals in product(bounds.jobs, repeat=count):
            left = {r: record.params.max_tokens - len(record.output) for r, record in live.items()}
            left |= {r: job.max_tokens for r, job in zip(_names(s, count), arrivals, strict=True)}
            for cancelled in chain.from_iterable(combinations(left, n) for n in range(len(left) + 1)):
                staying = [r for r in left if r not in cancelled]
                # Like the engine's: a draft does not reach the request's last token, which needs no verification.
                choices = [dict.fromkeys(((), *(draft[: left[r] - 1] for draft in bounds.drafts))) for r in staying]
                for proposals in product(*choices):
                    yield Outside(arrivals, cancelled, dict(zip(staying, proposals, strict=True)))


def _names(s: State, count: int) -> list[RequestId]:
    return [RequestId(f"r{len(s.seen) + i}") for i in range(count)]


# ---------------------------------------------------------------- a step


class Found(Exception):
    """Ends a step that contradicts something."""

    def __init__(self, counterexample: Counterexample) -> None:
        self.counterexample = counterexample
        super().__init__(counterexample.broken)


@dataclass
class EngineStep:
    """A step in the making. Its methods are called in order; each raises `Found` if the step goes wrong."""

    bounds: EngineBounds
    planner: Planner
    guard: Guard
    effect: Effect
    watch: Watch
    run: Callable[[Sequence[Action]], Run]
    """The run up to this step, and some actions of it."""

    state: State
    pool: Pool
    live: dict[RequestId, LiveRecord]
    """In order of arrival."""

    origins: Origins
    actions: list[Action] = field(default_factory=list)
    """Those of this step so far."""

    def _perform(self, phase: Phase, actions: Sequence[Action]) -> None:
        """Let the specification follow some actions."""
        for action in actions:
            self.actions.append(action)
            rule = RULES[type(action)]
            if rule.phase is not phase or not self.guard(self.state, action):
                expected, actual = explain(rule.guard, self.state, *arguments(action))
                name, where = rule.guard.__name__, described(action)
                raise Found(Counterexample(REFINEMENT, name, where, expected, actual, self.run(self.actions)))
            found = self.watch.look(self.state, self.origins, action, lambda: self.run(self.actions))
            if found is not None:
                raise Found(found)
            self.state = self.effect(self.state, action)
            self.origins = self.watch.after(self.origins, action)

    def come_and_go(self, happening: Outside) -> None:
        """Admit, then cancel."""
        for r, job in zip(_names(self.state, len(happening.arrivals)), happening.arrivals, strict=True):
            params = SamplingParams(max_tokens=job.max_tokens, temperature=0)
            record = LiveRecord(
                prompt=job.prompt,
                output=(),
                draft=(),
                sampler=params.sampler(0),
                domain=ONE,
                arrival=len(self.state.seen),
                params=params,
                stop_tokens=frozenset(),
            )
            self.pool = pools.admit(self.pool, r, record.domain)
            self.live[r] = record
            self._perform(Phase.PLAN, [Admit(r, record.prompt, Sampler(record.sampler), ONE, record.arrival)])
        for r in happening.cancelled:
            self.pool = pools.remove(self.pool, r)
            del self.live[r]
            self._perform(Phase.PLAN, [Cancel(r)])

    def plan(self, proposals: Mapping[RequestId, Tokens]) -> tuple[Chunk, ...]:
        """Let the planner plan."""
        candidates = [Candidate(r, record.history, proposals[r]) for r, record in self.live.items()]
        plan = self.planner(self.pool, candidates, self.bounds.limits)
        self.pool = plan.pool
        self._perform(Phase.PLAN, plan.actions)
        for chunk in plan.chunks:
            self.live[chunk.request] = replace(self.live[chunk.request], draft=chunk.draft)
        return plan.chunks

    def forward(self, chunks: Sequence[Chunk]) -> None:
        """Compute the rows of all chunks."""
        counts = chunk_counts(chunks)
        lengths = {chunk.request: len(self.live[chunk.request].history) + len(chunk.draft) for chunk in chunks}
        assert pools.advance_each_guard(self.pool, counts, lengths), "the planner asks for rows that have no slot"
        self.pool = pools.advance_each(self.pool, counts, lengths)
        self._perform(Phase.FORWARD, [Compute(chunk.request) for chunk in chunks for _ in range(chunk.count)])

    def settle(self, chunks: Sequence[Chunk]) -> None:
        """Settle the requests that had rows, and compare the engine's structures with the specification's state."""
        computed = self.state
        for chunk in chunks:
            r, positions = chunk.request, range(chunk.start, chunk.start + chunk.count)
            first = len(history(computed.requests[r])) - 1
            yielded = {p: _yielded(computed, r, p) for p in positions if p >= first}
            non_finite = [p for p in positions if not finite_kv(cached_value(computed, r, p))]
            outcome = settle(self.pool, r, self.live[r], yielded, non_finite, publishing=True)
            self.pool = outcome.pool
            if outcome.ended is None:
                self.live[r] = outcome.record
            else:
                del self.live[r]
            self._perform(Phase.SETTLE, outcome.actions)
        try:
            # A comparison that begins here compares everything.
            SnapshotComparison().compare(self.state, snapshot(self.pool, self.live), Touched(), Place("the engine"))
        except Refuted as refuted:
            found = refuted.violation
            where = "the engine" if found.page is None else f"page {found.page}"
            where = where if found.request is None else f"request {found.request}"
            run = self.run(self.actions)
            raise Found(Counterexample(REFINEMENT, found.check, where, found.expected, found.actual, run)) from None


def _yielded(s: State, r: RequestId, position: int) -> YieldedRow:
    """The row of logits at a position, as the specification's kernels compute it."""
    prefix = sequence(s.requests[r])[: position + 1]
    logits = kernel_logits(cached_values(s, r, position + 1), prefix)
    return YieldedRow(position, logits, finite_logits(logits), _sampling(logits), _no_logprobs)


def _sampling(logits: Logits) -> Callable[[LiveRecord], Token]:
    return lambda record: sampled_token(logits, Sampler(record.sampler), tuple(record.history), len(record.prompt))


def _no_logprobs(token: Token, number: int) -> NoReturn:
    raise AssertionError("nobody asked for log-probabilities")
