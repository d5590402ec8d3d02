"""Progress: under the engine's own planner the earliest live request reaches its next token, or its end, within
⌈remaining / token budget⌉ + 2 steps, whoever else comes, goes, or guesses. `remaining` are the positions of its history
that are not cached.

The specification's actions may happen or not; that something does happen is the engine's choice among them. So this
explores a small engine (`vosti.proofs.explore_engine`): at each step any requests arrive, any are called off, and a
drafter proposes anything for anybody, in every combination and order. Checked at every step are

- progress: of the earliest live request, from every state;
- that the step is one of the specification: each action happens in its phase, with its guard true;
- that the pool and the engine's records say what the specification's state says, by the engine's own abstraction;
- Inv, Theorem 4.1, Definition 2.1, and that nothing raises, as in `vosti.proofs.explore`.

A planner may be replaced by another one, to see what this one's rules are there for.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from vosti.impl.planning import plan_step
from vosti.impl.pool_state import Pool, empty
from vosti.impl.settling import LiveRecord
from vosti.proofs.explore import Progress
from vosti.proofs.explore_bounds import tokens
from vosti.proofs.explore_canonical import Canonical
from vosti.proofs.explore_counterexample import PROGRESS, Counterexample, Run, broken_conjunct, raised
from vosti.proofs.explore_engine import Effect, EngineBounds, EngineStep, Found, Guard, Job, Outside, Planner, outside
from vosti.proofs.explore_views import Origins, Views, Watch
from vosti.spec import step
from vosti.spec.invariants import broken
from vosti.spec.reference import NON_FINITE
from vosti.spec.state import PageId, RequestId, State
from vosti.spec.step import Action, Emit

ENGINES = (
    EngineBounds(
        "engine short of pages",
        requests=4,
        pages=3,
        page_size=1,
        token_budget=2,
        max_seqs=2,
        jobs=(Job(tokens(0, 0), 2), Job(tokens(0, 1), 2)),
    ),
    EngineBounds(
        "engine of many lengths",
        requests=3,
        pages=5,
        page_size=1,
        token_budget=2,
        max_seqs=2,
        jobs=(Job(tokens(0, 0, 0), 2), Job(tokens(0, 0, 1), 3), Job(tokens(1), 2)),
    ),
    EngineBounds(
        "engine with drafts",
        requests=3,
        pages=5,
        page_size=1,
        token_budget=3,
        max_seqs=2,
        jobs=(Job(tokens(0, 0), 3), Job(tokens(0, 1), 3)),
        drafts=(tokens(0, 0), tokens(0, 1), tokens(1)),
    ),
    EngineBounds(
        "engine with larger pages",
        requests=3,
        pages=3,
        page_size=2,
        token_budget=3,
        max_seqs=3,
        jobs=(Job(tokens(0, 0, 0), 3), Job(tokens(0, 0, 0, 1), 2)),
        drafts=(tokens(1), tokens(0, 0)),
    ),
    EngineBounds(
        "engine with failures",
        requests=3,
        pages=3,
        page_size=2,
        token_budget=4,
        max_seqs=2,
        jobs=(Job(tokens(0, 0, 0), 2), Job(tokens(0, 0, NON_FINITE), 2)),
        drafts=(tokens(NON_FINITE),),
    ),
)
"""What `vosti prove explore` exhausts."""


@dataclass(frozen=True)
class EngineExploration:
    """What was explored, and what was found."""

    bounds: EngineBounds
    states: int
    """Distinct states between two steps, up to names."""

    transitions: int
    """Steps that were taken."""

    depth: int
    """Steps of the longest of the shortest runs to a state."""

    taken: Mapping[str, int]
    """How often each action was taken, by name."""

    spare: int | None
    """How many more steps were allowed, at the least, when the earliest request got a token. None if none did."""

    exhausted: bool
    counterexample: Counterexample | None
    views: Views = field(compare=False, repr=False)
    seconds: float = field(compare=False)

    def __str__(self) -> str:
        """The numbers on one line, and the counterexample."""
        extent = "exhausted" if self.exhausted else "not exhausted"
        line = (
            f"{self.bounds.name}: {self.states:,} distinct states, {self.transitions:,} engine steps, "
            f"depth {self.depth}, {self.spare} steps to spare, {extent}, {self.seconds:.1f} s"
        )
        return line if self.counterexample is None else f"{line}\n{self.counterexample}"


def explore_progress(
    bounds: EngineBounds,
    planner: Planner = plan_step,
    guard: Guard = step.guard,
    effect: Effect = step.effect,
    progress: Progress | None = None,
) -> EngineExploration:
    """Explore every run of a small engine, up to the first counterexample.

    Args:
        bounds: the engine, and what may happen to it.
        planner: plans its steps; by default the engine's own planner.
        guard: which actions a step may have; by default the specification's guards.
        effect: what they do; by default the specification's effects.
        progress: called after each level of the search with the distinct states, the steps taken, and the depth.
    """
    began = time.perf_counter()
    search = _Search(bounds, planner, guard, effect)
    found = next(search.findings(progress), None)
    return EngineExploration(
        bounds=bounds,
        states=len(search.parents),
        transitions=search.transitions,
        depth=search.depth,
        taken={rule.effect.__name__: search.taken[kind] for kind, rule in step.RULES.items()},
        spare=search.spare,
        exhausted=found is None and not search.frontier,
        counterexample=found,
        views=search.watch.views,
        seconds=time.perf_counter() - began,
    )


@dataclass(frozen=True)
class _Node:
    """A state of the frontier: the engine's and the specification's, and what goes beside them."""

    number: int
    state: State
    pool: Pool
    live: Mapping[RequestId, LiveRecord]
    origins: Origins

    patience: int | None
    """Within so many steps the earliest live request must get a token, by what was true before. None: it just got one,
    or nobody is live.
    """


class _Search:
    """A search in the making."""

    def __init__(self, bounds: EngineBounds, planner: Planner, guard: Guard, effect: Effect) -> None:
        self.bounds, self.planner, self.guard, self.effect = bounds, planner, guard, effect
        self.watch = Watch()
        self.transitions = 0
        self.taken: Counter[type] = Counter()
        self.depth = 0
        self.spare: int | None = None
        self.parents = array("q", [-1])
        self.frontier = [_Node(0, bounds.start, empty(bounds.capacity, bounds.page_size), {}, {}, None)]
        self._reached_by: list[tuple[Action, ...]] = [()]
        self._canonical = Canonical()
        self._visited = {self._digest(self.frontier[0])}

    def findings(self, progress: Progress | None) -> Iterator[Counterexample]:
        """Go from level to level until there is no other; yield counterexamples on the way."""
        while self.frontier:
            level: list[_Node] = []
            for node in self.frontier:
                for happening in outside(self.bounds, node.state, node.live):
                    if node.live or happening.arrivals:
                        yield from self._step(node, happening, level)
            self.frontier = level
            self.depth += bool(level)
            if progress is not None:
                progress(len(self.parents), self.transitions, self.depth)

    def _step(self, node: _Node, happening: Outside, level: list[_Node]) -> Iterator[Counterexample]:
        """Take a step. A state that was not met before joins the next level."""
        doing = EngineStep(
            bounds=self.bounds,
            planner=self.planner,
            guard=self.guard,
            effect=self.effect,
            watch=self.watch,
            run=lambda actions: self._run(node, actions),
            state=node.state,
            pool=node.pool,
            live=dict(node.live),
            origins=node.origins,
        )
        self.transitions += 1
        try:
            patience = self._serve(node, doing, happening)
            after = _Node(len(self.parents), doing.state, doing.pool, doing.live, doing.origins, patience)
            self.taken.update(map(type, doing.actions))
            digest = self._digest(after)
            if digest in self._visited:
                return
            failing = next(broken(doing.state), None)
        except Found as found:
            yield found.counterexample
            return
        except Exception as error:
            yield raised(error, "the engine's step", "the step", self._run(node, doing.actions))
            return
        if failing is not None:
            yield broken_conjunct(doing.state, *failing, self._run(node, doing.actions))
        self._visited.add(digest)
        self.parents.append(node.number)
        self._reached_by.append(tuple(doing.actions))
        level.append(after)

    def _serve(self, node: _Node, doing: EngineStep, happening: Outside) -> int | None:
        """Run the step. How long the earliest request may still wait, if it got nothing."""
        doing.come_and_go(happening)
        first = next(iter(doing.live), None)
        allowed = 0
        if first is not None:
            allowed = self._allowed(doing, first)
            if node.patience is not None and first == next(iter(node.live)):
                allowed = min(allowed, node.patience)
        chunks = doing.plan(happening.proposals)
        doing.forward(chunks)
        doing.settle(chunks)
        if first is None or first not in doing.live:
            return None
        if any(isinstance(action, Emit) and action.request == first for action in doing.actions):
            self.spare = allowed - 1 if self.spare is None else min(self.spare, allowed - 1)
            return None
        if allowed == 1:
            where, expected = (
                f"request {first}",
                "a token of the earliest request within ⌈remaining / budget⌉ + 2 steps",
            )
            run = self._run(node, doing.actions)
            raise Found(Counterexample(PROGRESS, "earliest_is_served", where, expected, "none", run))
        return min(allowed - 1, self._allowed(doing, first))

    def _allowed(self, doing: EngineStep, first: RequestId) -> int:
        remaining = len(doing.live[first].history) - doing.pool.requests[first].cached
        return -(-remaining // self.bounds.token_budget) + 2

    def _digest(self, node: _Node) -> bytes:
        """The node up to names. Of the pool's clocks only their order matters."""
        clocks = sorted(set(node.pool.idle.values()))
        indexed = set(node.pool.index.values())
        details: dict[PageId, tuple[int, ...]] = {}
        for page_id, page in node.pool.pages.items():
            rank = clocks.index(node.pool.idle[page_id]) if page_id in node.pool.idle else -1
            details[page_id] = (rank, page_id in indexed, page.refcount, page.children, page.depth)
        beside = {r: (*node.origins[r], record.params.max_tokens) for r, record in node.live.items()}
        return self._canonical.digest(node.state, beside, details, node.patience)

    def _run(self, node: _Node, last: Sequence[Action]) -> Run:
        """The run to a state, and some actions more."""
        steps, number = [tuple(last)], node.number
        while number:
            steps.append(self._reached_by[number])
            number = self.parents[number]
        steps.reverse()
        return Run(self.bounds.name, self.bounds.start, tuple(chain(*steps)), tuple(map(len, steps)))
