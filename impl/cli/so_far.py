"""What an audit finds of the steps that were recorded before an error ended a check: often the one that led to it."""

from __future__ import annotations

from pathlib import Path

import click

from vosti.impl.cli.ending import complain


def audit_so_far(folder: Path, *, check_steps: bool) -> None:
    """Say what an audit finds of the traces in a folder, as far as they go.

    An error of the audit itself is told like any other, and changes nothing about how the command ends.

    Args:
        folder: holds the traces of `vosti check`; perhaps none yet.
        check_steps: whether the engine checked each plan before it computed anything.
    """
    from vosti.refinement.audit import audit

    paths = [*folder.glob("together.trace"), *sorted(folder.glob("alone-*.trace"))]
    if not paths:
        return
    try:
        verdict = audit(paths, incomplete=True)
    except Exception as error:
        complain(error)
        return
    click.echo(f"Recorded before the error: {verdict.steps} steps, {verdict.rows} rows, {verdict.records} records.")
    for violation in verdict.violations:
        click.echo(f"Not a run of the specification:\n{violation}\n")
    if not verdict.violations:
        click.echo("As far as they go, an audit finds each step to be one of the specification, and that values agree.")
        if not check_steps:
            click.echo("Give --check-steps to have each plan and each batch judged before anything is computed.")
