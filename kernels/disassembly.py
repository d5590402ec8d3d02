"""What stands in a kernel's binary: its machine code, by the tools that Triton carries."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton
from triton.runtime.cache import get_cache_manager

CLASSES: Mapping[str, str] = {"mma": "HMMA", "tcgen05": "UTC[A-Z]*MMA", "wgmma": "HGMMA"}
"""Instruction class, as PTX names it → its machine instruction, a regular expression."""

_CACHED = "matrix_classes.txt"


def tool(name: str, *arguments: str) -> str:
    """What `cuobjdump` or `nvdisasm` prints."""
    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=True).stdout


def listing(cubin: bytes) -> str:
    """The disassembly of a binary."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return tool("nvdisasm", "-c", file.name)


def instruction(line: str) -> str | None:
    """The instruction on a line of a disassembly, its predicate included, if there is one."""
    found = re.match(r"\s+/\*[0-9a-f]+\*/\s+(.*?);", line)
    return found[1] if found else None


def matrix_classes(text: str) -> tuple[str, ...]:
    """The classes of matrix instructions in a disassembly, sorted; () if there is none."""
    words = {word for line in text.splitlines() for word in (instruction(line) or "").replace(".", " ").split()}
    return tuple(name for name, form in CLASSES.items() if any(re.fullmatch(form, word) for word in words))


def compiled_classes(compiled: Any) -> tuple[str, ...]:
    """The classes of a compiled kernel, remembered beside its binary in the compiler's cache."""
    cache = get_cache_manager(compiled.hash)
    path = cache.get_file(_CACHED)
    if path is not None:
        return tuple(Path(path).read_text().split())
    found = matrix_classes(listing(compiled.asm["cubin"]))
    remember_classes(compiled, found)
    return found


def remember_classes(compiled: Any, classes: tuple[str, ...]) -> None:
    """Keep the classes that were found in a compiled kernel, for `compiled_classes`: a disassembler starts slowly."""
    get_cache_manager(compiled.hash).put(" ".join(classes), _CACHED, binary=False)
