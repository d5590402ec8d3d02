"""`vosti probe`, with findings that were made up: what is printed, written and kept, and how it ends."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from command_line import vosti
from vosti.impl.backends.cuda.fingerprint import Device
from vosti.kernels.probe.findings import Finding
from vosti.kernels.probe.record import FOLDER, Store, decode
from vosti.kernels.verifier.rules import RULES

H100 = Device("NVIDIA H100", "sm_90", "580.159.04", "2.11.0+cu130", "triton 3.6.0")
GOOD = [
    Finding(rule.name, f"form {number}", ("wgmma",) if number else (), 10, 0, 3)
    for rule in RULES.values()
    if rule.probed
    for number in range(2)
]
BAD = replace(GOOD[1], form="bf16 128x128x64 warps=8", different=2)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Where records are kept; a GPU stands there, and nothing is compiled."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "records"))
    monkeypatch.setattr("vosti.impl.backends.cuda.opening.find_device", lambda asks, otherwise: H100)
    monkeypatch.setattr("vosti.kernels.probe.suite.compile_ahead", lambda table, workers: iter(()))
    return Store(tmp_path / "records")


def found(findings: list[Finding], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the probes find this."""

    def probes(machine: object, table: object) -> Iterator[list[Finding]]:
        yield findings

    monkeypatch.setattr("vosti.kernels.probe.suite.probes", probes)


def test_rules_that_hold_are_recorded(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has each rule and class; the record is kept and written, and lets the GPU in."""
    found(GOOD, monkeypatch)
    ended = vosti("probe", "--json", tmp_path / "x.json", "--junit", tmp_path / "x.xml")

    assert (0, "") == (ended.code, ended.err)
    lines = [line.split("  ")[0] for line in ended.out.splitlines()]
    assert [finding.rule for finding in GOOD] == lines[1 : len(GOOD) + 1]
    assert "All rules hold in every form." in ended.out
    assert re.search(r"It took \d+ s, \d+ of them to compile \d+ forms\.$", ended.out.strip())
    kept = store.record(H100.subject)
    assert kept is not None
    assert tuple(GOOD) == kept.findings
    assert kept == decode((tmp_path / "x.json").read_text())
    assert str(len(GOOD)) == ElementTree.parse(tmp_path / "x.xml").getroot().get("tests")
    H100.check(unsafe_unprobed=False)


def test_a_rule_that_fails_is_named(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the form in which it failed, on stdout, in the record and as a failed test case; the code is 1."""
    found([*GOOD, BAD], monkeypatch)
    ended = vosti("probe", "--json", tmp_path / "x.json", "--junit", tmp_path / "x.xml")

    assert 1 == ended.code
    assert f"failed: chain: {BAD.form}: 2 of 10 elements differ\n" in ended.out
    assert (
        "disabled: tiles of attention, attention_merge, attention_split, gate_up, gate_up_stream, linear, "
        "linear_stream, with wgmma instructions\n"
    ) in ended.out
    assert "All rules hold" not in ended.out
    assert ["chain"] == json.loads((tmp_path / "x.json").read_text())["failed"]
    assert "1" == ElementTree.parse(tmp_path / "x.xml").getroot().get("failures")
    kept = store.record(H100.subject)
    assert kept is not None
    assert ("chain",) == kept.failed


def test_without_a_gpu_nothing_is_probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence, code 2, and no file."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    ended = vosti("probe", "--json", tmp_path / "x.json")

    assert (2, "") == (ended.code, ended.out)
    assert "vosti: vosti probe needs an NVIDIA GPU, and torch finds none: run it where the GPU is.\n" == ended.err
    assert [] == list(tmp_path.iterdir())


def test_a_gpu_without_a_table_is_not_probed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its architecture is named, with those that have one."""
    other = replace(H100, architecture="sm_70")
    monkeypatch.setattr("vosti.impl.backends.cuda.opening.find_device", lambda asks, otherwise: other)
    ended = vosti("probe")

    assert 2 == ended.code
    assert "There is no table for sm_70" in ended.err
    assert not store.folder.exists()
