"""Candidates of tensors are the specification's; an engine shows them, and an audit draws its tokens from them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import pytest
import torch
from hypothesis import given

from checked import header_of
from company import drive, random_options, random_workload
from hashing_backend import HashingBackend
from hostile_rows import HOSTILE_ROWS, STATES
from sampling_rows import rows, states
from vosti.impl.engine import Engine
from vosti.impl.sampling import candidates_of
from vosti.refinement.audit import audit
from vosti.refinement.reader import TraceReader
from vosti.refinement.writer import TraceWriter
from vosti.spec.candidates import candidates, drawn
from vosti.spec.events import SettleEvent
from vosti.spec.sampling import SamplerState
from vosti.spec.step import Emit


@given(row=rows, state=states)
def test_tensors_have_the_specification_s_candidates(row: list[float], state: SamplerState) -> None:
    """For any row and any sampler state."""
    assert candidates(row, state) == candidates_of(torch.tensor(row, dtype=torch.float32), state)


@pytest.mark.parametrize("name", HOSTILE_ROWS)
def test_hostile_rows(name: str) -> None:
    """And for awkward ones: ties, infinities, zeros of both signs, neighbours in the last bit."""
    row = HOSTILE_ROWS[name]
    for state in STATES:
        assert candidates(row, state) == candidates_of(torch.tensor(row, dtype=torch.float32), state)


@pytest.mark.parametrize("seed", range(3))
def test_a_run_shows_what_its_tokens_are_drawn_from(seed: int, tmp_path: Path) -> None:
    """Each emit of a run in company has candidates from which its token is drawn; the trace refines."""
    random = Random(seed)
    workload = random_workload(random)
    options = random_options(random, workload, 4)
    header = msgspec.structs.replace(header_of(HashingBackend(), options), mode="candidates")
    with TraceWriter(tmp_path / "trace", header) as tracer:
        drive(Engine(HashingBackend(), options, tracer=tracer, candidates=True), workload)
    emits = 0
    with TraceReader(tmp_path / "trace") as reader:
        for event in reader:
            if isinstance(event, SettleEvent):
                emitted = [action for action in event.actions if isinstance(action, Emit)]
                assert len(emitted) == len(event.candidates)
                for emit, found in zip(emitted, event.candidates, strict=True):
                    assert isinstance(emit.sampler, SamplerState)
                    before = SamplerState(*(getattr(emit.sampler, name) for name in PARAMETERS), emit.sampler.index - 1)
                    assert emit.record.token == drawn(found, before)
                emits += len(emitted)
    verdict = audit([tmp_path / "trace"])
    assert verdict.refines, verdict
    assert emits == verdict.records > 0
    assert any(sentence.startswith("In mode candidates") for sentence in verdict.assumed)
    assert not any(sentence.startswith("In mode digest") for sentence in verdict.assumed)


PARAMETERS = ("temperature", "top_k", "top_p", "min_p", "seed")
