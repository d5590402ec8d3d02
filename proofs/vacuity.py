"""Nothing is proved of nothing.

An implication whose assumptions contradict each other is proved, and says nothing. So the assumptions are met:

- for each action there is a run of the specification, in the plain Python that is proved, to a state that satisfies
  Inv and in which the action's guard holds (`reached`); that the pool's transitions happen in company of a state that
  agrees is a test's matter;
- each conjunct of Inv, and each invariant of the pool, is there for something: without it some obligation is not
  proved, or else it is proved to follow from the others (`needed`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from vosti.proofs.explore_counterexample import Run, name_of
from vosti.proofs.explore_views import Watch
from vosti.proofs.mutant_runs import UNCHANGED, WORLDS, Execution, random_walk
from vosti.proofs.mutant_texts import INVARIANT
from vosti.proofs.mutants import AS_USUAL, SUBJECTS, Result, Trial, mutants
from vosti.spec.step import RULES


def reached(most: int = 60_000, seed: int = 0) -> Mapping[str, Run]:
    """For each action of the specification a run whose last action it is, every state before it satisfying Inv.

    An action that is missing was not reached.

    Args:
        most: after how many actions the search ends.
        seed: which walks are made.

    Raises:
        AssertionError: if a walk contradicts a theorem.
    """
    found: dict[str, Run] = {}
    rng, made, number = random.Random(seed), 0, 0
    while made < most and len(found) < len(RULES):
        walk = Execution(UNCHANGED, WORLDS[number % len(WORLDS)], Watch())
        number += 1
        wrong = random_walk(walk, rng, ())
        assert wrong is None, str(wrong)
        made += len(walk.trace)
        for i, action in enumerate(walk.trace, start=1):
            found.setdefault(name_of(action), Run(walk.bounds.name, walk.bounds.start, tuple(walk.trace[:i])))
    return found


def needed(
    names: Iterable[str] | None = None,
    *,
    subjects: Iterable[str] = SUBJECTS,
    trial: Trial = AS_USUAL,
    jobs: int = 1,
) -> Mapping[str, Result]:
    """What each conjunct of Inv, and each invariant of the pool, is there for: its name → what comes of leaving it out.

    Args:
        names: which of them; all, unless told otherwise.
        subjects: those of the specification, of the pool, or of both.
        trial: the solver, and its limits.
        jobs: how many processes work at a time.
    """
    wanted = None if names is None else set(names)
    report = mutants(
        subjects,
        trial=trial,
        jobs=jobs,
        chosen=lambda subject, mutant: mutant.kind == INVARIANT and (wanted is None or mutant.subjects[0] in wanted),
    )
    return {result.mutant.subjects[0]: result for result in report.results}
