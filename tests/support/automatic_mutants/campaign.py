"""Many mutants: each is tried on its own, and what comes of them is counted.

A survivor whose reason is written down (`equivalent.tsv`: name, a tab, the reason) is *equivalent*: what it changes has
no effect, or is a choice that the specification leaves open. Any other survivor is listed, and counts against the
share of those that are killed.
"""

from __future__ import annotations

import ast
import csv
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from automatic_mutants.operators import Mutant, mutants
from automatic_mutants.trial import End, Verdict, tried

MODULES = ("planning", "packing", "settling", "engine", "ghost", "rows", "abstraction", "pool")
"""The control plane."""

PRELOADED = [
    "torch",
    "numpy",
    "msgspec",
    "immutables",
    "safetensors",
    "tokenizers",
    "click.testing",
    "pytest",
    "vosti.refinement.audit",
    "vosti.refinement.writer",
]
"""What every trial needs and no mutant touches: imported once."""

MANY = 240
"""How many mutants a whole campaign tries: those of the least rank."""

FEW = 20
"""How many of them the test suite tries."""

ENOUGH = 0.9
"""The share of those mutants that are not equivalent that is killed in a whole campaign, at least."""

MOST = 0.75
"""The same for the few, in which one survivor more or less weighs much."""


@dataclass(frozen=True)
class Outcome:
    """A mutant, and what came of it."""

    mutant: Mutant
    verdict: Verdict
    reason: str | None
    """Why it is no fault, if that is written down."""

    @property
    def kind(self) -> str:
        """ "killed", "equivalent" or "survivor"."""
        if self.verdict.killed:
            return "killed"
        return "survivor" if self.reason is None else "equivalent"


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
        killed, survivors = len(self.of("killed")), len(self.of("survivor"))
        return killed / max(1, killed + survivors)

    def __str__(self) -> str:
        """The numbers, how the killed ones ended and by what first, and each of the others."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        killed = self.of("killed")
        yield (
            f"{len(self.outcomes)} mutants: {len(killed)} killed, {len(self.of('equivalent'))} equivalent, "
            f"{len(self.of('survivor'))} survivors; {self.share:.1%} of those that are not equivalent killed"
        )
        for end in End:
            found = Counter(outcome.verdict.what for outcome in killed if outcome.verdict.end is end)
            if found:
                yield f"{found.total():5} {end.value}"
                yield from (f"{count:10} {what}" for what, count in found.most_common())
        before = Counter(outcome.verdict.before for outcome in killed if outcome.verdict.before)
        yield f"{before.total():5} of the errors come after a step that is not the specification's"
        yield from (f"{count:10} {what}" for what, count in before.most_common())
        yield from (f"equivalent: {outcome.mutant.name} ({outcome.reason})" for outcome in self.of("equivalent"))
        yield from (f"survivor: {outcome.mutant.name}" for outcome in self.of("survivor"))


def shown(outcome: Outcome) -> str:
    """A line for an outcome."""
    verdict = outcome.verdict
    what = " ".join(filter(None, (verdict.what, verdict.before)))
    return f"{outcome.kind:10} {verdict.end.name:8} {verdict.workload:6} {what:32} {outcome.mutant.name}"


def all_mutants(folder: Path, modules: Iterable[str] = MODULES) -> list[Mutant]:
    """The mutants of the control plane, in a fixed order in which neighbours have nothing in common.

    Args:
        folder: the engine's package.
        modules: which of its modules.
    """
    texts = {module: (folder / f"{module}.py").read_text(encoding="utf-8") for module in modules}
    idle = unused(texts)
    found = [m for module, text in texts.items() for m in mutants(module, text) if (module, m.function) not in idle]
    return sorted(found, key=lambda mutant: mutant.rank)


def unused(texts: Mapping[str, str]) -> set[tuple[str, str]]:
    """The functions of the page pool that nobody in the engine calls, with their module.

    They are there to be proved of (attach, of which attach_prefix is a sequence): no run can show what is wrong with
    them, and `vosti prove --mutants` changes them.
    """
    functions = {node.name: node for node in ast.parse(texts.get("pool", "")).body if isinstance(node, ast.FunctionDef)}
    others = [ast.parse(text) for module, text in texts.items() if module != "pool"]
    called, new = set[str](), {name for tree in others for name in _mentioned(tree)} & functions.keys()
    while new:
        called |= new
        new = {name for f in new for name in _mentioned(functions[f])} & functions.keys() - called
    return {("pool", name) for name in functions.keys() - called}


def _mentioned(tree: ast.AST) -> Iterator[str]:
    """The names in a text, and those of other modules' functions (`pools.evict`)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pools":
            yield node.attr


def reasons(path: Path) -> dict[str, str]:
    """Name of a survivor → why it is no fault."""
    with path.open(encoding="utf-8", newline="") as file:
        return {
            row["mutant"]: row["reason"] for row in csv.DictReader(file, dialect="excel-tab", quoting=csv.QUOTE_NONE)
        }


def _trial(connection: Connection, module: str, source: str | None) -> None:
    connection.send(tried(module, source))


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

    def apart(module: str, source: str | None) -> Verdict:
        """What comes of a trial in a process of its own, which may die of it."""
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=_trial, args=(sending, module, source))
        process.start()
        sending.close()
        try:
            found = receiving.recv()
        except EOFError:
            return Verdict(End.ENDLESS, "time or memory", "")
        finally:
            process.join()
        assert isinstance(found, Verdict)
        return found

    whole = apart("engine", None)
    assert not whole.killed, f"the whole engine is not found to refine: {whole}"
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(jobs) as threads:
        verdicts = threads.map(lambda mutant: apart(mutant.module, mutant.source), some)
        for mutant, verdict in zip(some, verdicts, strict=True):
            outcomes.append(Outcome(mutant, verdict, known.get(mutant.name)))
            progress(outcomes[-1])
    return Report(tuple(outcomes))
