"""`vosti prove kernels`: every kernel at every entry of a table, or a user's own, proved on the typed IR."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vosti.impl.cli.ending import CannotRun
from vosti.impl.cli.junit import Case as JunitCase
from vosti.impl.cli.junit import suite
from vosti.impl.cli.outcome import Outcome, counted, table
from vosti.impl.cli.progress import progress
from vosti.impl.cli.statistics import hardware

if TYPE_CHECKING:
    from vosti.kernels.verifier.entries import Case, Decided


@dataclass(frozen=True)
class AskedKernels:
    """Which kernels are to be proved, and how."""

    kernel: str | None
    config: str | None
    """A model's name, or sizes such as "N=4096 K=4096"."""

    files: tuple[Path, ...]
    """Of the user's own kernels, instead of the project's."""

    every_page: bool
    again: bool
    """Whether a second solver repeats each query that a proof consists of."""

    jobs: int


def proved_kernels(asked: AskedKernels, *, verbose: bool, stats: bool) -> Outcome:
    """Prove kernels, and say what came of it. Raises `CannotRun` if nothing is asked for that there is."""
    begun = time.perf_counter()
    total = len(_chosen(asked))
    results: list[Decided] = []
    with progress("proving kernels") as advance:
        for result in _results(asked, total):
            results.append(result)
            advance(len(results), total)
    _show(results, asked, verbose)
    if stats:
        click.echo(f"\n{time.perf_counter() - begun:.1f} s with {counted(asked.jobs, 'process', 'processes')}")
        click.echo(hardware())
    refused = [one for one in results if one.refusal is not None]
    solvers = "Z3 and again by cvc5" if asked.again else "Z3"
    click.echo(
        f"\nNot proved: {len(refused)} of {counted(total, 'kernel and configuration', 'kernels and configurations')}."
        if refused
        else f"\nProved: {counted(total, 'kernel and configuration', 'kernels and configurations')}, by {solvers}."
    )
    cases = (JunitCase(one.kernel, one.name, one.refusal, one.seconds) for one in results)
    document = {"kernels": {"proved": not refused, "results": [asdict(one) for one in results]}}
    return Outcome(not refused, document, (suite("vosti prove kernels", cases),))


@cache
def _chosen(asked: AskedKernels) -> tuple[Case, ...]:
    from vosti.kernels.shapes import SHAPES
    from vosti.kernels.verifier.entries import cases, own_cases
    from vosti.kernels.verifier.errors import VerifierError

    model = asked.config if asked.config in SHAPES else None
    sizes = set(asked.config.replace(",", " ").split()) if asked.config and model is None else set()
    try:
        every = [case for path in asked.files for case in own_cases(path)]
        every += [] if asked.files else cases(model=model, every_page=asked.every_page)
    except VerifierError as error:
        raise CannotRun(str(error)) from error
    chosen = tuple(case for case in every if asked.kernel in (None, case.kernel) and sizes <= set(case.name.split()))
    if not chosen:
        kernels = ", ".join(sorted({case.kernel for case in every}))
        raise CannotRun(
            f"No kernel is {asked.kernel or 'there'} at {asked.config or 'any configuration'}: the kernels are "
            f"{kernels}; a configuration is a model's name ({', '.join(SHAPES)}) or sizes, such as N=4096."
        )
    return chosen


def _results(asked: AskedKernels, total: int) -> Iterator[Decided]:
    if asked.jobs == 1 or total == 1:
        for number in range(total):
            yield _decided(asked, number)
        return
    done = 0
    with _processes(min(asked.jobs, total)) as pool:
        try:
            for result in pool.map(_decided, [asked] * total, range(total), chunksize=8):
                yield result
                done += 1
        except BrokenProcessPool:
            pass
    # A process died, and took others' work along: what is left is done by a process for each.
    for number in range(done, total):
        yield _decided_alone(asked, number)


def _processes(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


def _decided_alone(asked: AskedKernels, number: int) -> Decided:
    from vosti.kernels.verifier.entries import Decided
    from vosti.kernels.verifier.errors import FaultError

    with _processes(1) as pool:
        try:
            return pool.submit(_decided, asked, number).result()
        except BrokenProcessPool:
            case = _chosen(asked)[number]
            fault = FaultError("its process died, in a solver or for want of memory")
            return Decided(case.kernel, case.name, str(fault), 0.0)


def _decided(asked: AskedKernels, number: int) -> Decided:
    from vosti.kernels.verifier.entries import decide

    return decide(_chosen(asked)[number], again=asked.again)


def _show(results: list[Decided], asked: AskedKernels, verbose: bool) -> None:
    """A line for each kernel, or for each configuration of it; then what is not proved."""
    rows = [["kernel", "configurations", "proved", "obligations", "queries", "seconds", "longest"]]
    if asked.again:
        rows[0].append("by cvc5 too")
    kernels: dict[str, list[Decided]] = {}
    for one in results:
        kernels.setdefault(one.kernel, []).append(one)
    for kernel, own in sorted(kernels.items()):
        rows.append(_row(kernel, own, asked.again))
        if verbose:
            rows += [_row(f"  {one.name}", [one], asked.again) for one in own]
    rows.append(_row("all", results, asked.again))
    click.echo(table(rows))
    for one in results:
        if one.refusal is not None:
            click.echo(f"\nnot proved: {one.name}\n  {one.refusal}")


def _row(name: str, results: list[Decided], again: bool) -> list[str]:
    row = [
        name,
        str(len(results)),
        str(sum(one.refusal is None for one in results)),
        str(sum(sum((one.obligations or {}).values()) for one in results)),
        str(sum(one.queries for one in results)),
        f"{sum(one.seconds for one in results):.1f}",
        f"{max(one.seconds for one in results):.2f}",
    ]
    return [*row, f"{sum(one.again for one in results)}/{sum(one.refuted for one in results)}"] if again else row
