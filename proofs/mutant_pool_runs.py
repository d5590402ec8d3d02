"""Runs of the page pool beside the specification that look for a contradiction to `vosti.proofs.pool_refinement`.

The specification walks at random, as in `vosti.proofs.mutant_runs`; for each action the pool is asked for the
transition that stands for it, with the words that a caller owes. Looked at is what is proved, with the functions that
it is proved of: what the pool allows the specification allows, they agree afterwards, the pool's invariants hold,
nothing raises; composite transitions equal simple ones in turn. Now and then a caller lies about tokens and lengths:
then the invariants are to hold, and the pool that comes of it is forgotten.

A search ends after a number of transitions, and its seed is fixed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from vosti.impl import pool as pools
from vosti.impl import pool_invariants, pool_state
from vosti.proofs import pool_relation as relation
from vosti.proofs.book import Replaced
from vosti.proofs.explore_bounds import candidates
from vosti.proofs.explore_counterexample import described, name_of
from vosti.proofs.mutant_runs import WORLDS
from vosti.proofs.mutant_texts import executed
from vosti.spec import actions as spec
from vosti.spec.state import RequestId, State, history, sequence
from vosti.spec.step import (
    RULES,
    Action,
    Admit,
    Allocate,
    Attach,
    Cancel,
    Compute,
    Emit,
    Evict,
    Fail,
    Finish,
    Observe,
    Preempt,
    Propose,
    Publish,
    Retract,
    effect,
    guard,
)

TRANSITIONS = 6_000
"""How many transitions a search makes, unless told otherwise."""

STRANGER = RequestId("stranger")
"""Who is never admitted."""

ELSEWHERE = (Propose, Emit, Observe)
"""The actions that are none of the pool's business."""

LONGEST = 60
"""How many transitions a walk has at most."""

Call = tuple[str, tuple[Any, ...]]
"""A transition and its arguments."""

Names = Mapping[str, Any]


@dataclass(frozen=True)
class Contradiction:
    """A run of the pool that contradicts what is proved."""

    broken: str
    """The statement that is false."""

    detail: str
    calls: tuple[str, ...]

    @property
    def theorem(self) -> str:
        """What it contradicts."""
        return "pool_refinement"

    def __str__(self) -> str:
        """The statement, and the transitions up to it, one a line."""
        lines = [f"  {number:2}. {call}" for number, call in enumerate(self.calls, start=1)]
        return "\n".join([f"{self.broken} is false: {self.detail}", "after these transitions of the pool:", *lines])


class _Found(Exception):
    """Raised inside a walk."""

    def __init__(self, broken: str, detail: str) -> None:
        self.broken, self.detail = broken, detail
        super().__init__(broken)


def call_for(s: State, action: Action) -> Call | None:
    """The transition that stands for an action, with the words that a caller owes; None where it is none of the
    pool's business, or where the caller would break his word.
    """
    r = getattr(action, "request", None)
    request = s.requests.get(r) if r is not None else None
    past = history(request) if request else ()
    # Beyond the history nothing is owed of a page's tokens: there they are the draft's.
    more = sequence(request) if request else ()
    match action:
        case Admit():
            return ("admit", (r, action.domain)) if guard(s, action) else None
        case Attach(page=page):
            start = request.cached if request else 0
            return "attach", (r, page, more[start : start + s.page_size], len(past))
        case Allocate(page=page):
            return "allocate", (r, page)
        case Compute():
            return "compute", (r, len(sequence(request)) if request else 1)
        case Retract():
            return None if request and request.draft == () else ("retract", (r, len(past)))
        case Publish(block=block):
            if (
                request
                and spec.publish_ready(s, action.request, block)
                and not spec.publishes(s, action.request, block)
            ):
                return None
            tokens = more[max(0, block * s.page_size) : max(0, (block + 1) * s.page_size)]
            return "publish", (r, block, tokens, len(past))
        case Evict(page=page):
            return "evict", (page,)
        case Preempt(in_favour_of=other):
            return ("preempt", (r,)) if relation.preempt_owed(s, action.request, other) else None
        case Finish() | Cancel() | Fail():
            return ("remove", (r,)) if guard(s, action) or isinstance(action, Cancel) else None
        case _:
            return None


class _Walk:
    """The specification and a mutant of the pool, side by side."""

    def __init__(self, names: Names, invariants: Names, rng: random.Random, world: int) -> None:
        self.names, self.rng = names, rng
        self.bounds = WORLDS[world % len(WORLDS)]
        self.state = self.bounds.start
        self.key_space = rng.choice((1, 2, pool_state.KEY_SPACE))
        self.pool = pool_state.empty(self.state.capacity, self.state.page_size, self.key_space)
        self.invariants = [(f.__name__, invariants[f.__name__]) for f in pool_invariants.INVARIANTS]
        self.calls: list[str] = []

    def guard(self, call: Call, pool: Any) -> bool:
        return bool(self.names[call[0] + "_guard"](pool, *call[1]))

    def effect(self, call: Call, pool: Any) -> Any:
        return self.names[call[0]](pool, *call[1])

    def sound(self, pool: Any, what: str) -> None:
        for name, invariant in self.invariants:
            if not invariant(pool):
                raise _Found(name, f"after {what}")

    def agree(self, pool: Any, s: State, what: str) -> None:
        for f in relation.RELATION:
            if not f(pool, s):
                raise _Found(f.__name__, f"the pool and the specification differ after {what}")

    def note(self, text: str) -> None:
        self.calls.append(text)

    # ------------------------------------------------------------ what is tried

    def take(self, actions: Sequence[Action], subjects: Sequence[str]) -> bool:
        """Make the first action that both allow; one of `subjects` is tried first, now and then."""
        if subjects and self.rng.random() < 0.5:
            actions = sorted(actions, key=lambda action: not self.differs(action, subjects))
        if (
            self.rng.random() < 0.15
            or "advance" in subjects
            or "attach_prefix" in subjects
            or "advance_each" in subjects
        ):
            self.composites()
        for action in actions:
            call = call_for(self.state, action)
            if isinstance(action, Admit) and self.rng.random() < 0.3:
                self.lie(("admit", (action.request, action.domain)))
            if call is None:
                if isinstance(action, ELSEWHERE) and guard(self.state, action):
                    self.note(described(action))
                    self.state = effect(self.state, action)
                    return True
                continue
            if self.rng.random() < 0.3:
                self.lie(call)
            if self.attempt(action, call):
                return True
        return False

    def differs(self, action: Action, subjects: Sequence[str]) -> bool:
        """Whether the mutant allows the action, and the pool does not or leads elsewhere."""
        call = call_for(self.state, action)
        if call is None or call[0] not in subjects or not self.guard(call, self.pool):
            return False
        allowed = getattr(pools, call[0] + "_guard")(self.pool, *call[1])
        return not allowed or self.effect(call, self.pool) != getattr(pools, call[0])(self.pool, *call[1])

    def attempt(self, action: Action, call: Call) -> bool:
        text = f"{call[0]}{call[1]}, for {name_of(action)}"
        self.note(text)
        if not self.guard(call, self.pool):
            self.calls.pop()
            return False
        if not guard(self.state, action):
            raise _Found("what the pool allows the specification allows", f"{described(action)} is not allowed")
        after = self.effect(call, self.pool)
        s = effect(self.state, action)
        self.sound(after, text)
        self.agree(after, s, text)
        self.pool, self.state = after, s
        return True

    def lie(self, call: Call) -> None:
        """The same transition with other words: the invariants hold all the same."""
        name, args = call
        other: list[Any] = list(args)
        for i, value in enumerate(args):
            if name != "allocate" and type(value) is int and i > 0 and not (name == "attach" and i == 1):
                other[i] = value + self.rng.choice((-1, 0, 1, 2))
            elif isinstance(value, tuple):
                other[i] = self.rng.choice((value, value[:-1], value[::-1], (*value, 0)))
        if name == "retract" and self.rng.random() < 0.3:
            other[1] = self.rng.randrange(-2, 8)
        lied = (name, tuple(other))
        text = f"{name}{lied[1]}, whatever the request's tokens are"
        self.note(text)
        if self.guard(lied, self.pool):
            self.sound(self.effect(lied, self.pool), text)
        self.calls.pop()

    def composites(self) -> None:
        """Composite transitions equal simple ones in turn, and are allowed when these are."""
        rng, s = self.rng, self.state
        names = [*s.requests, STRANGER]
        lengths = {r: len(sequence(request)) for r, request in s.requests.items()}
        r = rng.choice(names)
        n = rng.randrange(-1, 2 * s.page_size + 2)
        length = lengths.get(r, 1)
        self.composite(("advance", (r, n, length)), [("compute", (r, length))] * n)
        counts = {r: rng.randrange(0, s.page_size + 2) for r in names if rng.random() < 0.6}
        known = lengths if rng.random() < 0.7 else {**lengths, STRANGER: 3}
        each: list[Call] = [("compute", (r, known.get(r, 0))) for r, n in counts.items() for _ in range(n)]
        self.composite(("advance_each", (counts, known)), each, needs=all(r in known for r in counts))
        request = s.requests.get(r)
        past = history(request) if request else ()
        chain = pools.match_prefix(self.pool, request.domain, past, len(past), request.table) if request else ()
        if rng.random() < 0.4:
            chain = tuple(rng.choice([*s.pages, *sorted(s.capacity)]) for _ in range(rng.randrange(1, 4)))
        starts = range(request.cached if request else 0, 10**6, s.page_size)
        singly: list[Call] = [
            ("attach", (r, page_id, past[start : start + s.page_size], len(past)))
            for start, page_id in zip(starts, chain, strict=False)
        ]
        if chain:
            self.composite(("attach_prefix", (r, chain, past)), singly)

    def composite(self, call: Call, singly: Sequence[Call], needs: bool = True) -> None:
        """Of zero transitions in turn nothing is asked."""
        text = f"{call[0]}{call[1]}"
        self.note(text)
        if self.guard(call, self.pool):
            if not needs or any(n < 0 for n in _counts(call)):
                raise _Found("composites are simple transitions in turn", f"{text} is allowed")
            after = self.effect(call, self.pool)
            self.sound(after, text)
            turn = self.pool
            for single in singly:
                if not getattr(pools, single[0] + "_guard")(turn, *single[1]):
                    raise _Found("composites are simple transitions in turn", f"{text} is allowed, {single} is not")
                turn = getattr(pools, single[0])(turn, *single[1])
            if turn != after:
                raise _Found("composites are simple transitions in turn", f"{text} leads elsewhere")
        self.calls.pop()


def _counts(call: Call) -> Iterator[int]:
    match call:
        case "advance", (_, n, _):
            yield n
        case "advance_each", (counts, _):
            yield from counts.values()


def refutation(
    replaced: Replaced, subjects: Sequence[str] = (), *, most: int = TRANSITIONS, seed: int = 0
) -> Contradiction | None:
    """A run of a mutant of the pool that contradicts what is proved, if one is found.

    Args:
        replaced: the mutant's texts.
        subjects: the transitions that differ from the pool's.
        most: after how many transitions the search ends.
        seed: which walks are made.
    """
    names, invariants = executed(pools, replaced), executed(pool_invariants, replaced)
    rng, made, number = random.Random(seed), 0, 0
    while made < most:
        walk = _Walk(names, invariants, rng, number)
        number += 1
        likes: dict[type, float] = {kind: rng.choice((0.2, 1.0, 4.0)) for kind in RULES}
        likes.update({Admit: 1.0, Attach: 8.0, Compute: 4.0, Publish: max(1.0, likes[Publish])})
        likes.update({kind: likes[kind] / 4 for kind in (Cancel, Finish, Preempt, Retract)})
        try:
            for _ in range(LONGEST):
                tried = list(candidates(walk.state, walk.bounds))
                keys = {id(action): rng.random() ** (1 / likes[type(action)]) for action in tried}
                tried.sort(key=partial(_negated, keys))
                if not walk.take(tried, subjects):
                    break
        except _Found as found:
            return Contradiction(found.broken, found.detail, tuple(walk.calls))
        except Exception as error:
            return Contradiction("nothing raises", f"{type(error).__name__}: {error}", tuple(walk.calls))
        made += len(walk.calls) + 1
    return None


def _negated(keys: Mapping[int, float], action: Action) -> float:
    return -keys[id(action)]
