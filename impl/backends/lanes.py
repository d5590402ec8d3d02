"""Where a tile of rows finds its keys: from positions and page tables to the rows of the pool."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from vosti.impl.backend import NO_SEQUENCE, NO_SLOT, Batch, Integers
from vosti.impl.backends.torch_ops import EVERYWHERE
from vosti.spec.numerics.attention import KEY_TILE, SPLIT_TILES, Lanes, visible, visible_tiles


@dataclass(frozen=True)
class PoolLayout:
    """How slots lie in one layer's pool, seen as [2 · kv_heads · stride, head_dim].

    Row (c · kv_heads + h) · stride + s holds head h of slot s, its key for c = 0 and its value for c = 1. Behind the
    slots stand two more: one of zeros, that nobody writes, and one that nobody reads.
    """

    slots: int
    kv_heads: int

    @property
    def zeros(self) -> int:
        """The slot of zeros, read in place of a lane that is not live."""
        return self.slots

    @property
    def discard(self) -> int:
        """The slot that takes the keys and values of rows that store none."""
        return self.slots + 1

    @property
    def stride(self) -> int:
        """Slots from one head to the next."""
        return self.slots + 2

    def places(self, slots: Integers) -> Integers:
        """[rows] slots, or `NO_SLOT` → [2 · rows · kv_heads] rows of the layer's pool, keys first, then values."""
        return self.rows(np.where(slots == NO_SLOT, self.discard, slots)[:, None]).reshape(-1)

    def rows(self, slots: Integers) -> Integers:
        """[..., rows, lanes] slots → [..., 2, rows, kv_heads, lanes] rows of the layer's pool."""
        heads = np.arange(2 * self.kv_heads, dtype=np.int64).reshape(2, 1, self.kv_heads, 1) * self.stride
        return slots[..., None, :, None, :] + heads


def tile_splits(
    batch: Batch, rows: slice, page_size: int, layout: PoolLayout, window: int | None
) -> list[list[Lanes[Tensor]]]:
    """The key tiles that some row of the tile sees, grouped by split, both in ascending order.

    `slots` of the lanes are rows of the pool, as `TorchOps.load` takes them. A padding row sees nothing.
    """
    sequences = batch.sequences[rows]
    positions = np.where(sequences == NO_SEQUENCE, -1, batch.positions[rows])
    tiles = sorted({tile for position in positions if position >= 0 for tile in visible_tiles(int(position), window)})
    if not tiles:
        return []
    keys = (np.array(tiles, dtype=np.int64)[:, None] * KEY_TILE + np.arange(KEY_TILE))[:, None, :]
    live = visible(positions[None, :, None], keys, window)
    columns = np.minimum(keys // page_size, batch.tables.shape[1] - 1)
    pages = batch.tables[np.maximum(sequences, 0)[None, :, None], columns]
    slots = np.where(live, pages * page_size + keys % page_size, layout.zeros)
    places = torch.from_numpy(layout.rows(slots))
    masks = torch.from_numpy(live)[:, :, None, None, :]
    whole = live.all(axis=(1, 2))
    lanes = {tile: Lanes(places[i], EVERYWHERE if whole[i] else masks[i]) for i, tile in enumerate(tiles)}
    return [[lanes[tile] for tile in split] for _, split in groupby(tiles, key=lambda tile: tile // SPLIT_TILES)]
