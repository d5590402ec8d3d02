"""Each request alone equals its run in company, bit for bit, on a backend in which whatever goes wrong changes bits."""

import inspect
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from company import (
    Arrival,
    Run,
    Workload,
    assert_at_rest,
    assert_same,
    differing,
    random_options,
    random_workload,
    serve,
    serve_alone,
    with_drafts,
)
from hashing_backend import HashingBackend
from vosti.impl.backend import Batch, ForwardResult
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.impl.pool_state import KEY_SPACE
from vosti.spec.events import ForwardEvent, SettleEvent
from vosti.spec.step import Emit, Fail, Finish

GREEDY = SamplingParams(max_tokens=8, temperature=0)
SEEDED = SamplingParams(max_tokens=8, temperature=0.9, seed=7)


def healthy() -> HashingBackend:
    """Every value is finite."""
    return HashingBackend()


def sickly() -> HashingBackend:
    """Token 10 makes its KV non-finite, token 9 the logits after it."""
    return HashingBackend(sick_tokens=frozenset({10}), sick_endings=frozenset({9}))


# ---------------------------------------------------------------- random schedules


@pytest.mark.parametrize("page_size", [1, 2, 4, 16, 64])
def test_alone_equals_company(page_size: int) -> None:
    """Whatever the page size, the limits, the pool, the hash, drafts, cancellations, domains and sick neighbours are,
    each request gets the records that it gets alone, and nearly every schedule differs from the one alone.
    """
    counts, different, requests = Counter[str](), 0, 0
    for seed in range(10):
        random = Random(100 * seed + page_size)
        make = sickly if seed % 3 == 2 else healthy
        workload = random_workload(random)
        alone = serve_alone(workload, make())
        workload = with_drafts(workload, alone, random)
        options = random_options(random, workload, page_size)
        company = serve(workload, options, make(), key_space=random.choice((1, 2, KEY_SPACE)))
        assert_same(company, alone)
        assert_at_rest(company)
        counts += company.counts()
        different += differing(company, alone)
        requests += len(alone)
    assert different >= 0.9 * requests
    expected = {"Admit", "Propose", "Allocate", "Emit", "Retract", "Finish", "Cancel", "Fail"}
    expected |= {"Publish", "Attach", "Evict", "Preempt"} if page_size <= 16 else set()
    assert set() == expected - set(counts)


def test_a_schedule_repeats_itself() -> None:
    """Two runs of one schedule show the same events, to the last bit: nothing depends on time, memory or hash seeds."""
    for seed in range(4):
        random = Random(seed)
        workload = random_workload(random)
        options = random_options(random, workload, 4)
        first, second = serve(workload, options), serve(workload, options)
        assert first.events == second.events


FINGERPRINT = """
from hashlib import sha256
from random import Random
from company import random_options, random_workload, serve

random = Random(8)
workload = random_workload(random)
run = serve(workload, random_options(random, workload, 2))
print(sha256(repr((run.actions(), run.forwards(), run.views())).encode()).hexdigest())
"""


def test_another_process_repeats_the_schedule() -> None:
    """Processes whose hashes of strings differ take the same actions, on the same pages, and emit the same records."""
    support = str(Path(inspect.getfile(Workload)).parent)
    shown = {
        subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            env={**os.environ, "PYTHONPATH": support, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert 1 == len(shown)
    assert 65 == len(shown.pop())


@settings(max_examples=40)
@given(
    prompts=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=5),
    steps=st.lists(st.integers(0, 6), min_size=5, max_size=5),
    page_size=st.sampled_from((1, 2, 4)),
    spare=st.integers(0, 4),
    budget=st.integers(1, 9),
    max_seqs=st.integers(1, 4),
    key_space=st.sampled_from((1, 2, KEY_SPACE)),
)
def test_alone_equals_company_in_small(
    prompts: list[list[int]],
    steps: list[int],
    page_size: int,
    spare: int,
    budget: int,
    max_seqs: int,
    key_space: int,
) -> None:
    """The same on three tokens and short prompts, where every page has been seen before."""
    workload = Workload(
        tuple(
            Arrival(f"r{i}", tuple(prompt), GREEDY if i % 2 else SEEDED, step)
            for i, (prompt, step) in enumerate(zip(prompts, steps, strict=False))
        )
    )
    backend = HashingBackend(vocab_size=3)
    options = EngineOptions(
        page_size=page_size, pages=workload.pages(page_size) + spare, token_budget=budget, max_seqs=max_seqs
    )
    company = serve(workload, options, backend, key_space=key_space)
    assert_same(company, serve_alone(workload, backend))
    assert_at_rest(company)


class PlaceDependent(HashingBackend):
    """A fault: a row's logits depend on its place in the batch, in the last bit."""

    def forward(self, batch: Batch) -> ForwardResult:
        """As it should be, and then a bit more for every row but the first."""
        result = super().forward(batch)
        place = torch.from_numpy(batch.logit_rows).unsqueeze(1) > 0
        return replace(
            result, logits=torch.where(place, torch.nextafter(result.logits, torch.tensor(9.0)), result.logits)
        )


class NeighbourDependent(HashingBackend):
    """A fault: a row's KV depends on how many rows the forward has."""

    def forward(self, batch: Batch) -> ForwardResult:
        """Mark the values written in company."""
        result = super().forward(batch)
        if len(batch.tables) > 1:
            for slot in batch.write_slots[batch.write_slots >= 0].tolist():
                self.slots[slot] = b"company" + self.slots[slot][:9]
        return result


@pytest.mark.parametrize("faulty", [PlaceDependent, NeighbourDependent])
def test_company_that_shows_is_noticed(faulty: type[HashingBackend]) -> None:
    """The comparison fails for a backend whose values depend on place or company."""
    workload = Workload(tuple(Arrival(f"r{i}", (i, 1, 2, 3), GREEDY) for i in range(3)))
    company = serve(workload, EngineOptions(page_size=4, pages=40), faulty())
    with pytest.raises(AssertionError):
        assert_same(company, serve_alone(workload, faulty()))


# ---------------------------------------------------------------- sick neighbours


def test_a_sick_request_fails_alone() -> None:
    """A value that is not finite ends its own request with an error, publishes none of its values, and leaves the
    neighbours, who share its first pages and its forwards, as they are.
    """
    shared = (1, 2, 3, 4, 5, 6, 7, 8)
    arrivals = (
        Arrival("sick", (*shared, 10, 3), GREEDY),
        Arrival("before", (*shared, 1), GREEDY),
        Arrival("after", (*shared, 10, 4), SEEDED, step=3),
        Arrival("well", shared[:5], SEEDED, step=1),
    )
    workload = Workload(arrivals)
    company = serve(workload, EngineOptions(page_size=2, pages=40, token_budget=5), sickly())
    alone = serve_alone(workload, sickly())
    assert_same(company, alone)
    assert ["error", "error"] == [company.outputs[name].finish_reason for name in ("sick", "after")]
    assert company.views()["well"]
    assert company.outputs["after"].hit_tokens == 8
    published = {
        page.tokens
        for event in company.events
        if isinstance(event, SettleEvent)
        for page in event.after.pages.values()
        if page.registered
    }
    assert all(10 not in tokens for tokens in published)


def test_sick_logits_end_one_view() -> None:
    """A row of logits that is not finite fails its request after the tokens that it got before."""
    backend = HashingBackend(sick_endings=frozenset({9}))
    arrivals = tuple(Arrival(f"r{i}", (i, i + 1), SamplingParams(max_tokens=20, seed=i)) for i in range(8))
    workload = Workload(arrivals)
    company = serve(workload, EngineOptions(page_size=4, pages=60), backend)
    assert_same(company, serve_alone(workload, backend))
    for output in company.outputs.values():
        ended_sick = output.token_ids[-1:] == (9,) and output.finish_reason == "error"
        assert ended_sick or (9 not in output.token_ids and output.finish_reason == "length")
    reasons = Counter(output.finish_reason for output in company.outputs.values())
    assert {"error", "length"} == set(reasons)


# ---------------------------------------------------------------- padding


@pytest.mark.parametrize("row_tile", [1, 4, 8, 112])
def test_padding_is_inert(row_tile: int) -> None:
    """Five live rows in a bucket of 8, or a hundred in 112: padding rows write and read nothing, though the pool's last
    slot is in use, and live rows are the same in every bucket.
    """
    arrivals = tuple(Arrival(f"r{i}", tuple((i + j) % 11 for j in range(20)), GREEDY) for i in range(5))
    workload = Workload(arrivals)
    page_size = 9
    options = EngineOptions(page_size=page_size, pages=5 * workload.pages(page_size), token_budget=100)
    run = serve(workload, options, HashingBackend(row_tile=row_tile))
    assert_same(run, serve_alone(workload, HashingBackend(row_tile=1)))
    padding = written = 0
    for event in run.events:
        if isinstance(event, ForwardEvent):
            assert 0 == len(event.rows) % row_tile
            for row in event.rows:
                if row.request is None:
                    padding += 1
                    assert (0, 0, None, (), 0, False) == (
                        row.token,
                        row.position,
                        row.write,
                        row.table,
                        row.readable,
                        row.logits,
                    )
                written += row.write == (options.pages - 1, 0)
    assert written > 0
    assert (padding > 0) == (row_tile > 1)


# ---------------------------------------------------------------- what a step returns


def test_outputs_are_what_was_emitted() -> None:
    """Returned tokens and rows are those of the emits, and a request's last output says why it ended."""
    random = Random(3)
    workload = random_workload(random)
    run = serve(workload, random_options(random, workload, 4))
    emitted: dict[str, tuple[tuple[object, int], ...]] = {arrival.name: () for arrival in workload.arrivals}
    for action in run.actions():
        if isinstance(action, Emit):
            emitted[action.request] += ((action.record.logits, action.record.token),)
    assert emitted == run.views()
    ended = {a.request for a in run.actions() if isinstance(a, Finish | Fail)}
    for name, output in run.outputs.items():
        assert (output.finish_reason in ("stop", "length", "error")) == (name in ended)
        assert output.token_ids == tuple(token for _, token in emitted[name])


def test_a_run_of_one_forward_has_the_views_of_many() -> None:
    """Budget, number of sequences and page seed change the schedule of every request and no bit of its records."""
    workload = random_workload(Random(11), requests=6)
    workload = replace(workload, cancels=())
    wide = serve(workload, EngineOptions(page_size=16, pages=100, token_budget=500, max_seqs=64))
    runs: list[Run] = [
        serve(workload, EngineOptions(page_size=4, pages=workload.pages(4), token_budget=3, max_seqs=2, page_seed=5)),
        serve(workload, EngineOptions(page_size=1, pages=300, token_budget=1, max_seqs=1, prefix_caching=False)),
    ]
    for run in runs:
        assert wide.views() == run.views()
        assert all(wide.schedule(name) != run.schedule(name) for name in wide.outputs)
