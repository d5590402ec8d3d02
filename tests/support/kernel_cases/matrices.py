"""Linear layers, gated ones among them."""

from __future__ import annotations

import math

from kernel_cases import OPS, case, close, draw, tensor, tile, transposed
from vosti.spec.numerics import activations, projections


def _linear(rows: int, n: int, k: int, stream: bool, **blocks: int) -> None:
    import torch

    from vosti.kernels.linear import linear

    x, weight = draw(1, rows, k), draw(2, n, k)
    out = torch.full((rows, n), math.nan)
    linear(tensor(x), tensor(weight), out, tile(**blocks), stream=stream)
    close(projections.linear(OPS, x, transposed(weight)), out)


@case
def linear_with_rows_and_columns_that_fill_no_tile() -> None:
    """Both axes of the output end inside a tile."""
    _linear(19, 40, 64, False, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32)


@case
def linear_stream_with_several_tiles_per_program() -> None:
    """Fewer programs than tiles, and a last group of rows that is not full."""
    _linear(70, 48, 32, True, BLOCK_M=16, BLOCK_N=32, BLOCK_K=16, GROUP_M=2, PROGRAMS=3)


def _gate_up(activation: int, stream: bool, **blocks: int) -> None:
    import torch

    from vosti.kernels.gate_up import SILU, gate_up, interleaved

    x, weight = draw(3, 18, 32), draw(4, 2 * 24, 32, scale=0.3)
    out = torch.full((18, 24), math.nan)
    gate_up(tensor(x), interleaved(*tensor(weight).chunk(2)), out, activation, tile(**blocks), stream=stream)
    function = activations.silu_mul if activation == SILU else activations.gelu_tanh_mul
    close(function(OPS, projections.linear(OPS, x, transposed(weight))), out)


@case
def gate_up_with_silu() -> None:
    """The two halves of the weight, and SiLU."""
    _gate_up(0, False, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16)


@case
def gate_up_with_gelu() -> None:
    """The two halves of the weight, and GELU."""
    _gate_up(1, False, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16)


@case
def gate_up_stream_with_silu() -> None:
    """The same through descriptors."""
    _gate_up(0, True, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=2, PROGRAMS=2)
