"""What a mutated engine serves: all that an engine does, in few and short requests, without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from engine_faults.scenarios import SCENARIOS as FAULTY
from engine_faults.scenarios import Scenario
from hashing_backend import HashingBackend
from vosti.impl.engine import Engine
from vosti.impl.options import EngineOptions, SamplingParams

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""A method of an engine, and its arguments."""


def _ending() -> HashingBackend:
    return HashingBackend(eos_ids=(5,))


def _everything() -> Scenario:
    """The busy workload with logprobs, stop tokens, and a model that ends a sequence, which some requests ignore."""
    busy = FAULTY["busy"]()
    jobs = tuple(
        replace(
            job,
            params=replace(
                job.params,
                logprobs=2 if i % 3 == 0 else None,
                stop_token_ids=(4,) if i % 4 == 1 else (),
                ignore_eos=i % 2 == 0,
            ),
        )
        for i, job in enumerate(busy.jobs)
    )
    return replace(busy, backend=_ending, jobs=jobs, options=replace(busy.options, reread=True))


SCENARIOS: Mapping[str, Callable[[], Scenario]] = {
    "twins": FAULTY["twins"],
    "chains": FAULTY["chains"],
    "domains": FAULTY["domains"],
    "values": FAULTY["values"],
    "endings": FAULTY["endings"],
    "busy": _everything,
}
"""Name → scenario, in the order in which they are tried: short ones first."""


def at_the_door() -> list[str]:
    """What engines answer to requests of which some are refused, some only just not, and to odd calls.

    Seeds that an engine draws are all ones, as if by chance.
    """
    params = SamplingParams(max_tokens=2, temperature=0)
    few = Engine(HashingBackend(max_positions=13), EngineOptions(page_size=4, pages=4, token_budget=4))
    small = Engine(HashingBackend(max_positions=13), EngineOptions(page_size=4, pages=2, token_budget=4))
    calls: list[Call] = [
        (few.step, (), {}),
        (few.add_request, ((),), {"params": params}),
        *((few.add_request, ((token,),), {"params": params, "request_id": f"t{token}"}) for token in (-1, 0, 10, 11)),
        (few.add_request, ((1,),), {"params": params, "request_id": "t0"}),
        (few.add_request, ((1,),), {"params": params}),
        (few.add_request, ((1,),), {"params": params, "request_id": "request-4"}),
        (few.add_request, ((1, 2, 3),), {"params": params}),
        (few.add_request, ((1, 2, 3),), {"params": replace(params, temperature=1.0)}),
        *((few.add_request, ((1,) * length,), {"params": params}) for length in (11, 12)),
        *((small.add_request, ((1,) * 5,), {"params": replace(params, max_tokens=most)}) for most in (4, 5, 8, 9)),
        *((small.step, (), {}) for _ in range(8)),
        (few.cancel, ("nobody",), {}),
        (few.cancel, ("t0",), {}),
        (few.cancel, ("t0",), {}),
        *((few.step, (), {}) for _ in range(30)),
        (few.cancel, ("t10",), {}),
        (few.step, (), {}),
        (few.add_request, ((1,),), {"params": replace(params, temperature=1.0, seed=3)}),
        (few.step, (), {}),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("secrets.randbits", lambda bits: 2**bits - 1)
        return [_answer(*call) for call in calls]


def _answer(call: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> str:
    engine: Any = getattr(call, "__self__", None)
    try:
        answer = repr(call(*args, **keywords))
    except Exception as error:  # whatever is raised is the answer
        answer = f"{type(error).__name__}: {error}"
    return f"{call.__name__}: {answer}; unfinished {engine.unfinished}, {engine.steps} steps"
