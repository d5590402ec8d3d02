"""Linear layers and embeddings."""

from __future__ import annotations

from vosti.spec.numerics.ops import A, Cache, Ops


def linear(ops: Ops[A, Cache], x: A, weight: A) -> A:
    """[..., k], [k, n] → [..., n]: x · weight, one chain over k per output element."""
    return ops.chain(x, weight)


def embedding(ops: Ops[A, Cache], table: A, token: A) -> A:
    """[vocabulary, hidden], [...] → [..., hidden]: the token's row."""
    return ops.take(table, token)


def scaled_embedding(ops: Ops[A, Cache], table: A, token: A, scale: float) -> A:
    """[vocabulary, hidden], [...] → [..., hidden]: the token's row times `scale` (Gemma: √hidden)."""
    return ops.mul(ops.take(table, token), scale)


def residual_add(ops: Ops[A, Cache], x: A, y: A) -> A:
    """[..., n], [..., n] → [..., n]: the residual stream x with a layer's result y added."""
    return ops.add(x, y)
