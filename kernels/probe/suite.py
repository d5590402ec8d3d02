"""All probes, for the tiles of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from vosti.kernels.catalogue import FIXED, TARGETS
from vosti.kernels.disassembly import compiled_classes
from vosti.kernels.probe.elementwise import conversion, function, launched, zero_exponent
from vosti.kernels.probe.findings import Finding
from vosti.kernels.probe.machine import (
    MAXIMUM,
    TREE,
    TWO_LANES,
    Machine,
    compiled_elementwise,
    compiled_product,
    compiled_reduced,
    compiled_total,
)
from vosti.kernels.probe.products import FACTORS, LENGTH, chain, forms, masked_product
from vosti.kernels.probe.reductions import FORMS, TOTALS, empty_total, free_maximum, trees, two_lanes
from vosti.kernels.probe.repeats import kernel_forms, launched_beside, repeated_kernels, repeated_products
from vosti.kernels.tables import Table
from vosti.kernels.tile import Tile
from vosti.kernels.workers import Workers

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


def compile_ahead(table: Table, workers: Workers) -> Iterator[None]:
    """Compile what the probes launch, several at once; a launch finds it in the cache. Yields as each is done."""
    told, others = wanted(table)
    yield from workers.do([*(partial(_classes, one) for one in told), *others])


def wanted(table: Table) -> tuple[list[partial[Any]], list[partial[Any]]]:
    """What compiles one form, for each that is launched: those whose instruction classes are told, and the others."""
    target, tiles = TARGETS[table.architecture], forms(table)
    told = [partial(one.compiled, target) for one in kernel_forms(table)]
    told += [partial(compiled_product, element, tile, LENGTH, target) for element in FACTORS for tile in tiles]
    others = [partial(one.compiled, target) for one in (*FIXED, *launched_beside(table))]
    # The control of chains has twice as many factors.
    others += [partial(compiled_product, element, tiles[0], 2 * LENGTH, target) for element in FACTORS]
    others += [partial(compiled_reduced, which, tile, target) for which in (MAXIMUM, TWO_LANES, TREE) for tile in FORMS]
    others += [partial(compiled_total, tile, target) for tile in TOTALS]
    others += [partial(compiled_elementwise, *form, target) for form in launched()]
    return told, others


def _classes(compile_one: Callable[[], Any]) -> None:
    """Disassemble it, too, which is remembered."""
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
