"""Many mutants: each is proved or refused, and run on the recorded launches, and what comes of them is counted."""

from __future__ import annotations

import csv
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kernel_mutants.forms import FORMS, SUPPORT, Form, record
from kernel_mutants.operators import Mutant
from kernel_mutants.places import Place, named
from kernel_mutants.runs import SECONDS, EndlessError, Runs, limited
from vosti.kernels.verifier.errors import VerifierError
from vosti.kernels.verifier.ir import Kernel

REASONS = SUPPORT.parent / "verifier" / "equivalent.tsv"
"""Why mutants that are proved change nothing."""

OBLIGATIONS = {
    "front": r"is not understood|is not a list of|have|has types that|operands whose types|unexpected text|"
    r"is not one operation of the two lanes|the step of a loop|"
    r"depends on a floating-point number|depends on numbers|a carried |what a loop leaves",
    "premises": r"The premises contradict|A store never takes place|The compiler takes",
    "integers": r"An integer leaves its type",
    "bounds": r"is out of bounds|is not in the contract",
    "cells": r"is written by another than|goes to no cell|misses its cell|Two stores|has two names|"
    r"does not say what is written|The contract names other",
    "coverage": r"A cell of \w+ is not written|Nothing is written to",
    "reads": r"is read and written|A (?:program|lane) reads what another|may be read after|A load of what|"
    r"What \w+ holds is read by|is read where nothing was written",
    "value": r"The kernel |Two (?:constants|integers|conditions|parameters) differ|A chain of another length|"
    r"[Aa] product |The loop's iterations|A loop runs backwards|Loop |A part of loop|An iteration of loop|"
    r"A masked|States of loops|Cell \d+ of loop|has an order that depends on the layout|An iteration does not add|"
    r"A sum of another length|A loop within a loop",
}
"""Obligation → what its findings say."""


@dataclass(frozen=True)
class Reason:
    """Why mutants that are proved are the same kernel as before."""

    kernel: re.Pattern[str]
    kind: str
    change: re.Pattern[str]
    words: str

    def explains(self, form: Form, mutant: Mutant) -> bool:
        """Whether it is about this mutant."""
        return (
            mutant.kind == self.kind
            and self.kernel.fullmatch(form.name) is not None
            and self.change.fullmatch(mutant.change) is not None
        )


def reasons(path: Path) -> list[Reason]:
    """Those of a file."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, dialect="excel-tab", quoting=csv.QUOTE_NONE)
        return [Reason(re.compile(row["form"]), row["kind"], re.compile(row["change"]), row["reason"]) for row in rows]


@dataclass(frozen=True)
class Outcome:
    """What came of a mutant."""

    form: str
    mutant: Mutant
    finding: str | None
    """Of the verifier; None if the mutant is proved."""

    place: Place | None
    """Which operation the finding names."""

    error: str | None
    """What was raised that is no finding."""

    runs: str | None
    """What the launches show: same, differs, undefined; None if it was not run."""

    reasons: tuple[Reason, ...]
    """That are about it. A mutant that is proved needs one."""

    seconds: float

    @property
    def obligation(self) -> str:
        """That the finding is about."""
        text = (self.finding or "").partition("\n")[0]
        return next((name for name, pattern in OBLIGATIONS.items() if re.search(pattern, text)), "?")

    @property
    def kind(self) -> str:
        """refused, equivalent (proved, with a reason), unexplained (proved, without), wrong (proved, and differs)."""
        if self.error is not None:
            return "error"
        if self.finding is not None:
            return "refused"
        if self.runs in ("differs", "undefined"):
            return "wrong"
        return "equivalent" if self.reasons else "unexplained"

    def __str__(self) -> str:
        what = self.error or (self.finding or "").partition("\n")[0] or "; ".join(one.words for one in self.reasons)
        return f"{self.kind:11} {self.form} | {self.mutant.kind} | {self.mutant.name} | {what}"


def tried(form: Form, mutant: Mutant, known: Sequence[Reason], runs: Runs | None = None) -> Outcome:
    """Prove one mutant, and run it."""
    finding = place = error = None
    kernel: Kernel | None = None
    begun = time.process_time()
    try:
        kernel = mutant.made()
        limited(partial(form.prove, kernel))
    except VerifierError as refusal:
        finding = str(refusal)
        place = named(finding, mutant.op, form.ir)
    except EndlessError:
        error = f"no end in {SECONDS} seconds"
    except Exception as other:
        error = f"{type(other).__name__}: {other}"
    seconds = time.process_time() - begun
    shown = runs.of(kernel) if runs is not None and kernel is not None else None
    explained = tuple(one for one in known if one.explains(form, mutant)) if finding is None else ()
    return Outcome(form.name, mutant, finding, place, error, shown, explained, seconds)


@dataclass(frozen=True)
class Report:
    """What came of some mutants."""

    outcomes: tuple[Outcome, ...]

    def of(self, *kinds: str) -> list[Outcome]:
        """The mutants of some kinds."""
        return [outcome for outcome in self.outcomes if outcome.kind in kinds]

    def _counts(self, head: str, groups: Mapping[str, list[Outcome]]) -> Iterator[str]:
        """How many mutants came to what, for each group and together."""
        columns = [*OBLIGATIONS, "equivalent", "unexplained", "wrong", "error"]
        yield f"| {head} | mutants | {' | '.join(columns)} | s |"
        yield f"| --- |{' ---: |' * (len(columns) + 2)}"
        for name, own in {**groups, "**all**": list(self.outcomes)}.items():
            counted = Counter(one.obligation if one.kind == "refused" else one.kind for one in own)
            cells = [str(counted[column] or "") for column in columns]
            yield f"| {name} | {len(own)} | {' | '.join(cells)} | {sum(one.seconds for one in own):.0f} |"
        yield ""

    def lines(self) -> Iterator[str]:
        """The report, as tables."""
        forms: dict[str, list[Outcome]] = {}
        kinds: dict[str, list[Outcome]] = {}
        for one in self.outcomes:
            forms.setdefault(one.form, []).append(one)
            kinds.setdefault(one.mutant.kind, []).append(one)
        yield from self._counts("form", forms)
        yield from self._counts("change", dict(sorted(kinds.items())))
        yield "| obligation | " + " | ".join(place.value for place in Place) + " |"
        yield f"| --- |{' ---: |' * len(Place)}"
        for obligation in OBLIGATIONS:
            own = [one for one in self.of("refused") if one.obligation == obligation]
            places = Counter(one.place for one in own)
            yield f"| {obligation} | {' | '.join(str(places[place] or '') for place in Place)} |"
        yield ""
        yield "| why it changes nothing | mutants |"
        yield "| --- | ---: |"
        why = Counter(one.reasons[0].words for one in self.of("equivalent"))
        yield from (f"| {words} | {count} |" for words, count in why.most_common())
        yield ""
        runs = Counter((outcome.kind, outcome.runs) for outcome in self.outcomes)
        yield from (f"{kind}, launches: {found}: {count}" for (kind, found), count in runs.most_common())
        yield from (str(outcome) for outcome in self.of("unexplained", "wrong", "error"))


def campaign(
    most: int | None = None,
    attention: int | None = None,
    chosen: re.Pattern[str] = re.compile(".*"),
    progress: Callable[[Outcome], None] = lambda outcome: None,
) -> Report:
    """Try mutants of the forms, those of least rank first, and run each.

    Args:
        most: how many of each form; all, if there is none.
        attention: how many of each of attention's forms, whose proofs take a second.
        chosen: a pattern for the names of forms.
        progress: called with each outcome.
    """
    launches, known = record(), reasons(REASONS)
    outcomes: list[Outcome] = []
    for form in FORMS:
        if chosen.fullmatch(form.name):
            form.prove(form.ir)
            runs = Runs(form, form.launches(launches))
            for mutant in form.mutants[: attention if form.kernel.startswith("attention") else most]:
                outcomes.append(tried(form, mutant, known, runs))
                progress(outcomes[-1])
    return Report(tuple(outcomes))
