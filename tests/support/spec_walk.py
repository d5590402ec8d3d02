"""Random walks over the specification, run as it stands: sequences of actions whose guards hold.

Small numbers on purpose: few pages, tokens and names, so that prefixes are shared, pages run out, and drafts are
right by chance.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vosti.spec import actions
from vosti.spec.determinism import Record
from vosti.spec.reference import NON_FINITE, kernel_logits, next_sampler, sampled_token
from vosti.spec.sampling import sampler_state
from vosti.spec.state import (
    Domain,
    PageId,
    RequestId,
    Sampler,
    State,
    Token,
    cached_values,
    history,
    initial,
)
from vosti.spec.step import (
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

Guard = Callable[[State, Any], bool]

SAMPLERS = tuple(Sampler(sampler_state(seed=seed)) for seed in range(2))
DOMAINS = (Domain("a"), Domain("b"))
NAMES = tuple(RequestId(f"r{i}") for i in range(40))


def tokens(rng: random.Random, least: int, most: int, sick: float) -> tuple[Token, ...]:
    """Some tokens, the last of them non-finite with probability `sick`."""
    some = tuple(Token(rng.choice((0, 0, 0, 1))) for _ in range(rng.randint(least, most)))
    return (*some[:-1], NON_FINITE) if some and rng.random() < sick else some


def emission(s: State, r: RequestId) -> Emit:
    """The emit that the kernels and the sampler determine. Needs the history cached."""
    request = s.requests[r]
    logits = actions.emitted_logits(s, r)
    token = sampled_token(logits, request.sampler, history(request), len(request.prompt))
    return Emit(r, Record(logits, token), next_sampler(request.sampler))


def proposal(s: State, rng: random.Random) -> Action:
    """Some action, enabled or not, with arguments of the state's own."""
    r = rng.choice(tuple(s.requests)) if s.requests and rng.random() < 0.95 else rng.choice(NAMES)
    page = rng.choice(sorted(s.capacity))
    live = s.requests.get(r)
    blocks = len(live.table) if live else 1
    match rng.randrange(17):
        case 0 if len(s.requests) < 3:
            return Admit(
                rng.choice(NAMES), tokens(rng, 1, 7, 0.25), rng.choice(SAMPLERS), rng.choice(DOMAINS), len(s.seen)
            )
        case 1 if rng.random() < 0.3:
            return Propose(r, tokens(rng, 1, 3, 0.05))
        case 2 | 3:
            shared = sorted(page_id for page_id, used in s.pages.items() if used.registered)
            return Attach(r, rng.choice(shared) if shared else page)
        case 4:
            return Allocate(r, page)
        case 5:
            return Evict(page)
        case 6 | 7 | 8:
            return Compute(r)
        case 9 | 10:
            return emission(s, r) if live and live.cached >= len(history(live)) else Compute(r)
        case 11:
            if live and (position := rng.randrange(len(history(live)))) < live.cached:
                past = cached_values(s, r, position + 1)
                return Observe(r, position, kernel_logits(past, history(live)[: position + 1]))
            return Retract(r)
        case 12 | 16:
            return Publish(r, rng.randrange(max(1, blocks)))
        case 13:
            return Retract(r)
        case 14 if rng.random() < 0.3:
            return Preempt(r, rng.choice(tuple(s.requests) or NAMES))
        case 15 if rng.random() < 0.3:
            return rng.choice((Finish, Cancel))(r)
        case 15:
            return Fail(r)
        case _:
            return Compute(r)


@dataclass(frozen=True)
class Visit:
    """One action of a walk, with the states before and after it."""

    before: State
    action: Any
    after: State


def walk(
    rng: random.Random, actions_tried: int, *, guard: Guard = guard, effect: Callable[[State, Any], State] = effect
) -> Iterator[Visit]:
    """A random walk from the initial state. Tests pass other guards and effects to see what breaks."""
    capacity = frozenset(PageId(page) for page in range(rng.randint(2, 5)))
    s = initial(capacity, page_size=rng.randint(1, 3))
    for _ in range(actions_tried):
        action = proposal(s, rng)
        if guard(s, action):
            after = effect(s, action)
            yield Visit(s, action, after)
            s = after
