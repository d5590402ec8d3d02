"""Which tiles may be used on a GPU, by what `vosti probe` found on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from vosti.impl.backends.cuda.fingerprint import Device
from vosti.impl.errors import UnprobedDeviceError
from vosti.kernels.devices import classes_of, classes_run, instruction_classes
from vosti.kernels.probe.consequences import classes_tried, failures, remaining
from vosti.kernels.tables import Entry, Table, describe


def admitted(device: Device, table: Table, entries: Iterable[Entry]) -> Table:
    """The table without those tiles of some of its entries that a broken rule disables.

    Raises `UnprobedDeviceError` if an entry has none left, or if a tile has matrix instructions of a class that was
    never compared with others on such a GPU. Compiles what the entries name, if no earlier run did.
    """
    record, kept = device.record, []
    failed = failures(record.findings) if record else []
    for entry in entries:
        left = remaining(entry, failed, partial(classes_of, entry, architecture=device.architecture))
        if not left.choices:
            rules = ", ".join(sorted({finding.rule for finding in failed}))
            raise UnprobedDeviceError(
                f"No tile of {entry.operation} {describe(entry.dimensions)} is left on {device.name}, where vosti "
                f"probe found that these rules do not hold: {rules}; --unsafe-unprobed uses it all the same, and W "
                "says so."
            )
        kept.append(left)
    known = classes_tried(record.findings) if record else classes_run(device.architecture, device.name)
    for kernel, names in instruction_classes(kept, device.architecture).items():
        if strangers := sorted(set(names) - known):
            raise UnprobedDeviceError(
                f"{kernel} has matrix instructions ({', '.join(strangers)}) that were not compared with others on "
                f"{device.name}: vosti probe does; --unsafe-unprobed uses it all the same, and W says so."
            )
    return replace(table, entries={**table.entries, **{(one.operation, one.dimensions): one for one in kept}})
