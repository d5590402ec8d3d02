"""Probes of reductions: the rules "free maximum", "two lanes" (alone, and in trees) and "empty total"."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vosti.kernels.candidates import make_tile
from vosti.kernels.probe.elementwise import describe, numbers
from vosti.kernels.probe.findings import Finding, differing, next_up
from vosti.kernels.probe.machine import MAXIMUM, TREE, TWO_LANES, Machine
from vosti.kernels.tile import Tile
from vosti.kernels.verifier import rules

FORMS = (
    make_tile(8, 1, BLOCK_M=128, BLOCK_N=64),
    make_tile(4, 1, BLOCK_M=32, BLOCK_N=64),
    make_tile(4, 1, BLOCK_M=16, BLOCK_N=64),
    make_tile(1, 1, BLOCK_M=16, BLOCK_N=2),
    make_tile(2, 1, BLOCK_M=1, BLOCK_N=256),
    make_tile(2, 1, BLOCK_M=1, BLOCK_N=4096),
    make_tile(4, 1, BLOCK_M=1, BLOCK_N=8192),
)
"""Shapes that kernels reduce: of scores, and of rows of the norms."""

TOTALS = (make_tile(8, 1, BLOCK_M=128), make_tile(4, 1, BLOCK_M=32), make_tile(4, 1, BLOCK_M=16))
"""Rows of a tile of attention."""

ROWS = 199


def rows_of(count: int, columns: int, device: str) -> Tensor:
    """[count, columns] float32 without NaN; some rows are one number throughout, and some all −∞ but for one lane."""
    x = numbers(count * columns // 2 + 1, device)
    x = x[torch.randperm(len(x), device=device)][: count * columns].reshape(count, columns)
    x = torch.where(x.isnan(), 1.0, x)
    x[::5] = x[::5, :1]
    alone = x[1::5].clone()
    x[1::5] = float("-inf")
    x[1::5, columns // 2] = alone[:, 0]
    return x.contiguous()


def _unsigned(x: Tensor) -> Tensor:
    """Zeros without their sign, which the rule leaves open."""
    return torch.where(x == 0, 0.0, x)


def free_maximum(machine: Machine, tiles: Sequence[Tile] = FORMS, rows: int = ROWS) -> list[Finding]:
    """The maximum is the processor's, in the order given and in others. The control leaves the largest lane out."""
    found = []
    for tile in tiles:
        x = rows_of(rows, tile.block("BLOCK_N"), machine.device)
        expected = _unsigned(x.cpu().amax(1))
        orders = (x, x.flip(1).contiguous(), x[:, torch.randperm(x.shape[1], device=machine.device)].contiguous())
        results = [_unsigned(machine.reduced(MAXIMUM, order, tile).cpu()) for order in orders]
        without = x.scatter(1, x.argmax(1, keepdim=True), float("-inf"))
        control = differing(_unsigned(machine.reduced(MAXIMUM, without, tile).cpu()), expected)
        different = sum(differing(result, expected) for result in results)
        found.append(Finding(rules.FREE_MAXIMUM.name, describe(tile), (), len(orders) * rows, different, control))
    return found


def two_lanes(machine: Machine, tiles: Sequence[Tile] = FORMS, rows: int = ROWS) -> list[Finding]:
    """The sum of two lanes is the processor's, in both orders. The control moves one by a unit in the last place."""
    found = []
    for tile in tiles:
        x = rows_of(rows, tile.block("BLOCK_N"), machine.device)
        first, second = x.chunk(2, 1)
        expected = first.cpu() + second.cpu()
        results = [
            machine.reduced(TWO_LANES, torch.cat(order, 1), tile).cpu() for order in ((first, second), (second, first))
        ]
        moved = machine.reduced(TWO_LANES, torch.cat([next_up(first), second], 1), tile).cpu()
        different = sum(differing(result, expected) for result in results)
        found.append(
            Finding(
                rules.TWO_LANES.name, describe(tile), (), 2 * expected.numel(), different, differing(moved, expected)
            )
        )
    return found


def trees(machine: Machine, tiles: Sequence[Tile] = FORMS, rows: int = ROWS) -> list[Finding]:
    """A tree of sums of two lanes is the processor's. The control pairs neighbours, and not halves."""
    found = []
    for tile in tiles:
        x = rows_of(rows, tile.block("BLOCK_N"), machine.device)
        different = differing(machine.reduced(TREE, x, tile).cpu(), tree(x.cpu()))
        # What were neighbours are halves; two lanes have none to change, and one moves by a unit in the last place.
        other = next_up(x) if x.shape[1] == 2 else x.reshape(rows, -1, 2).transpose(1, 2).reshape(rows, -1)
        control = differing(machine.reduced(TREE, other.contiguous(), tile).cpu(), tree(x.cpu()))
        found.append(Finding(rules.TWO_LANES.name, f"tree, {describe(tile)}", (), rows, different, control))
    return found


def tree(x: Tensor) -> Tensor:
    """[m, n] → [m]: the halves' sum, halved again, and so on."""
    while x.shape[1] > 1:
        first, second = x.chunk(2, 1)
        x = first + second
    return x[:, 0]


def empty_total(machine: Machine, tiles: Sequence[Tile] = TOTALS, rows: int = ROWS) -> list[Finding]:
    """The total of a row is at least 1, or NaN, if it has seen a key, and else 0.

    Scores ascend, descend, are all equal, or lie far apart. The control takes weights against more than the maximum.
    """
    device, columns = machine.device, 512
    scale = torch.tensor([0.0, 1e-40, 1.0, 30.0, 1e4, 1e38], device=device)
    scores = torch.randn(rows, columns, device=device).clamp(-3, 3) * scale.repeat(rows // 6 + 1)[:rows, None]
    scores[1::4] = scores[1::4].sort(1).values
    scores[2::4] = scores[2::4].sort(1, descending=True).values
    seen = (torch.rand(rows, columns, device=device) < torch.rand(rows, 1, device=device) ** 4).float()
    seen[::7] = 0
    some = seen.amax(1) > 0
    found = []
    for tile in tiles:
        totals = machine.total(scores, seen, 0.0, tile)
        high = machine.total(scores, seen, 1.0, tile)
        found.append(
            Finding(
                rules.EMPTY_TOTAL.name,
                f"{tile.block('BLOCK_M')} rows warps={tile.warps}",
                (),
                rows,
                int(broken(totals, some).sum()),
                int(broken(high, some).sum()),
            )
        )
    return found


def broken(totals: Tensor, some: Tensor) -> Tensor:
    """[m] → [m]: which totals are not as the rule says of rows that have seen some key, and of the others."""
    return torch.where(some, ~((totals >= 1) | totals.isnan()), totals != 0)
