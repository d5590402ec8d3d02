"""A machine for the probes of `vosti.kernels.probe` that is the processor, and may break one rule on purpose."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from vosti.kernels.candidates import make_tile
from vosti.kernels.probe.machine import MAXIMUM, TREE
from vosti.kernels.probe.reductions import tree
from vosti.kernels.tile import Tile

SMALLEST = make_tile(4, 2, TRANSPOSED=0, BLOCK_M=16, BLOCK_N=64, BLOCK_K=16)
LARGE = make_tile(8, 2, TRANSPOSED=0, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64)
ACROSS = make_tile(8, 1, TRANSPOSED=1, BLOCK_M=128, BLOCK_N=64, BLOCK_K=64)

FUNCTIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "exp": lambda x, y: torch.exp(x),
    "exp2": lambda x, y: torch.exp2(x),
    "log": lambda x, y: torch.log(x),
    "log2": lambda x, y: torch.log2(x),
    "sqrt": lambda x, y: torch.sqrt(x),
    "rsqrt": lambda x, y: torch.rsqrt(x),
    "tanh": lambda x, y: torch.tanh(x),
    "division": lambda x, y: x / y,
    "conversion": lambda x, y: x,
    "exp(0 - x)": lambda x, y: torch.exp(0 - x),
    "exp(-x)": lambda x, y: torch.exp(-x),
}


class Processor:
    """Follows every rule, but for the fault that is named; a fault shows in all forms but the first."""

    device = "cpu"

    def __init__(self, fault: str = "") -> None:
        """Nothing has run yet."""
        self.fault, self.runs = fault, 0

    def chain(self, x: Tensor, w: Tensor, start: Tensor, tile: Tile, begin: int, end: int) -> Tensor:
        """One chain in groups of 16, each group's sum rounded with the sum before it; a sum that is 0 is +0."""
        self.runs += 1
        faulty = tile.block("BLOCK_K") > 16
        group = 8 if faulty and self.fault == "groups of 8" else 16
        order = list(range(begin, end, group))
        if faulty and self.fault == "descending":
            order.reverse()
        total = start.clone()
        for at in order:
            a, b = x[:, at : at + group].double(), w[:, at : at + group].double().T
            more = (total.double() + a @ b).float()
            if faulty and self.fault == "subnormal sums are lost":
                more = torch.where(more.abs() < torch.finfo(torch.float32).tiny, 0.0, more)
            # Of nothing but zeros, the sum's own bits, were they those of −0.
            nothing = (a != 0).double() @ (b != 0).double() == 0
            zero = torch.zeros_like(total)
            if faulty and self.fault == "−0 is kept":
                zero = total
            elif faulty and self.fault == "zeros add as IEEE 754 says":
                # −0 if the sum before is −0 and all products are.
                left, right = torch.signbit(a).double(), torch.signbit(b).double()
                zero = torch.where(left @ right + (1 - left) @ (1 - right) == 0, total, zero)
            total = torch.where(nothing & (total == 0), zero, more)
        if self.fault == "another each time" and self.runs % 3 == 0:
            total.view(torch.int32)[0, 0] ^= 1
        return total

    def classes(self, element: torch.dtype, tile: Tile) -> tuple[str, ...]:
        """By the number of rows, as on Hopper."""
        return ("wgmma",) if tile.block("BLOCK_M") >= 64 else ("mma",)

    def elementwise(self, function: str, x: Tensor, y: Tensor, to: torch.dtype, tile: Tile) -> Tensor:
        """By torch; every lane by itself, so that no vector instruction has another result in a tail."""
        result = FUNCTIONS[function](x.double() if function == "exp" else x, y).to(to)
        if function == "conversion" and to != torch.float32 and self.fault == "truncation":
            beyond = result.float().abs() > x.abs()
            return torch.where(beyond, (result.view(torch.int16) - 1).view(to), result)
        if self.fault == function and tile.warps == 1:
            result[1::2] = (result[1::2].view(torch.int32) ^ 1).view(torch.float32)
        return result

    def reduced(self, operation: int, x: Tensor, tile: Tile) -> Tensor:
        """By torch."""
        if operation == MAXIMUM:
            return (x[:, :-1] if self.fault == "a lane is missed" else x).amax(1)
        if operation == TREE:
            return tree(x.sort(1).values if self.fault == "lanes are moved" else x)
        first, second = x.chunk(2, 1)
        return first.bfloat16().float() + second if self.fault == "a lane is rounded" else first + second

    def total(self, scores: Tensor, seen: Tensor, excess: float, tile: Tile) -> Tensor:
        """Of all at once: the running one differs in rounding only."""
        live = torch.where(seen > 0, scores, -torch.inf)
        above = live.amax(1, keepdim=True) + excess + (0.5 if self.fault == "a maximum too high" else 0.0)
        return torch.where(seen > 0, torch.exp(live - above), 0.0).sum(1)
