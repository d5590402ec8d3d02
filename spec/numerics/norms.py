"""RMSNorm and its variants.

The sum of squares is an explicit tree, so that its order is part of the program and not of an instance. Each
normalises the last axis: of a row [..., hidden], or of every head of a row [..., heads, head_dim] with weights
[heads, head_dim].
"""

from __future__ import annotations

from vosti.spec.numerics.ops import A, Cache, Ops


def unweighted_rms_norm(ops: Ops[A, Cache], x: A, width: int, epsilon: float) -> A:
    """[..., width] → [..., width]: x / √(mean(x²) + ε), with the reciprocal root as a factor (values of Gemma 4)."""
    mean = ops.div(ops.tree_sum(ops.mul(x, x)), float(width))
    return ops.mul(x, ops.rsqrt(ops.add(mean, epsilon)))


def rms_norm(ops: Ops[A, Cache], x: A, weight: A, width: int, epsilon: float) -> A:
    """[..., width] → [..., width]: x / √(mean(x²) + ε) · weight (Llama)."""
    return ops.mul(unweighted_rms_norm(ops, x, width, epsilon), weight)


def rms_norm_unit_offset(ops: Ops[A, Cache], x: A, weight: A, width: int, epsilon: float) -> A:
    """[..., width] → [..., width]: x / √(mean(x²) + ε) · (1 + weight) (Gemma)."""
    return ops.mul(unweighted_rms_norm(ops, x, width, epsilon), ops.add(weight, 1.0))


def residual_rms_norm(ops: Ops[A, Cache], x: A, y: A, weight: A, width: int, epsilon: float) -> tuple[A, A]:
    """[..., width] twice → (x + y, rms_norm(x + y)): the new residual stream, and what the next layer reads."""
    total = ops.add(x, y)
    return total, rms_norm(ops, total, weight, width, epsilon)


def scaled_residual_rms_norm(
    ops: Ops[A, Cache], x: A, y: A, weight: A, scale: A, width: int, epsilon: float
) -> tuple[A, A]:
    """[..., width] twice, scale [1] → ((x + y) · scale, rms_norm of that): the end of a layer of Gemma 4."""
    total = ops.mul(ops.add(x, y), scale)
    return total, rms_norm(ops, total, weight, width, epsilon)


def residual_rms_norm_unit_offset(ops: Ops[A, Cache], x: A, y: A, weight: A, width: int, epsilon: float) -> tuple[A, A]:
    """[..., width] twice → (x + y, rms_norm_unit_offset(x + y))."""
    total = ops.add(x, y)
    return total, rms_norm_unit_offset(ops, total, weight, width, epsilon)
