"""Try mutants, and print the tables of `docs/measurements/ttir-mutants.md`.

PYTHONPATH=tests/support python -m kernel_mutants [--most N] [--form REGEX]
"""

from __future__ import annotations

import argparse
import re
import sys

from kernel_mutants.campaign import campaign


def main() -> int:
    """0 if every mutant is refused, or proved for a known reason."""
    parser = argparse.ArgumentParser(prog="kernel_mutants")
    parser.add_argument("--most", type=int, help="of each form, at most so many, those of least rank")
    parser.add_argument("--attention", type=int, help="of each of attention's forms, at most so many")
    parser.add_argument("--form", default=".*", help="a regular expression for the names of forms")
    chosen = parser.parse_args()
    report = campaign(chosen.most, chosen.attention, re.compile(chosen.form), lambda one: print(one, file=sys.stderr))
    print("\n".join(report.lines()))
    return int(bool(report.of("unexplained", "wrong", "error")))


if __name__ == "__main__":
    sys.exit(main())
