"""Whether a kernel gives the same bits when it runs again.

Products in every form, and the kernels of linear and gated layers and of norms with every tile of the tables. The
control flips one bit of the second result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vosti.kernels.hostile import pair
from vosti.kernels.probe.findings import Finding, differing
from vosti.kernels.probe.machine import Machine
from vosti.kernels.probe.products import COLUMNS, LENGTH, ROWS, data, form, sums
from vosti.kernels.rms_norm import rms_norm
from vosti.kernels.tables import Entry, Table
from vosti.kernels.tile import Tile
from vosti.kernels.tuning import TIMED, run

REPEATABILITY = "repeatability"
"""What the findings are filed under. It is no rule: every rule says it of what it is about."""

TIMES = 8


def repeated(name: str, classes: tuple[str, ...], compute: Callable[[], Tensor], times: int = TIMES) -> Finding:
    """Compute something so many times again."""
    first = compute()
    again = [compute() for _ in range(times)]
    flipped = first.clone()
    words = flipped.view(torch.int16 if flipped.element_size() == 2 else torch.int32)
    words.view(-1)[words.numel() // 2] ^= 1
    different = sum(differing(one, first) for one in again)
    return Finding(REPEATABILITY, name, classes, times * first.numel(), different, differing(flipped, first))


def repeated_products(machine: Machine, element: torch.dtype, tiles: Sequence[Tile]) -> list[Finding]:
    """The probes' own products."""
    x, w = data("wide 8", element, ROWS, COLUMNS, LENGTH, machine.device)
    start = sums(ROWS, COLUMNS, machine.device)
    found = []
    for tile in tiles:
        machine.chain(x, w, start, tile, 0, LENGTH)
        classes = machine.classes(element, tile)

        def compute(tile: Tile = tile) -> Tensor:
            return machine.chain(x, w, start, tile, 0, LENGTH)

        found.append(repeated(form(element, tile), classes, compute))
    return found


def repeated_kernels(table: Table, device: str = "cuda") -> Iterator[Finding]:
    """Kernels themselves, on fewer columns than models have."""
    seen = set()
    for (operation, _), entry in sorted(table.entries.items()):
        for choice in entry.choices:
            if (key := (choice.kernel, choice.tile)) in seen or operation not in (*TIMED, "rms_norm"):
                continue
            seen.add(key)
            compute = _norm(choice.tile, device) if operation == "rms_norm" else _layer(entry, key, device)
            blocks = " ".join(f"{name}={size}" for name, size in choice.tile.blocks)
            yield repeated(f"{choice.kernel} {blocks} warps={choice.tile.warps}", (), compute)


def _layer(entry: Entry, key: tuple[str, Tile], device: str) -> Callable[[], Tensor]:
    sizes = tuple((name, {"n": COLUMNS, "k": LENGTH}.get(name, size)) for name, size in entry.dimensions)
    smaller = replace(entry, dimensions=sizes)
    choice = next(choice for choice in entry.choices if (choice.kernel, choice.tile) == key)
    x, w = pair("wide 8", ROWS, COLUMNS * (2 if entry.operation == "gate_up" else 1), LENGTH, device)
    return lambda: run(smaller, choice, x, w)


def _norm(tile: Tile, device: str) -> Callable[[], Tensor]:
    width = tile.block("BLOCK")
    x, y = pair("wide 8", ROWS, ROWS, width, device)

    def compute() -> Tensor:
        out = torch.empty_like(x)
        rms_norm(x, y[0].clone(), out, 1e-6, tile)
        return out

    return compute
