"""Runs of the specification, or of a mutant of it, that look for a contradiction.

`refutation` makes random walks in the small worlds of `vosti.proofs.explore_bounds`. Where a mutant and the
specification differ, the walk likes to go: an action that one of them allows and the other does not, or that leads them
to different states. What is looked at is what the theorems say, with the very functions that are proved:

- Inv after each action;
- Theorem 4.1 and Definition 2.1 at each output (`vosti.proofs.explore_views`), over all walks of one search;
- what each action achieves, and what it leaves alone (`vosti.proofs.postconditions`, `vosti.proofs.two_states`);
- that an identifier is admitted once, so that it names a request;
- that no guard and no effect raises.

A search ends after a number of actions, not of seconds, and its seed is fixed: what it finds depends on the text alone.
The run that it returns is shortened as far as leaving out actions goes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vosti.proofs.book import Replaced
from vosti.proofs.explore_bounds import DEFAULT, GREEDY, ONE, OTHER, SEEDED, Bounds, candidates, tokens
from vosti.proofs.explore_counterexample import Counterexample, Run, broken_conjunct, described, name_of, raised
from vosti.proofs.explore_views import Watch
from vosti.proofs.mutant_texts import executed
from vosti.proofs.postconditions import ACHIEVED, earliest_keeps
from vosti.proofs.two_states import held_stays, output_is_kept, registered_is_unchanged, request_is_unchanged
from vosti.spec import actions
from vosti.spec.invariants import broken
from vosti.spec.reference import NON_FINITE
from vosti.spec.state import RequestId, State
from vosti.spec.step import (
    RULES,
    Action,
    Admit,
    Attach,
    Cancel,
    Compute,
    Emit,
    Fail,
    Finish,
    Observe,
    Preempt,
    Propose,
    Retract,
    arguments,
)

ACTIONS = 6_000
"""How many actions a search makes, unless told otherwise."""

LONGEST = 48
"""How many actions a walk has at most."""

WIDE = Bounds(
    "wide",
    requests=6,
    pages=5,
    page_size=2,
    prompts=(tokens(0, 0, 0, 0, 0), tokens(0, 0, 0), tokens(0, 1), tokens(0, NON_FINITE, 0)),
    outputs=3,
    drafts=(tokens(0), tokens(1, 0), tokens(2, 0, 0)),
    samplers=(GREEDY, SEEDED),
    domains=(ONE, OTHER),
)
"""A world with everything in it: too large to exhaust, and just right to walk in."""

WORLDS = (WIDE, replace(WIDE, name="wide, small pages", page_size=1, pages=6), *DEFAULT)

Rules = Mapping[type, tuple[Callable[..., bool], Callable[..., State]]]
"""The guard and the effect of each kind of action."""


def rules_of(replaced: Replaced) -> Rules:
    """The specification's actions, with other texts for some functions."""
    names = executed(actions, replaced)
    return {kind: (names[rule.guard.__name__], names[rule.effect.__name__]) for kind, rule in RULES.items()}


UNCHANGED: Rules = {kind: (rule.guard, rule.effect) for kind, rule in RULES.items()}

ACHIEVEMENT = "what the action achieves"
FRAME = "what the action leaves alone"
IDENTITY = "an identifier names one request"


@dataclass
class Execution:
    """A walk in the making, under some rules; each action is looked at."""

    rules: Rules
    bounds: Bounds
    watch: Watch

    def __post_init__(self) -> None:
        self.state = self.bounds.start
        self.trace: list[Action] = []
        self.origins: Mapping[RequestId, tuple[int, int]] = {}
        self.admitted: set[RequestId] = set()

    def run(self, last: Action) -> Run:
        """The run so far, and one action more."""
        return Run(self.bounds.name, self.bounds.start, (*self.trace, last))

    def allows(self, action: Action) -> bool:
        """Whether the action may happen now."""
        return self.rules[type(action)][0](self.state, *arguments(action))

    def leads(self, action: Action) -> State:
        """Where it leads."""
        return self.rules[type(action)][1](self.state, *arguments(action))

    def make(self, action: Action) -> Counterexample | None:
        """Make an action that is allowed. What is wrong with it, if anything is."""
        s = self.state
        try:
            after = self.leads(action)
            found = next(self.findings(s, action, after), None)
        except Exception as error:
            return raised(error, name_of(action), described(action), self.run(action))
        if found is None:
            self.trace.append(action)
            self.origins = self.watch.after(self.origins, action)
            self.state = after
        return found

    def findings(self, s: State, action: Action, after: State) -> Iterator[Counterexample]:
        """What is wrong with an action, between these states."""
        failing = next(broken(after), None)
        if failing is not None:
            yield broken_conjunct(after, *failing, self.run(action))
        if isinstance(action, Admit):
            if action.request in self.admitted:
                yield self.false(
                    IDENTITY, "admitted once", action, f"{action.request} is new", "it was admitted before"
                )
            self.admitted.add(action.request)
        shown = self.watch.look(s, self.origins, action, lambda: self.run(action))
        if shown is not None:
            yield shown
        achieved = ACHIEVED[type(action)]
        if not achieved(s, after, *arguments(action)):
            yield self.false(ACHIEVEMENT, achieved.__name__, action, achieved.__doc__ or "", "that is not so")
        wrong = next(changed_frame(s, action, after), None)
        if wrong is not None:
            yield self.false(FRAME, wrong.__name__, action, wrong.__doc__ or "", "that is not so")

    def false(self, theorem: str, statement: str, action: Action, expected: str, actual: str) -> Counterexample:
        """A statement about an action is false."""
        return Counterexample(theorem, statement, described(action), expected, actual, self.run(action))


def changed_frame(s: State, action: Action, t: State) -> Iterator[Callable[..., bool]]:
    """The statements of what is left alone that are false of an action."""
    mine = getattr(action, "request", None)
    if not all(registered_is_unchanged(s, t, page_id) for page_id in s.pages):
        yield registered_is_unchanged
    others = (s.requests.keys() | t.requests.keys()) - {mine}
    if not all(request_is_unchanged(s, t, other) for other in others):
        yield request_is_unchanged
    if not all(held_stays(s, t, page_id, other) for page_id in s.pages for other in others):
        yield held_stays
    if not isinstance(action, Admit | Emit) and not all(output_is_kept(s, t, r) for r in s.requests):
        yield output_is_kept
    keeping = others if isinstance(action, Finish | Cancel | Fail) else s.requests.keys()
    if not all(earliest_keeps(s, t, r, page_id) for r in keeping for page_id in s.pages):
        yield earliest_keeps


# ---------------------------------------------------------------- walks


def refutation(
    replaced: Replaced, subjects: Sequence[str] = (), *, most: int = ACTIONS, seed: int = 0
) -> Counterexample | None:
    """A run of a mutant that contradicts a theorem, if one is found.

    Args:
        replaced: the mutant's texts.
        subjects: the actions that differ from the specification's.
        most: after how many actions the search ends.
        seed: which walks are made.
    """
    rules, rng, watch = rules_of(replaced), random.Random(seed), Watch()
    made = number = 0
    while made < most:
        walk = Execution(rules, WORLDS[number % len(WORLDS)], watch)
        number += 1
        found = random_walk(walk, rng, subjects)
        made += len(walk.trace) + 1
        if found is not None:
            return shortened(rules, found)
    return None


def random_walk(walk: Execution, rng: random.Random, subjects: Sequence[str]) -> Counterexample | None:
    """Up to `LONGEST` actions."""
    likes = {kind: rng.choice((0.2, 1.0, 4.0)) for kind in RULES}
    # What a run cannot do without comes often enough; what ends a run does not come too often.
    likes.update({Admit: max(1.0, likes[Admit]), Attach: 8.0, Compute: 4.0, Emit: 4.0})
    likes.update({kind: likes[kind] / 4 for kind in (Propose, Retract, Preempt, Cancel, Finish, Observe)})
    eager = rng.random() < 0.7
    for _ in range(LONGEST):
        tried = list(candidates(walk.state, walk.bounds))
        keys = {id(action): rng.random() ** (1 / likes[type(action)]) for action in tried}
        tried.sort(key=lambda action: -keys[id(action)])
        action = _preferred(walk, tried, subjects) if eager and rng.random() < 0.5 else None
        if isinstance(action, Counterexample):
            return action
        if action is None:
            chosen = _first_allowed(walk, tried)
            if chosen is None or isinstance(chosen, Counterexample):
                return chosen
            action = chosen
        found = walk.make(action)
        if found is not None:
            return found
    return None


def _allowed(walk: Execution, action: Action) -> bool | Counterexample:
    try:
        return walk.allows(action)
    except Exception as error:
        guard = f"{name_of(action)}_guard"
        return raised(error, guard, described(action), walk.run(action))


def _first_allowed(walk: Execution, tried: Sequence[Action]) -> Action | Counterexample | None:
    for action in tried:
        allowed = _allowed(walk, action)
        if isinstance(allowed, Counterexample):
            return allowed
        if allowed:
            return action
    return None


def _preferred(walk: Execution, tried: Sequence[Action], subjects: Sequence[str]) -> Action | Counterexample | None:
    """The first action in which mutant and specification differ."""
    for action in tried:
        if name_of(action) not in subjects:
            continue
        allowed = _allowed(walk, action)
        if isinstance(allowed, Counterexample):
            return allowed
        if allowed and _differs(walk, action):
            return action
    return None


def _differs(walk: Execution, action: Action) -> bool:
    guard, effect = UNCHANGED[type(action)]
    if not guard(walk.state, *arguments(action)):
        return True
    try:
        return walk.leads(action) != effect(walk.state, *arguments(action))
    except Exception:
        return True  # making the action reports it


# ---------------------------------------------------------------- shorter runs


def contradiction(rules: Rules, bounds: Bounds, trace: Sequence[Action]) -> Counterexample | None:
    """What is wrong with a run whose actions are all allowed, if anything is; None for a run that is not."""
    walk = Execution(rules, bounds, Watch())
    for action in trace:
        allowed = _allowed(walk, action)
        if isinstance(allowed, Counterexample):
            return allowed
        if not allowed:
            return None
        found = walk.make(action)
        if found is not None:
            return found
    return None


def shortened(rules: Rules, found: Counterexample) -> Counterexample:
    """The same contradiction, after fewer actions where some can be left out, one or two neighbours at a time. One
    that takes two runs stays.
    """
    bounds = next(world for world in WORLDS if world.name == found.run.bounds)
    for width in (2, 1, 2, 1):
        i = len(found.run.actions) - width - 1
        while i >= 0 and found.other is None:
            trace = found.run.actions
            fewer = contradiction(rules, bounds, (*trace[:i], *trace[i + width :]))
            if fewer is not None and (fewer.theorem, fewer.broken) == (found.theorem, found.broken):
                found = fewer
            i = min(i, len(found.run.actions) - width) - 1
    return found
