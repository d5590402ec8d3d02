"""`vosti determinism`: measure an engine against Definition 2.1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from vosti.impl.cli.ending import CANNOT_RUN, REFINES, VIOLATION, CannotRun
from vosti.impl.cli.files import check_writable, write_json, write_text
from vosti.impl.cli.outcome import counted, table
from vosti.impl.cli.parameters import FILE, ModelOptions, json_option, junit_option, model_options
from vosti.impl.cli.progress import progress
from vosti.impl.cli.running import check_model

if TYPE_CHECKING:
    from vosti.impl.cli.junit import Case
    from vosti.impl.determinism.subjects import Choice
    from vosti.impl.determinism.summary import Summary

REPORTS = ("report.md", "report.html")

ENDINGS = {"pass": REFINES, "mismatch": VIOLATION, "invalid": CANNOT_RUN, "incomplete": CANNOT_RUN}


@click.command("determinism")
@click.argument("model", required=False)
@click.option(
    "--engine",
    default="vosti",
    show_default=True,
    help="What is measured: vosti, transformers, vllm or vllm-batch-invariant (either with -eager).",
)
@model_options
@click.option(
    "--suite", type=click.Choice(["paper", "extended", "quick"]), default="quick", show_default=True, help="Which axes."
)
@click.option(
    "--axes",
    default="",
    metavar="A,B",
    help="Run these axes of the suite only, or those of their cases whose names begin so: batch/2-.",
)
@click.option(
    "--report", type=FILE, metavar="DIR", help="Keep results and reports there; a run takes only what is missing."
)
@click.option("--seconds", type=click.FloatRange(min=0), metavar="N", help="Begin nothing that would end later.")
@json_option
@junit_option
def determinism_command(
    model: str | None,
    engine: str,
    computing: ModelOptions,
    suite: str,
    axes: str,
    report: Path | None,
    seconds: float | None,
    json_file: Path | None,
    junit_file: Path | None,
) -> int:
    """Serve the same requests under schedules that differ, and compare every bit of every row of logits.

    MODEL is a checkpoint's folder, or the name of a bundled one: tiny-gemma3 or tiny-llama3. Without MODEL nothing is
    run: the reports of --report are written again from the results that lie there.

    Exit codes: 0 all pairs match, 1 some differ, 2 some compare nothing or were not run.
    """
    check_writable(json_file)
    check_writable(junit_file)
    if model is None:
        return _write_again(report)
    from vosti.impl.determinism.subjects import ENGINES, Choice

    if engine not in ENGINES:
        raise CannotRun(f"There is no engine {engine!r}: the engines are {', '.join(ENGINES)}.")
    chosen = tuple(axis.strip() for axis in axes.split(",") if axis.strip())
    check_model(model, computing.dummy_weights)
    choice = Choice(engine, model, **asdict(computing))
    if report is None:
        with TemporaryDirectory(prefix="vosti-") as folder:
            summary = _measure(choice, suite, chosen, Path(folder), seconds)
    else:
        report.mkdir(parents=True, exist_ok=True)
        summary = _measure(choice, suite, chosen, report, seconds)
        _write_reports(report)
    from vosti.impl.cli.junit import suite as junit_suite
    from vosti.impl.cli.junit import write_junit
    from vosti.impl.determinism.summary import as_json

    write_json(json_file, as_json(summary))
    write_junit(junit_file, [junit_suite("vosti determinism", _cases(summary))])
    _show(summary)
    return ENDINGS[summary.verdict]


def _measure(choice: Choice, suite: str, axes: Sequence[str], folder: Path, seconds: float | None) -> Summary:
    """Run what is missing of the chosen axes, and sum them up."""
    from vosti.impl.determinism.prompts import geometry_for
    from vosti.impl.determinism.results import Results, header
    from vosti.impl.determinism.runner import run
    from vosti.impl.determinism.subjects import open_subject
    from vosti.impl.determinism.suites import plan
    from vosti.impl.determinism.summary import summarize

    subject = open_subject(choice)
    geometry = geometry_for(subject.context)
    whole = plan(suite, subject, geometry)
    part = plan(suite, subject, geometry, axes)
    label = _label(choice)
    expected = header(
        suite=suite,
        engine=subject.name,
        model=label,
        configuration=subject.configuration(),
        environment=subject.environment(),
        scale=geometry.scale,
        cases=whole.cases,
        skipped=whole.skipped,
    )
    path = folder / f"{label}.{choice.engine}.{suite}.ndjson"
    with closing(Results(path, expected)) as results, progress(f"{suite} suite") as advance:
        run(subject, geometry, part.cases, results, advance=advance, seconds=seconds)
    summary = summarize(results.header, results.done)
    named = {case.axis for case in part.cases}
    return replace(summary, cells=tuple(cell for cell in summary.cells if cell.axis in named))


def _label(choice: Choice) -> str:
    """The model's name, as tables and files show it."""
    path = Path(choice.model)
    name = path.stem if path.suffix == ".json" else path.resolve().name
    return name if choice.dummy_weights is None else f"{name}-dummy-{choice.dummy_weights}"


def _write_again(report: Path | None) -> int:
    """Write the reports of a folder from its results."""
    if report is None or not report.is_dir():
        raise CannotRun("Give a MODEL to measure, or with --report a folder of results.")
    summaries = _write_reports(report)
    if not summaries:
        raise CannotRun(f"{report} holds no results of the determinism suite.")
    for summary in summaries:
        click.echo(_claim(summary))
    return max(ENDINGS[summary.verdict] for summary in summaries)


def _write_reports(folder: Path) -> list[Summary]:
    """Write the Markdown and the page of all results in a folder. A run that did not come to any left an empty file."""
    from vosti.impl.determinism.report import html, markdown
    from vosti.impl.determinism.results import read
    from vosti.impl.determinism.summary import summarize

    files = [path for path in sorted(folder.glob("*.ndjson")) if path.stat().st_size]
    summaries = [summarize(*read(path)[:2]) for path in files]
    if not summaries:
        return []
    write_text(folder / REPORTS[0], markdown(summaries))
    try:
        write_text(folder / REPORTS[1], html(summaries))
    except ModuleNotFoundError as error:
        click.echo(f"{REPORTS[1]} was not written, for want of {error.name}: pip install 'vosti[report]'.", err=True)
    return summaries


def _show(summary: Summary) -> None:
    """Print the cells, and what there is to say of them."""
    from vosti.impl.determinism.report import notes, what_differed

    header = summary.header
    click.echo(f"engine    {header.engine}, model {header.model}, W {header.fingerprint}")
    click.echo(f"suite     {header.suite}, scale {header.scale}\n")
    rows = [("axis", "matched", "of", "schedules differed", "verdict")]
    rows += [
        (cell.axis, str(cell.matched), str(cell.total), str(cell.differed), cell.verdict) for cell in summary.cells
    ]
    click.echo(table(rows))
    click.echo("\nwhat differed between the two schedules, in how many pairs")
    for cell in summary.cells:
        click.echo(f"  {cell.axis}: {what_differed(cell) or 'nothing'}")
    for axis, why in header.skipped.items():
        click.echo(f"  {axis}: not applicable, since {why}")
    for cell in summary.cells:
        for note in notes(cell):
            click.echo(note)
    click.echo(f"\n{_claim(summary)}")


def _claim(summary: Summary) -> str:
    """The verdict in a sentence."""
    who = f"{summary.header.engine} with {summary.header.model}"
    if summary.verdict == "pass":
        return f"Equal: {who}, all {counted(summary.total, 'pair')} of the suite {summary.header.suite}, bit by bit."
    mismatched = sum(cell.mismatched for cell in summary.cells)
    rest = summary.total - summary.matched - mismatched
    return (
        f"Not shown: {who}, suite {summary.header.suite}: {summary.matched:,} of {counted(summary.total, 'pair')} are "
        f"equal, {mismatched:,} differ, {rest:,} compare nothing or were not run."
    )


def _cases(summary: Summary) -> Iterator[Case]:
    """A test case for each axis."""
    from vosti.impl.cli.junit import Case
    from vosti.impl.determinism.report import notes

    for cell in summary.cells:
        failure = None if cell.verdict == "pass" else "\n".join([cell.verdict, *notes(cell)])
        yield Case(f"determinism.{summary.header.model}", f"{cell.axis}: {cell.total} pairs are equal", failure)
