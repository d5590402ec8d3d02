"""Exhaustive exploration of the specification within small bounds: every reachable state, under every interleaving of
enabled actions.

The proofs speak of all states and may rest on a mistake in the translation to logic. This runs the specification's own
functions as they stand, in worlds so small that nothing is left out: two or three requests, three or four pages, one or
two slots a page, drafts, cancellations, failures and preemptions at any moment. Checked are

- Inv in every state, which is to say after every action;
- Theorem 4.1 at every emit and observe: the logits are Forward(W, history);
- Definition 2.1 over all runs at once, through one map from (prompt, initial sampler state, index) to a record;
- that no guard and no effect raises.

The search goes breadth first, so a counterexample is a shortest one. States that are the same up to names are explored
once (`vosti.proofs.explore_canonical`); of those that were met, a digest of 128 bits is kept.

A guard or an effect may be replaced by another one, to see what it is there for: then `explore` finds the run that goes
wrong. That nobody waits for ever is no matter of the specification's actions, which may happen or not, but of the
engine's choice among them: `vosti.proofs.explore_progress`.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vosti.proofs.explore_bounds import Bounds, candidates
from vosti.proofs.explore_canonical import Canonical
from vosti.proofs.explore_counterexample import Counterexample, Run, broken_conjunct, described, name_of, raised
from vosti.proofs.explore_views import Origins, Views, Watch
from vosti.spec import step
from vosti.spec.invariants import broken
from vosti.spec.state import State
from vosti.spec.step import RULES, Action

Guard = Callable[[State, Any], bool]
Effect = Callable[[State, Any], State]
Progress = Callable[[int, int, int], None]
"""Called after each level of the search with the distinct states, the transitions and the depth so far."""


@dataclass(frozen=True)
class Exploration:
    """What was explored, and what was found."""

    bounds: Bounds
    states: int
    """Distinct states, up to names."""

    transitions: int
    """Actions that were taken: each leads to a state, most of them to one that was met before."""

    depth: int
    """Actions of the longest of the shortest runs to a state."""

    taken: Mapping[str, int]
    """How often each action was taken, by name."""

    exhausted: bool
    """Whether every state within the bounds was reached, and everything tried in it."""

    counterexample: Counterexample | None

    views: Views = field(compare=False, repr=False)
    """The records of all runs."""

    seconds: float = field(compare=False)

    def __str__(self) -> str:
        """The numbers on one line, and the counterexample."""
        extent = "exhausted" if self.exhausted else "not exhausted"
        line = (
            f"{self.bounds.name}: {self.states:,} distinct states, {self.transitions:,} transitions, "
            f"depth {self.depth}, {extent}, {self.seconds:.1f} s"
        )
        return line if self.counterexample is None else f"{line}\n{self.counterexample}"


def explore(
    bounds: Bounds,
    guard: Guard = step.guard,
    effect: Effect = step.effect,
    progress: Progress | None = None,
    *,
    most: int | None = None,
) -> Exploration:
    """Explore every state within some bounds, up to the first counterexample.

    Args:
        bounds: how far to go.
        guard: which actions may happen; by default the specification's guards.
        effect: what they do; by default the specification's effects.
        progress: see `Progress`.
        most: stop once a level of the search has led to more states than this; by default never.
    """
    began = time.perf_counter()
    search = _Search(bounds, guard, effect)
    found = next(search.findings(progress, most), None)
    return Exploration(
        bounds=bounds,
        states=len(search.parents),
        transitions=sum(search.taken.values()),
        depth=search.depth,
        taken={rule.effect.__name__: search.taken[kind] for kind, rule in RULES.items()},
        exhausted=found is None and not search.frontier,
        counterexample=found,
        views=search.watch.views,
        seconds=time.perf_counter() - began,
    )


@dataclass(frozen=True)
class _Node:
    """A state of the frontier, and what goes beside it."""

    number: int
    state: State
    origins: Origins


class _Search:
    """A search in the making."""

    def __init__(self, bounds: Bounds, guard: Guard, effect: Effect) -> None:
        self.bounds, self.guard, self.effect = bounds, guard, effect
        self.watch = Watch()
        self.taken: Counter[type] = Counter()
        self.depth = 0
        self.parents = array("q", [-1])
        """Of each state, by number, the one it was reached from."""

        self.frontier = [_Node(0, bounds.start, {})]
        self._reached_by: list[Action | None] = [None]
        self._canonical = Canonical()
        self._visited = {self._canonical.digest(bounds.start, {})}

    def findings(self, progress: Progress | None, most: int | None) -> Iterator[Counterexample]:
        """Go from level to level until there is no other; yield counterexamples on the way."""
        yield from self._inspect(self.bounds.start, lambda: Run(self.bounds.name, self.bounds.start, ()))
        while self.frontier and (most is None or len(self.parents) <= most):
            level: list[_Node] = []
            for node in self.frontier:
                yield from self._expand(node, level)
            self.frontier = level
            self.depth += bool(level)
            if progress is not None:
                progress(len(self.parents), sum(self.taken.values()), self.depth)

    def _expand(self, node: _Node, level: list[_Node]) -> Iterator[Counterexample]:
        """Try everything in a state. States that were not met before join the next level."""
        s = node.state
        for action in candidates(s, self.bounds):
            try:
                if not self.guard(s, action):
                    continue
                after = self.effect(s, action)
                found = self.watch.look(s, node.origins, action, lambda: self._run(node, action))  # noqa: B023 - called here
            except Exception as error:
                yield raised(error, name_of(action), described(action), self._run(node, action))
                continue
            self.taken[type(action)] += 1
            if found is not None:
                yield found
            if after is s:
                continue
            origins = self.watch.after(node.origins, action)
            digest = self._canonical.digest(after, origins)
            if digest in self._visited:
                continue
            self._visited.add(digest)
            yield from self._inspect(after, lambda: self._run(node, action))  # noqa: B023 - called here
            self.parents.append(node.number)
            self._reached_by.append(action)
            level.append(_Node(len(self.parents) - 1, after, origins))

    def _inspect(self, s: State, run: Callable[[], Run]) -> Iterator[Counterexample]:
        """Inv in a state."""
        try:
            failing = next(broken(s), None)
        except Exception as error:
            yield raised(error, "invariant", "the state", run())
            return
        if failing is not None:
            yield broken_conjunct(s, *failing, run())

    def _run(self, node: _Node, last: Action) -> Run:
        """The run to a state, and one action more."""
        actions, number = [last], node.number
        while number:
            action = self._reached_by[number]
            assert action is not None, "every state but the first was reached by an action"
            actions.append(action)
            number = self.parents[number]
        return Run(self.bounds.name, self.bounds.start, tuple(reversed(actions)))
