"""Which GPUs a record of `vosti probe` lets in, and which it keeps out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the cuda backend needs Triton, which is not installed")

from forwards import CHECKPOINTS
from vosti.impl.backends.cuda import fingerprint as module
from vosti.impl.backends.cuda.fingerprint import INTERPRETED, Device, fingerprint, untouched
from vosti.impl.backends.cuda.probing import admitted
from vosti.impl.errors import UnprobedDeviceError
from vosti.impl.models.model import Model
from vosti.kernels.probe.consequences import RULES_OF
from vosti.kernels.probe.findings import Finding
from vosti.kernels.probe.record import FOLDER, Record, Store
from vosti.kernels.probe.repeats import REPEATABILITY
from vosti.kernels.tables import Entry, load
from vosti.kernels.verifier.rules import RULES

H100 = Device("NVIDIA H100", "sm_90", "580.159.04", "2.11.0+cu130", "triton 3.6.0")
H200 = replace(H100, name="NVIDIA H200")
TABLE = load("sm_90")
ENTRIES = {
    "linear": TABLE.entry("linear", n=6144, k=4096),
    "kv_store": TABLE.entry("kv_store", kv_heads=8, head_dim=128),
}
PROBED = sorted(rule.name for rule in RULES.values() if rule.probed)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty one."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return Store(tmp_path)


@pytest.fixture
def binaries(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Classes of matrix instructions by kernel, in place of those of binaries."""
    classes = {"linear": ["mma"], "linear_stream": ["wgmma"]}

    def found(entries: Iterable[Entry], architecture: str) -> dict[str, list[str]]:
        kernels = {choice.kernel for entry in entries for choice in entry.choices}
        return {kernel: classes.get(kernel, []) for kernel in sorted(kernels)}

    monkeypatch.setattr("vosti.kernels.devices.instruction_classes", found)
    monkeypatch.setattr("vosti.impl.backends.cuda.probing.instruction_classes", found)
    return classes


def record(device: Device, *, different: str = "", control: str = "", missing: str = "") -> Record:
    """A record of every probed rule, but the one that is missing; one may differ, or be without its control."""
    findings = [
        Finding(name, "a form", classes, 10, int(name == different), int(name != control))
        for name in PROBED
        for classes in ((("mma",), ("wgmma",)) if name == "chain" else ((),))
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
@pytest.mark.parametrize("rule", PROBED)
def test_a_rule_that_a_record_leaves_out_keeps_a_gpu_out_by_name(store: Store, device: Device, rule: str) -> None:
    """On the list or not."""
    store.keep(record(device, missing=rule))

    with pytest.raises(UnprobedDeviceError, match=f"do not hold: {re.escape(rule)};"):
        device.check(unsafe_unprobed=False)
    device.check(unsafe_unprobed=True)
    assert not device.probed


def test_a_kernel_that_is_in_no_table_and_does_not_repeat_keeps_a_gpu_out(store: Store) -> None:
    """Every model may sample; a kernel of the tables disables itself only."""
    again = Finding(REPEATABILITY, "a form", (), 10, 1, 1, "weights, draw_from_all")
    good = record(H100)
    store.keep(replace(good, findings=(*good.findings, replace(again, kernel="linear"))))
    H100.check(unsafe_unprobed=False)
    store.keep(replace(good, findings=(*good.findings, again)))

    with pytest.raises(UnprobedDeviceError, match="do not hold: repeatability;"):
        H100.check(unsafe_unprobed=False)


@pytest.mark.parametrize("fault", ["different", "control"])
@pytest.mark.parametrize("rule", PROBED)
def test_a_rule_that_failed_disables_what_depends_on_it(
    store: Store, fault: str, rule: str, binaries: dict[str, list[str]]
) -> None:
    """Of two entries, the one whose kernel's proofs use the rule is refused by name, and W says what was used."""
    store.keep(record(H100, **{fault: rule}))
    H100.check(unsafe_unprobed=False)
    for kernel, entry in ENTRIES.items():
        assert untouched([entry], H100) == (rule not in RULES_OF[kernel])
        if rule not in RULES_OF[kernel]:
            assert TABLE == admitted(H100, TABLE, [entry])
        else:
            with pytest.raises(UnprobedDeviceError, match=rf"{entry.operation} .* do not hold: {re.escape(rule)};"):
                admitted(H100, TABLE, [entry])


@pytest.mark.parametrize("rule", ["chain", REPEATABILITY])
def test_a_class_that_failed_is_not_mixed_with_the_others(
    store: Store, rule: str, binaries: dict[str, list[str]]
) -> None:
    """Tiles with its instructions are dropped; of those that are left the last serves any number of rows."""
    store.keep(with_broken(record(H100), rule))
    linear = ENTRIES["linear"]
    kept = admitted(H100, TABLE, [linear]).entry("linear", **dict(linear.dimensions))

    assert ["linear"] * len(kept.choices) == [choice.kernel for choice in kept.choices]
    assert (*linear.choices[:-2], replace(linear.choices[-2], up_to_rows=None)) == kept.choices
    assert kept.choices[-1] == kept.choice(8192)
    assert untouched([kept], H100)
    assert not untouched([linear], H100)


def test_a_class_that_failed_under_a_rule_that_is_not_used_stays(store: Store, binaries: dict[str, list[str]]) -> None:
    """A linear layer masks no product."""
    store.keep(with_broken(record(H100), "masked product"))

    assert TABLE == admitted(H100, TABLE, ENTRIES.values())


def with_broken(good: Record, rule: str) -> Record:
    """A record that has one more finding: that a rule did not hold for one class of instructions."""
    return replace(good, findings=(*good.findings, Finding(rule, "128x128x64 warps=8", ("wgmma",), 10, 3, 1)))


@pytest.mark.parametrize("device", [H100, H200], ids=lambda device: device.name)
def test_a_class_that_was_never_compared_is_not_mixed_in(
    store: Store, device: Device, binaries: dict[str, list[str]]
) -> None:
    """Be it left out by the record, or by the list of GPUs."""
    if device is H100:
        store.keep(record(H100))
    assert TABLE == admitted(device, TABLE, ENTRIES.values())
    binaries["linear"] = ["mma", "tcgen05"]

    with pytest.raises(UnprobedDeviceError, match=r"linear has matrix instructions \(tcgen05\)"):
        admitted(device, TABLE, ENTRIES.values())


def test_what_is_no_record_keeps_a_gpu_out(store: Store) -> None:
    """A file that was damaged is neither used nor passed over."""
    store.keep(record(H100)).write_text("{}")

    with pytest.raises(UnprobedDeviceError, match="no record of a probe"):
        H100.check(unsafe_unprobed=False)


def test_the_record_is_part_of_the_configuration(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """W has its digest, or says that there is none."""
    monkeypatch.setattr(module, "instruction_classes", lambda entries, architecture: {})
    model = Model.load(CHECKPOINTS / "tiny-llama3")

    assert fingerprint(model, (), load("sm_90"), H200, INTERPRETED)["probe"] is None
    store.keep(found := record(H200))
    assert found.digest == fingerprint(model, (), load("sm_90"), H200, INTERPRETED)["probe"]
    store.keep(record(H200, missing="chain"))
    other = fingerprint(model, (), load("sm_90"), H200, INTERPRETED)
    assert found.digest != other["probe"]
    assert other["probed"] is False
