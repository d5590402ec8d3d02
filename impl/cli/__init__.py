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


for _command in (check_command, record_command, audit_command, generate_command, prove_command, determinism_command):
    main.add_command(_command)
main.add_command(forward_command, "prove forward")
main.add_command(probe_command)
main.add_command(certify_command)
