"""Rotary embedding and the store of keys and values."""

from __future__ import annotations

import math

from kernel_cases import OPS, case, close, draw, tensor, tile
from vosti.spec.numerics import norms, rotary
from vosti.spec.numerics.floats import array, indices


def _rotary(norm: int, value_norm: bool, shared: bool, block_h: int) -> None:
    import torch

    from vosti.kernels.rotary_store import rotary_store

    rows, heads, kv_heads, d, slots = 3, 6, 2, 16, 9
    width = heads + kv_heads * (1 if shared else 2)
    qkv, cosines, sines = draw(15, rows, width, d), draw(16, 20, d // 2), draw(17, 20, d // 2)
    weight = draw(18, heads + kv_heads, d)
    positions, places = [7, 0, 19], [4, -1, 8]
    queries = torch.full((rows, heads, d), math.nan)
    cache = torch.full((slots, kv_heads, d), math.nan), torch.full((slots, kv_heads, d), math.nan)
    flags = torch.zeros(rows, kv_heads, dtype=torch.int32)
    rotary_store(
        tensor(qkv).reshape(rows, -1),
        (tensor(cosines), tensor(sines)),
        torch.tensor(positions, dtype=torch.int32),
        torch.tensor(places, dtype=torch.int32),
        queries,
        cache,
        flags,
        tile(BLOCK_H=block_h),
        norm=(norm, tensor(weight), 1e-5) if norm or value_norm else None,
        value_norm=value_norm,
        shared=shared,
    )
    rotated = array(tensor(qkv)[:, : heads + kv_heads].reshape(-1).tolist(), rows, heads + kv_heads, d)
    values = tensor(qkv)[:, width - kv_heads :]
    raw = array(values.reshape(-1).tolist(), rows, kv_heads, d)
    if norm:
        function = norms.rms_norm if norm == 1 else norms.rms_norm_unit_offset
        rotated = function(OPS, rotated, weight, d, 1e-5)
    cosine, sine = rotary.angles(OPS, cosines, sines, indices(positions, rows, 1))
    turned = tensor(rotary.rotate(OPS, rotated, cosine, sine))
    if value_norm:
        raw = norms.rms_norm(OPS, raw, array([1.0] * d, d), d, 1e-5)
    close(array(turned[:, :heads].reshape(-1).tolist(), rows * heads * d), queries, 0.0)
    for row, place in enumerate(places):
        if place >= 0:
            close(array(turned[row, heads:].reshape(-1).tolist(), kv_heads * d), cache[0][place], 0.0)
            close(array(tensor(raw)[row].reshape(-1).tolist(), kv_heads * d), cache[1][place], 0.0)
    untouched = [slot for slot in range(slots) if slot not in places]
    assert all(bool(torch.isnan(part[untouched]).all()) for part in cache), "a slot that no row owns was written"
    assert not flags.any()


@case
def rotary_store_plain() -> None:
    """Rotation and store, with a row that stores nothing."""
    _rotary(0, False, False, 4)


@case
def rotary_store_with_head_norms() -> None:
    """Each head of queries and keys normalised first, plain and with the unit offset."""
    _rotary(1, False, False, 8)
    _rotary(2, False, False, 2)


@case
def rotary_store_with_shared_values() -> None:
    """Values that are the keys' projection, normalised without weights."""
    _rotary(2, True, True, 4)


@case
def kv_store_alone() -> None:
    """Rows go to their slots, and to no other; what is not finite raises the head's flag."""
    import torch

    from vosti.kernels.kv_store import kv_store

    keys, values = tensor(draw(19, 3, 2, 32)), tensor(draw(20, 3, 2, 32))
    keys[2, 1, 5] = math.inf
    cache = torch.full((5, 2, 32), math.nan), torch.full((5, 2, 32), math.nan)
    flags = torch.zeros(3, 2, dtype=torch.int32)
    kv_store((keys, values), torch.tensor([4, -1, 0], dtype=torch.int32), cache, flags, tile(1))
    for new, part in zip((keys, values), cache, strict=True):
        assert bool((part[[4, 0]] == new[[0, 2]]).all())
        assert bool(torch.isnan(part[1:4]).all())
    assert flags.tolist() == [[0, 0], [0, 0], [0, 1]]


@case
def rotary_store_flags_what_is_not_finite() -> None:
    """A NaN among the keys or values of one head raises that head's flag, and no other; flags stay up."""
    import torch

    from vosti.kernels.rotary_store import rotary_store

    qkv = torch.randn(3, 4 + 2 * 2, 16, generator=torch.Generator().manual_seed(0))
    qkv[0, 5, 3], qkv[2, 6, 15] = math.nan, math.inf
    flags = torch.tensor([[0, 0], [0, 1], [0, 0]], dtype=torch.int32)
    rotary_store(
        qkv.reshape(3, -1),
        (torch.ones(4, 8), torch.zeros(4, 8)),
        torch.zeros(3, dtype=torch.int32),
        torch.arange(3, dtype=torch.int32),
        torch.empty(3, 4, 16),
        (torch.empty(4, 2, 16), torch.empty(4, 2, 16)),
        flags,
        tile(BLOCK_H=8),
    )
    assert flags.tolist() == [[0, 1], [0, 1], [1, 0]], flags.tolist()
