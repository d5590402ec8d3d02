"""Outcomes kept in a file, from which a campaign that was interrupted goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from kernel_mutants import __file__ as package
from kernel_mutants.forms import PROGRAM, SUPPORT, Form
from kernel_mutants.operators import Mutant
from kernel_mutants.outcomes import Outcome, Reason, explained
from kernel_mutants.places import Place
from vosti.kernels import __file__ as kernels

PACKAGES = ("numpy", "torch", "triton", "z3-solver")
REPORTING = ("__main__.py", "kept.py", "outcomes.py", "report.py")
"""Modules that say something of outcomes, which do not depend on them."""


class OtherOutcomesError(Exception):
    """A file holds outcomes of another verifier, or of other kernels or mutants."""


class Kept:
    """The outcomes in a file, each a line, behind one that says what they are of.

    Raises `OtherOutcomesError` if that is not the present code, with the present versions of packages.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.added = 0
        head, *lines = _whole_lines(path) or [f"{digest()}\n"]
        if head != f"{digest()}\n":
            raise OtherOutcomesError(f"{path} holds outcomes of other code: delete it, or name another file.")
        for line in lines:
            one = json.loads(line)
            self._found[one["form"], one["kind"], one["name"]] = one
        path.write_text("".join([head, *lines]), encoding="utf-8")

    def outcome(self, form: Form, mutant: Mutant, known: Sequence[Reason]) -> Outcome | None:
        """What came of a mutant, if that was kept."""
        one = self._found.get((form.name, mutant.kind, mutant.name))
        if one is None:
            return None
        finding, error, place = one["finding"], one["error"], one["place"]
        why = () if finding or error else explained(known, form, mutant)
        seconds = (one["seconds"], one["launches"])
        return Outcome(form.name, mutant, finding, Place[place] if place else None, error, one["runs"], why, *seconds)

    def add(self, outcome: Outcome) -> None:
        """Keep one more."""
        one = {
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
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(one) + "\n")
        self.added += 1


def _whole_lines(path: Path) -> list[str]:
    """The lines of a file; without the last one, if it was interrupted."""
    if not path.exists():
        return []
    return [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]


@cache
def digest() -> str:
    """Of all that outcomes depend on: the source of kernels, verifier, mutants and launches, versions of packages."""
    found = sha256(" ".join(f"{name} {metadata.version(name)}" for name in PACKAGES).encode())
    for path in _sources():
        found.update(f"{path.name} {sha256(path.read_bytes()).hexdigest()}".encode())
    return found.hexdigest()


def _sources() -> Iterator[Path]:
    ours = Path(kernels).parents[1]
    for folder in ("kernels", "spec", "refinement/smt"):
        yield from sorted((ours / folder).rglob("*.py"))
    yield from (path for path in sorted(Path(package).parent.glob("*.py")) if path.name not in REPORTING)
    yield from sorted((SUPPORT / "kernel_cases").glob("*.py"))
    yield from (PROGRAM, SUPPORT / "launches.py", SUPPORT / "hostile_rows.py")
