"""What came of a mutant, and why some that are proved change nothing."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_mutants.forms import SUPPORT, Form
from kernel_mutants.operators import Mutant
from kernel_mutants.places import Place

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
    r"A sum of another length|A loop within a loop|a sum of integers is not shown",
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


def explained(known: Sequence[Reason], form: Form, mutant: Mutant) -> tuple[Reason, ...]:
    """Those that are about a mutant."""
    return tuple(one for one in known if one.explains(form, mutant))


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
    """That are about it. A mutant that is proved needs one, and no more."""

    seconds: float
    """Of the processor, for the proof."""

    launches: float = 0.0
    """Seconds of the processor for them."""

    @property
    def obligation(self) -> str:
        """That the finding is about."""
        text = (self.finding or "").partition("\n")[0]
        return next((name for name, pattern in OBLIGATIONS.items() if re.search(pattern, text)), "?")

    @property
    def kind(self) -> str:
        """refused, equivalent (proved, for one reason), unexplained (for none, or several), wrong (proved, differs)."""
        if self.error is not None:
            return "error"
        if self.finding is not None:
            return "refused"
        if self.runs in ("differs", "undefined"):
            return "wrong"
        return "equivalent" if len(self.reasons) == 1 else "unexplained"

    @property
    def is_fault(self) -> bool:
        """Whether it is not as it should be: refused for a reason that is known and named where it is, or explained."""
        if self.kind != "refused":
            return self.kind != "equivalent"
        return self.obligation not in OBLIGATIONS or (self.obligation == "value" and self.place is Place.ELSEWHERE)

    def __str__(self) -> str:
        what = self.error or (self.finding or "").partition("\n")[0] or "; ".join(one.words for one in self.reasons)
        return f"{self.kind:11} {self.form} | {self.mutant.kind} | {self.mutant.name} | {what}"
