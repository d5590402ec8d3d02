"""The theorems' assumptions are met, and each of them is needed."""

from __future__ import annotations

import pytest

from vosti.impl.pool_invariants import INVARIANTS
from vosti.proofs.mutant_texts import INVARIANT
from vosti.proofs.mutants import NOT_PROVED, SUBJECTS, listed
from vosti.proofs.vacuity import needed, reached
from vosti.spec.invariants import CONJUNCTS, invariant
from vosti.spec.step import RULES, effect, guard

FEW = ("tables_hold", "pages_are_filled")


def test_every_action_happens() -> None:
    """For each action there is a run that reaches it, through states that satisfy Inv."""
    runs = reached()
    assert {rule.effect.__name__ for rule in RULES.values()} == runs.keys()
    for name, run in runs.items():
        s = run.start
        for action in run.actions:
            assert invariant(s)
            assert guard(s, action)
            s = effect(s, action)
        assert invariant(s)
        assert name == RULES[type(run.actions[-1])].effect.__name__


@pytest.mark.parametrize("name", FEW)
def test_a_conjunct_is_needed(name: str) -> None:
    """Without the conjunct some obligation is not proved."""
    assert NOT_PROVED == needed([name], subjects=["spec"])[name].verdict


def test_every_conjunct_is_left_out_once() -> None:
    """Each conjunct of Inv, and each invariant of the pool: `vosti prove --mutants` tries to do without."""
    names = {conjunct.name for conjunct in CONJUNCTS} | {invariant.__name__ for invariant in INVARIANTS}

    assert sorted(names) == sorted(mutant.subjects[0] for _, mutant in listed() if mutant.kind == INVARIANT)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_conjunct_is_needed(subject: str) -> None:
    """Leaving it out breaks an obligation, or it follows from the others."""
    results = needed(subjects=[subject], jobs=2)

    assert results
    assert not [name for name, result in results.items() if result.survives]
