"""A test whose time is up fails, wherever it is then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SPINS = """
import time


class Slow:
    def __del__(self):
        spin(10.0)


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_spins():
    Slow()
    spin(1.0)
"""
"""A finalizer takes more time than there is, and drops what is raised in it."""


@pytest.mark.parametrize(("plugins", "outcome"), [(["-p", "conftest"], "1 failed"), ([], "1 passed")])
def test_a_timeout_that_is_dropped_fires_again(tmp_path: Path, plugins: list[str], outcome: str) -> None:
    """Outside the finalizer; twin: without our hook the test passes."""
    (tmp_path / "test_spins.py").write_text(SPINS)
    arguments = ["-q", "--timeout", "1", "-p", "no:cacheprovider", *plugins, "test_spins.py"]
    path = os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )

    assert outcome in ended.stdout
