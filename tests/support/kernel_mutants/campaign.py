"""Many mutants: each is proved or refused, and run on the recorded launches."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from kernel_mutants.forms import Form
from kernel_mutants.inputs import prepared
from kernel_mutants.kept import Kept, line
from kernel_mutants.outcomes import REASONS, Outcome, reasons
from kernel_mutants.runs import Runs
from kernel_mutants.trial import tried


def campaign(
    inputs: Path,
    kept: Kept,
    most: int | None = None,
    attention: int | None = None,
    chosen: re.Pattern[str] = re.compile(".*"),
    progress: Callable[[Outcome], None] = lambda outcome: None,
    jobs: int = 1,
) -> tuple[Outcome, ...]:
    """Try mutants of the forms, those of least rank first, and run each.

    Args:
        inputs: a file of `kernel_mutants.inputs`.
        kept: outcomes of mutants that are not tried again; the others' are added.
        most: how many of each form; all, if there is none.
        attention: how many of each of attention's forms, whose proofs take half a second.
        chosen: a pattern for the names of forms.
        progress: called with each outcome that is found, in any order.
        jobs: how many processes share the work.
    """
    known = reasons(REASONS)
    asked = {
        (form.name, number): (form, mutant)
        for form in prepared(inputs).forms()
        if chosen.fullmatch(form.name)
        for number, mutant in enumerate(form.mutants[: attention if form.kernel.startswith("attention") else most])
    }
    left = [key for key, one in asked.items() if kept.outcome(*one, known) is None]
    by_name = {(form.name, mutant.kind, mutant.name): (form, mutant) for form, mutant in asked.values()}

    def found(one: dict[str, Any]) -> None:
        kept.add(one)
        outcome = kept.outcome(*by_name[one["form"], one["kind"], one["name"]], known)
        assert outcome is not None
        progress(outcome)

    attempt = partial(_attempt, inputs)
    if jobs == 1:
        for key in left:
            found(attempt(key))
    elif left:
        with get_context("fork").Pool(jobs) as pool:
            for one in pool.imap_unordered(attempt, left, chunksize=4):
                found(one)
    outcomes = (kept.outcome(*one, known) for one in asked.values())
    return tuple(outcome for outcome in outcomes if outcome is not None)


def _attempt(inputs: Path, key: tuple[str, int]) -> dict[str, Any]:
    """What comes of a form's mutant of that number."""
    name, number = key
    form, runs = _ready(inputs, name)
    return line(tried(form, form.mutants[number], (), runs))


@cache
def _ready(inputs: Path, name: str) -> tuple[Form, Runs]:
    """A form, which is proved itself, and its launches: once in a process."""
    given = prepared(inputs)
    (form,) = [one for one in given.forms() if one.name == name]
    form.prove(form.ir)
    return form, Runs(form, given.launches[name])
