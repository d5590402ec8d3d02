"""Attention of one row over its keys, in tiles that stand at absolute positions.

Key tile t covers the positions from t · KEY_TILE to (t + 1) · KEY_TILE − 1, and split s the tiles from s · SPLIT_TILES
to (s + 1) · SPLIT_TILES − 1, whatever the lengths and the page size: the order of the sums is a function of the row's
position and of the window, in prefill as in decode. A tile in which the row sees nothing is an exact identity, so
that visiting it, as another row of the same launch may need, and leaving it out give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic

from vosti.spec.numerics.ops import A, Cache, Ops

KEY_TILE = 64
"""Positions of one key tile."""

SPLIT_TILES = 16
"""Key tiles of one split. Splits are computed apart and merged in ascending order."""


@dataclass(frozen=True)
class Lanes(Generic[A]):
    """One key tile as a row sees it; a lane is one key position."""

    slots: A
    """[..., KEY_TILE] Where each lane's key and value are stored."""

    live: A
    """[..., 1, 1, KEY_TILE] Whether the row attends to the lane: `visible` of the two positions."""


@dataclass(frozen=True)
class Partial(Generic[A]):
    """The state of a running softmax, per query head: a maximum, a sum of weights, a weighted sum of values."""

    maximum: A
    """[..., kv heads, group, 1]: the largest score seen; −∞ before the first."""

    total: A
    """[..., kv heads, group, 1]: Σ e^(score − maximum); 0 exactly if nothing was seen, and at least 1 after."""

    output: A
    """[..., kv heads, group, d]: Σ e^(score − maximum) · value."""


def visible(position: Any, key_position: Any, window: int | None) -> Any:
    """Whether the row at `position` attends to a key: never to a later one, nor to one a window or more before.

    For two integers, and for arrays of integers, element by element.
    """
    causal = key_position <= position
    return causal if window is None else causal & (position - key_position < window)


def visible_tiles(position: int, window: int | None) -> range:
    """The key tiles in which the row at `position` sees anything: those that must be visited."""
    first = 0 if window is None else max(0, position - window + 1)
    return range(first // KEY_TILE, position // KEY_TILE + 1)


def empty(ops: Ops[A, Cache], query: A, head_dim: int) -> Partial[A]:
    """The state before the first key: (−∞, 0, 0)."""
    return Partial(ops.fill(query, 1, float("-inf")), ops.fill(query, 1, 0.0), ops.fill(query, head_dim, 0.0))


def attend(ops: Ops[A, Cache], query: A, cache: Cache, lanes: Lanes[A], scale: float, before: Partial[A]) -> Partial[A]:
    """The state after one more key tile; `before`, to the bit, if the row sees nothing in it.

        m' = max(m, maxⱼ sⱼ)      wⱼ = e^(sⱼ − m')      a = e^(m − m')
        z' = z · a + Σⱼ wⱼ        u' = u · a + Σⱼ wⱼ vⱼ

    over the live lanes j, with sⱼ = (query · keyⱼ) · scale.
    """
    keys, values = ops.load(cache, lanes.slots, lanes.live)
    scores = ops.select(lanes.live, ops.mul(ops.scores(query, keys), scale), float("-inf"))
    maximum = ops.maximum(before.maximum, ops.lane_max(scores))
    decay = ops.exp(ops.sub(before.maximum, maximum))
    weights = ops.select(lanes.live, ops.exp(ops.sub(scores, maximum)), 0.0)
    total = ops.lane_sum(weights, ops.mul(before.total, decay))
    output = ops.weighted_sum(weights, values, ops.mul(before.output, decay))
    seen = ops.any_lane(lanes.live)
    return Partial(
        ops.select(seen, maximum, before.maximum),
        ops.select(seen, total, before.total),
        ops.select(seen, output, before.output),
    )


def merge(ops: Ops[A, Cache], left: Partial[A], right: Partial[A]) -> Partial[A]:
    """The state after two consecutive ranges of keys: of both, or, to the bit, of the only one that saw a key.

        m = max(mₗ, mᵣ)
        z = zₗ · e^(mₗ − m) + zᵣ · e^(mᵣ − m)
        u = uₗ · e^(mₗ − m) + uᵣ · e^(mᵣ − m)

    l and r being the earlier and the later range.
    """
    maximum = ops.maximum(left.maximum, right.maximum)
    left_decay = ops.exp(ops.sub(left.maximum, maximum))
    right_decay = ops.exp(ops.sub(right.maximum, maximum))
    total = ops.add(ops.mul(left.total, left_decay), ops.mul(right.total, right_decay))
    output = ops.add(ops.mul(left.output, left_decay), ops.mul(right.output, right_decay))
    nothing_left, nothing_right = ops.is_zero(left.total), ops.is_zero(right.total)

    def chosen(both: A, of_left: A, of_right: A) -> A:
        return ops.select(nothing_right, of_left, ops.select(nothing_left, of_right, both))

    return Partial(
        chosen(maximum, left.maximum, right.maximum),
        chosen(total, left.total, right.total),
        chosen(output, left.output, right.output),
    )


def over_split(
    ops: Ops[A, Cache], query: A, cache: Cache, split: Iterable[Lanes[A]], scale: float, nothing: Partial[A]
) -> Partial[A]:
    """The state after the key tiles of one split, which starts from nothing."""
    part = nothing
    for lanes in split:
        part = attend(ops, query, cache, lanes, scale, part)
    return part


def attention(
    ops: Ops[A, Cache],
    query: A,
    cache: Cache,
    splits: Iterable[Iterable[Lanes[A]]],
    scale: float,
    head_dim: int,
) -> A:
    """[..., kv heads, group, d] → the same: the softmax-weighted mean of the values that the row sees.

    `splits` holds, in ascending order, the key tiles to visit, grouped by split: at least those of `visible_tiles`,
    and any others, in which the row sees nothing. A row that sees nothing at all gets 0 (padding).
    """
    nothing = empty(ops, query, head_dim)
    state = nothing
    for split in splits:
        part = over_split(ops, query, cache, split, scale, nothing)
        # merge(nothing, part) is part, to the bit; most rows have one split, and so never merge.
        state = part if state is nothing else merge(ops, state, part)
    return ops.select(ops.is_zero(state.total), 0.0, ops.div(state.output, state.total))
