"""`vosti check`: record a workload, replay each of its requests alone, and audit all of it together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from vosti.impl.cli.ending import CANNOT_RUN, REFINES, VIOLATION
from vosti.impl.cli.files import check_empty, check_writable, write_json
from vosti.impl.cli.parameters import (
    DEFAULT_MODEL,
    DEFAULT_WORKLOAD,
    FILE,
    PRESSURE,
    Mode,
    ModelOptions,
    RunOptions,
    json_option,
    junit_option,
    require_option,
    run_options,
)
from vosti.impl.cli.progress import progress
from vosti.impl.cli.running import Setting, expected_tokens, prepare, recorded, summary_of
from vosti.impl.cli.so_far import ended_early

if TYPE_CHECKING:
    from vosti.impl.checking import Difference, Run
    from vosti.impl.cli.junit import Case
    from vosti.refinement.audit import Verdict


@dataclass(frozen=True)
class Replays:
    """The runs alone."""

    paths: list[Path]
    steps: int
    records: int
    differences: list[Difference]


@click.command("check")
@click.argument("model", default=DEFAULT_MODEL)
@run_options
@require_option
@click.option("--keep", type=FILE, metavar="DIR", help="Keep the traces there, in a new or empty folder.")
@json_option
@junit_option
def check_command(
    model: str,
    computing: ModelOptions,
    asked: RunOptions,
    require: tuple[str, ...],
    keep: Path | None,
    json_file: Path | None,
    junit_file: Path | None,
) -> int:
    """Check that serving with the checkpoint MODEL is deterministic.

    Serves a workload in company and writes a trace of every step; serves each request again, alone, with another page
    size and budget, on a fresh engine whose pages are permuted and full of NaN, without prefix cache and drafts; then
    checks that every step of all runs is a step of the specification, and that all values agree.

    MODEL is a checkpoint's folder, or the name of a bundled one: tiny-gemma3 (the default) or tiny-llama3.
    """
    from vosti.impl.cli.claims import as_json, premises
    from vosti.impl.cli.junit import audited, required, suite, write_junit
    from vosti.impl.cli.report import claim, show
    from vosti.impl.cli.requirements import PROMISED, Requirement, parse_requirements, unmet
    from vosti.refinement.audit import audit

    requirements = parse_requirements(require)
    check_writable(json_file)
    check_writable(junit_file)
    check_empty(keep)
    setting = prepare(model, computing, asked)
    sizes = {name: asked.engine[name] for name in PRESSURE}
    if (asked.workload, asked.seed, sizes) == (DEFAULT_WORKLOAD, 0, PRESSURE):
        requirements += tuple(Requirement(name, least) for name, least in PROMISED.items())

    with _folder(keep) as folder:
        together = folder / "together.trace"
        try:
            _, run = recorded(setting, together, expected_tokens(setting))
            replays = _replay(setting, run, folder)
        except Exception as error:
            return ended_early(
                error, folder, check_steps=setting.options.check_steps, json_file=json_file, junit_file=junit_file
            )
        with progress("auditing") as advance:
            verdict = audit([together, *replays.paths], progress=advance)
    exercised = verdict.traces[0].witnesses
    once = verdict.keys["records"].once
    missing = unmet(requirements, exercised)
    if once:  # as when the configuration changes while the check runs
        missing.append(f"every record observed at least twice ({once} were not)")
    claimed = premises(setting.backend.fingerprint())
    write_json(json_file, {**_result(setting, run, replays, verdict, missing), "claim": as_json(claimed)})
    write_junit(
        junit_file, [suite("vosti check", [*audited(verdict), *_alone(setting, run, replays), *required(missing)])]
    )

    click.echo(f"model     {model}, W {verdict.traces[0].fingerprint}")
    click.echo(
        f"engine    {setting.options.pages} pages of {setting.options.page_size} slots, "
        f"{setting.options.token_budget} rows of {setting.options.max_seqs} requests at once"
    )
    click.echo(
        f"company   {asked.workload}: {len(setting.jobs)} requests, {run.steps} steps, "
        f"{verdict.traces[0].records} records"
    )
    click.echo(f"alone     {len(replays.paths)} requests, {replays.steps} steps, {replays.records} records")
    show(verdict, exercised, () if replays.differences else claimed)
    click.echo("Every record was observed at least twice." if once == 0 else f"{once} records were observed only once.")
    for difference in replays.differences:
        click.echo(str(difference))
    if replays.differences:
        click.echo(f"Violated: {len(replays.differences)} of {len(replays.paths)} requests got other outputs alone.")
    if not verdict.refines or not replays.differences:
        click.echo(claim(verdict))
    if not verdict.refines or replays.differences:
        if keep is None:
            click.echo("Give --keep DIR to keep the traces.")
        return VIOLATION
    if missing:
        click.echo(f"vosti: Required and not met: {', '.join(missing)}.", err=True)
        return CANNOT_RUN
    return REFINES


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Where the traces go: a folder that stays, or one that is gone afterwards."""
    if keep is None:
        with TemporaryDirectory(prefix="vosti-") as name:
            yield Path(name)
        return
    keep.mkdir(parents=True, exist_ok=True)
    yield keep


def _replay(setting: Setting, run: Run, folder: Path) -> Replays:
    """Serve each request that got a token alone, as far as it came in company."""
    from vosti.impl.checking import alone_options, difference, run_alone
    from vosti.refinement.writer import TraceWriter

    paths: list[Path] = []
    differences: list[Difference] = []
    steps = records = 0
    mode: Mode = "candidates" if setting.mode == "candidates" else "digest"
    with progress("alone") as advance:
        for number, job in enumerate(setting.jobs):
            output = run.outputs[job.id]
            if output.token_ids or output.finish_reason == "error":
                options = alone_options(job, number)
                path = folder / f"alone-{number + 1:03}.trace"
                cut = len(output.token_ids) if output.finish_reason == "cancelled" else None
                with TraceWriter(path, setting.header(options, mode, f"{job.id} alone")) as tracer:
                    alone = run_alone(
                        setting.backend, job, options, tokens=cut, tracer=tracer, candidates=mode == "candidates"
                    )
                paths.append(path)
                steps += alone.steps
                records += len(alone.outputs[job.id].token_ids)
                different = difference(output, alone.outputs[job.id])
                differences += [different] if different else []
            advance(number + 1, len(setting.jobs))
    return Replays(paths, steps, records, differences)


def _alone(setting: Setting, run: Run, replays: Replays) -> Iterator[Case]:
    """The verdict on each request that was served again alone."""
    from vosti.impl.cli.junit import Case

    found = {difference.request: str(difference) for difference in replays.differences}
    for job in setting.jobs:
        output = run.outputs[job.id]
        if output.token_ids or output.finish_reason == "error":
            yield Case("alone", f"{job.id}: the same outputs as in company", found.get(job.id))


def _result(setting: Setting, run: Run, replays: Replays, verdict: Verdict, missing: list[str]) -> Mapping[str, Any]:
    """The result as JSON types."""
    return {
        "model": setting.model,
        "workload": setting.workload.name,
        "seed": setting.seed,
        "options": asdict(setting.options),
        "refines": verdict.refines and not replays.differences,
        "exercised": dict(verdict.traces[0].witnesses),
        "unmet": missing,
        "differences": [str(difference) for difference in replays.differences],
        "requests": {name: summary_of(output) for name, output in run.outputs.items()},
        "audit": json.loads(verdict.to_json()),
    }
