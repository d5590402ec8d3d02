"""A run of a suite: takes the cases that are not in the file of results yet, and adds them.

Before the first one, the engine has to show that its logits depend on the tokens: on the first and on the last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from vosti.impl.determinism.cases import Bench, Case
from vosti.impl.determinism.errors import FreshProcessError, IndifferentEngineError
from vosti.impl.determinism.prompts import Geometry, random_prompt, random_tail
from vosti.impl.determinism.protocol import Ask, Subject
from vosti.impl.determinism.results import Results, compare

SHORT = 8
"""Tokens of the prompts that must have other logits, since they differ in one token."""

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

    Raises:
        IndifferentEngineError: if cases are missing, and the engine's logits do not depend on the tokens.
        FreshProcessError: at the end, if a case got no answer from a process of its own: it stays missing.
    """
    bench = Bench(subject, geometry)
    begin = clock()
    done = results.names
    total = sum(case.tokens for case in cases)
    reached = sum(case.tokens for case in cases if case.name in done)
    spent, computed = 0.0, 1
    missing = 0
    todo = [case for case in cases if case.name not in done]
    if todo and seconds != 0:
        check_sensitive(bench)
    unanswered: FreshProcessError | None = None
    for case in todo:
        expected = case.tokens * spent / computed * MARGIN
        if seconds is not None and clock() - begin + expected > seconds:
            missing += 1
            continue
        advance(reached, total)
        started = clock()
        try:
            compared = [compare(pair) for pair in case.run(bench)]
        except FreshProcessError as error:
            unanswered = unanswered or error
            missing += 1
            continue
        if len(compared) != case.count:
            raise AssertionError(f"the case {case.name} yielded {len(compared)} pairs instead of {case.count}")
        took = clock() - started
        spent, computed = spent + took, computed + case.tokens
        results.add(case.name, took, compared)
        reached += case.tokens
    advance(reached, total)
    if unanswered is not None:
        raise unanswered
    return missing


def check_sensitive(bench: Bench) -> None:
    """Serve three prompts of one length, of which two differ from the first in one token.

    Raises `IndifferentEngineError` unless their rows of logits differ.
    """
    vocabulary = bench.subject.vocabulary
    prompt = random_prompt(vocabulary, SHORT, 31_000)
    other = next(token for token in random_tail(vocabulary, vocabulary.size, 31_001) if token not in prompt)
    prompts = (prompt, (prompt[0], other, *prompt[2:]), (*prompt[:-1], other))
    answers = bench.serve(bench.geometry.settings(), *([Ask("sensitive", prompt)] for prompt in prompts))
    if len({answer.rows[:1] for (answer,) in answers}) < len(prompts):
        raise IndifferentEngineError(
            f"Prompts of {SHORT} tokens that differ in one of them have the same logits: equal rows of "
            f"{bench.subject.name} with this model would prove nothing. Are its weights zeros?"
        )
