"""Kernels under Triton's interpreter in float32 against the row programs, on small shapes: see `interpreted.py`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

PROGRAM = Path(__file__).with_name("interpreted.py")


def case_names() -> list[str]:
    """The names of the cases, without importing Triton."""
    specification = importlib.util.spec_from_file_location("interpreted", PROGRAM)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return list(module.CASES)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str | None]:
    """What the program prints, run once."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", str(PROGRAM)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert 0 == run.returncode, run.stderr
    return dict(json.loads(line) for line in run.stdout.splitlines())


@pytest.mark.parametrize("name", case_names())
def test_case(outcomes: dict[str, str | None], name: str) -> None:
    """The kernel's results are the row program's."""
    assert outcomes[name] is None


def test_every_case_ran(outcomes: dict[str, str | None]) -> None:
    """The program ran the cases that are listed, those alone, and there are some of every kind."""
    assert len(case_names()) >= 28
    assert case_names() == list(outcomes)
