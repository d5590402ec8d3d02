"""The probes' kernels, compiled for a GPU that need not be present, and launched on the one at hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language.extra import libdevice

from vosti.kernels.contract import ALIGNMENT
from vosti.kernels.disassembly import compiled_classes
from vosti.kernels.tile import Tile
from vosti.kernels.trees import tree_sum

ELEMENTS: Mapping[torch.dtype, str] = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
"""As Triton names them."""

FUNCTIONS = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "division", "conversion", "exp(0 - x)", "exp(-x)")
"""What `Machine.elementwise` computes."""

MAXIMUM, TWO_LANES, TREE = 0, 1, 2
"""What `Machine.reduced` computes."""

TILE = 64
"""Scores that the running total takes at a time."""


@triton.jit(do_not_specialize=["rows", "columns", "begin", "end"])
def chain_kernel(
    x,
    w,
    start,
    out,
    rows,
    columns,
    begin,
    end,
    K: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Continue start [rows, columns] by x [rows, K] times w [columns, K], or [K, columns], over begin ≤ k < end."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    lane = tl.arange(0, BLOCK_K)
    live = (row[:, None] < rows) & (column[None, :] < columns)
    place = row[:, None] * columns + column[None, :]
    total = tl.load(start + place, mask=live, other=0.0)
    for at in range(begin, end, BLOCK_K):
        k = at + lane
        a = tl.load(x + row[:, None] * K + k[None, :], mask=row[:, None] < rows, other=0.0)
        if TRANSPOSED:
            b = tl.load(w + k[:, None] * columns + column[None, :], mask=column[None, :] < columns, other=0.0)
        else:
            b = tl.load(w + column[None, :] * K + k[:, None], mask=column[None, :] < columns, other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(out + place, total, mask=live)


@triton.jit(do_not_specialize=["count"])
def elementwise_kernel(x, y, out, count, FUNCTION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """out = a function of x, or of x and y, all [count]; a program has [BLOCK_M, BLOCK_N] of them."""
    lane = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    place = tl.program_id(0) * BLOCK_M * BLOCK_N + lane
    value = tl.load(x + place, mask=place < count, other=1.0)
    if FUNCTION == 0:
        value = tl.exp(value)
    elif FUNCTION == 1:
        value = tl.exp2(value)
    elif FUNCTION == 2:
        value = tl.log(value)
    elif FUNCTION == 3:
        value = tl.log2(value)
    elif FUNCTION == 4:
        value = tl.math.sqrt_rn(value)
    elif FUNCTION == 5:
        value = tl.rsqrt(value)
    elif FUNCTION == 6:
        value = libdevice.tanh(value)
    elif FUNCTION == 7:
        value = tl.math.div_rn(value, tl.load(y + place, mask=place < count, other=1.0))
    elif FUNCTION == 9:
        # The zeros are read, or the compiler would take the difference for a negation.
        value = tl.exp(tl.load(y + place, mask=place < count, other=0.0) - value)
    elif FUNCTION == 10:
        value = tl.exp(-value)
    tl.store(out + place, value.to(out.dtype.element_ty), mask=place < count)


@triton.jit(do_not_specialize=["rows"])
def reduced_kernel(x, out, rows, OPERATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """x [rows, BLOCK_N] → out: as `Machine.reduced`."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    value = tl.load(x + row[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :], mask=row[:, None] < rows, other=0.0)
    if OPERATION == 1:
        half: tl.constexpr = BLOCK_N // 2
        total = tl.sum(tl.reshape(value, (BLOCK_M, 2, half)), 1)
        tl.store(out + row[:, None] * half + tl.arange(0, half)[None, :], total, mask=row[:, None] < rows)
    elif OPERATION == 2:
        tl.store(out + row[:, None], tree_sum(value), mask=row[:, None] < rows)
    else:
        tl.store(out + row, tl.max(value, 1), mask=row < rows)


@triton.jit(do_not_specialize=["rows", "columns"])
def total_kernel(scores, seen, excess, out, rows, columns, TILE: tl.constexpr, BLOCK_M: tl.constexpr):
    """out [rows]: the total of a running softmax over those scores [rows, columns] that are seen (float32, 0 or 1).

    `excess` [1] is added to the maximum that weights are taken against: 0, but in the control.
    """
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    more = tl.load(excess)
    maximum = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M, 16), tl.float32)
    for begin in range(0, columns, TILE):
        place = row[:, None] * columns + begin + tl.arange(0, TILE)[None, :]
        live = tl.load(seen + place, mask=row[:, None] < rows, other=0.0) > 0
        score = tl.where(live, tl.load(scores + place, mask=row[:, None] < rows, other=0.0), float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(score, 1))
        decay = tl.exp(maximum - new_maximum)
        weights = tl.where(live, tl.exp(score - (new_maximum + more)[:, None]), 0.0).to(tl.bfloat16)
        ones = tl.full((TILE, 16), 1.0, tl.bfloat16)
        new_total = tl.dot(weights, ones, total * decay[:, None], input_precision="ieee")
        some = tl.max(live.to(tl.int32), 1) > 0
        maximum = tl.where(some, new_maximum, maximum)
        total = tl.where(some[:, None], new_total, total)
    tl.store(out + row, tl.max(total, 1), mask=row < rows)


class Machine(Protocol):
    """What runs the probes. Numbers are float32 but for the factors of products and what is converted."""

    device: str

    def chain(self, x: Tensor, w: Tensor, start: Tensor, tile: Tile, begin: int, end: int) -> Tensor:
        """start [m, n] continued by x [m, k] times w [n, k] over begin ≤ k < end, as one chain."""

    def classes(self, element: torch.dtype, tile: Tile) -> tuple[str, ...]:
        """The classes of matrix instructions in the binary that the last chain of this form ran."""

    def elementwise(self, function: str, x: Tensor, y: Tensor, to: torch.dtype, tile: Tile) -> Tensor:
        """One of `FUNCTIONS` of x, or of x and y, [count]."""

    def reduced(self, operation: int, x: Tensor, tile: Tile) -> Tensor:
        """`MAXIMUM`, and `TREE`, a tree of sums: [m, n] → [m]; `TWO_LANES`: [m, n] → [m, n / 2], the halves' sum."""

    def total(self, scores: Tensor, seen: Tensor, excess: float, tile: Tile) -> Tensor:
        """The running softmax's total of each row, [m]."""


class Gpu:
    """The GPU at hand."""

    device = "cuda"

    def __init__(self) -> None:
        """Nothing has run yet."""
        self._classes: dict[tuple[torch.dtype, Tile], tuple[str, ...]] = {}

    def chain(self, x: Tensor, w: Tensor, start: Tensor, tile: Tile, begin: int, end: int) -> Tensor:
        """See `Machine`."""
        (rows, k), columns, out = x.shape, w.shape[0], torch.full_like(start, torch.nan)
        if tile.block("TRANSPOSED"):
            w = w.T.contiguous()
        grid = (triton.cdiv(rows, tile.block("BLOCK_M")), triton.cdiv(columns, tile.block("BLOCK_N")))
        blocks = dict(tile.blocks)
        binary = chain_kernel[grid](x, w, start, out, rows, columns, begin, end, K=k, **blocks, **tile.options())
        if (x.dtype, tile) not in self._classes:
            self._classes[x.dtype, tile] = compiled_classes(binary)
        return out

    def classes(self, element: torch.dtype, tile: Tile) -> tuple[str, ...]:
        """See `Machine`."""
        return self._classes[element, tile]

    def elementwise(self, function: str, x: Tensor, y: Tensor, to: torch.dtype, tile: Tile) -> Tensor:
        """See `Machine`."""
        out = torch.empty(x.shape, dtype=to, device=x.device)
        grid = (triton.cdiv(x.numel(), tile.block("BLOCK_M") * tile.block("BLOCK_N")),)
        number = FUNCTIONS.index(function)
        elementwise_kernel[grid](x, y, out, x.numel(), FUNCTION=number, **dict(tile.blocks), **tile.options())
        return out

    def reduced(self, operation: int, x: Tensor, tile: Tile) -> Tensor:
        """See `Machine`."""
        rows, columns = x.shape
        out = torch.empty((rows, columns // 2) if operation == TWO_LANES else (rows,), device=x.device)
        grid = (triton.cdiv(rows, tile.block("BLOCK_M")),)
        reduced_kernel[grid](x, out, rows, OPERATION=operation, **dict(tile.blocks), **tile.options())
        return out

    def total(self, scores: Tensor, seen: Tensor, excess: float, tile: Tile) -> Tensor:
        """See `Machine`."""
        (rows, columns), out = scores.shape, torch.empty(scores.shape[0], device=scores.device)
        more = torch.full((1,), excess, device=scores.device)
        grid = (triton.cdiv(rows, tile.block("BLOCK_M")),)
        total_kernel[grid](scores, seen, more, out, rows, columns, TILE=TILE, **dict(tile.blocks), **tile.options())
        return out


def compiled(
    function: Any, elements: Mapping[str, str], constants: Mapping[str, int], tile: Tile, target: GPUTarget
) -> Any:
    """One of the kernels for an architecture that need not be present.

    `elements` are the element types of its buffers; every other parameter that is no constant is an integer.
    """
    constants = {**constants, **dict(tile.blocks)}
    names = function.arg_names
    signature = {
        name: "constexpr" if name in constants else f"*{elements[name]}" if name in elements else "i32"
        for name in names
    }
    source = ASTSource(
        fn=function,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", ALIGNMENT]] for name in elements},
    )
    return triton.compile(source, target=target, options=tile.options())


def compiled_elementwise(function: str, of: torch.dtype, to: torch.dtype, tile: Tile, target: GPUTarget) -> Any:
    """One of `FUNCTIONS` in one form, for an architecture that need not be present."""
    elements = {"x": ELEMENTS[of], "y": ELEMENTS[of], "out": ELEMENTS[to]}
    return compiled(elementwise_kernel, elements, {"FUNCTION": FUNCTIONS.index(function)}, tile, target)


def compiled_reduced(operation: int, tile: Tile, target: GPUTarget) -> Any:
    """A reduction in one form, for an architecture that need not be present."""
    return compiled(reduced_kernel, {"x": "fp32", "out": "fp32"}, {"OPERATION": operation}, tile, target)


def compiled_total(tile: Tile, target: GPUTarget) -> Any:
    """The running softmax's total in one form, for an architecture that need not be present."""
    elements = dict.fromkeys(("scores", "seen", "excess", "out"), "fp32")
    return compiled(total_kernel, elements, {"TILE": TILE}, tile, target)


def compiled_product(element: torch.dtype, tile: Tile, length: int, target: GPUTarget) -> Any:
    """The chain in one form, over rows of so many factors, for an architecture that need not be present."""
    factors = ELEMENTS[element]
    elements = {"x": factors, "w": factors, "start": "fp32", "out": "fp32"}
    return compiled(chain_kernel, elements, {"K": length}, tile, target)
