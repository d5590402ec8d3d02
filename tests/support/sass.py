"""What a compiled kernel takes of a multiprocessor, read from its binary with the tools that Triton carries."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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

    matrix_class: str
    """`wgmma`, `mma` or `none`."""

    loops: tuple[Loop, ...]


def _tool(name: str, *arguments: str) -> str:
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=True).stdout


def usage(compiled: Any) -> Usage:
    """Read the usage of a compiled kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        resources = _tool("cuobjdump", "-res-usage", file.name)
        listing = _tool("nvdisasm", "-c", file.name)
    registers, stack = (int(re.search(rf"{name}:(\d+)", resources)[1]) for name in ("REG", "STACK"))  # type: ignore[index]
    code, loops = parse(listing)
    products = {"wgmma": "GMMA" in code, "mma": "HMMA" in code}
    found = next((name for name, present in products.items() if present), "none")
    return Usage(registers, stack, compiled.metadata.shared, found, loops)


def parse(listing: str) -> tuple[str, tuple[Loop, ...]]:
    """The instructions of a disassembly, one per line, and its loops."""
    instructions: list[str] = []
    labels: dict[str, int] = {}
    for line in listing.splitlines():
        if label := re.match(r"\s*\.(L_x_\d+):", line):
            labels[label[1]] = len(instructions)
        elif found := re.match(r"\s+/\*[0-9a-f]+\*/\s+(.*?);", line):
            instructions.append(found[1])
    spans = []
    for index, instruction in enumerate(instructions):
        target = re.search(r"BRA.*`\(\.(L_x_\d+)\)", instruction)
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
