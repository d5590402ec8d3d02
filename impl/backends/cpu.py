"""The CPU backend: a launch plan run with torch, in tiles of `ROW_TILE` rows, over a pool of pages.

Each launch runs over all tiles of its rows before the next one begins, so that every row of a forward finds the keys
and values of the others stored. All arithmetic is that of the row programs in `vosti.spec.numerics`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import torch
from torch import Tensor

from vosti.impl.backend import NO_SEQUENCE, NO_SLOT, ROW_TILE, Batch, ForwardResult, Integers
from vosti.impl.backends.fingerprint import fingerprint
from vosti.impl.backends.host_digests import HostDigests
from vosti.impl.backends.lanes import PoolLayout, tile_splits
from vosti.impl.backends.programs import PROGRAMS, TensorOps
from vosti.impl.backends.torch_ops import TorchOps, fixed_arithmetic
from vosti.impl.errors import BatchError
from vosti.impl.models.model import Model
from vosti.impl.models.plan import LOGITS, POSITIONS, TOKEN_IDS, KVShape, Launch, Operation, Rows
from vosti.spec.numerics.attention import Lanes, attention


@dataclass
class _RowTile:
    """`ROW_TILE` rows on their way through the plan."""

    buffers: dict[str, Tensor]
    """Of each buffer, this tile's rows."""

    places: dict[int, Tensor]
    """Per number of kv heads, [2 · ROW_TILE · kv_heads]: rows of a layer's pool for the keys, then the values."""

    splits: dict[tuple[int, int | None], list[list[Lanes[Tensor]]]]
    """Per number of kv heads and window, the key tiles to visit."""


@dataclass
class _LogitTile:
    """`ROW_TILE` of the rows whose logits are wanted."""

    rows: Tensor
    """[ROW_TILE] Their numbers in the batch; the last tile repeats one to be full."""

    buffers: dict[str, Tensor] = field(default_factory=dict)


class _Step:
    """A launch with what it names looked up once."""

    def __init__(self, launch: Launch, parameters: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.launch = launch
        self._parameters = [parameters[name] for name in launch.parameters]
        self._outputs = [(name, (ROW_TILE, *shapes[name])) for name in launch.outputs]
        self._columns = [prod(shapes[name]) for name in launch.outputs]

    def run(self, ops: TensorOps, buffers: dict[str, Tensor], inputs: list[Tensor]) -> None:
        """Run the row program on one tile."""
        self.write(buffers, PROGRAMS[self.launch.operation](ops, self.launch, inputs, self._parameters))

    def write(self, buffers: dict[str, Tensor], results: tuple[Tensor, ...]) -> None:
        """Keep the results under the launch's outputs, dividing the columns of a single one among several."""
        if len(results) < len(self._outputs):
            results = results[0].reshape(ROW_TILE, -1).split(self._columns, 1)
        for (name, shape), result in zip(self._outputs, results, strict=True):
            buffers[name] = result.view(shape)


class CpuBackend(HostDigests):
    """A model and one pool of pages; see `vosti.impl.backend.Backend`.

    Several backends may share one model. A backend is not safe for use by several threads at once.
    """

    def __init__(self, model: Model, ops: TensorOps | None = None) -> None:
        self.model = model
        self._ops: TensorOps = ops if ops is not None else TorchOps()
        shapes = {buffer.name: buffer.shape for buffer in model.plan.buffers}
        self._steps = [_Step(launch, model.parameters, shapes) for launch in model.plan.launches]
        self._attended = {
            (self._kv(step.launch).heads, step.launch.window)
            for step in self._steps
            if step.launch.operation is Operation.ATTENTION
        }
        self._fingerprint: dict[str, object] | None = None
        self._page_size = 0
        self._pages = 0
        self._slots = 0
        self._layouts: dict[int, PoolLayout] = {}
        self._pool: list[Tensor] = []

    # ------------------------------------------------------------ what the model is

    @property
    def vocab_size(self) -> int:
        """Number of logits of a row."""
        return self.model.config.vocab_size

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Token ids that end a sequence."""
        return self.model.config.eos_ids

    @property
    def max_positions(self) -> int:
        """Longest sequence, in tokens."""
        return self.model.config.max_positions

    @property
    def row_tile(self) -> int:
        """Rows of one tile."""
        return ROW_TILE

    def fingerprint(self) -> dict[str, object]:
        """The configuration W."""
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self.model, self._ops)
        return dict(self._fingerprint)

    # ------------------------------------------------------------ the pool

    def allocate(self, pages: int, page_size: int) -> None:
        """Make a fresh pool, all zeros. Raises `BatchError` unless both numbers are at least 1."""
        if pages < 1 or page_size < 1:
            raise BatchError(f"A pool needs at least one page of at least one slot, not {pages} of {page_size}.")
        self._pages, self._page_size, self._slots = pages, page_size, pages * page_size
        shapes = self.model.plan.kv_shapes
        self._layouts = {kv.heads: PoolLayout(self._slots, kv.heads) for kv in shapes}
        self._pool = [torch.zeros(2, kv.heads, self._layouts[kv.heads].stride, kv.head_dim) for kv in shapes]

    def poison(self) -> None:
        """Fill all slots with NaN."""
        for layer in self._pool:
            layer[:, :, : self._slots].fill_(float("nan"))

    def slot_bytes(self, slots: Sequence[int]) -> list[bytes]:
        """Of each slot the bytes of [2, kv_heads, head_dim] of each layer. Raises `BatchError` for one out of range."""
        if any(not 0 <= slot < self._slots for slot in slots):
            raise BatchError(f"Slots must lie between 0 and {self._slots - 1}.")
        values = self._stored(np.array(slots, dtype=np.int64))
        return [slot.tobytes() for slot in values.numpy().astype("<f4", copy=False)]

    def _stored(self, slots: Integers) -> Tensor:
        """[slots, all layers' 2 · kv_heads · head_dim] Keys and values, as read from the pool."""
        index = torch.from_numpy(slots)
        return torch.cat([layer.index_select(2, index).permute(2, 0, 1, 3).flatten(1) for layer in self._pool], 1)

    # ------------------------------------------------------------ the forward

    def forward(self, batch: Batch) -> ForwardResult:
        """Compute the batch's rows. Raises `BatchError` before any slot is changed."""
        self._check(batch)
        with fixed_arithmetic():
            tiles = [self._row_tile(batch, begin) for begin in range(0, len(batch.tokens), ROW_TILE)]
            selected = self._selected(batch)
            for step in self._steps:
                self._launch(step, tiles, selected)
            finite = self._finite(batch)
        # Copied outside of inference mode, so that the caller may do with the logits as it likes.
        return ForwardResult(self._logits(len(batch.logit_rows), selected), finite)

    def _check(self, batch: Batch) -> None:
        """Raises `BatchError` for what would reach outside the model's tables or the pool."""
        rows, sequences = len(batch.tokens), len(batch.tables)
        if not self._slots:
            raise BatchError("There is no pool; call allocate(pages, page_size) before the first forward.")
        if rows == 0 or rows % ROW_TILE:
            raise BatchError(f"A batch must have a positive multiple of {ROW_TILE} rows, not {rows}.")
        _check_range("tokens", batch.tokens, 0, self.vocab_size)
        _check_range("positions", batch.positions, 0, self.max_positions)
        _check_range("write_slots", batch.write_slots, NO_SLOT, self._slots)
        _check_range("sequences", batch.sequences, NO_SEQUENCE, sequences)
        _check_range("tables", batch.tables, -1, self._pages)
        _check_range("logit_rows", batch.logit_rows, 0, rows)
        live = batch.sequences != NO_SEQUENCE
        first_missing = np.pad(batch.tables < 0, ((0, 0), (0, 1)), constant_values=True).argmax(1)
        beyond = batch.positions[live] // self._page_size >= first_missing[batch.sequences[live]]
        if beyond.any():
            row = int(np.flatnonzero(live)[beyond][0])
            raise BatchError(
                f"Sequence {batch.sequences[row]} lacks a page for some position up to {batch.positions[row]}."
            )

    def _row_tile(self, batch: Batch, begin: int) -> _RowTile:
        rows = slice(begin, begin + ROW_TILE)
        integers = {TOKEN_IDS: batch.tokens[rows], POSITIONS: batch.positions[rows]}
        return _RowTile(
            {name: torch.from_numpy(values.copy()) for name, values in integers.items()},
            {n: torch.from_numpy(layout.places(batch.write_slots[rows])) for n, layout in self._layouts.items()},
            {
                (heads, window): tile_splits(batch, rows, self._page_size, self._layouts[heads], window)
                for heads, window in self._attended
            },
        )

    def _selected(self, batch: Batch) -> list[_LogitTile]:
        rows = batch.logit_rows
        padded = np.concatenate([rows, np.repeat(rows[:1], -len(rows) % ROW_TILE)])
        return [_LogitTile(torch.from_numpy(tile)) for tile in padded.reshape(-1, ROW_TILE)]

    def _launch(self, step: _Step, tiles: list[_RowTile], selected: list[_LogitTile]) -> None:
        launch = step.launch
        if launch.operation is Operation.STORE:
            for tile in tiles:
                self._store(launch, tile)
        elif launch.operation is Operation.ATTENTION:
            for tile in tiles:
                step.write(tile.buffers, (self._attention(launch, tile),))
        elif launch.rows is Rows.TOKENS:
            for tile in tiles:
                step.run(self._ops, tile.buffers, [tile.buffers[name] for name in launch.inputs])
        elif launch.rows is Rows.LOGITS:
            for logit_tile in selected:
                step.run(self._ops, logit_tile.buffers, [logit_tile.buffers[name] for name in launch.inputs])
        elif selected:
            whole = [torch.cat([tile.buffers[name] for tile in tiles]) for name in launch.inputs]
            for logit_tile in selected:
                chosen = [buffer.index_select(0, logit_tile.rows) for buffer in whole]
                step.run(self._ops, logit_tile.buffers, chosen)

    def _kv(self, launch: Launch) -> KVShape:
        assert launch.layer is not None
        return self.model.plan.kv_shapes[launch.layer]

    def _cache(self, launch: Launch) -> Tensor:
        """The pool of the launch's layer, as `TorchOps` reads it."""
        assert launch.layer is not None
        return self._pool[launch.layer].view(-1, self._kv(launch).head_dim)

    def _store(self, launch: Launch, tile: _RowTile) -> None:
        kv = self._kv(launch)
        keys_values = torch.cat([tile.buffers[name].reshape(-1, kv.head_dim) for name in launch.inputs])
        self._cache(launch).index_copy_(0, tile.places[kv.heads], keys_values)

    def _attention(self, launch: Launch, tile: _RowTile) -> Tensor:
        kv = self._kv(launch)
        (queries,) = (tile.buffers[name] for name in launch.inputs)
        (scale,) = launch.constants
        return attention(
            self._ops,
            queries.reshape(ROW_TILE, kv.heads, -1, kv.head_dim),
            self._cache(launch),
            tile.splits[kv.heads, launch.window],
            scale,
            kv.head_dim,
        )

    def _logits(self, count: int, selected: list[_LogitTile]) -> Tensor:
        """[count, vocabulary]; the last tile's padding left out."""
        if not selected:
            return torch.empty(0, self.vocab_size)
        return torch.cat([tile.buffers[LOGITS] for tile in selected])[:count]

    def _finite(self, batch: Batch) -> np.ndarray:
        """[rows] Whether all that each row stored is finite, as read back from the pool."""
        finite = np.ones(len(batch.tokens), dtype=np.bool_)
        written = batch.write_slots != NO_SLOT
        finite[written] = torch.isfinite(self._stored(batch.write_slots[written])).all(1).numpy()
        return finite


def _check_range(name: str, values: Integers, low: int, high: int) -> None:
    if values.size and not (low <= values.min() and values.max() < high):
        raise BatchError(f"Batch.{name} must lie between {low} and {high - 1}.")
