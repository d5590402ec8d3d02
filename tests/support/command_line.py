"""Running `vosti` in tests: in this process, or in one of its own."""

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from vosti.impl.cli import main

SMALL = ("--workload", "short", "--page-size", "4", "--pages", "12", "--token-budget", "16")
"""The short workload, and a pool that is short of pages for it: 48 slots."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str


def vosti(*arguments: str | Path) -> Ended:
    """Run a command in this process."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return Ended(result.exit_code, result.stdout, result.stderr)


BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
from vosti.impl.cli import main
main(sys.argv[1:])
"""


def vosti_without(blocked: tuple[str, ...], *arguments: str | Path, cwd: Path | None = None) -> Ended:
    """Run a command in a process of its own, in which some packages are not installed."""
    program = BLOCKER.format(blocked=blocked)
    command = [sys.executable, "-c", program, *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    return Ended(run.returncode, run.stdout, run.stderr)


def rechained(lines: list[str]) -> str:
    """A trace of these lines, each `prev` made right again, as a forger would."""
    previous = "0" * 64
    result = []
    for line in lines:
        old = json.loads(line)["prev"]
        result.append(line.replace(f'"prev":"{old}"', f'"prev":"{previous}"', 1))
        previous = hashlib.sha256(result[-1].encode()).hexdigest()
    return "".join(line + "\n" for line in result)
