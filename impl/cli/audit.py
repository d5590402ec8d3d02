"""`vosti audit`: whether traces are runs of the specification. Needs nothing of the engine."""

from __future__ import annotations

import json
from pathlib import Path

import click

from vosti.impl.cli.ending import CANNOT_RUN, REFINES, VIOLATION, CannotRun
from vosti.impl.cli.files import check_writable, write_json
from vosti.impl.cli.parameters import FILE, json_option, junit_option, require_option
from vosti.impl.cli.progress import progress


@click.command("audit")
@click.argument("traces", nargs=-1, required=True, type=FILE, metavar="FILE...")
@click.option(
    "--head", "heads", multiple=True, metavar="DIGEST", help="The head of a trace; given once for each trace, in order."
)
@click.option(
    "--every", type=click.IntRange(min=1), default=64, show_default=True, help="Steps between full evaluations of Inv."
)
@click.option(
    "--explain",
    is_flag=True,
    help="Where recorded actions do not explain a step, search for others that do. Needs vosti[proofs].",
)
@require_option
@json_option
@junit_option
def audit_command(
    traces: tuple[Path, ...],
    heads: tuple[str, ...],
    every: int,
    explain: bool,
    require: tuple[str, ...],
    json_file: Path | None,
    junit_file: Path | None,
) -> int:
    """Check each step of the traces, and that they agree with one another.

    A trace can be replaced as a whole, chain and all: --head says which one is meant.
    """
    from vosti.impl.cli.junit import audited, required, suite, write_junit
    from vosti.impl.cli.report import claim, show
    from vosti.impl.cli.requirements import parse_requirements, unmet
    from vosti.refinement.audit import audit
    from vosti.refinement.search import LIMITS

    requirements = parse_requirements(require)
    check_writable(json_file)
    check_writable(junit_file)
    with progress("auditing") as advance:
        verdict = audit(traces, head=heads or None, every=every, progress=advance, explain=LIMITS if explain else None)
    heads_found = [summary.head for summary in verdict.traces]
    if len(set(heads_found)) < len(heads_found):
        raise CannotRun("A trace is given twice, and would count as two observations: give each one once.")
    missing = unmet(requirements, verdict.witnesses)
    write_json(json_file, {**json.loads(verdict.to_json()), "unmet": missing})
    write_junit(junit_file, [suite("vosti audit", [*audited(verdict), *required(missing)])])
    for summary in verdict.traces:
        click.echo(
            f"{summary.trace}: {summary.steps} steps, {summary.rows} rows, {summary.records} records, "
            f"head {summary.head or 'unknown'}"
        )
    show(verdict, verdict.witnesses)
    click.echo(claim(verdict))
    if verdict.gave_up:
        click.echo("vosti: The search for an explanation gave up, and answers nothing.", err=True)
        return CANNOT_RUN
    if not verdict.refines:
        return VIOLATION
    if missing:
        click.echo(f"vosti: Required and not met: {', '.join(missing)}.", err=True)
        return CANNOT_RUN
    return REFINES
