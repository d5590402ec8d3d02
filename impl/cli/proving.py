"""Proving, and trying mutants: what is done, and how it is shown."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import click

from vosti.impl.cli.ending import CannotRun
from vosti.impl.cli.junit import Case, suite
from vosti.impl.cli.outcome import Outcome, counted, table
from vosti.impl.cli.progress import progress
from vosti.impl.cli.statistics import hardware, sizes

if TYPE_CHECKING:
    from vosti.impl.cli.prove import Asked
    from vosti.proofs.mutant_texts import Mutant
    from vosti.proofs.mutants import Report as MutantReport
    from vosti.proofs.prove import Report, Result
    from vosti.refinement.smt.obligation import Obligation


# ---------------------------------------------------------------- theorems


def proved(asked: Asked, *, stats: bool) -> Outcome:
    """Prove theorems, and say what came of it."""
    from vosti.proofs import prove

    began = time.perf_counter()
    chosen = _chosen(asked)
    if asked.export is not None:
        asked.export.mkdir(parents=True, exist_ok=True)
        prove.export(asked.export, chosen)
    results = []
    with progress("proving") as advance:

        def take(result: Result) -> None:
            results.append(result)
            advance(len(results), len(chosen))

        report = prove.discharge(chosen, solvers=asked.solvers, jobs=asked.jobs, cache=asked.cache, progress=take)
    seconds = time.perf_counter() - began
    _show_theorems(report, asked)
    if asked.export is not None:
        click.echo(f"{counted(len(chosen), 'obligation')} written to {asked.export}, for each solver with its options.")
    refutations = [] if report.proved else _refutations(report)
    for group, run in refutations:
        click.echo(f"\nRefuted by a run of {group}:\n{run}")
    lines = sizes() if stats else {}
    if stats:
        click.echo()
        click.echo("\n".join(_statistics(report, asked, lines, seconds)))
    click.echo()
    click.echo(_sentence(report, asked))
    document = {
        "proved": report.proved,
        "wall_seconds": round(seconds, 3),
        "machine": hardware(),
        "obligations": json.loads(report.json()),
        "refutations": [{"of": group, "run": run} for group, run in refutations],
    }
    if stats:
        columns = ("implementation", "specification", "proof")
        document["lines"] = {name: dict(zip(columns, counts, strict=True)) for name, counts in lines.items()}
    return Outcome(report.proved, document, (ElementTree.fromstring(report.junit()),))


def _chosen(asked: Asked) -> Sequence[Obligation]:
    """The obligations that were asked for. Raises `CannotRun` if there are none."""
    from vosti.proofs import prove
    from vosti.spec.step import RULES

    theorems = [name for part in asked.parts for name in prove.GROUPS[part]]
    every = prove.obligations(theorems)
    chosen = [one for one in every if prove.concerns(one, asked.action, asked.conjunct)]
    if not chosen:
        wanted = " and ".join(
            f"{kind} {name}" for kind, name in (("action", asked.action), ("conjunct", asked.conjunct)) if name
        )
        actions = ", ".join(rule.effect.__name__ for rule in RULES.values())
        raise CannotRun(
            f"No obligation of {' and '.join(asked.parts)} is about {wanted}: the actions are {actions}, the conjuncts "
            "those of spec/invariants.py, and `vosti prove -v` lists all obligations."
        )
    return chosen


def _show_theorems(report: Report, asked: Asked) -> None:
    """A line for each theorem, or each obligation; then what is not proved."""
    rows = [["theorem", "obligations", *(heading for solver in asked.solvers for heading in (solver, "seconds"))]]
    for theorem, results in _by_theorem(report.results).items():
        cells = [theorem, str(len(results))]
        for solver in asked.solvers:
            proofs = sum(result.verdicts[solver].answer.value == "proved" for result in results)
            cells += [f"{proofs} proved", f"{sum(result.verdicts[solver].seconds for result in results):.1f}"]
        rows.append(cells)
        if asked.verbose:
            rows += [_obligation_row(result, asked.solvers) for result in results]
    totals = [f"{report.seconds(solver):.1f}" for solver in asked.solvers]
    rows.append(["all", str(len(report.results)), *(cell for total in totals for cell in ("", total))])
    click.echo(table(rows))
    for result in report.failures:
        for solver, verdict in result.verdicts.items():
            if verdict.answer.value != "proved":
                click.echo(f"{verdict.answer.value}: {result.obligation.name}: {solver} says {verdict.detail}")


def _by_theorem(results: Iterable[Result]) -> Mapping[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.obligation.name.partition("/")[0], []).append(result)
    return found


def _obligation_row(result: Result, solvers: Sequence[str]) -> list[str]:
    cells = [f"  {result.obligation.name.partition('/')[2]}", ""]
    for solver in solvers:
        verdict = result.verdicts[solver]
        kept = solver in result.cached
        cells += [verdict.answer.value, "kept" if kept else f"{verdict.seconds:.2f}"]
    return cells


def _refutations(report: Report) -> list[tuple[str, str]]:
    """Runs that show that what is not proved is false, as far as a search finds them."""
    from vosti.proofs import mutant_pool_runs, mutant_runs
    from vosti.proofs.prove import GROUPS

    failing = {result.obligation.name.partition("/")[0] for result in report.failures}
    searches = {"spec": ("the specification", mutant_runs), "refinement": ("the page pool", mutant_pool_runs)}
    found = []
    for part, (name, runs) in searches.items():
        if failing & {*GROUPS[part]}:
            run = runs.refutation({})
            if run is not None:
                found.append((name, str(run)))
    return found


def _sentence(report: Report, asked: Asked) -> str:
    """What it comes to."""
    every = counted(len(report.results), "obligation")
    if not report.proved:
        return f"Not proved: {len(report.failures)} of {every}."
    kept = sum(len(result.cached) for result in report.results)
    of_them = f" {kept} of the proofs were found before and kept; --fresh makes them anew." if kept else ""
    return f"Proved: {every}, each by {' and by '.join(asked.solvers)}.{of_them}"


def _statistics(
    report: Report, asked: Asked, lines: Mapping[str, tuple[int, int, int]], seconds: float
) -> Iterator[str]:
    """Our half of the paper's Table 2."""
    rows = [["lines of code", "implementation", "specification", "proof"]]
    rows += [[name, *(f"{count:,}" if count else "-" for count in counts)] for name, counts in lines.items()]
    yield table(rows)
    yield ""
    for solver in asked.solvers:
        yield f"{solver}: {report.seconds(solver):.1f} s of processor time, over all obligations"
    yield f"all of it: {seconds:.1f} s with {counted(asked.jobs, 'process', 'processes')}"
    yield hardware()


# ---------------------------------------------------------------- mutants


def mutated(asked: Asked, subjects: Sequence[str]) -> Outcome:
    """Try mutants, and say what came of them."""
    from vosti.proofs import mutants

    def wanted(subject: str, mutant: Mutant) -> bool:
        return all(name is None or name in mutant.subjects for name in (asked.action, asked.conjunct))

    total = sum(wanted(subject, mutant) for subject, mutant in mutants.listed(subjects))
    if total == 0:
        raise CannotRun(f"No mutant of {' and '.join(subjects)} concerns {asked.action or asked.conjunct}.")
    began, done = time.perf_counter(), 0
    with progress("trying mutants") as advance:

        def take(result: mutants.Result) -> None:
            nonlocal done
            done += 1
            advance(done, total)

        report = mutants.mutants(
            subjects,
            trial=mutants.Trial(solver=asked.solvers[0]),
            jobs=asked.jobs,
            chosen=wanted,
            progress=take,
        )
    _show_mutants(report, asked.verbose)
    click.echo(f"{counted(total, 'mutant')}, {time.perf_counter() - began:.1f} s.")
    survivors = counted(len(report.survivors), "mutant survives", "mutants survive")
    click.echo(
        "Every mutant is not proved, or proved to change nothing."
        if report.complete
        else f"{survivors}: nothing says what the text is there for that they change."
    )
    return Outcome(
        report.complete, {"mutants": json.loads(report.json())}, (suite("vosti prove --mutants", _tried(report)),)
    )


def _show_mutants(report: MutantReport, verbose: bool) -> None:
    from vosti.proofs.mutants import IMPLIED, implied

    click.echo(str(report))
    click.echo()
    for result in report.results:
        name = f"{result.subject}, {result.mutant.name}"
        if result.verdict == IMPLIED:
            shown = list(implied(result.subject, result.mutant))
            click.echo(f"changes nothing: {name}: proved by {counted(len(shown), 'obligation')}")
            if verbose:
                click.echo("\n".join(f"  {one.name}" for one in shown))
        elif verbose:
            refuted = f"; refuted by a run: {result.broken}" if result.run is not None else ""
            click.echo(f"{result.verdict}: {name}: {result.obligation}{refuted}")


def _tried(report: MutantReport) -> Iterator[Case]:
    for result in report.results:
        failure = f"survives: {result.obligation} is not proved" if result.survives else None
        yield Case(f"{result.subject}.{result.mutant.kind}", result.mutant.name, failure)
