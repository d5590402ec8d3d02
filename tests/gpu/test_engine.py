"""The cuda backend on a GPU: each program of its own, and what `vosti check` says of both bundled checkpoints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
VOSTI = ("-c", "import sys; from vosti.impl.cli import main; sys.exit(main())")

PROGRAMS: dict[str, tuple[str, ...]] = {
    "both backends compared": (str(HERE / "engine_compare.py"),),
    "launches are the plan's, tiny-gemma3": (str(HERE / "engine_profile.py"), "tiny-gemma3"),
    "launches are the plan's, tiny-llama3": (str(HERE / "engine_profile.py"), "tiny-llama3"),
    "check tiny-gemma3": (*VOSTI, "check", "--backend", "cuda", "tiny-gemma3"),
    "check tiny-llama3": (*VOSTI, "check", "--backend", "cuda", "tiny-llama3"),
}


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    """What the program claims holds on this GPU."""
    run = subprocess.run([sys.executable, *PROGRAMS[name]], capture_output=True, text=True, check=False)

    assert 0 == run.returncode, run.stdout + run.stderr
