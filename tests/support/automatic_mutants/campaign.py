"""Many mutants: each is tried on its own, and survivors are to be explained.

A survivor whose reason is written down (`equivalent.tsv`: name, a tab, the reason) is *equivalent*: it is no fault,
because what it changes is a choice that may be made either way, or has no effect. Any other survivor is *unexplained*.
"""

from __future__ import annotations

import csv
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from automatic_mutants.operators import Mutant, mutants
from automatic_mutants.trial import Reference, Verdict, reference_of, tried

MODULES = ("planning", "packing", "settling", "engine", "ghost", "rows", "abstraction", "pool")
"""The control plane."""

NAMES = ("twins", "chains", "domains", "values", "endings", "busy", "door")
"""The scenarios, in the order of `automatic_mutants.scenarios.SCENARIOS`, which imports the engine; and the door."""

PRELOADED = [
    "torch",
    "numpy",
    "msgspec",
    "immutables",
    "safetensors",
    "vosti.refinement.audit",
    "vosti.refinement.writer",
]
"""What every trial needs and no mutant touches: imported once."""

MANY = 240
"""How many mutants a whole campaign tries: those of the least rank."""

FEW = 20
"""How many of them the test suite tries."""

ENOUGH = 0.9
"""The share of those mutants that are not equivalent that is killed, at least."""


@dataclass(frozen=True)
class Outcome:
    """A mutant, and what came of it."""

    mutant: Mutant
    verdict: Verdict
    reason: str | None
    """Why it is no fault, if that is written down."""

    @property
    def kind(self) -> str:
        """ "killed", "equivalent" or "unexplained"."""
        if self.verdict.killed:
            return "killed"
        return "unexplained" if self.reason is None else "equivalent"


@dataclass(frozen=True)
class Report:
    """What came of some mutants."""

    outcomes: tuple[Outcome, ...]

    def of(self, kind: str) -> list[Outcome]:
        """The mutants of one kind."""
        return [outcome for outcome in self.outcomes if outcome.kind == kind]

    @property
    def share(self) -> float:
        """How many of the mutants that are not equivalent were killed, as a fraction."""
        killed, unexplained = len(self.of("killed")), len(self.of("unexplained"))
        return killed / max(1, killed + unexplained)

    def __str__(self) -> str:
        """The numbers, what killed how many first, and every survivor with its reason."""
        checks = Counter(outcome.verdict.killed_by for outcome in self.of("killed"))
        lines = [
            f"{len(self.outcomes)} mutants: {len(self.of('killed'))} killed, {len(self.of('equivalent'))} equivalent, "
            f"{len(self.of('unexplained'))} unexplained; {self.share:.1%} of those that are not equivalent killed",
            *(f"{count:5} by {check}" for check, count in checks.most_common()),
            *(f"equivalent: {o.mutant.name} ({o.reason})" for o in self.of("equivalent")),
            *(f"unexplained: {o.mutant.name}" for o in self.of("unexplained")),
        ]
        return "\n".join(lines)


def shown(outcome: Outcome) -> str:
    """A line for an outcome."""
    return f"{outcome.kind:12} {outcome.verdict.killed_by:32} {outcome.mutant.name}"


def all_mutants(folder: Path, modules: Iterable[str] = MODULES) -> list[Mutant]:
    """The mutants of the control plane, in a fixed order in which neighbours have nothing in common.

    Args:
        folder: the engine's package.
        modules: which of its modules.
    """
    found = [m for module in modules for m in mutants(module, (folder / f"{module}.py").read_text(encoding="utf-8"))]
    return sorted(found, key=lambda mutant: mutant.rank)


def reasons(path: Path) -> dict[str, str]:
    """Name of a survivor → why it is no fault."""
    with path.open(encoding="utf-8", newline="") as file:
        return {
            row["mutant"]: row["reason"] for row in csv.DictReader(file, dialect="excel-tab", quoting=csv.QUOTE_NONE)
        }


def _reference(connection: Connection, name: str) -> None:
    connection.send(reference_of(name))


def _trial(connection: Connection, mutant: Mutant, references: Mapping[str, Reference]) -> None:
    connection.send(tried(mutant.module, mutant.source, references, tuple(references)))


def campaign(
    some: Sequence[Mutant],
    known: Mapping[str, str],
    *,
    jobs: int = 2,
    progress: Callable[[Outcome], None] = lambda outcome: None,
) -> Report:
    """Try mutants, each in a process and a copy of the package of its own.

    Args:
        some: the mutants.
        known: the reasons of survivors, by name.
        jobs: how many processes work at a time.
        progress: called with each outcome, in the order of the mutants.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)

    def apart(target: Callable[..., None], *args: object) -> object:
        """What a process of its own sends; None if it dies."""
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=target, args=(sending, *args))
        process.start()
        sending.close()
        try:
            return receiving.recv()
        except EOFError:
            return None
        finally:
            process.join()

    def outcome_of(mutant: Mutant) -> Outcome:
        found = apart(_trial, mutant, references)
        verdict = found if isinstance(found, Verdict) else Verdict("does not end", "", "time or memory ran out")
        return Outcome(mutant, verdict, known.get(mutant.name))

    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(jobs) as threads:
        references: dict[str, Reference] = {}
        for name, reference in zip(NAMES, threads.map(lambda name: apart(_reference, name), NAMES), strict=True):
            assert isinstance(reference, Reference), f"the whole engine fails in {name}"
            references[name] = reference
        for outcome in threads.map(outcome_of, some):
            outcomes.append(outcome)
            progress(outcome)
    return Report(tuple(outcomes))
