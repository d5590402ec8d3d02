"""GPUs: which ones the kernels were run on, and what they compile to there.

Row programs rest on numerical rules of the hardware, which hold where they were tried: `devices.json` lists the GPUs
on which every check of `tests/gpu` passed. A table of tiles for an architecture is no such promise.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget

from vosti.kernels.catalogue import TARGETS, Instance, instances
from vosti.kernels.disassembly import compiled_classes
from vosti.kernels.tables import Choice, Entry
from vosti.kernels.workers import Workers

LIST = Path(__file__).with_name("devices.json")

COMPILER = f"triton {triton.__version__}"


@cache
def _listed() -> tuple[Any, ...]:
    return tuple(json.loads(LIST.read_text())["run"])


def devices_run() -> frozenset[tuple[str, str]]:
    """(architecture, name as the driver gives it) of each GPU on the list."""
    return frozenset((device["architecture"], device["name"]) for device in _listed())


def classes_run(architecture: str, name: str) -> frozenset[str]:
    """The classes of matrix instructions that the kernels had when they were compared on such a GPU."""
    found = [one["classes"] for one in _listed() if (one["architecture"], one["name"]) == (architecture, name)]
    return frozenset(word for classes in found for word in classes)


def classes_of(entry: Entry, choice: Choice, architecture: str) -> frozenset[str]:
    """The classes of matrix instructions in the binaries of one of an entry's tiles."""
    found = instruction_classes([replace(entry, choices=(choice,))], architecture)
    return frozenset(name for names in found.values() for name in names)


def compile_ahead(wanted: Iterable[Instance], architecture: str, workers: Workers) -> None:
    """Compile what the compiler's cache does not hold of some forms, several at once; a launch finds them there.

    What cannot be compiled is left to those who need it.
    """
    target = TARGETS[architecture]
    missing = [partial(_compile, form, target) for form in wanted if form.kept(target) is None]
    for _ in workers.do(missing):
        pass


def _compile(form: Instance, target: GPUTarget) -> None:
    with suppress(Exception):
        form.compiled(target)


def instruction_classes(entries: Iterable[Entry], architecture: str) -> dict[str, list[str]]:
    """The classes of matrix instructions in the binaries of each kernel, over all forms of the entries.

    Compiles what the compiler's cache does not hold, several forms at once; a launch finds them there.
    """
    forms = [form for entry in entries for form in instances(entry)]
    with Workers() as workers:
        compile_ahead(forms, architecture, workers)
    # Each is disassembled by a process of its own.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda form: compiled_classes(form.compiled(TARGETS[architecture])), forms))
    classes: dict[str, set[str]] = {}
    for form, names in zip(forms, found, strict=True):
        classes.setdefault(form.kernel.contract.kernel, set()).update(names)
    return {kernel: sorted(names) for kernel, names in sorted(classes.items())}
