"""One mutant: what `vosti check` finds of an engine that has it inside.

It is tried in a process of its own, on a copy of the package: the checkout is never touched. Processor time and memory
are limited, so that a mutant that runs for ever ends, whatever the machine's load.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

SECONDS = 20
"""Processor seconds for one mutant, several times what a whole engine takes."""

BYTES = 4 * 2**30
"""Memory for one mutant beyond what the process has at its start."""

VIOLATION = 1
"""The exit code for a violation."""

SENTENCE = "a sentence"
"""What stands for an error that is foreseen: a stall, a request that is refused, a broken trace."""


class End(Enum):
    """How the first `vosti check` that finds something ends."""

    AUDIT = "a step, a value or a state is not the specification's"
    """Exit code 1; the audit's first violation says which check is false."""

    REPLAY = "a request is answered otherwise alone"
    """Exit code 1, and nothing is wrong with any trace."""

    UNMET = "less is exercised than is required"
    """Exit code 2, after everything was found to refine."""

    ERROR = "the command ends in an error"
    """Exit code 2 or 3: the engine raised something or stalled, refused the workload, or left no whole trace."""

    ENDLESS = "the command does not end"
    """Time or memory runs out."""

    SURVIVED = "nothing is found"
    """Exit code 0, each time."""


@dataclass(frozen=True)
class Verdict:
    """What came of one mutant."""

    end: End
    what: str
    """The check that is false, the error, or what was required."""

    workload: str
    before: str = ""
    """Of an error: the check that is false of what was recorded before it, if one is."""

    said: str = ""
    """The last line of what the command wrote to its error stream."""

    @property
    def killed(self) -> bool:
        """Whether anything was found."""
        return self.end is not End.SURVIVED


def package_copy(folder: Path) -> Path:
    """A copy of the engine's package, checkpoints left out. What was compiled stays valid: times are copied, too."""
    import vosti.impl

    source = Path(vosti.impl.__file__).parent
    return Path(shutil.copytree(source, folder / "impl", ignore=shutil.ignore_patterns("checkpoints")))


def limit() -> None:
    """Limit this process's processor time and memory."""
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    seconds = int(used) + SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def tried(module: str, source: str | None) -> Verdict:
    """Try one mutant in this process, which must not have imported the engine's modules yet.

    Args:
        module: below `vosti.impl`.
        source: its text; None for the engine as it is.
    """
    import vosti.impl

    loaded = [name for name in sys.modules if name.startswith("vosti.impl.")]
    assert not loaded, f"the engine is here already: {loaded}"
    with TemporaryDirectory(prefix="vosti-mutant-") as name:
        copy = package_copy(Path(name))
        if source is not None:
            (copy / f"{module}.py").write_text(source, encoding="utf-8")
        vosti.impl.__path__ = [str(copy)]
        sys.dont_write_bytecode = True
        limit()
        return _found(Path(name))


def _found(folder: Path) -> Verdict:
    """The first check that does not end with exit code 0 ends the trial."""
    try:
        from automatic_mutants.checks import CHECKS, ended
    except Exception as error:  # a module that cannot even be imported: the command could not, either
        return Verdict(End.ERROR, type(error).__name__, "")
    for check in CHECKS:
        own = folder / check.workload
        own.mkdir()
        command = ended(check, own)
        if command.code != 0:
            end, what = _end(command.code, command.err, own / "result.json")
            before = re.findall(r"^check +(\w+): ", command.out, re.MULTILINE) if end is End.ERROR else []
            return Verdict(end, what, check.workload, "".join(before[:1]), command.err.rstrip().rpartition("\n")[2])
    return Verdict(End.SURVIVED, "", "")


def _end(code: int, said: str, result: Path) -> tuple[End, str]:
    """How a command ended that did not end well, and what was wrong first."""
    told = json.loads(result.read_text()) if result.exists() else {}
    if "error" in told:
        return End.ERROR, _raised(said)
    violations = told["audit"]["violations"] if told else []
    if violations:
        return End.AUDIT, violations[0]["check"]
    if code == VIOLATION:
        return End.REPLAY, "prefix_comparable"
    if told:
        return End.UNMET, " ".join(requirement.partition(">=")[0] for requirement in told["unmet"])
    return End.ERROR, _raised(said)


def _raised(said: str) -> str:
    """The name of the error whose traceback a command wrote, or that it was a sentence."""
    raised = re.findall(r"^(?:\w+\.)*([A-Z]\w+)(?::.*)?$", said, re.MULTILINE)
    return raised[-1] if "Traceback" in said else SENTENCE
