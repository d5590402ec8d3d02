"""Digests of either algorithm: each trace is judged by its own, and none is compared with one of the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch

from checked import header_of
from company import Arrival, Workload, drive
from event_streams import Stream, stream
from event_walk import Habits
from hashing_backend import HashingBackend
from vosti.impl.backend import Digests
from vosti.impl.backends.host_digests import row_bytes
from vosti.impl.engine import Engine
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.refinement.audit import audit
from vosti.refinement.errors import DigestsDiffer
from vosti.refinement.writer import TraceWriter
from vosti.spec.digests import SHA256, WORD_SUM, word_sum

OPTIONS = EngineOptions(page_size=2, pages=12, token_budget=8)


class Summing(HashingBackend):
    """A backend that digests by word sums."""

    digest_algorithm = WORD_SUM.name

    def slot_digests(self, slots: Sequence[int]) -> Digests:
        """Of what the slots hold now; computed when asked for."""
        held = self.slot_bytes(slots)
        return lambda: [word_sum(bits) for bits in held]

    def row_digests(self, logits: torch.Tensor) -> Digests:
        """Of the rows' bits."""
        return lambda: [word_sum(bits) for bits in row_bytes(logits)]


def digested(run: Stream, algorithm: str) -> Stream:
    """The run, as if its digests had been made by the algorithm."""
    return replace(run, header=msgspec.structs.replace(run.header, digest=algorithm))


def recorded(path: Path, backend: HashingBackend, *, full: bool, algorithm: str | None = None) -> Path:
    """The trace of a run of the engine; `algorithm` is what its header says, if that is another."""
    header = header_of(backend, OPTIONS, full=full)
    header = msgspec.structs.replace(header, digest=algorithm or header.digest)
    params = SamplingParams(max_tokens=6, temperature=0.8, seed=3)
    workload = Workload(tuple(Arrival(f"r{i}", (1, 2, i), params) for i in range(3)))
    with TraceWriter(path, header) as tracer:
        drive(Engine(backend, OPTIONS, tracer=tracer, full=full), workload)
    return path


@pytest.mark.parametrize("full", [False, True])
def test_traces_of_word_sums_are_audited(tmp_path: Path, full: bool) -> None:
    """Digests that come late are those of the moment they were begun, and in mode full they are of the bits."""
    verdict = audit([recorded(tmp_path / "trace", Summing(), full=full)])

    assert verdict.refines
    assert verdict.records == 18
    assert any(WORD_SUM.description in sentence for sentence in verdict.assumed)


@pytest.mark.parametrize(("backend", "name"), [(Summing(), SHA256.name), (HashingBackend(), WORD_SUM.name)])
def test_bits_with_digests_of_another_algorithm_are_refuted(tmp_path: Path, backend: HashingBackend, name: str) -> None:
    """A header that names the wrong algorithm is found by the bits of mode full."""
    (violation,) = audit([recorded(tmp_path / "trace", backend, full=True, algorithm=name)]).violations

    assert "values_have_their_digest" == violation.check


def test_digests_of_two_algorithms_are_not_compared(tmp_path: Path) -> None:
    """Of one configuration that is an error, before anything is checked, and no violation; alone, each is judged."""
    run = stream(1, 10, Habits(pages=9, alphabet=2, seeds=1))
    first, second = tmp_path / "first", tmp_path / "second"
    digested(run, SHA256.name).write(first)
    digested(run, WORD_SUM.name).write(second)

    assert audit([first]).refines
    assert audit([second]).refines
    with pytest.raises(DigestsDiffer, match=r"first has digests made by sha256-128, and .*second.* wordsum-128"):
        audit([first, second])


def test_digests_of_two_configurations_may_differ(tmp_path: Path) -> None:
    """What is never compared need not be comparable."""
    run = stream(1, 10, Habits(pages=9, alphabet=2, seeds=1))
    first = tmp_path / "first"
    digested(run, WORD_SUM.name).write(first)
    second = recorded(tmp_path / "second", HashingBackend(), full=False)
    verdict = audit([first, second])

    assert verdict.refines
    assert all(any(one.description in sentence for sentence in verdict.assumed) for one in (SHA256, WORD_SUM))
