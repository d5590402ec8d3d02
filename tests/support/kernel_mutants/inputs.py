"""What a campaign starts from: the typed IR of each form, and the launches that mutants of it are run on."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from kernel_mutants import __file__ as package
from kernel_mutants.forms import FORMS, SUPPORT, Form
from launches import Launch
from vosti.kernels import __file__ as kernels

PROGRAM = SUPPORT.parent / "verifier" / "recorded.py"
REPORTING = ("__main__.py", "campaign.py", "kept.py", "outcomes.py", "report.py")
"""Modules on which no outcome depends."""


class OtherCodeError(Exception):
    """A file is of another verifier, or of other kernels, mutants or launches."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is of other code: delete it, or name another file.")


@dataclass(frozen=True)
class Inputs:
    """Made where there is a compiler, used anywhere."""

    digest: str
    triton: str
    """The version that compiled the forms."""

    texts: Mapping[str, str]
    """Form → typed IR, with the lines of the source."""

    launches: Mapping[str, list[Launch]]
    """Form → launches."""

    def forms(self) -> list[Form]:
        """All of them, compiled."""
        return [replace(form, compiled=self.texts[form.name]) for form in FORMS]


def prepared(path: Path) -> Inputs:
    """What a file holds; if there is none it is made, in half a minute. Raises `OtherCodeError`."""
    if path.exists():
        found: Inputs = pickle.loads(path.read_bytes())
        if found.digest != digest():
            raise OtherCodeError(path)
        return found
    launches = record()
    made = Inputs(
        digest(),
        metadata.version("triton"),
        {form.name: form.text for form in FORMS},
        {form.name: form.launches(launches) for form in FORMS},
    )
    path.write_bytes(pickle.dumps(made))
    return made


def record() -> list[Launch]:
    """Have `tests/verifier/recorded.py` record the launches."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(SUPPORT)}
    with TemporaryDirectory(prefix="vosti-launches-") as folder:
        path = Path(folder) / "launches"
        command = [sys.executable, "-W", "ignore", str(PROGRAM), str(path)]
        subprocess.run(command, capture_output=True, check=True, env=environment)
        found: list[Launch] = pickle.loads(path.read_bytes())
    return found


@cache
def digest() -> str:
    """Of the source that outcomes depend on: of kernels, verifier, mutants and launches."""
    found = sha256()
    for path in _sources():
        found.update(f"{path.name} {sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def _sources() -> Iterator[Path]:
    ours = Path(kernels).parents[1]
    for folder in ("kernels", "spec", "refinement/smt"):
        yield from sorted((ours / folder).rglob("*.py"))
    yield from (path for path in sorted(Path(package).parent.glob("*.py")) if path.name not in REPORTING)
    yield from sorted((SUPPORT / "kernel_cases").glob("*.py"))
    yield from (PROGRAM, SUPPORT / "launches.py", SUPPORT / "hostile_rows.py")
