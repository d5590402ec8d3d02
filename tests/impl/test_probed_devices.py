"""Which GPUs a record of `vosti probe` lets in, and which it keeps out."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the cuda backend needs Triton, which is not installed")

from forwards import CHECKPOINTS
from vosti.impl.backends.cuda import fingerprint as module
from vosti.impl.backends.cuda.fingerprint import NO_BINARIES, Device, fingerprint
from vosti.impl.errors import UnprobedDeviceError
from vosti.impl.models.model import Model
from vosti.kernels.probe.findings import Finding
from vosti.kernels.probe.record import FOLDER, Record, Store
from vosti.kernels.tables import load
from vosti.kernels.verifier.rules import RULES

H100 = Device("NVIDIA H100", "sm_90", "580.159.04", "2.11.0+cu130", "triton 3.6.0")
H200 = replace(H100, name="NVIDIA H200")
PROBED = sorted(rule.name for rule in RULES.values() if rule.probed)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty one."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return Store(tmp_path)


def record(device: Device, *, different: str = "", control: str = "", missing: str = "") -> Record:
    """A record of every probed rule, but the one that is missing; one may differ, or be without its control."""
    findings = [
        Finding(name, "a form", (), 10, int(name == different), int(name != control))
        for name in PROBED
        if name != missing
    ]
    return Record(device.subject, "2.11.0", 0, "2026-01-31", "ab", tuple(findings))


def test_a_probe_that_passed_lets_a_gpu_in(store: Store) -> None:
    """This GPU with this driver and Triton, and no other."""
    with pytest.raises(UnprobedDeviceError, match="vosti probe tries them"):
        H100.check(unsafe_unprobed=False)
    store.keep(record(H100))

    H100.check(unsafe_unprobed=False)
    assert H100.probed
    for other in (
        replace(H100, name="NVIDIA H800"),
        replace(H100, driver="580.160.01"),
        replace(H100, compiler="triton 3.7.1"),
    ):
        with pytest.raises(UnprobedDeviceError, match="never checked"):
            other.check(unsafe_unprobed=False)


@pytest.mark.parametrize("device", [H100, H200], ids=lambda device: device.name)
@pytest.mark.parametrize("fault", ["different", "control", "missing"])
@pytest.mark.parametrize("rule", PROBED)
def test_a_rule_that_failed_keeps_a_gpu_out_by_name(store: Store, device: Device, fault: str, rule: str) -> None:
    """On the list or not: where elements differ, the control was not found, or the record says nothing of a rule."""
    store.keep(record(device, **{fault: rule}))

    with pytest.raises(UnprobedDeviceError, match=f"do not hold: {re.escape(rule)};"):
        device.check(unsafe_unprobed=False)
    device.check(unsafe_unprobed=True)
    assert not device.probed


def test_what_is_no_record_keeps_a_gpu_out(store: Store) -> None:
    """A file that was damaged is neither used nor passed over."""
    store.keep(record(H100)).write_text("{}")

    with pytest.raises(UnprobedDeviceError, match="no record of a probe"):
        H100.check(unsafe_unprobed=False)


def test_the_record_is_part_of_the_configuration(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """W has its digest, or says that there is none."""
    monkeypatch.setattr(module, "instruction_classes", lambda entries, architecture: {})
    model = Model.load(CHECKPOINTS / "tiny-llama3")

    assert fingerprint(model, (), load("sm_90"), H200, NO_BINARIES)["probe"] is None
    store.keep(found := record(H200))
    assert found.digest == fingerprint(model, (), load("sm_90"), H200, NO_BINARIES)["probe"]
    store.keep(record(H200, different="chain"))
    other = fingerprint(model, (), load("sm_90"), H200, NO_BINARIES)
    assert found.digest != other["probe"]
    assert other["probed"] is False
