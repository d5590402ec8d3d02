"""Certificates and binaries on a GPU: a model proved at load, found again, served; edited kernels refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("certificates_check.py")


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_binaries_are_those_that_were_certified() -> None:
    """Each line of the program's table is right on this GPU."""
    run = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, check=False)

    assert 0 == run.returncode, run.stdout + run.stderr
