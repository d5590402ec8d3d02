"""The evaluator's terms, worked out with numbers, against what Triton's interpreter leaves in memory."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from evaluated_launches import stored
from vosti.kernels.catalogue import KERNELS
from vosti.kernels.verifier.parse import parse

PROGRAM = Path(__file__).with_name("recorded.py")
SUPPORT = Path(__file__).parents[1] / "support"

LAUNCHES = 2
"""Of each kernel."""


@pytest.mark.slow
def test_terms_are_worth_what_the_interpreter_stores(tmp_path: Path) -> None:
    """For some programs and lanes of a few launches of every kernel of the tables: the same number."""
    path = tmp_path / "launches"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(SUPPORT)}
    subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM), str(path)], capture_output=True, check=True, env=environment
    )
    counts: Counter[str] = Counter()
    launches: Counter[str] = Counter()
    for seed, launch in enumerate(pickle.loads(path.read_bytes())):
        # A term is worked out number by number: long sequences take minutes.
        launches[launch.kernel] += 1
        if launch.kernel not in KERNELS or launches[launch.kernel] > LAUNCHES:
            continue
        for number, found in stored(launch, parse(launch.ttir()), seed):
            counts[launch.kernel] += 1
            if isinstance(found, float):
                found = pytest.approx(found, rel=1e-6, abs=1e-6, nan_ok=True)
            assert number == found, launch.kernel

    assert set(KERNELS) == set(counts)
