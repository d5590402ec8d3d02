"""The specification's functions and the page pool's, as Python and as translated, on sound and on corrupted states."""

from __future__ import annotations

import dataclasses
import random
import typing
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from pool_walk import Walk
from spec_walk import SAMPLERS, proposal, walk
from term_checks import Comparison, Samples, eager_quantifiers, with_one_field
from vosti.impl import pool as engine
from vosti.impl import pool_invariants, pool_state
from vosti.impl.pool_state import Pool, page_key
from vosti.spec import actions, invariants, reference, state, step
from vosti.spec.invariants import CONJUNCTS, invariant
from vosti.spec.reference import (
    NON_FINITE,
    canonical_kv,
    finite_kv,
    finite_logits,
    forward,
    next_sampler,
    sampled_token,
    unspecified_kv,
    unspecified_logits,
)
from vosti.spec.rows import Row, Rows, forward_ok
from vosti.spec.state import PageId, State, Token, initial, sequence
from vosti.spec.step import RULES

Types = Callable[[object], Any]

# ---------------------------------------------------------------- the specification


def spec_comparison(compiler_class: Any, type_of: Types) -> Comparison:
    """Conjuncts, guards, effects, conjuncts after effects, and the forward's premises."""
    return Comparison(
        compiler_class,
        type_of,
        State,
        (
            canonical_kv,
            forward,
            finite_kv,
            finite_logits,
            sampled_token,
            next_sampler,
            unspecified_kv,
            unspecified_logits,
        ),
        [conjunct.whole for conjunct in CONJUNCTS],
        {rule.effect.__name__: (rule.guard, rule.effect) for rule in RULES.values()},
        {"forward_ok": forward_ok},
    )


def well_formed(s: State) -> bool:
    """Whether a walk can go on from a state."""
    return bool(s.capacity) and invariant(s)


def atoms_of(s: State) -> dict[str, tuple[Any, ...]]:
    """Identifiers and values to draw arguments from: the state's own, and others."""
    prefixes = [(), (0,), (0, 0), (0, 1), (0, 0, 0), (0, 0, NON_FINITE)]
    return {
        "RequestId": (*s.requests, *s.requests, "nobody"),
        "PageId": (*sorted(s.pages), *range(6)),
        "Token": (0, 0, 1, 2, NON_FINITE),
        "Domain": ("a", "b"),
        "Sampler": SAMPLERS,
        "Value": tuple(canonical_kv(typing.cast(Any, p)) for p in prefixes),
        "Logits": tuple(forward(typing.cast(Any, p)) for p in prefixes),
    }


def universe_of(s: State) -> dict[str, Iterable[Any]]:
    """What quantifiers range over in a state."""
    holders = {r for page in s.pages.values() for r in page.holders}
    longest = max([len(sequence(r)) for r in s.requests.values()] + [len(r.table) for r in s.requests.values()] + [4])
    atoms = {name: tuple(dict.fromkeys(values)) for name, values in atoms_of(s).items()}
    return {
        **atoms,
        "RequestId": tuple({*s.requests, *s.seen, *holders, "nobody"}),
        "PageId": tuple({*range(6), *s.pages, *s.capacity}),
        "Int": range(-2, longest + 3),
    }


def corrupted(s: State, rng: random.Random) -> State:
    """The state with one field of one record replaced by something of its type."""
    draw = Samples(rng, atoms_of(s))
    choice = rng.random()
    if s.requests and choice < 0.45:
        r = rng.choice(sorted(s.requests))
        return dataclasses.replace(s, requests={**s.requests, r: with_one_field(s.requests[r], draw)})
    if s.pages and choice < 0.9:
        p = rng.choice(sorted(s.pages))
        if rng.random() < 0.2:
            return dataclasses.replace(s, pages={k: v for k, v in s.pages.items() if k != p})
        return dataclasses.replace(s, pages={**s.pages, p: with_one_field(s.pages[p], draw)})
    return dataclasses.replace(s, page_size=rng.randrange(0, 4))


def some_state(rng: random.Random) -> State:
    """A state from a walk, sound two times in five, else corrupted once or more."""
    visits = list(walk(rng, rng.randrange(1, 120)))
    s = visits[-1].after if visits else initial(frozenset({PageId(0), PageId(1)}), 2)
    for _ in range(max(0, rng.randrange(-1, 4))):
        s = corrupted(s, rng)
    return s


def some_rows(s: State, rng: random.Random) -> Rows:
    """The rows of a forward, as packing would make them; now and then one is wrong."""
    rows: list[Row] = []
    for r, request in s.requests.items():
        tokens, slots = sequence(request), len(request.table) * s.page_size
        for p in range(request.cached, min(len(tokens), slots, request.cached + 2)):
            write = (request.table[p // s.page_size], p % s.page_size)
            rows.append(Row(r, tokens[p], p, write, request.table, p + 1, p + 1 == len(tokens)))
    rows += [Row(None, Token(0), 0, None, (), 0, False)] * rng.randrange(2)
    if rows and rng.random() < 0.4:
        i = rng.randrange(len(rows))
        rows[i] = with_one_field(rows[i], Samples(rng, atoms_of(s)))
    return tuple(rows)


def spec_disagreements(cases: Comparison, rng: random.Random, goals: int) -> list[str]:
    """The specification's functions, compared with Python on a random state."""
    s = some_state(rng)
    proposed: dict[str, tuple[Any, ...]] = {}
    if well_formed(s):
        for action in (proposal(s, rng) for _ in range(30)):
            proposed[RULES[type(action)].effect.__name__] = step.arguments(action)
        proposed["forward_ok"] = (some_rows(s, rng),)
    with eager_quantifiers((actions, invariants, reference, state, step)):
        return cases.disagreements(s, proposed, Samples(rng, atoms_of(s)), universe_of(s), goals)


# ---------------------------------------------------------------- the page pool


KEYS = 5


def pool_comparison(compiler_class: Any, type_of: Types) -> Comparison:
    """Invariants, guards, transitions, invariants after transitions, and matches."""
    return Comparison(
        compiler_class,
        type_of,
        Pool,
        (page_key,),
        pool_invariants.INVARIANTS,
        {name: (getattr(engine, f"{name}_guard"), getattr(engine, name)) for name in engine.TRANSITIONS},
        {"match_next": engine.match_next},
    )


def pool_atoms(pool: Pool) -> dict[str, tuple[Any, ...]]:
    """Identifiers to draw arguments from."""
    return {
        "RequestId": (*sorted(pool.requests), *sorted(pool.requests), "nobody"),
        "PageId": tuple(range(8)),
        "Token": (0, 1),
        "Domain": ("left", "right"),
        "Key": (*pool.index, *range(KEYS)),
    }


def some_pool(rng: random.Random) -> tuple[Pool, dict[str, tuple[Any, ...]]]:
    """A pool from a walk, sound or corrupted, and arguments of some transitions that a caller would pass."""
    steps = Walk(rng, Counter())
    for _ in range(rng.randrange(1, 60)):
        steps.take()
    pool, proposed = steps.lock.pool, dict[str, tuple[Any, ...]]()
    for _ in range(20):
        name, args = steps.sensible() if rng.random() < 0.7 else steps.any()
        if name in engine.TRANSITIONS:
            proposed[name] = steps.lock.spoken(name, args)
    draw = Samples(rng, pool_atoms(pool))
    for _ in range(max(0, rng.randrange(-1, 3))):
        if pool.requests and rng.random() < 0.4:
            r = rng.choice(sorted(pool.requests))
            pool = dataclasses.replace(pool, requests=pool.requests.set(r, with_one_field(pool.requests[r], draw)))
        elif pool.pages and rng.random() < 0.8:
            p = rng.choice(sorted(pool.pages))
            pool = dataclasses.replace(pool, pages=pool.pages.set(p, with_one_field(pool.pages[p], draw)))
        else:
            pool = with_one_field(pool, draw)
    # Few keys, so that quantifiers can range over all of them; the hash is an unknown function to proofs anyway.
    # Division by what is negative is defined in Python, and not in the subset.
    return dataclasses.replace(pool, key_space=KEYS, page_size=max(0, pool.page_size)), proposed


def pool_disagreements(cases: Comparison, rng: random.Random, goals: int) -> list[str]:
    """The page pool's functions, compared with Python on a random pool."""
    pool, proposed = some_pool(rng)
    longest = max([len(holding.table) for holding in pool.requests.values()] + [4])
    universe: dict[str, Iterable[Any]] = {
        **pool_atoms(pool),
        "RequestId": tuple({*pool.requests, "nobody"}),
        "PageId": tuple({*range(8), *pool.pages, *pool.capacity, *pool.free}),
        "Key": tuple({*pool.index, *range(KEYS)}),
        "Int": range(-2, longest + 3),
    }
    with eager_quantifiers((engine, pool_invariants, pool_state)):
        return cases.disagreements(pool, proposed, Samples(rng, pool_atoms(pool)), universe, goals)
