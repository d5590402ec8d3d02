"""Everything that is explored, one after the other or in several processes, and what it comes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from vosti.proofs.explore import Effect, Exploration, Guard, explore
from vosti.proofs.explore_bounds import DEFAULT, SMALL, Bounds
from vosti.proofs.explore_counterexample import Counterexample
from vosti.proofs.explore_engine import EngineBounds
from vosti.proofs.explore_progress import ENGINES, EngineExploration, explore_progress
from vosti.proofs.explore_views import Views
from vosti.spec import step


@dataclass(frozen=True)
class Report:
    """What was explored within several bounds."""

    explorations: tuple[Exploration, ...]
    """Of the specification."""

    engines: tuple[EngineExploration, ...]
    """Of the engine's control plane."""

    views: Counterexample | None
    """A contradiction to Definition 2.1 between runs within different bounds."""

    @property
    def _all(self) -> tuple[Exploration | EngineExploration, ...]:
        return (*self.explorations, *self.engines)

    @property
    def states(self) -> int:
        """Distinct states of the specification, over all bounds."""
        return sum(exploration.states for exploration in self.explorations)

    @property
    def transitions(self) -> int:
        """Actions of the specification that were taken, over all bounds."""
        return sum(exploration.transitions for exploration in self.explorations)

    @property
    def exhausted(self) -> bool:
        """Whether nothing within the bounds was left out."""
        return all(exploration.exhausted for exploration in self._all)

    @property
    def counterexamples(self) -> tuple[Counterexample, ...]:
        """Everything that was found."""
        found = [exploration.counterexample for exploration in self._all]
        return tuple(counterexample for counterexample in (*found, self.views) if counterexample is not None)

    def __str__(self) -> str:
        """A line for each exploration, the sums, and what was found."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield from map(str, self.explorations)
        yield f"the specification: {self.states:,} distinct states, {self.transitions:,} transitions"
        yield from map(str, self.engines)
        states = sum(exploration.states for exploration in self.engines)
        steps = sum(exploration.transitions for exploration in self.engines)
        yield f"the engine's planner: {states:,} distinct states, {steps:,} steps"
        if self.views is not None:
            yield str(self.views)


def explore_all(
    bounds: Sequence[Bounds] = DEFAULT,
    engines: Sequence[EngineBounds] = ENGINES,
    jobs: int = 1,
    done: Callable[[Exploration | EngineExploration], None] | None = None,
) -> Report:
    """Explore within each of some bounds, and compare the views of all of them.

    Args:
        bounds: of the specification.
        engines: of the engine's planner.
        jobs: how many processes share the work.
        done: called with each exploration when it, and those before it, have ended.
    """
    explorations: list[Exploration] = []
    planned: list[EngineExploration] = []
    together, contradiction = Views(), None
    for exploration in _explored([*bounds, *engines], jobs):
        if isinstance(exploration, Exploration):
            explorations.append(exploration)
        else:
            planned.append(exploration)
        contradiction = contradiction or together.merge(exploration.views)
        if done is not None:
            done(exploration)
    return Report(tuple(explorations), tuple(planned), contradiction)


def refute(
    guard: Guard = step.guard, effect: Effect = step.effect, bounds: Sequence[Bounds] = SMALL
) -> Counterexample | None:
    """A run that shows what is wrong with some guards and effects; None if there is none within any of the bounds."""
    explorations = (explore(within, guard, effect) for within in bounds)
    return next((found.counterexample for found in explorations if found.counterexample is not None), None)


def _explored(bounds: Sequence[Bounds | EngineBounds], jobs: int) -> Iterator[Exploration | EngineExploration]:
    if jobs == 1:
        yield from map(_explore, bounds)
    else:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as processes:
            yield from processes.map(_explore, bounds)


def _explore(bounds: Bounds | EngineBounds) -> Exploration | EngineExploration:
    return explore(bounds) if isinstance(bounds, Bounds) else explore_progress(bounds)
