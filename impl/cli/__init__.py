"""The command line, `vosti`: the only part that may import every other one, each when it is needed.

| exit code | meaning |
| --- | --- |
| 0 | every step is a step of the specification, everything is proved (or the command did what it was asked for) |
| 1 | a violation: some step is not, some values disagree, or something is not proved |
| 2 | cannot run: a bad model, workload or option, a requirement that is not met, a fault of this program |
| 3 | a bad or incomplete trace |
| 130 | interrupted |
"""

from __future__ import annotations

import click

from vosti.impl.cli.audit import audit_command
from vosti.impl.cli.certify import certify_command
from vosti.impl.cli.check import check_command
from vosti.impl.cli.determinism import determinism_command
from vosti.impl.cli.ending import Commands
from vosti.impl.cli.forward import forward_command
from vosti.impl.cli.generate import generate_command
from vosti.impl.cli.probe import probe_command
from vosti.impl.cli.prove import prove_command
from vosti.impl.cli.record import record_command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="vosti", message="%(package)s %(version)s")
def main() -> None:
    """LLM inference whose results do not depend on the company that a request keeps, and the check of it.

    Exit codes: 0 refines or proved, 1 violation or not proved, 2 cannot run, 3 bad or incomplete trace.
    """


for _command, _name, _summary in (
    (check_command, "check", "Serve a workload, serve each request again alone, audit it."),
    (record_command, "record", "Serve a workload and write a trace of every step."),
    (audit_command, "audit", "Check traces, without an engine."),
    (prove_command, "prove", "Prove what holds of specification, page pool and kernels."),
    (forward_command, "prove forward", "Prove that a model's forward computes what it should."),
    (certify_command, "certify", "Prove and certify the kernels that a model launches."),
    (probe_command, "probe", "Try the numerical rules of the GPU that is here."),
    (determinism_command, "determinism", "Compare logits under schedules that differ."),
    (generate_command, "generate", "Continue a prompt."),
):
    _command.short_help = _summary
    main.add_command(_command, _name)
