"""Edits of typed IR, one at a time: each is a kernel that computes something else, or the same in another way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

SWAPS = (
    ("arith.addi", "arith.subi"),
    ("arith.muli", "arith.addi"),
    ("arith.subi", "arith.addi"),
    ("cmpi slt", "cmpi sle"),
    ("cmpi sle", "cmpi slt"),
    ("cmpi sge", "cmpi sgt"),
    ("arith.minsi", "arith.maxsi"),
    ("arith.maxsi", "arith.minsi"),
    ("arith.divsi", "arith.remsi"),
    ("arith.remsi", "arith.divsi"),
    ("arith.addf", "arith.subf"),
    ("arith.subf", "arith.addf"),
    ("arith.mulf", "arith.addf"),
    ("tt.precise_divf", "arith.divf"),
    ("tt.precise_divf", "arith.mulf"),
    ("tt.precise_sqrt", "math.sqrt"),
    ("arith.maxnumf", "arith.minnumf"),
    ("arith.maxnumf", "arith.addf"),
    ("math.exp ", "math.exp2 "),
    ("cmpf oeq", "cmpf olt"),
    ("arith.andi", "arith.ori"),
    ("arith.ori", "arith.andi"),
    ("program_id x", "program_id y"),
    ("program_id y", "program_id x"),
)
"""An operation, and one that it is replaced by."""

_INTEGER = re.compile(r"arith\.constant (?:dense<)?(-?\d+)>? : (?:tensor<\S*)?i(?:32|64)")
_FLOAT = re.compile(r"dense<(\d\.\d+e[+-]\d+)>")
_OPERANDS = re.compile(
    r"(?:arith\.(?:subf|subi|divsi|remsi|cmpi \w+,|cmpf \w+,)|tt\.precise_divf|tt\.dot|arith\.select \S+)"
    r" (%\S+?), (%[\w#]+)"
)
_LOAD = re.compile(r"(tt\.load %\S+?), (%\S+?)(, %\S+)? :")
_STORE = re.compile(r"(tt\.store %\S+?, %\S+?), (%\S+?) :")


@dataclass(frozen=True)
class Edit:
    """A changed line."""

    line: int
    what: str
    before: str
    text: str
    """The whole IR with the change."""


def edits(text: str) -> Iterator[Edit]:
    """Every edit of every line: operations, constants, operands, masks, what a loop yields."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("#") or "tt.func" in line:
            continue
        for what, new in _of_line(line):
            changed = "\n".join([*lines[:number], new, *lines[number + 1 :]])
            yield Edit(number + 1, what, line.partition(" loc(")[0].strip(), changed)


def _of_line(line: str) -> Iterator[tuple[str, str]]:
    for old, new in SWAPS:
        if old in line:
            yield f"{old} -> {new}", line.replace(old, new, 1)
    if found := _INTEGER.search(line):
        for step in (1, -1):
            changed = str(int(found[1]) + step)
            yield f"{found[1]} -> {changed}", line[: found.start(1)] + changed + line[found.end(1) :]
    if found := _FLOAT.search(line):
        yield f"{found[1]} -> 2", line.replace(found[1], "2.000000e+00")
    if (found := _OPERANDS.search(line)) and found[1] != found[2]:
        yield "operands", line[: found.start(1)] + f"{found[2]}, {found[1]}" + line[found.end(2) :]
    if found := _LOAD.search(line):
        yield "no mask", line.replace(found[0], f"{found[1]} :")
    if found := _STORE.search(line):
        yield "no mask", line.replace(found[0], f"{found[1]} :")
    if "scf.yield" in line and len(values := re.findall(r"%[\w#]+", line)) > 1:
        swapped = line.replace(values[0], "%first").replace(values[1], values[0]).replace("%first", values[1])
        yield "yield", swapped
