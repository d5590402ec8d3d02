"""Whether a kernel gives the same bits when it runs again.

Products in every form; the catalogue's kernels with every tile of the tables, in each form that is another program and
not just another size; and the sampler's. The control flips one bit of the second result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget

from vosti.kernels.catalogue import Instance, instances
from vosti.kernels.disassembly import compiled_classes
from vosti.kernels.probe.findings import Finding
from vosti.kernels.probe.launches import Compute, Data, computation, samplers, split_before
from vosti.kernels.probe.machine import Machine
from vosti.kernels.probe.products import COLUMNS, LENGTH, ROWS, data, form, sums
from vosti.kernels.tables import Table
from vosti.kernels.tile import Tile

REPEATABILITY = "repeatability"
"""What the findings are filed under. It is no rule: every rule says it of what it is about."""

TIMES = 8

_SIZES = frozenset({"N", "K", "WIDTH", "HEADS", "KV_HEADS"})
"""Constants that make a program longer, but no other."""

_WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def repeated(name: str, classes: tuple[str, ...], compute: Compute, times: int = TIMES, kernel: str = "") -> Finding:
    """Compute something so many times again."""
    first = [_words(one) for one in compute()]
    different = sum(_differing(first, [_words(one) for one in compute()]) for _ in range(times))
    flipped = [one.clone() for one in first]
    for one in flipped:
        one.view(-1)[one.numel() // 2] ^= 1
    # A bit of each buffer is found, or none.
    found = _differing(flipped, first)
    control = found if found == len(first) else 0
    return Finding(REPEATABILITY, name, classes, times * sum(map(Tensor.numel, first)), different, control, kernel)


def _words(x: Tensor) -> Tensor:
    return x.view(_WORDS[x.element_size()])


def _differing(some: Sequence[Tensor], others: Sequence[Tensor]) -> int:
    return sum(int((one != other).sum()) for one, other in zip(some, others, strict=True))


def repeated_products(machine: Machine, element: torch.dtype, tiles: Sequence[Tile]) -> list[Finding]:
    """The probes' own products."""
    x, w = data("wide 8", element, ROWS, COLUMNS, LENGTH, machine.device)
    start = sums(ROWS, COLUMNS, machine.device)
    found = []
    for tile in tiles:
        machine.chain(x, w, start, tile, 0, LENGTH)
        classes = machine.classes(element, tile)

        def compute(tile: Tile = tile) -> tuple[Tensor, ...]:
            return (machine.chain(x, w, start, tile, 0, LENGTH),)

        found.append(repeated(form(element, tile), classes, compute))
    return found


def kernel_forms(table: Table) -> list[Instance]:
    """Every tile of a table with the constants that make another program, on fewer columns than models have."""
    found: dict[object, Instance] = {}
    for _, entry in sorted(table.entries.items()):
        sizes = tuple((name, {"n": COLUMNS, "k": LENGTH}.get(name, size)) for name, size in entry.dimensions)
        for one in instances(replace(entry, dimensions=sizes)):
            others = tuple(
                (name, value > 0 if name == "WINDOW" else value)
                for name, value in sorted(one.constants.items())
                if name not in _SIZES
            )
            key = one.kernel.contract.kernel, one.tile, others, tuple(one.elements.items())
            found.setdefault(key, one)
    return list(found.values())


def launched_beside(table: Table) -> list[Instance]:
    """Forms that are launched for the sake of those of a table: what is merged is split before."""
    merges = [one for one in kernel_forms(table) if one.kernel.contract.kernel == "attention_merge"]
    return [split_before(one) for one in merges]


def repeated_kernels(table: Table, target: GPUTarget, device: str = "cuda") -> Iterator[Finding]:
    """Kernels themselves; the form of each names its constants and tile."""
    small = Data(ROWS, device)
    for one in kernel_forms(table):
        kernel = one.kernel.contract.kernel
        classes = compiled_classes(one.compiled(target))
        yield repeated(described(one), classes, computation(one, small), kernel=kernel)
    for names, compute in samplers(small).items():
        yield repeated(names, (), compute, kernel=names)


def described(one: Instance) -> str:
    """In words."""
    sizes = {
        **one.constants,
        **dict(one.tile.blocks),
        "warps": one.tile.warps,
        "stages": one.tile.stages,
        **one.elements,
    }
    return " ".join((one.kernel.contract.kernel, *(f"{name}={size}" for name, size in sizes.items())))
