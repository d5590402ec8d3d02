"""`vosti probe`: does the GPU here follow the numerical rules that the proofs of kernels use?"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vosti.impl.cli.ending import REFINES, VIOLATION, CannotRun
from vosti.impl.cli.files import check_writable, write_json
from vosti.impl.cli.junit import Case, Suite, suite, write_junit
from vosti.impl.cli.parameters import json_option, junit_option

if TYPE_CHECKING:
    from vosti.impl.backends.cuda.fingerprint import Device
    from vosti.kernels.probe.findings import Finding
    from vosti.kernels.probe.record import Record
    from vosti.kernels.tables import Table


@click.command("probe")
@json_option
@junit_option
def probe_command(json_file: Path | None, junit_file: Path | None) -> int:
    """Try each numerical rule of the kernels' proofs on the GPU that is here, in every form that tables name.

    Each rule is tried on random and hostile data, with a control that must be found: what breaks the rule on purpose.
    The record is kept in the user's cache (or the folder VOSTI_PROBES). A GPU on which the kernels were never run is
    used if there is a record of this GPU, driver and Triton. A rule that failed disables the tiles that depend on it:
    those of kernels whose proofs use it, with the class of instructions that it failed for.
    """
    check_writable(json_file)
    check_writable(junit_file)

    from vosti.impl.backends.cuda.opening import find_device
    from vosti.kernels.probe.consequences import dependents, failures
    from vosti.kernels.probe.record import default_store, encode
    from vosti.kernels.probe.suite import by_rule

    begun = time.monotonic()
    device = find_device("vosti probe", "run it where the GPU is")
    tiles = _tiles_of(device)
    forms = _compile_ahead(tiles)
    compiled = time.monotonic()
    record = _probed(device, tiles)
    click.echo(summary(record.findings))
    for (rule, classes), failed in by_rule(failures(record.findings)).items():
        first, more = failed[0], f" (and {len(failed) - 1} forms more)" if len(failed) > 1 else ""
        click.echo(f"failed: {rule}: {first.form}: {first.problem}{more}")
        kernels = ", ".join(dict.fromkeys(kernel for one in failed for kernel in dependents(one)))
        click.echo(f"disabled: tiles of {kernels}" + (f", with {' '.join(classes)} instructions" if classes else ""))
    kept = default_store().keep(record)
    subject = record.subject
    click.echo(f"\n{subject.gpu} ({subject.architecture}), driver {subject.driver}, {subject.compiler}: {kept}")
    click.echo(f"failed: {', '.join(record.failed)}" if record.failed else "All rules hold in every form.")
    click.echo(f"It took {time.monotonic() - begun:.0f} s, {compiled - begun:.0f} of them to compile {forms} forms.")
    write_json(json_file, json.loads(encode(record)))
    write_junit(junit_file, [as_suite(record.findings)])
    return VIOLATION if record.failed else REFINES


def _tiles_of(device: Device) -> Table:
    """The table for a GPU. Raises `NoDeviceError` if there is none."""
    from vosti.impl.errors import NoDeviceError
    from vosti.kernels.errors import ConfigurationError
    from vosti.kernels.tables import load

    try:
        return load(device.architecture)
    except ConfigurationError as error:
        raise NoDeviceError(str(error)) from error


def _compile_ahead(table: Table) -> int:
    """Compile what will be launched: so many forms. Raises `CannotRun` if a process that compiles dies."""
    from vosti.impl.cli.progress import progress
    from vosti.kernels.probe.suite import compile_ahead, wanted
    from vosti.kernels.workers import ProcessDiedError, Workers

    forms = sum(map(len, wanted(table)))
    try:
        with progress("compiling") as advance, Workers() as workers:
            for number, _ in enumerate(compile_ahead(table, workers), 1):
                advance(number, forms)
    except ProcessDiedError as error:
        raise CannotRun(str(error)) from error
    return forms


def _probed(device: Device, table: Table) -> Record:
    """What all probes find on the GPU at hand."""
    import hashlib

    from vosti.impl.cli.progress import progress
    from vosti.kernels.probe.machine import Gpu
    from vosti.kernels.probe.record import Record
    from vosti.kernels.probe.suite import SEED, number_of_probes, probes
    from vosti.kernels.tables import encode

    findings: list[Finding] = []
    with progress("probing") as advance:
        for number, found in enumerate(probes(Gpu(), table), 1):
            findings += found
            advance(number, number_of_probes())
    text = encode(table.architecture, table.entries.values())
    return Record(
        subject=device.subject,
        torch=device.torch_version,
        seed=SEED,
        date=datetime.now(UTC).date().isoformat(),
        table=hashlib.sha256(text.encode()).hexdigest(),
        findings=tuple(findings),
    )


def summary(findings: Sequence[Finding]) -> str:
    """A table: of each rule and instruction class, how many forms were tried, and in how many it holds."""
    from vosti.impl.cli.outcome import table
    from vosti.kernels.probe.suite import by_rule

    rows = [["rule", "instructions", "forms", "hold", "compared", "different", "control, at least"]]
    for (rule, classes), found in by_rule(findings).items():
        numbers = (
            len(found),
            sum(one.problem is None for one in found),
            sum(one.compared for one in found),
            sum(one.different for one in found),
            min(one.control for one in found),
        )
        rows.append([rule, " ".join(classes), *(f"{number:,}" for number in numbers)])
    return table(rows)


def as_suite(findings: Sequence[Finding]) -> Suite:
    """The findings as test cases."""
    return suite("vosti probe", (Case(one.rule, " ".join((one.form, *one.classes)), one.problem) for one in findings))
