"""Try mutants, and print what came of them: the tables of `docs/measurements/ttir-mutants.md`.

PYTHONPATH=tests/support python -m kernel_mutants [--jobs N] [--most N] [--attention N] [--form REGEX]
    [--inputs FILE] [--kept FILE] [--page FILE]
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from kernel_mutants.campaign import campaign
from kernel_mutants.inputs import prepared
from kernel_mutants.kept import Kept
from kernel_mutants.outcomes import Outcome
from kernel_mutants.report import Report, replaced, section


def main() -> int:
    """0 if every mutant is refused, or proved for one known reason."""
    parser = argparse.ArgumentParser(prog="kernel_mutants")
    parser.add_argument("--most", type=int, help="of each form, at most so many, those of least rank")
    parser.add_argument("--attention", type=int, help="of each of attention's forms, at most so many")
    parser.add_argument("--form", default=".*", help="a regular expression for the names of forms")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes share the work")
    parser.add_argument("--inputs", type=Path, help="a file of typed IR and launches: used, or made if there is none")
    parser.add_argument("--kept", type=Path, help="a file of outcomes: what is in it is not tried again")
    parser.add_argument("--page", type=Path, help="a page whose section about outcomes is replaced")
    chosen = parser.parse_args()
    page = "" if chosen.page is None else chosen.page.read_text(encoding="utf-8")
    if chosen.page is not None:
        replaced(page, [])
    with TemporaryDirectory(prefix="vosti-mutants-") as folder:
        path = chosen.inputs or Path(folder) / "inputs"
        inputs = prepared(path)
        kept = Kept(inputs, chosen.kept)
        begun = time.monotonic()
        outcomes = campaign(path, kept, chosen.most, chosen.attention, re.compile(chosen.form), _show, jobs=chosen.jobs)
    report = Report(outcomes)
    lines = section(report, inputs, kept.added, chosen.jobs, time.monotonic() - begun)
    if chosen.page is not None:
        chosen.page.write_text(replaced(page, lines), encoding="utf-8")
    print("\n".join(lines))
    print("\n".join(map(str, report.faults)))
    return int(bool(report.faults))


def _show(outcome: Outcome) -> None:
    print(outcome, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
