"""`python -m automatic_mutants EQUIVALENT [COUNT]`: try many mutants, print the report, fail unless 90% are killed.

Of the mutants that are not equivalent: EQUIVALENT is a table of those that are, with the reason.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import vosti.impl
from automatic_mutants.campaign import MANY, Outcome, all_mutants, campaign, reasons

ENOUGH = 0.9
"""The share of mutants that are not equivalent of which at least so many are to be killed."""


def main(arguments: list[str]) -> int:
    """Try them. Returns the exit status."""
    known, count = reasons(Path(arguments[0])), int(arguments[1]) if len(arguments) > 1 else MANY
    began = time.perf_counter()

    def show(outcome: Outcome) -> None:
        print(f"{outcome.kind:12} {outcome.verdict.killed_by:32} {outcome.mutant.name}", flush=True)

    chosen = all_mutants(Path(vosti.impl.__file__).parent)[:count]
    report = campaign(chosen, known, progress=show)
    print(report)
    print(f"{time.perf_counter() - began:.0f} s")
    return 0 if report.share >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
