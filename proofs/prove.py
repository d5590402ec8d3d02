"""All theorems, and what two solvers say of their obligations.

A theorem is proved if each of its obligations is proved by every solver that is asked. "Not proved" and "gave up" are
failures alike.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

from vosti.proofs import (
    axioms,
    canonical_output,
    cuts,
    definedness,
    determinism,
    forward_order,
    forward_rows,
    inductive,
    pool_composites,
    pool_consequences,
    pool_matches,
    pool_refinement,
    pool_rows,
    postconditions,
    reuse,
    two_states,
)
from vosti.proofs.book import Replaced
from vosti.refinement.smt.obligation import Obligation
from vosti.refinement.smt.solve import LIMITS, SOLVERS, Answer, Limits, Verdict, exported, identity, solve

THEOREMS: Mapping[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        axioms,
        inductive,
        definedness,
        two_states,
        canonical_output,
        forward_order,
        determinism,
        reuse,
        postconditions,
        cuts,
        pool_refinement,
        pool_composites,
        pool_matches,
        pool_rows,
        pool_consequences,
        forward_rows,
    )
}
"""Each module states one theorem in its docstring, and yields its obligations."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "spec": tuple(name for name in THEOREMS if not name.startswith(("pool_", "forward_rows"))),
    "refinement": tuple(name for name in THEOREMS if name.startswith("pool_")),
    "forward": ("forward_rows",),
}
"""The theorems about the specification, those about the engine's page pool, and what a model's forward rests on."""


@dataclass(frozen=True)
class Result:
    """An obligation, and the verdict of each solver that was asked."""

    obligation: Obligation
    verdicts: Mapping[str, Verdict]
    cached: frozenset[str] = frozenset()
    """The solvers whose verdict was found in the cache."""

    @property
    def proved(self) -> bool:
        """Whether everybody who was asked has proved it."""
        return all(verdict.answer is Answer.PROVED for verdict in self.verdicts.values())


@dataclass(frozen=True)
class Report:
    """What came of a set of obligations."""

    results: tuple[Result, ...]

    @property
    def proved(self) -> bool:
        """Whether there was something to prove, and all of it is proved, by one solver at least."""
        return bool(self.results) and all(result.proved and result.verdicts for result in self.results)

    @property
    def failures(self) -> tuple[Result, ...]:
        """The obligations that somebody did not prove."""
        return tuple(result for result in self.results if not result.proved)

    def seconds(self, solver: str) -> float:
        """The processor time that a solver took for all obligations together."""
        return sum(result.verdicts[solver].seconds for result in self.results if solver in result.verdicts)

    def json(self) -> str:
        """One object for each obligation and solver, in JSON."""
        return json.dumps(
            [
                {
                    "obligation": result.obligation.name,
                    "solver": solver,
                    "answer": verdict.answer.value,
                    "seconds": round(verdict.seconds, 3),
                    "resources": verdict.resources,
                    "detail": verdict.detail,
                    "cached": solver in result.cached,
                }
                for result in self.results
                for solver, verdict in result.verdicts.items()
            ],
            indent=1,
        )

    def junit(self) -> str:
        """The same as a JUnit file: a test case for each obligation and solver."""
        suite = ElementTree.Element("testsuite", name="vosti prove")
        for result in self.results:
            for solver, verdict in result.verdicts.items():
                theorem, _, part = result.obligation.name.partition("/")
                case = ElementTree.SubElement(
                    suite, "testcase", classname=f"{theorem}.{solver}", name=part, time=f"{verdict.seconds:.3f}"
                )
                if verdict.answer is not Answer.PROVED:
                    ElementTree.SubElement(case, "failure", message=verdict.answer.value).text = verdict.detail
        return ElementTree.tostring(suite, encoding="unicode")


def obligations(theorems: Iterable[str] = THEOREMS, replaced: Replaced | None = None) -> list[Obligation]:
    """The obligations of some theorems; of all of them, unless told otherwise.

    Raises:
        ValueError: if there is no such theorem.
    """
    found: list[Obligation] = []
    for name in theorems:
        if name not in THEOREMS:
            raise ValueError(f"no theorem is called {name!r}: {', '.join(THEOREMS)}")
        found += THEOREMS[name].obligations(replaced)
    return found


def concerns(obligation: Obligation, action: str | None, conjunct: str | None) -> bool:
    """Whether an obligation is about an action, and a conjunct or statement; None is any."""
    words = re.findall(r"\w+", obligation.name.partition("/")[2])
    return (action is None or words[0] in (action, f"{action}_guard")) and (conjunct is None or conjunct in words)


def prove(
    theorems: Iterable[str] = THEOREMS,
    *,
    action: str | None = None,
    conjunct: str | None = None,
    solvers: Sequence[str] = tuple(SOLVERS),
    limits: Limits = LIMITS,
    jobs: int = 1,
    cache: Path | None = None,
    replaced: Replaced | None = None,
    progress: Callable[[Result], None] | None = None,
) -> Report:
    """Prove theorems.

    Args:
        theorems: their names, keys of `THEOREMS`.
        action: if given, only obligations about this action.
        conjunct: if given, only obligations about this conjunct or statement.
        solvers: who is asked.
        limits: how much each may use for one obligation.
        jobs: how many processes work at a time.
        cache: a folder of earlier proofs, by the hash of all that they depend on; made if missing.
        replaced: other texts for some functions.
        progress: called with each result, in the order of the obligations.

    Raises:
        ValueError: if there is no such theorem or solver.
    """
    chosen = [o for o in obligations(theorems, replaced) if concerns(o, action, conjunct)]
    return discharge(chosen, solvers=solvers, limits=limits, jobs=jobs, cache=cache, progress=progress)


def discharge(
    chosen: Sequence[Obligation],
    *,
    solvers: Sequence[str] = tuple(SOLVERS),
    limits: Limits = LIMITS,
    jobs: int = 1,
    cache: Path | None = None,
    progress: Callable[[Result], None] | None = None,
) -> Report:
    """What the solvers say of some obligations; the arguments are those of `prove`.

    Raises:
        ValueError: if there is no such solver.
    """
    unknown = [solver for solver in solvers if solver not in SOLVERS]
    if unknown:
        raise ValueError(f"no solver is called {unknown[0]!r}: {', '.join(SOLVERS)}")
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True)
    tasks = [(o, tuple(solvers), limits, cache) for o in chosen]
    results = []
    if jobs == 1:
        for task in tasks:
            results.append(_result(task))
            if progress:
                progress(results[-1])
    else:
        # A fresh interpreter for each worker: a fork would copy whatever threads this process has.
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as workers:
            try:
                for result in workers.map(_result, tasks, chunksize=4):
                    results.append(result)
                    if progress:
                        progress(result)
            except BaseException:
                workers.shutdown(wait=False, cancel_futures=True)  # nobody waits for what is left
                raise
    return Report(tuple(results))


def _result(task: tuple[Obligation, tuple[str, ...], Limits, Path | None]) -> Result:
    """The verdicts on one obligation, from the cache where they are there."""
    obligation, solvers, limits, cache = task
    verdicts, cached = dict[str, Verdict](), set[str]()
    for solver in solvers:
        path = _cached(obligation, solver, limits, cache)
        resources = _kept(path)
        if resources is not None:
            verdicts[solver] = Verdict(Answer.PROVED, 0.0, resources, "unsat")
            cached.add(solver)
            continue
        verdicts[solver] = solve(obligation.script, solver, limits)
        if path is not None and verdicts[solver].answer is Answer.PROVED:
            _keep(path, verdicts[solver].resources)
    return Result(obligation, verdicts, frozenset(cached))


def _cached(obligation: Obligation, solver: str, limits: Limits, cache: Path | None) -> Path | None:
    """Where a proof is kept: it depends on the script, the solver, its version and options, and the limit."""
    if cache is None:
        return None
    key = hashlib.sha256(f"{identity(solver, limits)}\n{obligation.script}".encode()).hexdigest()
    return cache / key


def _kept(path: Path | None) -> int | None:
    """The resources that an earlier proof took, or None if there is none, or no whole one."""
    try:
        return None if path is None else int(path.read_text())
    except (OSError, ValueError):
        return None


def _keep(path: Path, resources: int) -> None:
    """Write down that there is a proof. Whoever looks meanwhile sees nothing, or all of it."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(str(resources))
    Path(file.name).replace(path)


def export(directory: Path, chosen: Iterable[Obligation]) -> list[Path]:
    """Write each obligation as an SMT-LIB file for each solver, and return the paths."""
    paths = []
    for obligation in chosen:
        stem = "".join(c if c.isalnum() or c in "._-" else "_" for c in obligation.name)
        for solver in SOLVERS:
            path = directory / solver / f"{stem}.smt2"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(exported(obligation.script, solver))
            paths.append(path)
    return paths
