"""While another process has its turn, an engine keeps no memory: no weights and no pool."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from vosti.impl.backends.cpu import CpuBackend
from vosti.impl.bundled import find_checkpoint
from vosti.impl.determinism import cases, paper
from vosti.impl.determinism.axes import Stage
from vosti.impl.determinism.backends import Backends, Loaded
from vosti.impl.determinism.cases import Bench, Case
from vosti.impl.determinism.errors import ResultsError
from vosti.impl.determinism.prompts import geometry_for, read_vocabulary
from vosti.impl.determinism.protocol import Answer, Ask, Settings
from vosti.impl.determinism.results import compare
from vosti.impl.determinism.suites import EXTENDED
from vosti.impl.determinism.vosti_engine import VostiSubject
from vosti.impl.models.model import Model

PATH = find_checkpoint("tiny-llama3")

SIZES = replace(paper.QUICK, batch_lengths=(33, 257, 65, 127), group_sizes=(2,), fresh=(0, 3))

ASK = Ask("asked", (1, 5, 9))

SETTINGS = Settings(token_budget=8, max_seqs=1, page_size=4, pages=8)


class Counted:
    """The engine of a checkpoint, and what of its memory lives: numbers of weights, and backends with their pools."""

    def __init__(self) -> None:
        self.loads = 0
        self.memory: list[weakref.ref[Any]] = []
        self.at_start: list[tuple[int, int]] = []
        """Whenever a fresh process would start: how often it was loaded, and how much of it lives."""

        self.loaded = Loaded(self._load)
        vocabulary = read_vocabulary(PATH, self.loaded.backends.model.config.vocab_size)
        self.subject = VostiSubject(self.loaded.open, vocabulary, fresh=["another"], release=self.loaded.release)

    def _load(self) -> Backends:
        self.loads += 1
        model = Model.load(PATH)
        # A tensor that was made of an array keeps it until nothing views its numbers any more.
        arrays = {name: parameter.numpy().copy() for name, parameter in model.parameters.items()}
        self.memory += map(weakref.ref, arrays.values())
        ours = replace(model, parameters={name: torch.from_numpy(array) for name, array in arrays.items()})

        def opened(settings: Settings) -> CpuBackend:
            backend = CpuBackend(ours)
            self.memory.append(weakref.ref(backend))
            return backend

        return Backends(ours, opened)

    @property
    def living(self) -> int:
        """How many weights and backends are not gone."""
        return sum(reference() is not None for reference in self.memory)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    """An engine; another one answers in the place of fresh processes."""
    engine, other = Counted(), Counted()

    def serve(words: object, settings: Settings, asks: Sequence[Ask], w: object, *, cold: bool = False) -> list[Answer]:
        engine.at_start.append((engine.loads, engine.living))
        with other.subject.open(settings) as arm:
            return [answer for ask in asks for answer in arm.serve([ask])]

    monkeypatch.setattr(cases, "serve_fresh", serve)
    return engine


def states(engine: Counted, of: Sequence[Case]) -> set[str]:
    """What becomes of the pairs of some cases."""
    bench = Bench(engine.subject, geometry_for(engine.subject.context))
    return {compare(pair).state for case in of for pair in case.run(bench)}


def test_nothing_lives_when_a_fresh_process_starts(counted: Counted) -> None:
    """Not even where requests were served in company before; and several such cases need the engine only once."""
    every = paper.cases(counted.subject, geometry_for(counted.subject.context), SIZES)
    found = states(counted, [case for case in every if case.axis == "batch"])

    assert ({"match"}, [(1, 0), (1, 0)]) == (found, counted.at_start)


def test_nothing_lives_when_a_restart_begins(counted: Counted) -> None:
    """The references are there before."""
    (restart,) = (axis for axis in EXTENDED if axis.name == "restart")
    stage = Stage(counted.subject, geometry_for(counted.subject.context), quick=True)
    states(counted, [*restart.build(stage), *restart.build(stage)])

    assert [(1, 0), (1, 0)] == counted.at_start


def test_what_was_let_go_is_loaded_again() -> None:
    """When it is asked for, and gives the same bits."""
    engine = Counted()
    with engine.subject.open(SETTINGS) as arm:
        before = arm.serve([ASK])
    del arm
    engine.subject.release()
    assert (1, 0) == (engine.loads, engine.living)
    with engine.subject.open(SETTINGS) as arm:
        after = arm.serve([ASK])

    assert (2, before[0].rows) == (engine.loads, after[0].rows)


def test_an_arm_that_is_kept_is_seen() -> None:
    """It holds a backend and the weights: what the tests above look at would show it."""
    engine = Counted()
    arm = engine.subject.open(SETTINGS)
    engine.subject.release()

    assert engine.living > len(Model.load(PATH).plan.launches) // 2
    assert 2 == len(arm.serve([ASK])[0].rows)


def test_another_configuration_is_refused() -> None:
    """What is loaded again must be what was let go."""
    engine = Counted()
    engine.subject.release()
    load = engine.loaded._load

    def edited() -> Backends:
        found = load()
        return replace(found, open=lambda settings: CpuBackend(replace(found.model, weights_identity="others")))

    engine.loaded._load = edited  # type: ignore[method-assign]
    with pytest.raises(ResultsError, match="another W"):
        engine.subject.open(SETTINGS)
