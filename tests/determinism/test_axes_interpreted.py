"""Axes of the GPU's kernels, in Triton's interpreter: see `axes_interpreted.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="the cuda backend needs Triton, which is not installed")

PROGRAM = Path(__file__).with_name("axes_interpreted.py")
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def found() -> dict[str, list[tuple[str, str, str | None]]]:
    """By case its pairs' names, states and reasons."""
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": os.pathsep.join((str(TESTS / "support"), str(TESTS / "impl"))),
    }
    command = [sys.executable, "-W", "ignore", str(PROGRAM)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert 0 == run.returncode, run.stderr
    return dict(json.loads(line) for line in run.stdout.splitlines())


def test_nothing_is_left_of_a_model_that_was_let_go(found: dict[str, list[Any]]) -> None:
    """No tensor, of weights, pool or buffers; before, there were some for each of two layers."""
    held, left = found["tensors"]

    assert (True, 0) == (held > 40, left)


def states(pairs: list[tuple[str, str, str | None]]) -> list[str]:
    """Of each pair."""
    return [state for _, state, _ in pairs]


def test_a_neighbour_that_is_not_finite_changes_nobody(found: dict[str, list[tuple[str, str, str | None]]]) -> None:
    """A token whose embedding is NaN ends its own request with an error, in the kernels of the GPU, too."""
    assert 3 * ["match"] == states(found["beside"])


def test_a_fault_that_leaks_is_found(found: dict[str, list[tuple[str, str, str | None]]]) -> None:
    """The request whose token was spoilt, too, differs, and the other one does not."""
    assert ["mismatch", "mismatch", "match"] == states(found["leaking"])


def test_keys_in_one_pass_give_what_splits_give(found: dict[str, list[tuple[str, str, str | None]]]) -> None:
    """The engine shows that other kernels ran, and no bit differs."""
    assert 3 * ["match"] == states(found["unsplit"])
