"""Gated activations of the feed-forward layer, and the soft cap on logits."""

from __future__ import annotations

import math

from vosti.spec.numerics.ops import A, Cache, Ops

GELU_SCALE = math.sqrt(2.0 / math.pi)
"""√(2/π) of the tanh approximation of GELU."""

GELU_CUBIC = 0.044715
"""Coefficient of the cubic term of the tanh approximation of GELU."""


def silu_mul(ops: Ops[A, Cache], gate_and_up: A) -> A:
    """[..., 2n] → [..., n]: gate / (1 + e^−gate) · up, gate and up being the two halves (Llama)."""
    gate, up = ops.halves(gate_and_up)
    return ops.mul(ops.div(gate, ops.add(ops.exp(ops.negate(gate)), 1.0)), up)


def gelu_tanh_mul(ops: Ops[A, Cache], gate_and_up: A) -> A:
    """[..., 2n] → [..., n]: ½ gate (1 + tanh(√(2/π) (gate + 0.044715 gate³))) · up (Gemma)."""
    gate, up = ops.halves(gate_and_up)
    cube = ops.mul(ops.mul(gate, gate), gate)
    inner = ops.mul(ops.add(gate, ops.mul(cube, GELU_CUBIC)), GELU_SCALE)
    return ops.mul(ops.mul(ops.mul(gate, 0.5), ops.add(ops.tanh(inner), 1.0)), up)


def softcap(ops: Ops[A, Cache], x: A, cap: float) -> A:
    """[..., n] → [..., n]: cap · tanh(x / cap), which keeps |x| below `cap`."""
    return ops.mul(ops.tanh(ops.div(x, cap)), cap)
