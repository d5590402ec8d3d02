"""The configuration W of Definition 2.1, as far as the CUDA backend fixes it: what may change a value.

Page size, batch sizes, graphs, the form of attention and the tile that is chosen out of a table's entry are left out:
across them values must agree. The entries are in, and so are the classes of matrix instructions in the binaries, the
digest of the binaries' certificates, and the names of kernels that have none.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import torch

import vosti.kernels
from vosti.impl.backends.cuda.plan import DevicePlan
from vosti.impl.errors import NoDeviceError, UnprobedDeviceError
from vosti.impl.fingerprint import row_programs, source_digest
from vosti.impl.models.model import Model
from vosti.kernels.devices import COMPILER, classes_of, devices_run, instruction_classes
from vosti.kernels.probe.consequences import RULES_OF, failures, remaining
from vosti.kernels.probe.record import Record, RecordError, Subject, default_store
from vosti.kernels.tables import Entry, Table, encode
from vosti.kernels.verifier.rules import RULES

KERNELS = (
    "attention",
    "attention_split",
    "attention_tiles",
    "embedding",
    "finite",
    "gate_up",
    "launch",
    "linear",
    "rms_norm",
    "rotary_store",
    "sample",
    "sample_cuts",
    "sample_search",
    "sample_weights",
    "tile",
    "trees",
)
"""Modules of `vosti.kernels` that values pass through, and those that draw tokens."""

HOST = ("backend", "binding", "forward", "lowering", "metadata")
"""Modules of this package that do."""

INTERPRETED = "interpreter"
"""What stands for the GPU where there is none, and kernels run in Triton's interpreter."""


@dataclass(frozen=True)
class Device:
    """What W says of a machine."""

    name: str
    """Of the GPU, as the driver gives it."""

    architecture: str
    """As tables name it: sm_90."""

    driver: str
    torch_version: str
    compiler: str

    @classmethod
    def of(cls, device: torch.device) -> Self:
        """The device at hand. Raises `NoDeviceError` if the driver does not say its version."""
        name, arch, driver = INTERPRETED, INTERPRETED, INTERPRETED
        if device.type == "cuda":
            name, arch, driver = torch.cuda.get_device_name(device), architecture(device), _driver_version()
        return cls(name, arch, driver, str(torch.__version__), COMPILER)

    @property
    def subject(self) -> Subject:
        """What a record of `vosti probe` about this device is kept under."""
        return Subject.of(self.name, self.architecture, self.driver, self.compiler)

    @property
    def record(self) -> Record | None:
        """What `vosti probe` found on such a device, with this driver and Triton; None if it was not asked.

        Raises `UnprobedDeviceError` if the file that is kept is no record.
        """
        try:
            return default_store().record(self.subject)
        except RecordError as error:
            raise UnprobedDeviceError(str(error)) from error

    def check(self, *, unsafe_unprobed: bool) -> None:
        """Raise `UnprobedDeviceError` unless the kernels were run on such a GPU, or it was probed.

        So it does if a record leaves a rule out, or says that a kernel outside the tables, one that samples, does not
        repeat. What else a probe found broken disables what depends on it (`vosti.impl.backends.cuda.probing`).
        """
        if unsafe_unprobed:
            return
        if failed := failed_everywhere(self.record):
            raise UnprobedDeviceError(
                f"On {self.name} ({self.architecture}), with driver {self.driver} and {self.compiler}, vosti probe "
                f"found that these rules do not hold: {', '.join(failed)}; --unsafe-unprobed uses it all the same, "
                "and W says so."
            )
        if not self.probed:
            known = ", ".join(f"{name} ({architecture})" for architecture, name in sorted(devices_run()))
            raise UnprobedDeviceError(
                f"The kernels were never checked on {self.name} ({self.architecture}), whose arithmetic may follow "
                f"other rules than that of {known}: vosti probe tries them; --unsafe-unprobed uses it all the same, "
                "and W says so."
            )

    @property
    def probed(self) -> bool:
        """Whether the kernels were run on such a GPU, or it was probed, and nothing failed that all depends on."""
        record = self.record
        if failed_everywhere(record):
            return False
        return record is not None or (self.architecture, self.name) in devices_run()


def failed_everywhere(record: Record | None) -> tuple[str, ...]:
    """The rules that a record leaves out, or found broken beside the tables' kernels, sorted; () without a record."""
    if record is None:
        return ()
    beside = {finding.rule for finding in failures(record.findings) if finding.kernel not in ("", *RULES_OF)}
    return tuple(sorted({*beside, *record.lacking(rule.name for rule in RULES.values() if rule.probed)}))


def untouched(entries: Iterable[Entry], device: Device) -> bool:
    """Whether no tile of the entries depends on what a probe of the device found broken."""
    failed = failures(record.findings) if (record := device.record) else []
    return all(
        entry == remaining(entry, failed, partial(classes_of, entry, architecture=device.architecture))
        for entry in entries
    )


def fingerprint(
    model: Model, plans: Iterable[DevicePlan], table: Table, device: Device, certificates: str
) -> dict[str, object]:
    """W as JSON types. Compiles what the plans' entries name, if no earlier run did.

    `certificates` is their digest (`vosti.impl.backends.cuda.certifier`), or what stands for it.
    """
    entries = entries_used(plans, table)
    compiled = {} if device.name == INTERPRETED else instruction_classes(entries, device.architecture)
    package, kernels = Path(__file__).parent, Path(vosti.kernels.__path__[0])
    sources = [*(kernels / f"{name}.py" for name in KERNELS), *(package / f"{name}.py" for name in HOST)]
    return {
        "architecture": device.architecture,
        "backend": "cuda",
        "certificates": certificates,
        "compiler": device.compiler,
        "config": model.config_digest,
        "driver": device.driver,
        "dtype": str(next(iter(model.parameters.values())).dtype).removeprefix("torch."),
        "gpu": device.name,
        "instruction_classes": compiled,
        "kernels": source_digest(sources),
        "plan": hashlib.sha256(repr(model.plan).encode()).hexdigest(),
        "probe": None if (record := device.record) is None else record.digest,
        "probed": device.probed and untouched(entries, device),
        "row_programs": source_digest(row_programs()),
        "table": hashlib.sha256(encode(table.architecture, entries).encode()).hexdigest(),
        "torch": device.torch_version,
        "weights": model.weights_identity,
    }


def entries_used(plans: Iterable[DevicePlan], table: Table) -> list[Entry]:
    """The entries of all launches, each once, in order. Raises `ConfigurationError` if one is missing."""
    wanted = sorted({(launch.operation, launch.sizes) for plan in plans for launch in plan.launches})
    return [table.entry(operation, **dict(sizes)) for operation, sizes in wanted]


def architecture(device: torch.device) -> str:
    """As tables name it: sm_90."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def _driver_version() -> str:
    """The driver's version, such as 580.159.04."""
    text = ctypes.create_string_buffer(96)
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        failed = library.nvmlInit_v2() or library.nvmlSystemGetDriverVersion(text, len(text))
    except (OSError, AttributeError) as error:
        raise NoDeviceError(
            f"The driver's version cannot be read ({error}): install the driver's own tools."
        ) from error
    if failed:
        raise NoDeviceError(f"The driver's version cannot be read (error {failed}): does nvidia-smi work?")
    return text.value.decode()
