"""Outcomes kept in a file, from which a campaign that was interrupted goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import z3

from kernel_mutants.forms import Form
from kernel_mutants.inputs import Inputs, OtherCodeError
from kernel_mutants.operators import Mutant
from kernel_mutants.outcomes import Outcome, Reason, explained
from kernel_mutants.places import Place


class Kept:
    """Outcomes by mutant; in a file, if there is one, each a line, behind a first line that says what they are of.

    Raises `OtherCodeError` if the file's are not of these inputs and of the present code and solver.
    """

    def __init__(self, inputs: Inputs, path: Path | None) -> None:
        self._path = path
        self._found: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.added = 0
        expected = f"{inputs.digest}, Triton {inputs.triton}, Z3 {z3.get_version_string()}\n"
        head, *lines = _whole_lines(path) or [expected]
        for one in map(json.loads, lines):
            # What raised an error may have been the machine: it is tried again.
            if one["error"] is None:
                self._hold(one)
        if path is not None:
            if head != expected:
                raise OtherCodeError(path)
            path.write_text("".join([head, *lines]), encoding="utf-8")

    def outcome(self, form: Form, mutant: Mutant, known: Sequence[Reason]) -> Outcome | None:
        """What came of a mutant, if that is kept; with the reasons that are known."""
        one = self._found.get((form.name, mutant.kind, mutant.name))
        if one is None:
            return None
        finding, error, place = one["finding"], one["error"], one["place"]
        why = () if finding or error else explained(known, form, mutant)
        seconds = (one["seconds"], one["launches"])
        return Outcome(form.name, mutant, finding, Place[place] if place else None, error, one["runs"], why, *seconds)

    def add(self, one: dict[str, Any]) -> None:
        """Keep one more, as `line` gives it."""
        self._hold(one)
        self.added += 1
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(one) + "\n")

    def _hold(self, one: dict[str, Any]) -> None:
        self._found[one["form"], one["kind"], one["name"]] = one


def line(outcome: Outcome) -> dict[str, Any]:
    """An outcome without its reasons, for JSON."""
    return {
        "form": outcome.form,
        "kind": outcome.mutant.kind,
        "name": outcome.mutant.name,
        "finding": outcome.finding,
        "place": outcome.place and outcome.place.name,
        "error": outcome.error,
        "runs": outcome.runs,
        "seconds": outcome.seconds,
        "launches": outcome.launches,
    }


def _whole_lines(path: Path | None) -> list[str]:
    """The lines of a file; without the last one, if it was interrupted."""
    if path is None or not path.exists():
        return []
    return [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
