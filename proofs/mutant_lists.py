"""The mutants of the specification and of the page pool: those made by rule, and the classic mistakes."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Sequence

from vosti.impl import pool, pool_invariants
from vosti.proofs import mutant_texts as texts
from vosti.proofs.mutant_mistakes import POOL_MISTAKES, SPEC_MISTAKES, Mistake
from vosti.proofs.mutant_texts import CLASSIC, EFFECT, GUARD, INVARIANT, Mutant
from vosti.spec import actions, invariants
from vosti.spec.step import RULES


def spec_mutants() -> Iterator[Mutant]:
    """The mutants of the specification."""
    found = texts.functions(actions)
    subjects = {kind: (rule.guard.__name__, rule.effect.__name__) for kind, rule in RULES.items()}
    guards, effects = ({pair[1]: pair[i] for pair in subjects.values()} for i in (0, 1))
    yield from by_rule(actions, found, guards, GUARD)
    yield from by_rule(actions, found, effects, EFFECT)
    for conjunct in invariants.CONJUNCTS:
        yield dropped(invariants, conjunct.name)
    yield from by_hand(actions, SPEC_MISTAKES)


def pool_mutants() -> Iterator[Mutant]:
    """The mutants of the page pool."""
    found = texts.functions(pool)
    yield from by_rule(pool, found, {name: f"{name}_guard" for name in pool.TRANSITIONS}, GUARD)
    yield from by_rule(pool, found, {name: name for name in pool.TRANSITIONS}, EFFECT)
    for invariant in pool_invariants.INVARIANTS:
        yield dropped(pool_invariants, invariant.__name__)
    yield from by_hand(pool, POOL_MISTAKES)


def by_rule(
    module: types.ModuleType, found: dict[str, ast.FunctionDef], roots: dict[str, str], kind: str
) -> Iterator[Mutant]:
    """The mutants that are made by rule, of the functions that some guards, or some effects, are made of.

    Args:
        module: where the functions stand.
        found: its functions.
        roots: action → its guard, or its effect.
        kind: `GUARD` or `EFFECT`.
    """
    users: dict[str, list[str]] = {}
    for action, root in roots.items():
        for name in texts.used(found, root):
            users.setdefault(name, []).append(action)
    for name, subjects in users.items():
        made = (
            texts.without_conjunct(found[name], alone=name in roots.values())
            if kind == GUARD
            else texts.without_update(found[name])
        )
        where = "" if name in roots.values() else f"{name}, "
        for change, text in made:
            if kind == GUARD and ast.unparse(text.returns or ast.Constant(None)) != "bool":
                continue
            yield Mutant(kind, tuple(subjects), f"{where}{change}", {f"{module.__name__}.{name}": text})


def dropped(module: types.ModuleType, name: str) -> Mutant:
    """A conjunct of an invariant, left out."""
    text = texts.always_true(texts.functions(module)[name])
    return Mutant(INVARIANT, (name,), "left out", {f"{module.__name__}.{name}": text})


def by_hand(module: types.ModuleType, mistakes: Sequence[Mistake]) -> Iterator[Mutant]:
    """Mutants that are written down."""
    for subjects, change, function, old, new in mistakes:
        yield Mutant(CLASSIC, subjects, change, texts.mistaken(module, function, old, new))
