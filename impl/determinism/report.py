"""Results as people read them: Markdown, and one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from vosti.impl.determinism.summary import Cell, Summary, described

MARKS = {"pass": "✓", "mismatch": "✗", "invalid": "invalid", "incomplete": "incomplete"}


def axes_of(summaries: Sequence[Summary]) -> list[str]:
    """All axes, in the order in which they first appear."""
    return list(dict.fromkeys(cell.axis for summary in summaries for cell in summary.cells))


def cell_of(summary: Summary, axis: str) -> Cell | None:
    """A summary's cell of an axis, if it has one."""
    return next((cell for cell in summary.cells if cell.axis == axis), None)


def cell_text(summary: Summary, axis: str) -> str:
    """Matched / total, and what became of it."""
    cell = cell_of(summary, axis)
    if cell is None:
        return "not applicable" if axis in summary.header.skipped else "–"
    return f"{cell.matched}/{cell.total} {MARKS[cell.verdict]}"


def title(summary: Summary) -> str:
    """Engine and model, as a column's head."""
    return f"{summary.header.engine}, {summary.header.model}"


def markdown(summaries: Sequence[Summary]) -> str:
    """A table like the paper's Table 1, and below it what there is to say of each run."""
    suites = list(dict.fromkeys(summary.header.suite for summary in summaries))
    lines = ["# Determinism", ""]
    for suite in suites:
        chosen = [summary for summary in summaries if summary.header.suite == suite]
        lines += [f"## Suite {suite}", "", *_table(chosen), ""]
        for summary in chosen:
            lines += [*_details(summary), ""]
    return "\n".join(lines).rstrip() + "\n"


def _table(summaries: Sequence[Summary]) -> list[str]:
    """Each cell: rows that are equal bit by bit, of all that were compared."""
    rows = [["axis", *(title(summary) for summary in summaries)]]
    rows += [[axis, *(cell_text(summary, axis) for summary in summaries)] for axis in axes_of(summaries)]
    rows.append(["**all**", *(f"**{summary.matched}/{summary.total}**" for summary in summaries)])
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return [head, f"|{' --- |' * len(rows[0])}", *body]


def _details(summary: Summary) -> list[str]:
    header = summary.header
    lines = [
        f"### {title(summary)}",
        "",
        f"W {header.fingerprint}, scale {header.scale}, {summary.seconds:,.0f} s.",
        "",
        "| axis | pairs | distinct rows | schedules differed | in what |",
        "| --- | --- | --- | --- | --- |",
    ]
    for cell in summary.cells:
        lines.append(f"| {cell.axis} | {cell.total} | {cell.distinct} | {cell.differed} | {what_differed(cell)} |")
    lines.append("")
    for cell in summary.cells:
        lines += [f"- {note}" for note in notes(cell)]
    lines += [f"- {axis}: not applicable, since {why}." for axis, why in header.skipped.items()]
    lines += ["", "; ".join(f"{name} {value}" for name, value in header.environment.items())]
    return lines


def what_differed(cell: Cell) -> str:
    """By what differed between two schedules, in how many pairs."""
    return ", ".join(f"{what} {count}" for what, count in sorted(cell.differs.items(), key=lambda item: -item[1]))


def notes(cell: Cell) -> list[str]:
    """What a cell's number does not say."""
    found = []
    if cell.first is not None:
        found.append(f"{cell.axis}: {cell.mismatched} pairs differ; first {described(cell.first)}")
    if cell.first_invalid is not None:
        pair = cell.first_invalid
        found.append(f"{cell.axis}: {cell.invalid} pairs are invalid; first {pair.name}: {pair.why}")
    if cell.requests > 1 and cell.distinct == 1:
        found.append(f"{cell.axis}: all {cell.requests} requests have one and the same row")
    if cell.missing:
        found.append(f"{cell.axis}: {cell.missing} pairs were not run")
    return found


def html(summaries: Sequence[Summary]) -> str:
    """The same as a page, with a plot of each axis that has mismatches."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from vosti.impl.determinism.plot import scatter

    environment = Environment(
        loader=PackageLoader("vosti.impl.determinism", "."), autoescape=True, undefined=StrictUndefined
    )
    suites = list(dict.fromkeys(summary.header.suite for summary in summaries))
    grouped = [(suite, [summary for summary in summaries if summary.header.suite == suite]) for suite in suites]
    return environment.get_template("report.html.jinja").render(
        suites=grouped,
        axes_of=axes_of,
        cell_of=cell_of,
        cell_text=cell_text,
        title=title,
        notes=notes,
        what_differed=what_differed,
        scatter=lambda cell: scatter(cell.mismatches),
    )
