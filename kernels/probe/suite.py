"""All probes, for the tiles of a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from vosti.kernels.catalogue import TARGETS
from vosti.kernels.disassembly import compiled_classes
from vosti.kernels.probe.elementwise import conversion, function, zero_exponent
from vosti.kernels.probe.findings import Finding
from vosti.kernels.probe.machine import Machine, compiled_product
from vosti.kernels.probe.products import FACTORS, LENGTH, chain, forms, masked_product
from vosti.kernels.probe.reductions import empty_total, free_maximum, trees, two_lanes
from vosti.kernels.probe.repeats import kernel_forms, repeated_kernels, repeated_products
from vosti.kernels.tables import Table
from vosti.kernels.tile import Tile

SEED = 0

ELEMENTWISE: tuple[Callable[[Machine], list[Finding]], ...] = (
    conversion,
    function,
    zero_exponent,
    free_maximum,
    two_lanes,
    trees,
    empty_total,
)
"""Probes that need no table."""

PRODUCTS: tuple[Callable[[Machine, torch.dtype, Sequence[Tile]], list[Finding]], ...] = (
    chain,
    masked_product,
    repeated_products,
)


def probes(machine: Machine, table: Table, seed: int = SEED) -> Iterator[list[Finding]]:
    """Yield what each probe found. The generator of random numbers is set anew for each, so that order is no matter."""
    for probe in ELEMENTWISE:
        torch.manual_seed(seed)
        yield probe(machine)
    tiles = forms(table)
    for element in FACTORS:
        for products in PRODUCTS:
            torch.manual_seed(seed)
            yield products(machine, element, tiles)
    torch.manual_seed(seed)
    yield list(repeated_kernels(table, TARGETS[table.architecture], machine.device))


def compile_ahead(table: Table) -> None:
    """Compile all products and kernels of a table's forms, several at once; a launch finds them in the cache."""
    target = TARGETS[table.architecture]
    made = [partial(compiled_product, element, tile, LENGTH, target) for element in FACTORS for tile in forms(table)]
    made += [partial(one.compiled, target) for one in kernel_forms(table)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_make, made))


def _make(compile_one: Callable[[], Any]) -> None:
    compiled_classes(compile_one())


def number_of_probes() -> int:
    """How often `probes` yields."""
    return len(ELEMENTWISE) + len(FACTORS) * len(PRODUCTS) + 1


def by_rule(findings: Iterable[Finding]) -> dict[tuple[str, tuple[str, ...]], list[Finding]]:
    """The findings of each rule and each set of instruction classes, in order."""
    found: dict[tuple[str, tuple[str, ...]], list[Finding]] = {}
    for finding in findings:
        found.setdefault((finding.rule, finding.classes), []).append(finding)
    return found
