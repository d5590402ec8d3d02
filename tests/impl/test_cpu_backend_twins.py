"""Faulty twins of the CPU backend: each test of invariance catches the fault that it is there for.

And the other way round: the engine's values are those of the row programs, since replacing any one primitive changes
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from forwards import CHECKPOINTS, alone, differing, random_tokens, run, scattered_pages
from vosti.impl.backend import Batch, ForwardResult
from vosti.impl.backends import lanes
from vosti.impl.backends.cpu import CpuBackend
from vosti.impl.backends.lanes import PoolLayout
from vosti.impl.backends.torch_ops import TorchOps
from vosti.impl.models.model import Model
from vosti.spec.numerics.attention import visible

LENGTH = 144
"""Tokens of the sequence that is computed in two ways: whole pages."""


@pytest.fixture(scope="module")
def model() -> Model:
    """The checkpoint with sliding layers."""
    return Model.load(CHECKPOINTS / "tiny-gemma3")


@pytest.fixture(scope="module")
def llama() -> Model:
    """The checkpoint whose activation is an exponential."""
    return Model.load(CHECKPOINTS / "tiny-llama3")


def disagreements(backend: CpuBackend, page_sizes: tuple[int, int] = (16, 16)) -> int:
    """How many rows differ between one prefill and decoding row by row, with the last pages written last."""
    (sequence,) = random_tokens([LENGTH], seed=1)
    whole = run(backend, [sequence], [[0] * LENGTH], scattered_pages([LENGTH], page_sizes[0], seed=1, spare=0))
    steps = [[0] * 17, [0] * 100, *[[0]] * (LENGTH - 117)]
    cut = run(backend, [sequence], steps, scattered_pages([LENGTH], page_sizes[1], seed=2, spare=0))
    return len(differing(whole, cut))


@pytest.mark.parametrize("page_sizes", [(16, 16), (4, 64)])
def test_the_backend_has_no_disagreement(model: Model, page_sizes: tuple[int, int]) -> None:
    """What the faulty twins below are measured by finds nothing in the backend itself."""
    assert disagreements(CpuBackend(model), page_sizes) == 0


class FollowingBatch(TorchOps):
    """A chain whose tile height follows the number of rows in the batch."""

    live = 16

    def chain(self, x: Tensor, weight: Tensor) -> Tensor:
        """One product of the live rows, one of the others."""
        parts = [part for part in (x[: self.live], x[self.live :]) if len(part)]
        return torch.cat([torch.mm(part, weight) for part in parts])


class FollowingBatchBackend(CpuBackend):
    """Tells its primitives how many rows the batch really has."""

    def forward(self, batch: Batch) -> ForwardResult:
        """Compute the batch's rows."""
        FollowingBatch.live = max(1, min(16, int((batch.sequences >= 0).sum())))
        return super().forward(batch)


def test_a_chain_that_follows_the_batch_is_caught(model: Model) -> None:
    """Matrix products as high as the batch make decode differ from prefill."""
    assert disagreements(FollowingBatchBackend(model, FollowingBatch())) > 0


def test_key_tiles_that_follow_the_page_size_are_caught(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Key tiles as wide as a page make the values depend on the page size."""

    class Paged(CpuBackend):
        def allocate(self, pages: int, page_size: int) -> None:
            from vosti.spec.numerics import attention

            super().allocate(pages, page_size)
            monkeypatch.setattr(lanes, "KEY_TILE", page_size)
            monkeypatch.setattr(attention, "KEY_TILE", page_size)

    assert disagreements(Paged(model), (4, 64)) > 0


def test_key_tiles_that_start_at_the_chunk_are_caught(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Key tiles that stand relative to the first row of the batch, and not at absolute positions, are caught."""
    sound = lanes.tile_splits

    def shifted(batch: Batch, rows: slice, page_size: int, layout: PoolLayout, window: int | None) -> Any:
        tile = 32 if batch.positions.max() - batch.positions[0] > 32 else 64
        monkeypatch.setattr(lanes, "KEY_TILE", tile)
        monkeypatch.setattr("vosti.spec.numerics.attention.KEY_TILE", tile)
        return sound(batch, rows, page_size, layout, window)

    monkeypatch.setattr("vosti.impl.backends.cpu.tile_splits", shifted)

    assert disagreements(CpuBackend(model)) > 0


def test_a_masked_tile_that_is_no_identity_is_caught(model: Model) -> None:
    """Without the choice of the old state, a tile in which a row sees nothing leaves its mark on that row."""

    class Visiting(TorchOps):
        def any_lane(self, condition: Tensor) -> Tensor:
            return torch.ones_like(super().any_lane(condition))

    assert disagreements(CpuBackend(model, Visiting())) > 0


def test_reading_masked_lanes_is_caught(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a lane that is not live is read from a slot after all, poison reaches the row."""
    monkeypatch.setattr(PoolLayout, "zeros", property(lambda layout: layout.slots - 1))

    assert disagreements(CpuBackend(model)) > 0


def test_padding_that_writes_the_last_slot_is_caught(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the slot −1 of a padding row names the last slot of the last page, that page's owner changes."""
    monkeypatch.setattr(PoolLayout, "discard", property(lambda layout: layout.slots - 1))

    assert disagreements(CpuBackend(model)) > 0


def test_a_window_off_by_one_is_caught_by_the_reference(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window one position wider is the same in every schedule, but differs from the right one beyond it."""
    (sequence,) = random_tokens([LENGTH], seed=1)
    expected = alone(CpuBackend(model), [sequence])
    sound = visible

    def wider(position: Any, key: Any, window: int | None) -> Any:
        return sound(position, key, None if window is None else window + 1)

    monkeypatch.setattr(lanes, "visible", wider)
    found = alone(CpuBackend(model), [sequence])

    assert [(0, position) for position in range(64, LENGTH)] == sorted(differing(expected, found))


def _doubled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function computed in float64 and rounded once."""
    return lambda *arrays: function(*(array.double() for array in arrays)).float()


def _nudged(name: str) -> Callable[..., Tensor]:
    """An exact primitive with its result moved to the next larger number."""

    def nudged(ops: TorchOps, *operands: Any) -> Tensor:
        return torch.nextafter(getattr(TorchOps, name)(ops, *operands), torch.tensor(float("inf")))

    return nudged


REPLACED: dict[str, Callable[..., Any]] = {
    "add": _nudged("add"),
    "sub": _nudged("sub"),
    "mul": _nudged("mul"),
    "div": _nudged("div"),
    "rsqrt": _nudged("rsqrt"),
    "maximum": _nudged("maximum"),
    "exp": lambda ops, x: _doubled(torch.exp)(x),
    "tanh": lambda ops, x: _doubled(torch.tanh)(x),
    "select": lambda ops, c, x, y: TorchOps.select(ops, c, x, y) + 0.125,
    "is_zero": lambda ops, x: torch.ones_like(x, dtype=torch.bool),
    "any_lane": lambda ops, x: torch.zeros_like(TorchOps.any_lane(ops, x)),
    "tree_sum": lambda ops, x: x.sum(-1, keepdim=True),
    "chain": lambda ops, x, w: _doubled(torch.mm)(x, w),
    "scores": lambda ops, q, k: _doubled(torch.matmul)(q, k.transpose(-1, -2)),
    "weighted_sum": lambda ops, w, v, start: start + _doubled(torch.matmul)(w, v),
    "lane_sum": lambda ops, x, start: (start.double() + x.double().sum(-1, keepdim=True)).float(),
    "lane_max": lambda ops, x: TorchOps.lane_max(ops, x) + 1.0,
    "fill": lambda ops, like, width, value: TorchOps.fill(ops, like, width, 100.0),
    "take": lambda ops, table, index: TorchOps.take(ops, table, index) * 1.0000001,
    "halves": lambda ops, x: TorchOps.halves(ops, x)[::-1],
    "join": lambda ops, x, y: TorchOps.join(ops, y, x),
    "load": lambda ops, cache, slots, live: TorchOps.load(ops, cache, slots, live)[::-1],
    "negate": lambda ops, x: x,
}
"""Each primitive, with a replacement that a reader of the row programs would notice."""


def test_every_primitive_has_a_replacement() -> None:
    """No primitive is left out of the test below."""
    assert {name for name in vars(TorchOps) if not name.startswith("_")} == set(REPLACED)


@pytest.mark.parametrize("name", sorted(REPLACED))
def test_replacing_a_primitive_changes_the_bits(model: Model, llama: Model, name: str) -> None:
    """The backend runs the row programs: with any one primitive replaced, its logits have other bits."""
    used = llama if name == "negate" else model
    (sequence,) = random_tokens([80], seed=3)
    expected = alone(CpuBackend(used), [sequence])
    twin = type("Twin", (TorchOps,), {name: REPLACED[name]})()

    found = alone(CpuBackend(used, twin), [sequence])

    assert len(differing(expected, found)) > 40


def test_an_equal_primitive_does_not_change_the_bits(model: Model) -> None:
    """An instance that computes a primitive in another way, but with its bits, is the same."""

    class Other(TorchOps):
        def tree_sum(self, x: Tensor) -> Tensor:
            while x.shape[-1] > 1:
                left, right = x.chunk(2, -1)
                x = right + left
            return x

    (sequence,) = random_tokens([80], seed=3)

    assert differing(alone(CpuBackend(model), [sequence]), alone(CpuBackend(model, Other()), [sequence])) == []
