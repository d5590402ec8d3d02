"""The configuration W of the CUDA backend: what may change a value, and nothing else; and which GPUs are let in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="the cuda backend needs Triton, which is not installed")

from forwards import CHECKPOINTS
from vosti.impl.backends.cuda import fingerprint as module
from vosti.impl.backends.cuda.backend import layout
from vosti.impl.backends.cuda.fingerprint import Device, entries_used, fingerprint
from vosti.impl.backends.cuda.lowering import lower
from vosti.impl.backends.cuda.plan import DevicePlan, Form
from vosti.impl.errors import UnprobedDeviceError
from vosti.impl.models.model import Model
from vosti.kernels import devices
from vosti.kernels.catalogue import SAMPLER
from vosti.kernels.devices import instruction_classes
from vosti.kernels.tables import load

TABLE = load("sm_90")
CERTIFIED = "ab"
H200 = Device("NVIDIA H200", "sm_90", "580.159.04", "2.11.0+cu130", "triton 3.6.0")


@pytest.fixture(scope="module")
def model() -> Model:
    """A bundled checkpoint, as the device keeps it."""
    return Model.load(CHECKPOINTS / "tiny-llama3", layout=layout)


@pytest.fixture
def plans(model: Model) -> list[DevicePlan]:
    """Both forms."""
    return [lower(model.plan, form, logit_block=4096) for form in Form]


@pytest.fixture(autouse=True)
def _compiled_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the binaries hold is another test's matter."""
    monkeypatch.setattr(module, "instruction_classes", lambda entries, architecture: {"linear": ["mma"]})


def changed(expected: dict[str, object], found: dict[str, object]) -> set[str]:
    """The fields that differ."""
    assert expected.keys() == found.keys()
    return {name for name in expected if expected[name] != found[name]}


def test_it_is_plain_data_without_a_path(model: Model, plans: list[DevicePlan]) -> None:
    """W is JSON, names GPU, driver and software, and knows neither a folder nor the machine's."""
    found = fingerprint(model, plans, TABLE, H200, CERTIFIED)
    text = json.dumps(found)

    assert found == json.loads(text)
    assert ("NVIDIA H200", "sm_90", "580.159.04", True) == tuple(
        found[name] for name in ("gpu", "architecture", "driver", "probed")
    )
    assert str(CHECKPOINTS) not in text
    assert str(Path(module.__file__).parent) not in text


@pytest.mark.parametrize(
    ("field", "value", "differing"),
    [
        ("name", "NVIDIA H100", {"gpu", "probed"}),
        ("architecture", "sm_100", {"architecture", "probed"}),
        ("driver", "999.1", {"driver"}),
        ("torch_version", "9.9", {"torch"}),
        ("compiler", "triton 9.9", {"compiler"}),
    ],
)
def test_another_machine_is_another_configuration(
    model: Model, plans: list[DevicePlan], field: str, value: str, differing: set[str]
) -> None:
    """Each part of the machine's description shows in W, and only there."""
    other = replace(H200, **{field: value})

    assert differing == changed(
        fingerprint(model, plans, TABLE, H200, CERTIFIED), fingerprint(model, plans, TABLE, other, CERTIFIED)
    )


def test_another_tile_is_another_configuration(model: Model, plans: list[DevicePlan]) -> None:
    """What may run is in W: a tile of an entry that the model uses, and no entry that it does not."""
    base = fingerprint(model, plans, TABLE, H200, CERTIFIED)
    used = {(entry.operation, entry.dimensions) for entry in entries_used(plans, TABLE)}

    def with_fewer_tiles(operation: str, dimensions: tuple[tuple[str, int], ...]) -> dict[str, object]:
        entry = TABLE.entries[operation, dimensions]
        smaller = replace(entry, choices=entry.choices[-1:])
        table = replace(TABLE, entries={**TABLE.entries, (operation, dimensions): smaller})
        return fingerprint(model, plans, table, H200, CERTIFIED)

    unused = next(key for key in TABLE.entries if key[0] == "linear" and key not in used)
    linear = next(key for key in used if key[0] == "linear")
    assert {"table"} == changed(base, with_fewer_tiles(*linear))
    assert set() == changed(base, with_fewer_tiles(*unused))


def test_other_certificates_are_another_configuration(model: Model, plans: list[DevicePlan]) -> None:
    """What is proved of the binaries is in W, and so is that nothing is."""
    base = fingerprint(model, plans, TABLE, H200, CERTIFIED)

    assert {"certificates"} == changed(base, fingerprint(model, plans, TABLE, H200, "unverified"))


def test_one_form_of_attention_names_fewer_entries(plans: list[DevicePlan]) -> None:
    """W holds the entries of both forms, since either may run."""
    operations = {entry.operation for entry in entries_used(plans, TABLE)}

    assert {"attention", "attention_split", "attention_merge"} <= operations
    assert "attention" not in {entry.operation for entry in entries_used(plans[1:], TABLE)}


def test_every_module_that_values_pass_through_is_digested(
    model: Model, plans: list[DevicePlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row programs, the kernels of every operation of the plan, what they share, and what launches them."""
    read: set[str] = set()
    sound = Path.read_text

    def recording(path: Path, *arguments: Any, **options: Any) -> str:
        read.add(f"{path.parent.name}.{path.stem}")
        return sound(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", recording)
    fingerprint(model, plans, TABLE, H200, CERTIFIED)

    assert {f"numerics.{name}" for name in ("activations", "attention", "norms", "projections", "rotary")} <= read
    operations = {entry.operation.replace("attention_merge", "attention_split") for entry in entries_used(plans, TABLE)}
    renamed = {"head": "linear", "logits": "finite"}
    assert {f"kernels.{renamed.get(name, name)}" for name in operations} <= read
    assert {f"kernels.{kernel.function.__module__.rpartition('.')[2]}" for kernel in SAMPLER.values()} <= read
    assert {"kernels.launch", "kernels.tile", "kernels.trees", "kernels.attention_tiles"} <= read
    assert {"cuda.backend", "cuda.lowering", "cuda.metadata"} <= read


def test_only_what_was_run_is_let_in() -> None:
    """Another GPU is refused by name, with the flag that admits it; with the flag, W tells the difference."""
    H200.check(unsafe_unprobed=False)
    for other in (replace(H200, name="NVIDIA H100 80GB HBM3"), replace(H200, architecture="sm_100")):
        with pytest.raises(UnprobedDeviceError, match=r"--unsafe-unprobed") as error:
            other.check(unsafe_unprobed=False)
        assert other.name in str(error.value)
        assert other.architecture in str(error.value)
        other.check(unsafe_unprobed=True)
        assert not other.probed


def test_the_list_of_devices_names_architectures_with_a_table() -> None:
    """What was run has tiles."""
    assert {("sm_90", "NVIDIA H200")} == devices.devices_run()
    assert all(load(architecture).entries for architecture, _ in devices.devices_run())


def test_instruction_classes_are_those_of_the_binaries() -> None:
    """Of a norm there are none; of a linear layer, those of all its tiles together."""
    entries = [TABLE.entry("linear", n=256, k=256), TABLE.entry("rms_norm", width=256, unit_offset=0)]

    assert {"linear": ["mma", "wgmma"], "linear_stream": ["wgmma"], "rms_norm": []} == instruction_classes(
        entries, "sm_90"
    )


@pytest.mark.parametrize(
    ("folder", "digested", "others"),
    [
        (Path(module.__file__).parent, module.HOST, "certifier digests fingerprint memory opening plan probing"),
        (
            Path(devices.__file__).parent,
            module.KERNELS,
            "candidates catalogue contract devices digest disassembly errors hostile kv_store shapes tables tuning "
            "workers",
        ),
    ],
)
def test_no_module_is_forgotten(folder: Path, digested: tuple[str, ...], others: str) -> None:
    """Each module beside the digested ones was found to change no value of a forward: a new one has to be looked at."""
    found = {path.stem for path in folder.glob("*.py")} - {"__init__"}

    assert {*digested, *others.split()} == found
