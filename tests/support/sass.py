"""What a compiled kernel takes of a multiprocessor, read from its binary."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vosti.kernels.candidates import SHARED_MEMORY
from vosti.kernels.catalogue import TARGETS, Instance
from vosti.kernels.disassembly import instruction, listing, matrix_classes, tool


@dataclass(frozen=True)
class Loop:
    """A backward branch of the machine code and what it goes around."""

    innermost: bool
    instructions: int
    spill_stores: int
    spill_loads: int
    products: int
    """Matrix instructions."""


@dataclass(frozen=True)
class Usage:
    """Resources of one compiled kernel."""

    registers: int
    stack: int
    """Bytes of local memory per thread: spilled registers."""

    shared: int
    """Bytes of shared memory per program."""

    matrix_classes: tuple[str, ...]
    """Of its matrix instructions, as `vosti.kernels.disassembly` names them."""

    loops: tuple[Loop, ...]


def usage(compiled: Any) -> Usage:
    """Read the usage of a compiled kernel."""
    registers, stack = registers_and_stack(compiled)
    text = listing(compiled.asm["cubin"])
    return Usage(registers, stack, compiled.metadata.shared, matrix_classes(text), parse(text)[1])


def registers_and_stack(compiled: Any) -> tuple[int, int]:
    """Registers and bytes of local memory of each thread."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        resources = tool("cuobjdump", "-res-usage", file.name)
    registers, stack = (re.search(rf"{name}:(\d+)", resources) for name in ("REG", "STACK"))
    assert registers
    assert stack
    return int(registers[1]), int(stack[1])


def resources(forms: Iterable[Instance], architecture: str) -> list[str]:
    """What each form takes, compiled in full; the line of one that takes too much ends in a problem."""
    lines = []
    for form in forms:
        compiled = form.compiled(TARGETS[architecture])
        registers, stack = registers_and_stack(compiled)
        shared, most = compiled.metadata.shared, SHARED_MEMORY[architecture]
        name = f"{form.kernel.contract.kernel} {dict(form.constants)} {form.tile}"
        problem = f" PROBLEM: only {most} B are there" if shared > most else ""
        lines.append(f"{name}: {registers} registers, {stack} B stack, {shared} B shared{problem}")
    return lines


def parse(text: str) -> tuple[str, tuple[Loop, ...]]:
    """The instructions of a disassembly, one per line, and its loops."""
    instructions: list[str] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if label := re.match(r"\s*\.(L_x_\d+):", line):
            labels[label[1]] = len(instructions)
        elif found := instruction(line):
            instructions.append(found)
    spans = []
    for index, line in enumerate(instructions):
        target = re.search(r"BRA.*`\(\.(L_x_\d+)\)", line)
        # A program ends in a branch to itself, which is no loop.
        if target and labels.get(target[1], index) < index:
            spans.append((labels[target[1]], index))
    loops = []
    for begin, end in spans:
        body = instructions[begin : end + 1]
        inside = [other for other in spans if other != (begin, end) and begin <= other[0] and other[1] <= end]
        stores, loads, products = (sum(name in line for line in body) for name in ("STL", "LDL", "MMA"))
        loops.append(Loop(not inside, len(body), stores, loads, products))
    return "\n".join(instructions), tuple(loops)
