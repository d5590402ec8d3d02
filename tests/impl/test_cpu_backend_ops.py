"""The torch primitives: exact ones have the bits of plain Python, opaque ones do not know an element's place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from vosti.impl.backends.torch_ops import EVERYWHERE, TorchOps, fixed_arithmetic
from vosti.spec.numerics import activations, norms, projections, rotary
from vosti.spec.numerics.attention import KEY_TILE, Lanes, attention, visible
from vosti.spec.numerics.floats import Array, Floats, array, indices

HOSTILE = [0.0, -0.0, 1.0, -1.0, 1e-40, -3e-45, 3.4e38, -3.4e38, 1e-20, 1e20, math.inf, -math.inf, math.nan]
"""Numbers at the edges: zeros, subnormals, the largest, infinities, no number."""


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    with fixed_arithmetic():
        yield


def _random(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """Normal numbers of varied size."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator) * scale * torch.exp2(torch.randn(shape, generator=generator))


def _array(tensor: Tensor) -> Array:
    return array(tensor.flatten().tolist(), *tensor.shape)


def _bits(values: Tensor) -> list[int]:
    """Bit patterns, all NaNs alike."""
    values = torch.where(values.isnan(), torch.tensor(math.nan), values.contiguous())
    return values.view(torch.int32).flatten().tolist()


def _same(expected: Array, found: Tensor) -> bool:
    shape = torch.Size(expected.shape)
    return shape == found.shape and _bits(torch.tensor(expected.elements).view(shape)) == _bits(found)


def _off_by(expected: Array, found: Tensor, size: float) -> float:
    """The largest difference, in units of 2⁻²³ · `size`."""
    difference = torch.tensor(expected.elements, dtype=torch.float64).view(expected.shape) - found.double()
    return difference.abs().max().item() / (size * 2**-23)


# ---------------------------------------------------------------- exact primitives


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum"])
def test_exact_binary_primitives_agree_bit_for_bit(name: str) -> None:
    """On random and on hostile operands, torch's result is the correctly rounded one; a zero maximum has any sign."""
    pairs = [(a, b) for a in HOSTILE for b in HOSTILE]
    for x, y in [
        (_random(16, 300), _random(16, 300, seed=1)),
        (torch.tensor([a for a, _ in pairs]), torch.tensor([b for _, b in pairs])),
    ]:
        expected, found = getattr(Floats(), name)(_array(x), _array(y)), getattr(TorchOps(), name)(x, y)
        if name == "maximum":
            expected, found = Floats().add(expected, 0.0), found + 0.0
        assert _same(expected, found)


@pytest.mark.parametrize("name", ["add", "mul", "div"])
@pytest.mark.parametrize("number", [1e-6, 0.044715, 256.0, 0.1767766952966369, 30.0])
def test_a_number_stands_for_its_nearest_float32(name: str, number: float) -> None:
    """A Python float as an operand is rounded to float32 first, in both instances."""
    x = _random(16, 37)

    assert _same(getattr(Floats(), name)(_array(x), number), getattr(TorchOps(), name)(x, number))


@pytest.mark.parametrize("name", ["negate", "rsqrt", "is_zero"])
def test_exact_unary_primitives_agree_bit_for_bit(name: str) -> None:
    """On random and on hostile operands, torch's result is the correctly rounded one."""
    for x in (_random(16, 300).abs(), torch.tensor(HOSTILE)):
        assert _same(getattr(Floats(), name)(_array(x)), getattr(TorchOps(), name)(x).float())


@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 64, 96, 100, 256, 640])
def test_tree_sums_agree_bit_for_bit(width: int) -> None:
    """The sum by halving has one possible result, at any width, also when a width comes a second time."""
    ops = TorchOps()
    for seed in (0, 1):
        x = _random(16, 2, width, seed=seed)

        assert _same(Floats().tree_sum(_array(x)), ops.tree_sum(x))


def test_an_ordinary_sum_is_not_the_tree() -> None:
    """The comparison above would notice another order."""
    x = _random(16, 256)

    assert not _same(Floats().tree_sum(_array(x)), x.sum(-1, keepdim=True))


def test_moving_primitives_agree() -> None:
    """Selecting, filling, taking rows, halving and joining give the same numbers in both instances."""
    floats, ops = Floats(), TorchOps()
    x, y, condition = _random(3, 4), _random(3, 4, seed=1), _random(3, 4, seed=2) > 0
    index = torch.tensor([2, 0])

    chosen = floats.select(indices(condition.flatten().tolist(), 3, 4), _array(x), float("-inf"))
    assert _same(chosen, ops.select(condition, x, float("-inf")))
    assert _same(floats.fill(_array(x), 7, 2.5), ops.fill(x, 7, 2.5))
    assert _same(floats.take(_array(x), indices(index.tolist(), 2)), ops.take(x, index))
    for mine, theirs in zip(floats.halves(_array(x)), ops.halves(x), strict=True):
        assert _same(mine, theirs)
    assert _same(floats.join(_array(x), _array(y)), ops.join(x, y))
    assert _same(floats.any_lane(indices(condition.flatten().tolist(), 3, 4)), ops.any_lane(condition).float())
    assert _same(floats.lane_max(_array(x)), ops.lane_max(x))


def test_a_condition_that_holds_everywhere_selects_as_any_other() -> None:
    """The shortcut for key tiles that all rows see in full yields the bits of the selection it leaves out."""
    ops, x = TorchOps(), torch.tensor(HOSTILE)
    true = torch.ones_like(x, dtype=torch.bool)

    assert _bits(ops.select(true, x, -1.0)) == _bits(ops.select(EVERYWHERE, x, -1.0))
    assert ops.any_lane(EVERYWHERE) is EVERYWHERE
    assert bool(ops.any_lane(true))


# ---------------------------------------------------------------- opaque primitives: near the real function


@pytest.mark.parametrize("name", ["exp", "tanh"])
def test_functions_are_within_two_units(name: str) -> None:
    """Torch's exponential and hyperbolic tangent are within two units in the last place of the exact ones."""
    x = _random(16, 640, scale=4.0).clamp(-80, 80)
    exact = getattr(torch, name)(x.double())

    assert ((getattr(TorchOps(), name)(x).double() - exact).abs() <= 2 * exact.abs() * 2**-23).all()


def test_functions_are_exact_where_the_programs_need_it() -> None:
    """exp(0) = 1 and exp(−∞) = 0, to the bit."""
    found = TorchOps().exp(torch.tensor([0.0, -0.0, -math.inf]))

    assert _bits(torch.tensor([1.0, 1.0, 0.0])) == _bits(found)


@pytest.mark.parametrize(("k", "n"), [(256, 24), (704, 8)])
def test_chains_are_near_plain_python(k: int, n: int) -> None:
    """A chain differs from one in ascending order by rounding alone."""
    x, weight = _random(16, k), _random(k, n, seed=1)
    size = (x.abs() @ weight.abs()).max().item()

    assert _off_by(Floats().chain(_array(x), _array(weight)), TorchOps().chain(x, weight), size) < math.sqrt(k)


def test_products_of_a_tile_are_near_plain_python() -> None:
    """Scores, weighted sums and lane sums differ from chains in ascending order by rounding alone."""
    floats, ops = Floats(), TorchOps()
    query, keys = _random(2, 2, 3, 32), _random(2, 2, 8, 32, seed=1)
    weights = _random(2, 2, 3, 8, seed=2).abs()

    assert _off_by(floats.scores(_array(query), _array(keys)), ops.scores(query, keys), 500.0) < 8
    start = _random(2, 2, 3, 32, seed=3)
    expected = floats.weighted_sum(_array(weights), _array(keys), _array(start))
    assert _off_by(expected, ops.weighted_sum(weights, keys, start), 100.0) < 8
    start = _random(2, 2, 3, 1, seed=4)
    assert _off_by(floats.lane_sum(_array(weights), _array(start)), ops.lane_sum(weights, start), 50.0) < 8


# ---------------------------------------------------------------- opaque primitives: an element's place does not matter


@pytest.mark.parametrize("function", [torch.exp, torch.tanh])
@pytest.mark.parametrize("shape", [(16, 640), (16, 704), (16, 2, 2, 64), (16, 2, 4, 1), (16, 36), (16, 1, 1, 1), (7,)])
def test_functions_do_not_know_the_place(function: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> None:
    """One number gives one result at every place of a tensor, at its vector tail too, and whatever stands beside it."""
    for number in torch.linspace(-9, 9, 97):
        results = function(torch.full(shape, number))
        assert len(set(_bits(results))) == 1
    x = _random(*shape, scale=3.0)
    order = torch.randperm(x.numel(), generator=torch.Generator().manual_seed(1))
    assert torch.equal(function(x).flatten()[order], function(x.flatten()[order].view(shape)).flatten())


CHAINS = [(256, 512), (256, 768), (256, 1280), (256, 1408), (640, 256), (704, 256), (256, 4096), (40, 97), (33, 7)]
"""Inputs and outputs of the linear layers of the bundled checkpoints, and two that fill no vector."""


@pytest.mark.parametrize(("k", "n"), CHAINS)
@pytest.mark.parametrize("transposed", [False, True])
def test_chains_do_not_know_the_place(k: int, n: int, transposed: bool) -> None:
    """A row of a product has the same bits in every row of its tile, in any company, NaN included."""
    weight = _random(n, k, seed=1).t() if transposed else _random(k, n, seed=1)
    x = _random(16, k)
    expected = TorchOps().chain(x, weight)
    for place in range(16):
        company = _random(16, k, seed=place + 2)
        company[(place + 1) % 16] = math.nan
        company[place] = x[3]
        assert torch.equal(expected[3], TorchOps().chain(company, weight)[place])
    assert torch.equal(expected.roll(5, 0), TorchOps().chain(x.roll(5, 0), weight))


def test_chains_of_one_row_differ() -> None:
    """The height of the tile does matter: that is why it is fixed."""
    x, weight = _random(16, 256), _random(256, 512, seed=1)

    assert not torch.equal(TorchOps().chain(x, weight)[:1], TorchOps().chain(x[:1], weight))


@pytest.mark.parametrize(("heads", "group", "d"), [(2, 2, 64), (2, 4, 32), (1, 8, 16), (3, 1, 10), (2, 3, 33)])
def test_products_of_a_tile_do_not_know_the_place(heads: int, group: int, d: int) -> None:
    """Scores, weighted sums, lane sums and maxima of a row have the same bits at every row of the tile."""
    ops = TorchOps()
    query, keys = _random(16, heads, group, d), _random(16, heads, KEY_TILE, d, seed=1)
    weights = _random(16, heads, group, KEY_TILE, seed=2).abs()
    for shift in (1, 5, 8, 15):
        for expected, found in [
            (ops.scores(query, keys), ops.scores(query.roll(shift, 0), keys.roll(shift, 0))),
            (
                ops.weighted_sum(weights, keys, query),
                ops.weighted_sum(weights.roll(shift, 0), keys.roll(shift, 0), query.roll(shift, 0)),
            ),
            (
                ops.lane_sum(weights, query[..., :1]),
                ops.lane_sum(weights.roll(shift, 0), query[..., :1].roll(shift, 0)),
            ),
            (ops.lane_max(weights), ops.lane_max(weights.roll(shift, 0))),
        ]:
            assert torch.equal(expected.roll(shift, 0), found)


# ---------------------------------------------------------------- whole row programs


def test_row_programs_of_exact_primitives_agree_bit_for_bit() -> None:
    """Norms, rotation, embedding and residuals yield the same bits from torch and from plain Python."""
    floats, ops = Floats(), TorchOps()
    x, y, weight = _random(2, 96), _random(2, 96, seed=1), _random(96, seed=2)
    heads, cosine, sine = _random(2, 3, 8), _random(2, 1, 4, seed=1), _random(2, 1, 4, seed=2)
    token = torch.tensor([1, 0])

    for program in (norms.rms_norm, norms.rms_norm_unit_offset):
        assert _same(program(floats, _array(x), _array(weight), 96, 1e-6), program(ops, x, weight, 96, 1e-6))
    for residual in (norms.residual_rms_norm, norms.residual_rms_norm_unit_offset):
        mine = residual(floats, _array(x), _array(y), _array(weight), 96, 1e-5)
        for expected, found in zip(mine, residual(ops, x, y, weight, 96, 1e-5), strict=True):
            assert _same(expected, found)
    scale = _random(1, seed=3)
    scaled = norms.scaled_residual_rms_norm(floats, _array(x), _array(y), _array(weight), _array(scale), 96, 1e-5)
    for expected, found in zip(scaled, norms.scaled_residual_rms_norm(ops, x, y, weight, scale, 96, 1e-5), strict=True):
        assert _same(expected, found)
    unweighted = norms.unweighted_rms_norm(floats, _array(heads), 8, 1e-6)
    assert _same(unweighted, norms.unweighted_rms_norm(ops, heads, 8, 1e-6))
    rotated = rotary.rotate(floats, _array(heads), _array(cosine), _array(sine))
    assert _same(rotated, rotary.rotate(ops, heads, cosine, sine))
    embedded = projections.scaled_embedding(floats, _array(x), indices(token.tolist(), 2), 50.596443)
    assert _same(embedded, projections.scaled_embedding(ops, x, token, 50.596443))


@pytest.mark.parametrize("program", [activations.silu_mul, activations.gelu_tanh_mul])
def test_activations_are_near_plain_python(program: Callable[..., Any]) -> None:
    """A gated activation differs only as its one opaque function does."""
    x = _random(4, 64, scale=2.0)
    expected = torch.tensor(program(Floats(), _array(x)).elements).view(4, 32)

    assert torch.allclose(expected, program(TorchOps(), x), rtol=1e-6, atol=1e-6)


def test_attention_is_near_plain_python() -> None:
    """Attention over two key tiles, one of them partly masked, agrees between the instances up to rounding."""
    heads, d, positions = 2, 8, [100, 70]
    query, keys, values = (
        _random(2, heads, 3, d),
        _random(128, heads, d, seed=1),
        _random(128, heads, d, seed=2),
    )
    pool = torch.cat([keys.transpose(0, 1), values.transpose(0, 1)]).reshape(-1, d)
    pool = torch.cat([pool, torch.zeros(1, d)])
    torch_lanes, float_lanes = [], []
    for tile in range(2):
        lanes = torch.arange(tile * KEY_TILE, (tile + 1) * KEY_TILE)
        live = visible(torch.tensor(positions)[:, None], lanes[None], None)
        head_rows = torch.arange(2 * heads).view(2, 1, heads, 1) * 128
        slots = torch.where(live[None, :, None], lanes + head_rows, len(pool) - 1)
        torch_lanes.append(Lanes(slots, live[:, None, None]))
        float_lanes.append(
            Lanes(
                indices(lanes.repeat(2).tolist(), 2, KEY_TILE),
                indices(live.flatten().tolist(), 2, 1, 1, KEY_TILE),
            )
        )

    found = attention(TorchOps(), query, pool, [torch_lanes], 0.3, d)
    expected = attention(Floats(), _array(query), (_array(keys), _array(values)), [float_lanes], 0.3, d)

    assert torch.allclose(torch.tensor(expected.elements).view(expected.shape), found, rtol=1e-5, atol=1e-5)
