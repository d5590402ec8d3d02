"""`vosti check`, when an error ends it: what an audit finds of the steps before is often what led to the error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vosti.impl.cli.ending import complain
from vosti.impl.cli.files import write_json

if TYPE_CHECKING:
    from vosti.refinement.audit import Verdict


def ended_early(
    error: Exception, folder: Path, *, check_steps: bool, json_file: Path | None, junit_file: Path | None
) -> int:
    """Say what went wrong, and what an audit finds of the traces in a folder, as far as they go.

    An error of the audit itself is told like any other, and changes nothing about how the command ends.

    Args:
        error: what ended the check.
        folder: holds the traces; perhaps none yet.
        check_steps: whether the engine checked each plan before it computed anything.
        json_file: takes the error and the verdict.
        junit_file: takes the verdicts, and the error as one of them.

    Returns:
        The error's exit code.
    """
    from vosti.impl.cli.junit import Case, audited, suite, write_junit
    from vosti.refinement.audit import audit

    code = complain(error)
    paths = [*folder.glob("together.trace"), *sorted(folder.glob("alone-*.trace"))]
    verdict: Verdict | None = None
    try:
        verdict = audit(paths, incomplete=True) if paths else None
    except Exception as another:
        complain(another)
    what = f"{type(error).__name__}: {error}"
    found = None if verdict is None else json.loads(verdict.to_json())
    write_json(json_file, {"refines": False, "error": what, "audit": found})
    cases = [Case("run", "the run comes to its end", what), *(() if verdict is None else audited(verdict))]
    write_junit(junit_file, [suite("vosti check", cases)])
    if verdict is not None:
        _show(verdict, check_steps=check_steps)
    return code


def _show(verdict: Verdict, *, check_steps: bool) -> None:
    click.echo(f"Recorded before the error: {verdict.steps} steps, {verdict.rows} rows, {verdict.records} records.")
    for violation in verdict.violations:
        click.echo(f"Not a run of the specification:\n{violation}\n")
    if not verdict.violations:
        click.echo("As far as they go, an audit finds each step to be one of the specification, and that values agree.")
        if not check_steps:
            click.echo("Give --check-steps to have each plan and each batch judged before anything is computed.")
