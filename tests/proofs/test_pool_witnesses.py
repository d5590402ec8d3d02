"""What the proofs about the page pool assume does happen: reachable pools, each with the state that it agrees with.

A pool and a state of the specification walk side by side, and at every step all that a theorem assumes, and all that it
concludes, is evaluated in plain Python.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

from pool_walk import KEY_SPACES, Lockstep, Walk
from spec_walk import SAMPLERS, emission
from vosti.impl import pool as engine
from vosti.impl.pool_invariants import violated
from vosti.impl.pool_state import Pool, empty
from vosti.proofs.pool_refinement import ELSEWHERE, SIMULATIONS, Simulation
from vosti.proofs.pool_relation import agrees, holders_agree, private_are_alone
from vosti.spec import actions
from vosti.spec.invariants import invariant
from vosti.spec.reference import NON_FINITE
from vosti.spec.state import Domain, PageId, RequestId, State, Token, initial

SIMULATION = {simulation.action: simulation for simulation in SIMULATIONS}


def applied(f: Callable[..., Any], subject: object, values: Mapping[str, object]) -> Any:
    """A function of a pool or a state, and of those values that it names."""
    return f(subject, *(values[name] for name in list(inspect.signature(f).parameters)[1:]))


def together(pool: Pool, s: State, simulation: Simulation, values: Mapping[str, object]) -> tuple[Pool, State]:
    """A transition and its action: everything that is assumed holds, and everything that is concluded."""
    allowed = getattr(actions, simulation.action + "_guard")
    assert related(pool, s)
    assert simulation.owed is None or applied(simulation.owed, s, values)
    assert applied(getattr(engine, simulation.transition + "_guard"), pool, values)
    assert applied(allowed, s, values)
    after = applied(getattr(engine, simulation.transition), pool, values)
    then = applied(getattr(actions, simulation.action), s, values)
    assert related(after, then)
    return after, then


def related(pool: Pool, s: State) -> bool:
    """Inv, agreement, the pool's invariants; and what follows from them."""
    return (
        invariant(s)
        and agrees(pool, s)
        and violated(pool) is None
        and holders_agree(pool, s)
        and private_are_alone(pool)
    )


class Shadowed(Lockstep):
    """A pool, its model, and a state of the specification. `seen` counts what all three did."""

    def __init__(self, pages: int, size: int, key_space: int) -> None:
        """All empty."""
        super().__init__(pages, size, key_space)
        self.s, self.seen = initial(self.pool.capacity, size), Counter[str]()
        assert related(self.pool, self.s)

    def step(self, name: str, *args: Any) -> bool:
        """A transition in pool and model; if it is allowed, its actions in the state."""
        if name == "preempt" and self.earlier(args[0]) is None:
            name = "remove"
        simple, pool = self.simple(name, args), self.pool
        live, prompt = self.model.live.get(args[0]) if isinstance(args[0], str) else None, args[1:2]
        dropped = name != "retract" or (live is not None and bool(live.draft))
        if not super().step(name, *args):
            return False
        self.seen[name] += 1
        for transition, spoken in simple:
            if dropped:
                pool, self.s = self.follow(transition, spoken, pool, prompt)
        assert related(self.pool, self.s)
        return True

    def simple(self, name: str, args: tuple[Any, ...]) -> list[tuple[str, tuple[Any, ...]]]:
        """The simple transitions that one stands for, with the pool's arguments."""
        lengths = {r: len(live.history) + len(live.draft) for r, live in self.model.live.items()}
        parts = list(self.single(name, args))
        if name not in ("advance", "advance_each", "attach_prefix"):
            return [(name, self.spoken(name, args))]
        if name == "advance_each":
            return [("compute", (r, lengths[r])) for _, (r, n, _) in parts for _ in range(n)]
        return parts

    def follow(self, name: str, spoken: tuple[Any, ...], pool: Pool, prompt: tuple[Any, ...]) -> tuple[Pool, State]:
        """One simple transition, and its action."""
        parameters = list(inspect.signature(getattr(engine, name)).parameters)[1:]
        values = dict(zip(parameters, spoken, strict=True))
        if name == "admit":
            values |= {"prompt": tuple(prompt[0]), "sampler": SAMPLERS[0], "arrival": len(self.s.seen)}
        if name == "preempt":
            values["in_favour_of"] = self.earlier(values["r"])
        if name == "remove":
            name = "finish" if self.s.requests[values["r"]].output else "cancel"
        self.seen[name] += 1
        return together(pool, self.s, SIMULATION[name], values)

    def earlier(self, r: str) -> RequestId | None:
        """A request that came before r."""
        arrivals = {q: request.arrival for q, request in self.s.requests.items()}
        return next((q for q in arrivals if arrivals[q] < arrivals.get(RequestId(r), 0)), None)


class ShadowedWalk(Walk):
    """Random steps of all three. What is emitted is what the specification's sampler says."""

    lock: Shadowed

    def __init__(self, random: Random) -> None:
        """Like a walk's."""
        super().__init__(random, Counter())
        self.lock = Shadowed(len(self.model.pages), self.size, random.choice(KEY_SPACES))
        self.model = self.lock.model

    def arrival(self) -> tuple[str, tuple[Any, ...]]:
        """No identifier comes twice, not even after its request has gone."""
        name, (r, prompt, domain) = super().arrival()
        return name, (r if RequestId(r) not in self.lock.s.seen else f"r{len(self.prompts)}", prompt, domain)

    def speak(self, name: str, r: str) -> str:
        """A draft is proposed, or a token is emitted, in model and state."""
        lock, q, live = self.lock, RequestId(r), self.model.live[r]
        if name == "propose":
            name = super().speak(name, r)
            if lock.s.requests[q].draft == ():
                lock.s = actions.propose(lock.s, q, tuple(map(Token, live.draft)))
        else:
            emit = emission(lock.s, q)
            if live.draft and live.draft[0] != emit.record.token:
                lock.step("retract", r)
            assert actions.emit_guard(lock.s, q, emit.record, emit.sampler)
            lock.s = actions.emit(lock.s, q, emit.record, emit.sampler)
            live.history, live.draft = [*live.history, emit.record.token], live.draft[1:]
        lock.seen[name] += 1
        assert related(lock.pool, lock.s)
        return name


@pytest.fixture(scope="module")
def seen() -> Counter[str]:
    """What happened in some walks."""
    total = Counter[str]()
    for seed in range(12):
        walk = ShadowedWalk(Random(seed))
        for _ in range(120):
            walk.take()
        total += walk.lock.seen
    return total


@pytest.mark.parametrize(
    "name", [*(s.action for s in SIMULATIONS if s.action != "fail"), "advance", "advance_each", "attach_prefix"]
)
def test_every_transition_happens(name: str, seen: Counter[str]) -> None:
    """Some reachable pool and state satisfy all that is assumed of the transition (and all that is concluded)."""
    assert seen[name] > 0


@pytest.mark.parametrize("name", [name for name in ELSEWHERE if name != "observe"])
def test_every_other_action_happens(name: str, seen: Counter[str]) -> None:
    """Some reachable state, with a pool, allows the action, and agrees with the pool before and after it."""
    assert seen[name] > 0


def one_position(token: Token) -> tuple[Pool, State]:
    """A request whose only position is computed."""
    pages, r = frozenset({PageId(0)}), RequestId("r")
    pool, s = empty(pages, 1), initial(pages, 1)
    values: dict[str, object] = {
        "r": r,
        "domain": Domain("d"),
        "prompt": (token,),
        "sampler": SAMPLERS[0],
        "arrival": 0,
        "page_id": PageId(0),
        "length": 1,
    }
    for name in ("admit", "allocate", "compute"):
        pool, s = together(pool, s, SIMULATION[name], values)
    return pool, s


def test_a_failure_happens() -> None:
    """remove, where its request fails."""
    pool, _ = together(*one_position(NON_FINITE), SIMULATION["fail"], {"r": RequestId("r")})
    assert pool.free


@pytest.mark.parametrize(
    ("token", "said", "owed"),
    [(Token(1), Token(1), True), (Token(1), Token(0), False), (NON_FINITE, NON_FINITE, False)],
)
def test_what_is_owed_is_needed(token: Token, said: Token, owed: bool) -> None:
    """The pool publishes whatever tokens and values it is told of; that they are right and finite is owed."""
    pool, s = one_position(token)
    values: dict[str, object] = {"r": RequestId("r"), "block": 0, "tokens": (said,), "length": 1}
    caller = SIMULATION["publish"].owed
    assert caller is not None
    assert applied(engine.publish_guard, pool, values)
    assert owed == applied(caller, s, values)
    then = applied(actions.publish, s, values)
    assert owed == related(applied(engine.publish, pool, values), then)
