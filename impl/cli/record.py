"""`vosti record`: serve a workload and write down every engine step."""

from __future__ import annotations

from pathlib import Path

import click

from vosti.impl.cli.ending import REFINES, CannotRun
from vosti.impl.cli.files import check_writable, write_json
from vosti.impl.cli.parameters import FILE, ModelOptions, RunOptions, json_option, run_options
from vosti.impl.cli.running import expected_tokens, prepare, recorded, summary_of


@click.command("record")
@click.argument("model")
@click.option("-o", "--output", type=FILE, required=True, metavar="FILE", help="Where the trace goes; a new file.")
@run_options
@json_option
def record_command(
    model: str,
    output: Path,
    computing: ModelOptions,
    asked: RunOptions,
    json_file: Path | None,
) -> int:
    """Serve a workload with the checkpoint MODEL and write a trace of every engine step.

    Prints the trace's head: `vosti audit --head` takes it, and a trace with another head is another trace.
    """
    check_writable(output)
    check_writable(json_file)
    if output.exists():
        raise CannotRun(f"{output} exists already, and a trace never replaces a file: remove it or choose another one.")
    setting = prepare(model, computing, asked)

    head, run = recorded(setting, output, expected_tokens(setting))
    fingerprint = next(iter(run.outputs.values())).fingerprint
    records = sum(len(found.token_ids) for found in run.outputs.values())
    write_json(
        json_file,
        {
            "trace": str(output),
            "head": head,
            "fingerprint": fingerprint,
            "steps": run.steps,
            "records": records,
            "requests": {name: summary_of(found) for name, found in run.outputs.items()},
        },
    )
    click.echo(f"recorded  {output}: {run.steps} steps, {len(setting.jobs)} requests, {records} records")
    click.echo(f"W         {fingerprint}")
    click.echo(f"head      {head}")
    return REFINES
