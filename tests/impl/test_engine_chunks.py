"""However a prompt is cut into chunks, and however much of it is in the prefix cache, its records are the same."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from company import REFERENCE, Arrival, Workload, assert_same, serve, serve_alone
from hashing_backend import HashingBackend
from vosti.impl.engine import Engine
from vosti.impl.options import EngineOptions, SamplingParams

GREEDY = SamplingParams(max_tokens=8, temperature=0)
SEEDED = SamplingParams(max_tokens=8, temperature=0.9, seed=7)


def test_a_long_prompt_is_the_same_in_every_partition() -> None:
    """1,500 tokens at a budget of 1,024: 1,024 + 476 alone, 248 + 1,024 + 228 or the like in company, and less after a
    hit of k pages.
    """
    prompt = tuple(Random(5).randrange(11) for _ in range(1500))
    target = Arrival("target", prompt, SamplingParams(max_tokens=2, temperature=0), step=1)
    warm = replace(target, name="warm", prompt=prompt[:800], step=0)
    early = Arrival("early", tuple(reversed(prompt)), SamplingParams(max_tokens=2, temperature=0))
    options = EngineOptions(page_size=16, pages=400, token_budget=1024)
    alone = serve_alone(Workload((target,)))
    in_chunks = serve(Workload((target,)), options)
    beside = serve(Workload((early, target)), replace(options, prefix_caching=False))
    after_hit = serve(Workload((warm, target)), options)
    for run in (in_chunks, beside, after_hit):
        assert alone["target"].views()["target"] == run.views()["target"]
    assert [1024, 476, 1] == [count for _, count, _ in in_chunks.schedule("target")]
    assert [548, 952, 1] == [count for _, count, _ in beside.schedule("target")]
    assert [700, 1] == [count for _, count, _ in after_hit.schedule("target")]


@settings(max_examples=30)
@given(budgets=st.integers(1, 17), length=st.integers(1, 33), neighbours=st.integers(0, 3), seed=st.integers(0, 99))
def test_random_cut_points(budgets: int, length: int, neighbours: int, seed: int) -> None:
    """Chunks of any length, not aligned with pages, cut by whatever earlier neighbours leave of the budget."""
    random = Random(seed)
    others = tuple(
        Arrival(
            f"n{i}", tuple(random.randrange(11) for _ in range(random.randrange(1, 20))), SEEDED, random.randrange(3)
        )
        for i in range(neighbours)
    )
    target = Arrival("target", tuple(random.randrange(11) for _ in range(length)), GREEDY, step=2)
    workload = Workload((*others, target))
    company = serve(workload, EngineOptions(page_size=4, pages=60, token_budget=budgets))
    assert_same(company, serve_alone(workload))


def test_every_hit_length_is_the_same() -> None:
    """With one slot to a page, a prompt of L tokens is served after hits of 0, 1, ... L - 1 tokens: always the same."""
    prompt = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2)
    target = Arrival("target", prompt, SEEDED, step=30)
    expected = serve_alone(Workload((target,)))["target"].views()["target"]
    for hits in range(len(prompt)):
        warm = Arrival("warm", (*prompt[:hits], 0, 0), GREEDY)
        run = serve(Workload((warm, target)), EngineOptions(page_size=1, pages=60))
        assert hits == run.outputs["target"].hit_tokens
        assert expected == run.views()["target"]


@pytest.mark.parametrize("length", [7, 8, 9, 16, 17])
def test_prompts_around_the_budget(length: int) -> None:
    """Prompts of C - 1, C, C + 1, 2C and 2C + 1 tokens at a budget of C = 8 are served, and the same."""
    workload = Workload((Arrival("r", tuple(i % 11 for i in range(length)), GREEDY),))
    run = serve(workload, EngineOptions(page_size=4, pages=20, token_budget=8))
    assert_same(run, serve_alone(workload))
    assert -(-length // 8) - 1 + 8 == run.engine.steps


class Tied(HashingBackend):
    """Logits of two values, so that every row has ties."""

    def _logits(self, read: bytes, *, sick: bool) -> np.ndarray:
        return np.sign(super()._logits(read, sick=sick))


def test_ties_fall_to_the_lowest_token() -> None:
    """Where the best tokens tie exactly, greedy takes the lowest identifier, in any company, chunk and hit."""
    backend = Tied()
    shared = (1, 2, 3, 4, 5)
    arrivals = tuple(Arrival(f"r{i}", (*shared, i), GREEDY if i % 2 else SEEDED, step=i) for i in range(6))
    workload = Workload(arrivals)
    company = serve(workload, EngineOptions(page_size=2, pages=40, token_budget=3), backend)
    alone = serve_alone(workload, backend)
    assert_same(company, alone)
    engine = Engine(backend, REFERENCE)
    engine.add_request(shared, SamplingParams(max_tokens=1, temperature=0, logprobs=11))
    (output,) = engine.step()
    best = [token for token, logprob in output.logprobs[0].top if logprob == output.logprobs[0].top[0][1]]
    assert len(best) > 1
    assert min(best) == output.token_ids[0]
