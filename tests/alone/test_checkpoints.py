"""The bundled checkpoints on the CPU: each request alone equals its run in company, bit for bit.

Compared are the digests of logits and KV, tokens, log-probabilities and ends; and the two schedules really differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from company import Arrival, Recorder, Run, Workload, assert_at_rest, assert_same, differing, drive, serve, serve_alone
from engine_faults.edits import applied
from engine_faults.in_forward import FAULTS
from vosti.impl.backends.cpu import CpuBackend
from vosti.impl.bundled import BUNDLED, find_checkpoint
from vosti.impl.drafting import PromptLookup, Script
from vosti.impl.engine import Engine
from vosti.impl.models.model import Model
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.impl.tokenizer import Tokenizer
from vosti.spec.state import Token

ALONE = EngineOptions(
    page_size=7, pages=40, max_seqs=1, token_budget=256, prefix_caching=False, poison=True, page_seed=9
)
"""One request at a time, its prompt in one chunk, on pages of an odd size, in a pool full of NaN."""


@cache
def backend_of(checkpoint: str) -> CpuBackend:
    """The checkpoint, loaded once; each engine makes its pool anew."""
    return CpuBackend(Model.load(find_checkpoint(checkpoint)))


@cache
def workload_of(checkpoint: str) -> Workload:
    """Prompts around the row tile (16) and the sliding window (64), most of which begin alike; one is called off."""
    random = Random(3)
    vocab_size = backend_of(checkpoint).vocab_size
    text = Tokenizer(find_checkpoint(checkpoint)).encode("class Reader:\n    def read(self, n=-1):\n        return ")
    base = (*text, *(random.randrange(vocab_size) for _ in range(80)))
    arrivals = []
    for i, length in enumerate((1, 15, 16, 17, 63, 64, 65, 80)):
        own = tuple(random.randrange(vocab_size) for _ in range(min(length, 3)))
        params = SamplingParams(
            max_tokens=6 + i % 3,
            temperature=0.8 * (i % 2),
            seed=i,
            ignore_eos=i % 2 == 0,
            logprobs=i % 3 or None,
        )
        domain = "other" if i == 6 else ""
        arrivals.append(Arrival(f"r{i}", base[: length - len(own)] + own, params, step=i // 2, domain=domain))
    return Workload(tuple(arrivals), cancels=((6, "r5"),))


@cache
def alone_runs(checkpoint: str) -> Mapping[str, Run]:
    """Each request of the workload on an engine of its own."""
    return serve_alone(workload_of(checkpoint), backend_of(checkpoint), ALONE)


@cache
def scripts_of(checkpoint: str) -> Mapping[str, Script]:
    """Drafts for half of the requests, wrong sooner or later."""
    return {
        name: Script(tuple(map(Token, run.outputs[name].token_ids)), 2 + i % 3, (3, 1, 2, 0)[i // 2])
        for i, (name, run) in enumerate(alone_runs(checkpoint).items())
        if i % 2 == 0
    }


COMPANIES = [
    EngineOptions(page_size=1, pages=100, max_seqs=4, token_budget=40, page_seed=2),
    EngineOptions(page_size=2, pages=60, max_seqs=8, token_budget=64, poison=True, page_seed=1),
    EngineOptions(page_size=4, pages=24, max_seqs=5, token_budget=31, reread=True),
    EngineOptions(page_size=16, pages=8, max_seqs=8, token_budget=128, poison=True),
    EngineOptions(page_size=64, pages=9, max_seqs=3, token_budget=16, page_seed=3),
]


@pytest.mark.parametrize("options", COMPANIES, ids=lambda options: f"page-size-{options.page_size}")
@pytest.mark.parametrize("checkpoint", BUNDLED)
def test_alone_equals_company(checkpoint: str, options: EngineOptions) -> None:
    """Under every page size, budget and number of sequences, shared, chunked, preempted, drafted: the bits of the runs
    alone, though no request has the schedule that it has alone.
    """
    workload = replace(workload_of(checkpoint), scripts=scripts_of(checkpoint))
    company = serve(workload, options, backend_of(checkpoint))
    alone = alone_runs(checkpoint)
    assert_same(company, alone)
    assert_at_rest(company)
    assert len(alone) == differing(company, alone)
    counts = company.counts()
    assert {"Retract", "Propose", "Cancel"} <= set(counts)
    if options.page_size <= 16:
        assert {"Attach", "Evict", "Preempt"} <= set(counts)


@pytest.mark.parametrize("checkpoint", BUNDLED)
def test_alone_equals_alone(checkpoint: str) -> None:
    """Alone, too, page size and budget change the schedule and no bit: chunks end anywhere, within pages and tiles."""
    workload, alone = workload_of(checkpoint), alone_runs(checkpoint)
    for name, options in (
        ("r3", EngineOptions(page_size=1, pages=30, token_budget=5, page_seed=4)),
        ("r4", EngineOptions(page_size=64, pages=3, token_budget=17)),
        ("r7", EngineOptions(page_size=16, pages=8, token_budget=33, poison=True)),
        ("r7", EngineOptions(page_size=5, pages=20, token_budget=64, page_seed=1)),
    ):
        run = serve(workload.only(name), options, backend_of(checkpoint))
        assert_same(run, {name: alone[name]})
        assert alone[name].schedule(name) != run.schedule(name)


def looked_up(backend: CpuBackend, workload: Workload, length: int) -> Run:
    """A recorded run with drafts from the history."""
    recorder = Recorder()
    options = EngineOptions(page_size=16, pages=40, token_budget=64)
    engine = Engine(backend, options, drafter=PromptLookup(length, longest=5, shortest=2), tracer=recorder)
    outputs = drive(engine, workload)
    return Run(engine=engine, events=tuple(recorder.events), outputs=outputs)


@pytest.mark.parametrize("length", [1, 2, 4, 15])
@pytest.mark.parametrize("checkpoint", BUNDLED)
def test_verifying_drafts_changes_no_bit(checkpoint: str, length: int) -> None:
    """Hazard: the rows of a draft, computed together, differ from one-row decoding. One word repeated 48 times, 32 new
    tokens, greedy, drafts of up to k tokens looked up in the history: the bits of a run without drafts.
    """
    word = Tokenizer(find_checkpoint(checkpoint)).encode(" self")[-1]
    workload = Workload((Arrival("r", (word,) * 48, SamplingParams(max_tokens=32, temperature=0, ignore_eos=True)),))
    backend = backend_of(checkpoint)
    drafted = looked_up(backend, workload, length)
    plain = without_drafts(checkpoint, word)
    assert_same(drafted, {"r": plain})
    assert drafted.counts()["Propose"] > 0
    assert drafted.schedule("r") != plain.schedule("r")


@cache
def without_drafts(checkpoint: str, word: int) -> Run:
    """The run that drafts are compared with."""
    workload = Workload((Arrival("r", (word,) * 48, SamplingParams(max_tokens=32, temperature=0, ignore_eos=True)),))
    return serve(workload, ALONE, backend_of(checkpoint))


def test_a_fault_of_the_arithmetic_is_noticed() -> None:
    """With matrix products as high as the batch, company differs from alone, and the comparison says so."""
    (seeded,) = [one for one in FAULTS if one.name == "linear that depends on the batch"]
    checkpoint = BUNDLED[0]
    alone = alone_runs(checkpoint)
    with applied(seeded):
        company = serve(workload_of(checkpoint), COMPANIES[1], backend_of(checkpoint))
    with pytest.raises(AssertionError):
        assert_same(company, alone)
