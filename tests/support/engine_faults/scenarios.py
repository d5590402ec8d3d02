"""What a faulty engine serves: workloads in which the fault has a chance to do harm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Any

from company import random_workload
from hashing_backend import HashingBackend
from vosti.impl.backend import Backend
from vosti.impl.backends.cpu import CpuBackend
from vosti.impl.bundled import find_checkpoint
from vosti.impl.engine import Engine
from vosti.impl.errors import EngineError
from vosti.impl.models.model import Model
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.impl.outputs import RequestOutput
from vosti.impl.pool_state import KEY_SPACE
from vosti.impl.workload import Draft, Job


@dataclass(frozen=True)
class Scenario:
    """A workload, and how it is served."""

    backend: Callable[[], Backend]
    jobs: tuple[Job, ...]
    options: EngineOptions
    full: bool = False
    key_space: int = KEY_SPACE

    knocks: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Step → the arguments of an `add_request` before it, which an engine that is whole refuses."""


class KnockingEngine(Engine):
    """An engine at whose door somebody knocks who is to be refused."""

    knocks: Mapping[int, Mapping[str, Any]] = {}

    def step(self) -> list[RequestOutput]:
        """A step, with a knock before it."""
        if self.steps in self.knocks:
            with suppress(EngineError):
                self.add_request(**self.knocks[self.steps])
        return super().step()


def _job(name: str, prompt: tuple[int, ...], params: SamplingParams, at: int = 0, **more: Any) -> Job:
    return Job(**{"domain": "", "cancel_at": None, "draft": None, **more}, id=name, prompt=prompt, params=params, at=at)


FEW = SamplingParams(max_tokens=6, temperature=0.9, seed=1)
COMMON = (1, 2, 3, 4, 5, 6, 7, 8)


def _busy() -> Scenario:
    """Hits, drafts, cancellations, two domains and evictions, and preemptions in a pool that is nearly too small."""
    workload = random_workload(Random(2024), requests=10, longest=30)
    leaving = {name: step for step, name in workload.cancels}
    drafts = (None, Draft(2, 2), Draft(3, 1), None, Draft(4, 0))
    jobs = tuple(
        Job(
            id=arrival.name,
            prompt=arrival.prompt,
            params=replace(arrival.params, stop_token_ids=()),
            at=arrival.step,
            domain=arrival.domain,
            cancel_at=max(leaving[arrival.name], arrival.step) if arrival.name in leaving else None,
            draft=drafts[i % len(drafts)],
        )
        for i, arrival in enumerate(workload.arrivals)
    )
    options = EngineOptions(page_size=2, pages=workload.pages(2) + 3, max_seqs=4, token_budget=12)
    return Scenario(HashingBackend, jobs, options)


def _chains() -> Scenario:
    """Chains of pages that look alike: the same page after two others; and a prompt that is known entirely."""
    one = replace(FEW, max_tokens=1)
    prompts = (
        (1, 1, 7, 7, 0),
        (2, 2, 7, 7, 0),
        (2, 2, 7, 7, 3, 3, 1),
        (3, 3, 7, 7, 3, 3, 1),
        (4, 4, 8, 8, 0),
        (4, 4, 8, 8),
    )
    jobs = tuple(_job(f"c{i}", prompt, one, at=3 * i) for i, prompt in enumerate(prompts))
    return Scenario(HashingBackend, jobs, EngineOptions(page_size=2, pages=24))


def _twins() -> Scenario:
    """Two requests compute one prompt at the same time; then what is found of it is evicted, and the other chain stays.

    Both chains are registered, and the first one alone is in the index. Its request has ended when a third one needs
    all the pages that there are; the other one lives on.
    """
    jobs = (
        _job("found", (1, 2, 3, 4, 0), replace(FEW, max_tokens=1)),
        _job("twin", (1, 2, 3, 4, 0), replace(FEW, max_tokens=8)),
        _job("large", (9, 8, 7, 6, 5, 9, 8, 7, 6, 5, 9, 8, 7, 6, 5), replace(FEW, max_tokens=2), at=1),
        _job("again", (1, 2, 3, 4, 9), replace(FEW, max_tokens=2), at=3),
    )
    return Scenario(HashingBackend, jobs, EngineOptions(page_size=2, pages=11))


def _domains() -> Scenario:
    """The same prompts in two domains."""
    jobs = tuple(
        _job(f"d{i}", (*COMMON, i), replace(FEW, seed=i), at=4 * i, domain="left" if i % 2 else "right")
        for i in range(4)
    )
    return Scenario(HashingBackend, jobs, EngineOptions(page_size=2, pages=40))


def _shared() -> Scenario:
    """A request comes, shares pages with an earlier one, and is gone before that one is."""
    jobs = (
        _job("stays", (*COMMON, 0), replace(FEW, max_tokens=8)),
        _job("goes", (*COMMON, 1), replace(FEW, max_tokens=1), at=2),
    )
    return Scenario(HashingBackend, jobs, EngineOptions(page_size=2, pages=20))


def _observed() -> Scenario:
    """Prompts of which log-probabilities are asked for, all or some, in chunks and behind a hit."""
    jobs = (
        _job("all", (*COMMON, 0), replace(FEW, prompt_logprobs=1)),
        _job("some", (*COMMON, 1, 2), replace(FEW, prompt_logprobs=0, prompt_logprobs_start=6), at=4),
    )
    return Scenario(HashingBackend, jobs, EngineOptions(page_size=2, pages=20, token_budget=5))


def _resumed() -> Scenario:
    """A request is preempted after it has got some tokens, and resumed when the earlier one has gone."""
    jobs = (
        _job("early", (1, 2, 3), replace(FEW, max_tokens=12)),
        _job("late", (4, 5, 6), replace(FEW, max_tokens=10)),
    )
    return Scenario(HashingBackend, jobs, EngineOptions(page_size=2, pages=9))


def _sick() -> HashingBackend:
    return HashingBackend(vocab_size=11, sick_tokens=frozenset({10}), sick_endings=frozenset({9}))


def _values() -> Scenario:
    """A healthy request, and then one whose KV is not finite at its second position."""
    jobs = (
        _job("well", (1, 2, 3, 4, 5), replace(FEW, max_tokens=2)),
        _job("sick", (1, 10, 3, 4, 5), FEW),
    )
    return Scenario(_sick, jobs, EngineOptions(page_size=2, pages=40))


def _endings() -> Scenario:
    """A request whose prompt ends with a token after which logits are not finite."""
    return Scenario(_sick, (_job("sick", (1, 2, 9), FEW),), EngineOptions(page_size=2, pages=40))


def _refusals() -> Scenario:
    """In the third step somebody comes who can never fit, with a prompt of which some pages are known; in the fifth
    one whose identifier was used before.
    """
    jobs = tuple(_job(f"r{i}", (*COMMON, i), FEW, at=i) for i in range(4))
    knocks = {
        2: {"prompt_token_ids": COMMON, "params": replace(FEW, max_tokens=200), "request_id": "too large"},
        8: {"prompt_token_ids": (1, 2), "params": FEW, "request_id": "r0"},
    }
    return Scenario(HashingBackend, jobs, EngineOptions(page_size=2, pages=40), knocks=knocks)


@lru_cache(maxsize=1)
def _model() -> Model:
    return Model.load(find_checkpoint("tiny-gemma3"))


def _checkpoint() -> Scenario:
    """The bundled checkpoint on the CPU, with prompts of any token."""
    random = Random(7)
    prompts = [tuple(random.randrange(200) for _ in range(length)) for length in (5, 21, 34)]
    jobs = tuple(_job(f"p{i}", prompt, replace(FEW, max_tokens=4), at=i) for i, prompt in enumerate(prompts))
    options = EngineOptions(page_size=4, pages=40, token_budget=24)
    return Scenario(lambda: CpuBackend(_model()), jobs, options)


def _with(scenario: Callable[[], Scenario], **changes: Any) -> Callable[[], Scenario]:
    return lambda: replace(scenario(), **changes)


def _busy_with(**changes: Any) -> Callable[[], Scenario]:
    def scenario() -> Scenario:
        busy = _busy()
        return replace(busy, options=replace(busy.options, **changes))

    return scenario


SCENARIOS: Mapping[str, Callable[[], Scenario]] = {
    "busy": _busy,
    "busy, with bits": _with(_busy, full=True),
    "busy, one hash": _with(_busy, key_space=1),
    "busy, read again": _busy_with(reread=True),
    "busy, two at once": _busy_with(max_seqs=2),
    "busy, nothing shared": _busy_with(prefix_caching=False),
    "chains": _chains,
    "twins": _twins,
    "domains": _domains,
    "shared": _shared,
    "observed": _observed,
    "resumed": _resumed,
    "values": _values,
    "endings": _endings,
    "refusals": _refusals,
    "checkpoint": _checkpoint,
}
"""Name → scenario."""
