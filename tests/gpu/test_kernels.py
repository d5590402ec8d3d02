"""The kernels on a GPU: each section of `kernels_check.py` in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vosti.kernels.shapes import SHAPES

CHECK = Path(__file__).with_name("kernels_check.py")

NAMES = (
    "rows matrices",
    "rows norms",
    "rows stores",
    "tiles linear",
    "tiles gate_up",
    "tiles attention",
    "tiles rows",
    "integers",
    "padding",
    "twins",
    "errors",
    "digests",
    "sampler",
    *(f"table {model}" for model in SHAPES),
    *(f"table attention {model}" for model in SHAPES),
    *(
        f"attention {d}{window}"
        for d, w in ((32, 40), (64, 64), (128, 700), (256, 512))
        for window in ("", f" window {w}")
    ),
    "attention 512",
)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("section", NAMES)
def test_section(section: str) -> None:
    """The section's facts hold on this GPU."""
    run = subprocess.run([sys.executable, str(CHECK), section], capture_output=True, text=True, check=False)

    assert 0 == run.returncode, run.stdout + run.stderr
