"""Rotary position embedding, the half-rotation form of Llama and Gemma."""

from __future__ import annotations

from vosti.spec.numerics.ops import A, Cache, Ops


def angles(ops: Ops[A, Cache], cosines: A, sines: A, position: A) -> tuple[A, A]:
    """[positions, d/2] twice, [...] → [..., d/2] twice: cos and sin of position · inverse frequency, from tables."""
    return ops.take(cosines, position), ops.take(sines, position)


def rotate(ops: Ops[A, Cache], x: A, cosine: A, sine: A) -> A:
    """[..., heads, d], [..., 1, d/2] twice → [..., heads, d]: pairs (x(i), x(i + d/2)) turned by their angle.

        y(i)       = x(i) · cos(i) − x(i + d/2) · sin(i)
        y(i + d/2) = x(i + d/2) · cos(i) + x(i) · sin(i)

    for 0 ≤ i < d/2. A pair that does not turn (partial rotary embedding) has cos 1 and sin 0.
    """
    first, second = ops.halves(x)
    return ops.join(
        ops.sub(ops.mul(first, cosine), ops.mul(second, sine)),
        ops.add(ops.mul(second, cosine), ops.mul(first, sine)),
    )
