"""RMSNorm and its variants.

The sum of squares is an explicit tree, so that its order is part of the program and not of an instance. Each
normalises the last axis: of a row [..., hidden], or of every head of a row [..., heads, head_dim] with weights
[heads, head_dim].
"""

from __future__ import annotations

from vosti.spec.numerics.ops import A, Cache, Ops


def _normalised(ops: Ops[A, Cache], x: A, width: int, epsilon: float) -> A:
    """x / √(mean(x²) + ε), with the reciprocal root as a factor."""
    mean = ops.div(ops.tree_sum(ops.mul(x, x)), float(width))
    return ops.mul(x, ops.rsqrt(ops.add(mean, epsilon)))


def rms_norm(ops: Ops[A, Cache], x: A, weight: A, width: int, epsilon: float) -> A:
    """[..., width] → [..., width]: x / √(mean(x²) + ε) · weight (Llama)."""
    return ops.mul(_normalised(ops, x, width, epsilon), weight)


def rms_norm_unit_offset(ops: Ops[A, Cache], x: A, weight: A, width: int, epsilon: float) -> A:
    """[..., width] → [..., width]: x / √(mean(x²) + ε) · (1 + weight) (Gemma)."""
    return ops.mul(_normalised(ops, x, width, epsilon), ops.add(weight, 1.0))


def residual_rms_norm(ops: Ops[A, Cache], x: A, y: A, weight: A, width: int, epsilon: float) -> tuple[A, A]:
    """[..., width] twice → (x + y, rms_norm(x + y)): the new residual stream, and what the next layer reads."""
    total = ops.add(x, y)
    return total, rms_norm(ops, total, weight, width, epsilon)


def residual_rms_norm_unit_offset(ops: Ops[A, Cache], x: A, y: A, weight: A, width: int, epsilon: float) -> tuple[A, A]:
    """[..., width] twice → (x + y, rms_norm_unit_offset(x + y))."""
    total = ops.add(x, y)
    return total, rms_norm_unit_offset(ops, total, weight, width, epsilon)
