"""Probes of operations on one element: the rules "conversion", "function" and "zero exponent"."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vosti.kernels.candidates import make_tile
from vosti.kernels.probe.findings import Finding, differing, next_up
from vosti.kernels.probe.machine import ELEMENTS, Machine
from vosti.kernels.tile import Tile
from vosti.kernels.verifier.rules import CONVERSION, FUNCTION, ZERO_EXPONENT

FORMS = (
    make_tile(4, 1, BLOCK_M=64, BLOCK_N=64),
    make_tile(1, 1, BLOCK_M=16, BLOCK_N=16),
    make_tile(8, 1, BLOCK_M=128, BLOCK_N=16),
    make_tile(2, 1, BLOCK_M=1, BLOCK_N=2048),
)
"""Shapes of the kernels' tiles; the first is the one that the others are compared with."""

COUNT = 1 << 17
"""Numbers of each kind."""

_NARROW = (torch.bfloat16, torch.float16)


def numbers(count: int, device: str) -> Tensor:
    """[2 · count] float32: ordinary numbers, and any bits whatever, subnormal, infinite and NaN included."""
    words = torch.randint(-(1 << 31), 1 << 31, (count,), device=device, dtype=torch.int64).to(torch.int32)
    return torch.cat([torch.randn(count, device=device) * 8, words.view(torch.float32)])


def near_ties(element: torch.dtype, device: str) -> Tensor:
    """float32: between each two neighbours of bf16 or fp16, the middle, and the numbers just below and above it."""
    words = torch.arange(1 << 15, dtype=torch.int32, device=device).to(torch.int16)
    low = words.view(element).float()
    low = low[low.isfinite()].sort().values
    middle = (low[:-1].double() + low[1:].double()).div(2).float()
    around = torch.cat([middle, next_up(middle), (middle.view(torch.int32) - 1).clamp(min=0).view(torch.float32)])
    return torch.cat([around, -around])


def toward_zero(x: Tensor, rounded: Tensor) -> Tensor:
    """The control: what truncation gives in place of rounding to nearest."""
    beyond = rounded.float().abs() > x.abs()
    return torch.where(beyond, (rounded.view(torch.int16) - 1).view(rounded.dtype), rounded)


def conversion(machine: Machine, tiles: Sequence[Tile] = FORMS, count: int = COUNT) -> list[Finding]:
    """Widening is exact, and narrowing rounds to nearest, ties to even, as the processor does it."""
    found = []
    for element in _NARROW:
        every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(element)
        wide = torch.cat([numbers(count, machine.device), near_ties(element, machine.device)])
        narrowed, widened = wide.cpu().to(element), every.float()
        truncated = differing(toward_zero(wide.cpu(), narrowed), narrowed)
        for tile in tiles:
            narrow = machine.elementwise("conversion", wide, wide, element, tile).cpu()
            here = every.to(machine.device)
            back = machine.elementwise("conversion", here, here, torch.float32, tile).cpu()
            different = differing(narrow, narrowed) + differing(back, widened)
            control = min(truncated, differing(next_up(back), widened))
            name = f"{ELEMENTS[element]} and fp32, {describe(tile)}"
            found.append(Finding(CONVERSION.name, name, (), narrow.numel() + back.numel(), different, control))
    return found


FUNCTIONS = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "division")

ZERO_EXPONENTS = ("exp(0 - x)", "exp(-x)", "exp")


def function(machine: Machine, tiles: Sequence[Tile] = FORMS, count: int = COUNT) -> list[Finding]:
    """Equal operands give equal results: in every form, and in every lane, to which a permutation brings them.

    The control moves each operand by one unit in the last place.
    """
    x, y = numbers(count, machine.device), numbers(count, machine.device)
    order = torch.randperm(x.numel(), device=machine.device)
    found = []
    for name in FUNCTIONS:
        expected = machine.elementwise(name, x, y, torch.float32, tiles[0])
        for tile in tiles:
            results = [
                machine.elementwise(name, x, y, torch.float32, tile),
                machine.elementwise(name, x[order], y[order], torch.float32, tile)[order.argsort()],
            ]
            moved = machine.elementwise(name, next_up(x), y, torch.float32, tile)
            different = sum(differing(result, expected) for result in results)
            found.append(
                Finding(
                    FUNCTION.name,
                    f"{name}, {describe(tile)}",
                    (),
                    len(results) * x.numel(),
                    different,
                    differing(moved, expected),
                )
            )
    return found


def zero_exponent(machine: Machine, tiles: Sequence[Tile] = FORMS, count: int = COUNT) -> list[Finding]:
    """exp(+0 − x) is exp(−x), zeros of both signs included. The control is exp(x)."""
    zeros = torch.tensor([0.0, -0.0], device=machine.device).repeat(32)
    x = torch.cat([zeros, numbers(count, machine.device)])
    found = []
    for tile in tiles:
        difference, negation, plain = (
            machine.elementwise(name, x, torch.zeros_like(x), torch.float32, tile) for name in ZERO_EXPONENTS
        )
        # Both zeros have the same exponential, which is 1.
        ones = torch.ones(len(zeros), device=machine.device)
        different = differing(difference, negation) + differing(plain[: len(zeros)], ones)
        compared = x.numel() + len(zeros)
        found.append(Finding(ZERO_EXPONENT.name, describe(tile), (), compared, different, differing(plain, negation)))
    return found


def launched() -> list[tuple[str, torch.dtype, torch.dtype, Tile]]:
    """Function, element types of operand and result, and tile, of all that these probes launch, each once."""
    wide = torch.float32
    pairs = [*((wide, element) for element in _NARROW), *((element, wide) for element in _NARROW)]
    found = [("conversion", of, to, tile) for of, to in pairs for tile in FORMS]
    functions = dict.fromkeys((*FUNCTIONS, *ZERO_EXPONENTS))
    return found + [(name, wide, wide, tile) for name in functions for tile in FORMS]


def describe(tile: Tile) -> str:
    """In words."""
    return f"{tile.block('BLOCK_M')}x{tile.block('BLOCK_N')} warps={tile.warps}"
