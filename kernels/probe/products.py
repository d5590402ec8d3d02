"""Probes of products on matrix units: the rules "chain" and "masked product".

Every tile of the tables is tried with both element types that a chain may have, and compared with the first, which
has groups of one step each. The controls of a chain are the same data in groups of 8 (each group is padded with lanes
of zeros) and with its groups in descending order; they must differ, or the data do not tell one grouping from another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from vosti.kernels.attention_tiles import ROW_PROGRAM
from vosti.kernels.candidates import make_tile
from vosti.kernels.hostile import KINDS, pair, wide
from vosti.kernels.probe.findings import Finding, differing
from vosti.kernels.probe.machine import ELEMENTS, Machine
from vosti.kernels.tables import Entry, Table
from vosti.kernels.tile import Tile
from vosti.kernels.verifier.rules import CHAIN, GROUP, MASKED_PRODUCT

FACTORS = (torch.bfloat16, torch.float16)

ROWS, COLUMNS, LENGTH = 199, 264, 1024
"""Of the products: no multiple of a tile, and a multiple of every step along k."""

_NARROW = {"wide 30": (-12, 12), "subnormal": (-24, -14), "overflow": (8, 14)}
"""Exponents that fp16 has, where bf16's are wider."""

_CANONICAL = make_tile(4, 2, TRANSPOSED=0, BLOCK_M=16, BLOCK_N=64, BLOCK_K=GROUP)


def forms(table: Table) -> list[Tile]:
    """The products of a table's kernels, each once; the first is the one that the others are compared with."""
    found = {_CANONICAL: None}
    for _, entry in sorted(table.entries.items()):
        for tile in _products(entry):
            found[tile] = None
    return list(found)


def _products(entry: Entry) -> Iterator[Tile]:
    """A tile for each product of each of an entry's kernels."""
    sizes = dict(entry.dimensions)
    for choice in entry.choices:
        blocks, warps = dict(choice.tile.blocks), choice.tile.warps
        if "BLOCK_K" in blocks:
            # Gate and up are the columns of one product.
            columns = blocks["BLOCK_N"] * (2 if entry.operation == "gate_up" else 1)
            steps = {"BLOCK_M": blocks["BLOCK_M"], "BLOCK_N": columns, "BLOCK_K": blocks["BLOCK_K"]}
            yield make_tile(warps, min(2, choice.tile.stages), TRANSPOSED=0, **steps)
        elif entry.operation in ("attention", "attention_split"):
            rows, keys = blocks["BLOCK_R"], ROW_PROGRAM["TILE"]
            yield make_tile(warps, 1, TRANSPOSED=0, BLOCK_M=rows, BLOCK_N=keys, BLOCK_K=sizes["head_dim"])
            for columns in (blocks["BLOCK_D"], 16):
                yield make_tile(warps, 1, TRANSPOSED=1, BLOCK_M=rows, BLOCK_N=columns, BLOCK_K=keys)


def data(kind: str, element: torch.dtype, rows: int, columns: int, length: int, device: str) -> tuple[Tensor, Tensor]:
    """[rows, length] and [columns, length], to be multiplied; `kind` is one of `DATA`."""
    if kind == "grouped":
        # Within a group large terms cancel; a group that is cut in two rounds all others against them.
        x, w = wide(rows, length, -6, 0, device), wide(columns, length, -6, 0, device)
        x[:, ::GROUP], w[:, ::GROUP] = 2.0**10, 2.0**8
        x[:, GROUP - 1 :: GROUP], w[:, GROUP - 1 :: GROUP] = -(2.0**10), 2.0**8
    elif kind == "all minus zero":
        x, w = torch.full((rows, length), -0.0, device=device), wide(columns, length, -8, 8, device).abs()
    elif element == torch.float16 and kind in _NARROW:
        low, high = _NARROW[kind]
        x, w = wide(rows, length, low, high, device), wide(columns, length, low, high, device)
    else:
        x, w = pair(kind, rows, columns, length, device)
    return x.to(element).contiguous(), w.to(element).contiguous()


DATA = (*KINDS, "grouped", "all minus zero")

AFTER_SUMS = ("random", "subnormal", "minus zero", "all minus zero")
"""Kinds of data whose chains are tried after sums of many sizes, too."""


def in_groups_of_8(x: Tensor) -> Tensor:
    """[m, k] → [m, 2k]: 8 factors, then 8 zeros, and so on."""
    parts = x.reshape(x.shape[0], -1, GROUP // 2)
    return torch.cat([parts, torch.zeros_like(parts)], 2).reshape(x.shape[0], -1)


def descending(x: Tensor) -> Tensor:
    """[m, k] → [m, k]: the groups from the last to the first."""
    return x.reshape(x.shape[0], -1, GROUP).flip(1).reshape(x.shape).contiguous()


CONTROLS: tuple[Callable[[Tensor], Tensor], ...] = (in_groups_of_8, descending)


def cuts(tile: Tile, length: int) -> list[int]:
    """Where a chain is cut in two: multiples of 16 that are whole steps of the tile."""
    step = tile.block("BLOCK_K")
    return sorted({cut for cut in (step, 3 * step, length // 2, length - step) if 0 < cut < length})


def chain(
    machine: Machine, element: torch.dtype, tiles: Sequence[Tile], rows: int = ROWS, columns: int = COLUMNS
) -> list[Finding]:
    """Every tile has the bits of the first, and so has a chain that is cut at any whole step, whatever came before."""
    zeros, some = torch.zeros(rows, columns, device=machine.device), sums(rows, columns, machine.device)
    compared, different = dict.fromkeys(tiles, 0), dict.fromkeys(tiles, 0)
    control = [0] * len(CONTROLS)
    for kind, start in [*((kind, zeros) for kind in DATA), *((kind, some) for kind in AFTER_SUMS)]:
        x, w = data(kind, element, rows, columns, LENGTH, machine.device)
        whole = machine.chain(x, w, start, tiles[0], 0, LENGTH)
        for number, other in enumerate(CONTROLS):
            changed = other(x)
            control[number] += differing(machine.chain(changed, other(w), start, tiles[0], 0, changed.shape[1]), whole)
        for tile in tiles:
            results = [machine.chain(x, w, start, tile, 0, LENGTH)]
            for cut in cuts(tile, LENGTH):
                first = machine.chain(x, w, start, tile, 0, cut)
                results.append(machine.chain(x, w, first, tile, cut, LENGTH))
            compared[tile] += len(results) * whole.numel()
            different[tile] += sum(differing(result, whole) for result in results)
    return [
        Finding(
            CHAIN.name,
            form(element, tile),
            machine.classes(element, tile),
            compared[tile],
            different[tile],
            min(control),
        )
        for tile in tiles
    ]


def masked_product(
    machine: Machine, element: torch.dtype, tiles: Sequence[Tile], rows: int = ROWS, columns: int = COLUMNS
) -> list[Finding]:
    """Lanes whose left factor is +0 change no bit, whatever their right factor, but that a sum of −0 becomes +0."""
    starts = (sums(rows, columns, machine.device), torch.full((rows, columns), -0.0, device=machine.device))
    low, high = (-30, 30) if element == torch.bfloat16 else (-12, 12)
    x, w = (wide(size, LENGTH, low, high, machine.device).to(element) for size in (rows, columns))
    greatest = torch.where(torch.rand_like(w, dtype=torch.float32) < 0.5, -1, 1) * torch.finfo(element).max
    # Products of zero that are all +0, all −0, and of both signs.
    rights = (w.abs(), -w.abs(), -w, greatest.to(element))
    return [
        _masked(machine, x, w, rights, start, tile, name)
        for start, name in zip(starts, (MIXED, MINUS_ZERO), strict=True)
        for tile in tiles
    ]


MIXED, MINUS_ZERO = "sums of many sizes", "sums of −0"
"""What lies in the accumulators before a product whose lanes are masked."""


def _masked(
    machine: Machine, x: Tensor, w: Tensor, rights: Sequence[Tensor], start: Tensor, tile: Tile, name: str
) -> Finding:
    def run(left: Tensor, right: Tensor, begin: int = 0, end: int = LENGTH) -> Tensor:
        return machine.chain(left.contiguous(), right.contiguous(), start, tile, begin, end)

    zero, step = torch.zeros_like(x), tile.block("BLOCK_K")
    lane = torch.arange(LENGTH, device=x.device)
    alone = run(x, w, 0, step)
    pairs = [(run(zero, right), torch.where(start == 0, 0.0, start)) for right in (w, *rights)]
    # All steps but the first, and all but the last: whole groups.
    pairs += [(run(torch.where(lane < step, x, zero), right), alone) for right in _replaced(w, rights, lane >= step)]
    last = LENGTH - step
    late = run(x, w, last, LENGTH)
    pairs += [(run(torch.where(lane >= last, x, zero), right), late) for right in _replaced(w, rights, lane < last)]
    # Some lanes of each group.
    hidden = torch.rand(LENGTH, device=x.device) < 0.7
    some = torch.where(hidden, zero, x)
    expected = run(some, w)
    pairs += [(run(some, right), expected) for right in _replaced(w, rights, hidden)]
    return Finding(
        rule=MASKED_PRODUCT.name,
        form=f"{form(x.dtype, tile)}, {name}",
        classes=machine.classes(x.dtype, tile),
        compared=sum(found.numel() for found, _ in pairs),
        different=sum(differing(found, wanted) for found, wanted in pairs),
        # The same lanes, with a left factor that is not zero.
        control=min(differing(run(x, right), run(x, w)) for right in _replaced(w, rights, hidden)),
    )


def _replaced(w: Tensor, rights: Sequence[Tensor], lanes: Tensor) -> list[Tensor]:
    return [torch.where(lanes, right, w) for right in rights]


def sums(rows: int, columns: int, device: str) -> Tensor:
    """[rows, columns] float32: zeros, and subnormal, ordinary and large numbers, of both signs."""
    magnitudes = torch.tensor([0.0, 1e-45, 1e-40, 1.17549435e-38, 1e-30, 1.0, 3.0e10, 3.0e38], device=device)
    chosen = magnitudes[torch.randint(0, len(magnitudes), (rows, columns), device=device)]
    return torch.where(torch.rand(rows, columns, device=device) < 0.5, -chosen, chosen)


def form(element: torch.dtype, tile: Tile) -> str:
    """In words."""
    blocks = dict(tile.blocks)
    shape = "x".join(str(blocks[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    return f"{ELEMENTS[element]} {shape}{' transposed' if blocks['TRANSPOSED'] else ''} warps={tile.warps}"
