"""Sweeps over sizes at which serving systems have been seen to go wrong: page sizes, lengths, numbers of requests.

Shorter sweeps stand beside what they are about (`test_engine_company`, `test_cpu_backend`); these are the wide ones.
"""

from __future__ import annotations

from random import Random

import pytest

from company import Arrival, Workload, assert_same, serve, serve_alone
from vosti.impl.options import EngineOptions, SamplingParams

BUDGET = 24
"""The token budget of the sweeps, in rows."""


def lengths(page_size: int) -> list[int]:
    """Prompt lengths on and beside the borders of pages and budgets, a few hundred tokens at most."""
    around = {1, page_size - 1, page_size, page_size + 1, 2 * page_size, 2 * page_size + 1, BUDGET - 1, BUDGET}
    return sorted(n for n in around | {BUDGET + 1, 2 * BUDGET, 2 * BUDGET + 1} if 1 <= n <= 520)


def arrival(name: str, rng: Random, stem: tuple[int, ...], length: int, step: int) -> Arrival:
    """A request whose prompt begins like its neighbours' as far as it is long enough."""
    shared = stem[: rng.randrange(length)] if length > 1 else ()
    own = tuple(rng.randrange(11) for _ in range(length - len(shared)))
    params = SamplingParams(max_tokens=rng.randint(1, 6), temperature=rng.choice([0.0, 0.9]), seed=rng.randrange(4))
    return Arrival(name, shared + own, params, step)


def workload(rng: Random, sizes: list[int]) -> Workload:
    """One request of each size, arriving a few at a time, some of them called off."""
    stem = tuple(rng.randrange(11) for _ in range(max(sizes)))
    arrivals = tuple(arrival(f"r{i}", rng, stem, size, i // 3) for i, size in enumerate(sizes))
    cancels = tuple((rng.randrange(8), f"r{rng.randrange(len(sizes))}") for _ in range(len(sizes) // 8))
    return Workload(arrivals, cancels)


@pytest.mark.parametrize("page_size", [1, 2, 4, 16, 64, 256])
def test_lengths_beside_every_border(page_size: int) -> None:
    """Prompts that end on a page's or a budget's border, or beside it, get what they get alone, twice over."""
    work = workload(Random(page_size), lengths(page_size))
    options = EngineOptions(page_size=page_size, pages=work.pages(page_size) + 2, token_budget=BUDGET, max_seqs=8)
    once, again = serve(work, options), serve(work, options)

    assert once.events == again.events
    assert_same(once, serve_alone(work))


@pytest.mark.parametrize("requests", [1, 2, 7, 8, 9, 15, 16, 17, 32, 44, 45])
@pytest.mark.parametrize("page_size", [4, 16])
def test_any_number_of_requests(requests: int, page_size: int) -> None:
    """However many requests there are at once, each gets what it gets alone; and they were in one forward."""
    rng = Random(requests)
    work = workload(rng, [rng.randint(1, 40) for _ in range(requests)])
    options = EngineOptions(
        page_size=page_size, pages=max(work.pages(page_size), 200 // page_size), token_budget=64, max_seqs=64
    )
    run = serve(work, options)

    assert_same(run, serve_alone(work))
    assert min(requests, 5) <= max(len({row.request for row in rows}) for rows in run.forwards())
