"""The tile IR of every kernel, interpreted, against Triton's interpreter: the front reads what the compiler means."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from front_faults import FAULTS, edited
from launches import Launch
from vosti.kernels.catalogue import KERNELS, SAMPLER
from vosti.kernels.verifier.parse import parse

PROGRAM = Path(__file__).with_name("recorded.py")
SUPPORT = Path(__file__).parents[1] / "support"

Texts = dict[str, list[tuple[Launch, str]]]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    """What Triton's interpreter did, by kernel, and the typed IR of each launch."""
    path = tmp_path_factory.mktemp("recorded") / "launches"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(SUPPORT)}
    command = [sys.executable, "-W", "ignore", str(PROGRAM), str(path)]
    subprocess.run(command, capture_output=True, check=True, env=environment)
    found: Texts = {}
    for launch in pickle.loads(path.read_bytes()):
        found.setdefault(launch.kernel, []).append((launch, launch.ttir()))
    return found


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_the_interpreters_agree(texts: Texts, kernel: str) -> None:
    """Every launch leaves the same in every buffer: to the bit, but for sums of products and tanh."""
    assert texts[kernel]
    assert [None] * len(texts[kernel]) == [launch.problem(text) for launch, text in texts[kernel]]


@pytest.mark.parametrize("kernel", sorted(SAMPLER))
def test_the_interpreters_agree_on_the_sampler(texts: Texts, kernel: str) -> None:
    """To the bit: they have float64, scans and products of 128 bits."""
    assert texts[kernel]
    assert [None] * len(texts[kernel]) == [launch.problem(text) for launch, text in texts[kernel]]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_front_is_found(texts: Texts, fault: str) -> None:
    """What each fault would make of a kernel differs from what Triton's interpreter does in some launch."""
    some = texts[FAULTS[fault][0]]
    faulty = [(launch, edited(text, fault)) for launch, text in some]

    assert faulty != some
    assert all(parse(text) for _, text in faulty)
    assert any(launch.problem(text) for launch, text in faulty)
