"""A run of a suite: takes the cases that are not in the file of results yet, and adds them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from vosti.impl.determinism.cases import Bench, Case
from vosti.impl.determinism.prompts import Geometry
from vosti.impl.determinism.protocol import Subject
from vosti.impl.determinism.results import Results, compare

MARGIN = 2.0
"""A case is begun only if this many times what it is expected to take is left."""


def run(
    subject: Subject,
    geometry: Geometry,
    cases: Sequence[Case],
    results: Results,
    *,
    advance: Callable[[float, float], None] = lambda done, total: None,
    seconds: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Run what is missing, in order.

    Args:
        subject: the engine.
        geometry: of the suite.
        cases: all cases of the suite.
        results: which of them are done, and where the others go.
        advance: told how many tokens are done, and of how many.
        seconds: after which no case is begun; none that would take longer than what is left, either.
        clock: seconds that have passed.

    Returns:
        How many cases are still missing.
    """
    bench = Bench(subject, geometry)
    begin = clock()
    done = results.names
    total = sum(case.tokens for case in cases)
    reached = sum(case.tokens for case in cases if case.name in done)
    spent, computed = 0.0, 1
    missing = 0
    for case in cases:
        if case.name in done:
            continue
        expected = case.tokens * spent / computed * MARGIN
        if seconds is not None and clock() - begin + expected > seconds:
            missing += 1
            continue
        advance(reached, total)
        started = clock()
        compared = [compare(pair) for pair in case.run(bench)]
        if len(compared) != case.count:
            raise AssertionError(f"the case {case.name} yielded {len(compared)} pairs instead of {case.count}")
        took = clock() - started
        spent, computed = spent + took, computed + case.tokens
        results.add(case.name, took, compared)
        reached += case.tokens
    advance(reached, total)
    return missing
