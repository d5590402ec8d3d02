"""The canonical row programs, run in plain Python."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vosti.spec.numerics import activations, norms, projections, rotary
from vosti.spec.numerics.attention import (
    KEY_TILE,
    SPLIT_TILES,
    Lanes,
    Partial,
    attend,
    attention,
    empty,
    merge,
    visible,
    visible_tiles,
)
from vosti.spec.numerics.floats import Array, Cache, Floats, array, binary32, broadcast, indices

UNIT = 2.0**-24
"""Largest relative error of one rounding to binary32."""

OPS = Floats()

numbers = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-1e6, max_value=1e6)


def _random(random: Random, *shape: int, scale: float = 1.0) -> Array:
    return array((random.gauss(0, scale) for _ in range(math.prod(shape))), *shape)


def _close(expected: Sequence[float], found: Array, roundings: int) -> bool:
    """Whether each element is within so many roundings of the largest expected size."""
    size = max(map(abs, expected), default=0.0) or 1.0
    return all(abs(e - f) <= roundings * UNIT * size for e, f in zip(expected, found.elements, strict=True))


# ---------------------------------------------------------------- the primitives


@given(st.floats(allow_nan=False))
def test_rounding_is_to_nearest_binary32(x: float) -> None:
    """A number in range is rounded as a conversion to IEEE binary32 rounds it."""
    if abs(x) < 3.4e38:
        assert struct.unpack("<f", struct.pack("<f", x))[0] == binary32(x)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (1 + 2**-24, 1.0),
        (1 + 3 * 2**-24, 1 + 2**-22),
        (3.5e38, math.inf),
        (-3.5e38, -math.inf),
        (2**-149, 2**-149),
        (2**-150, 0.0),
        (2**-150 * 1.01, 2**-149),
    ],
)
def test_rounding_at_the_edges(x: float, expected: float) -> None:
    """Ties go to even, what is too large becomes infinite, and subnormals are kept."""
    assert expected == binary32(x)


@given(st.lists(numbers, min_size=1, max_size=40))
def test_a_tree_sum_halves(values: list[float]) -> None:
    """The sum of 2ⁿ numbers is the element-wise sum of the two halves, summed; shorter rows are filled with zeros."""
    x = array(values, len(values))
    while len(values) & (len(values) - 1):
        values = [*values, 0.0]

    def by_halves(row: Sequence[float]) -> float:
        if len(row) == 1:
            return row[0]
        half = len(row) // 2
        return by_halves([binary32(a + b) for a, b in zip(row[:half], row[half:], strict=True)])

    assert (by_halves(array(values, len(values)).elements),) == OPS.tree_sum(x).elements


def test_the_order_of_a_sum_matters() -> None:
    """A tree and a chain over the same numbers differ: the order is part of a row program."""
    x = array([2.0**24, 1.0, -(2.0**24), 1.0], 4)

    assert (2.0,) == OPS.tree_sum(x).elements
    assert (1.0,) == OPS.lane_sum(x, array([0.0], 1)).elements


def test_a_chain_runs_in_ascending_order() -> None:
    """Products are added one at a time, the first to +0."""
    x = array([2.0**24, 1.0, -(2.0**24), 1.0], 1, 4)
    ones = array([1.0] * 4, 4, 1)

    assert Array((1, 1), (1.0,)) == OPS.chain(x, ones)


def test_primitives_of_special_numbers() -> None:
    """Divisions by zero, roots of negative numbers, NaN in a maximum and large exponents follow IEEE 754."""
    x = array([1.0, -1.0, 0.0, 1.0], 4)
    quotients = OPS.div(x, array([0.0, 0.0, 0.0, -0.0], 4)).elements
    roots = OPS.rsqrt(array([4.0, 0.0, -1.0], 3)).elements

    assert (math.inf, -math.inf) == quotients[:2]
    assert math.isnan(quotients[2])
    assert -math.inf == quotients[3]
    assert (0.5, math.inf) == roots[:2]
    assert math.isnan(roots[2])
    assert math.isnan(OPS.lane_max(array([1.0, math.nan], 2)).elements[0])
    assert (math.inf, 0.0, 1.0) == OPS.exp(array([1000.0, -math.inf, -0.0], 3)).elements


def test_a_selection_ignores_the_other_operand() -> None:
    """What is not selected does not matter, be it no number."""
    chosen = OPS.select(indices([1, 0], 2), array([1.0, math.nan], 2), array([math.nan, 2.0], 2))

    assert (1.0, 2.0) == chosen.elements


def test_arrays_broadcast_from_the_end() -> None:
    """Axes of length one repeat, missing leading axes are added, and lengths that differ are refused."""
    assert (1.0, 2.0, 1.0, 2.0) == broadcast(array([1.0, 2.0], 2), (2, 2)).elements
    assert (1.0, 1.0, 2.0, 2.0) == broadcast(array([1.0, 2.0], 2, 1), (2, 2)).elements
    with pytest.raises(ValueError, match="do not broadcast"):
        OPS.add(array([1.0, 2.0], 2), array([1.0] * 3, 3))
    with pytest.raises(ValueError, match="cannot hold"):
        Array((2, 2), (1.0,))
    with pytest.raises(ValueError, match="cannot take"):
        OPS.chain(array([1.0] * 3, 1, 3), array([1.0] * 4, 2, 2))


# ---------------------------------------------------------------- programs against mathematics in binary64


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_rms_norms_are_near_the_formula(offset: float) -> None:
    """x / √(mean(x²) + ε) · (weight + offset), within 12 roundings."""
    random = Random(1)
    x, weight = _random(random, 1, 96), _random(random, 96)
    program = norms.rms_norm_unit_offset if offset else norms.rms_norm
    root = math.sqrt(math.fsum(a * a for a in x.elements) / 96 + 1e-6)
    expected = [a / root * (w + offset) for a, w in zip(x.elements, weight.elements, strict=True)]

    assert _close(expected, program(OPS, x, weight, 96, 1e-6), 12)


def test_residual_norms_return_the_sum_and_its_norm() -> None:
    """Both results of a residual norm are those of the two programs one after the other."""
    random = Random(2)
    x, y, weight = _random(random, 1, 8), _random(random, 1, 8), _random(random, 8)
    total = projections.residual_add(OPS, x, y)

    assert (total, norms.rms_norm(OPS, total, weight, 8, 1e-5)) == norms.residual_rms_norm(OPS, x, y, weight, 8, 1e-5)
    assert (
        total,
        norms.rms_norm_unit_offset(OPS, total, weight, 8, 1e-5),
    ) == norms.residual_rms_norm_unit_offset(OPS, x, y, weight, 8, 1e-5)


def test_a_scaled_residual_norm_scales_the_sum() -> None:
    """The sum times the scale, and its norm; with a scale of 1, the residual norm."""
    random = Random(2)
    x, y, weight = _random(random, 1, 8), _random(random, 1, 8), _random(random, 8)
    total = OPS.mul(projections.residual_add(OPS, x, y), 1.25)
    expected = (total, norms.rms_norm(OPS, total, weight, 8, 1e-5))

    assert expected == norms.scaled_residual_rms_norm(OPS, x, y, weight, array([1.25], 1), 8, 1e-5)
    assert norms.residual_rms_norm(OPS, x, y, weight, 8, 1e-5) == norms.scaled_residual_rms_norm(
        OPS, x, y, weight, array([1.0], 1), 8, 1e-5
    )


def test_an_unweighted_norm_is_one_with_weights_of_one() -> None:
    """Multiplying by 1 changes nothing."""
    x = _random(Random(4), 3, 8)

    assert norms.rms_norm(OPS, x, array([1.0] * 8, 8), 8, 1e-6) == norms.unweighted_rms_norm(OPS, x, 8, 1e-6)


def test_a_norm_of_heads_normalises_each_head() -> None:
    """Per-head norms are norms of the heads, each with its own weights."""
    random = Random(3)
    x, weight = _random(random, 3, 8), _random(random, 3, 8)
    heads = [
        norms.rms_norm(OPS, Array((1, 8), head), Array((8,), w), 8, 1e-6).elements
        for head, w in zip(x.rows(), weight.rows(), strict=True)
    ]

    assert sum(heads, ()) == norms.rms_norm(OPS, x, weight, 8, 1e-6).elements


def test_rotation_turns_pairs() -> None:
    """Each pair (i, i + d/2) is turned by its angle, as complex numbers are multiplied, within 4 roundings."""
    random = Random(4)
    x, turns = _random(random, 2, 8), [random.uniform(0, 6) for _ in range(4)]
    cosine, sine = array(map(math.cos, turns), 1, 4), array(map(math.sin, turns), 1, 4)
    expected = []
    for head in x.rows():
        turned = [complex(head[i], head[i + 4]) * complex(math.cos(t), math.sin(t)) for i, t in enumerate(turns)]
        expected += [z.real for z in turned] + [z.imag for z in turned]

    assert _close(expected, rotary.rotate(OPS, x, cosine, sine), 4)


def test_a_rotation_by_nothing_is_exact() -> None:
    """At position 0 every cosine is 1 and every sine 0, and the row stays as it is."""
    x = _random(Random(5), 2, 8)
    ones, zeros = array([1.0] * 4, 1, 4), array([0.0] * 4, 1, 4)

    assert x == rotary.rotate(OPS, x, ones, zeros)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8))
def test_activations_are_near_their_formulas(pairs: list[tuple[float, float]]) -> None:
    """SiLU and GELU (tanh form), times the other half, within 16 roundings of each result or of its inputs' size."""
    gate, up = zip(*pairs, strict=True)
    x = array([*gate, *up], 2 * len(pairs))
    silu = [g / (1 + math.exp(min(-g, 700))) * u for g, u in pairs]
    inner = [math.sqrt(2 / math.pi) * (g + 0.044715 * g**3) for g in gate]
    gelu = [0.5 * g * (1 + math.tanh(i)) * u for g, i, u in zip(gate, inner, up, strict=True)]

    for expected, program in ((silu, activations.silu_mul), (gelu, activations.gelu_tanh_mul)):
        for (g, u), want, got in zip(pairs, expected, program(OPS, x).elements, strict=True):
            assert abs(want - got) <= 16 * UNIT * max(abs(want), min(abs(g), 10.0) * abs(u)) + 1e-44


def test_softcap_caps() -> None:
    """cap · tanh(x / cap) is near x for small x, and never beyond the cap."""
    x = array([0.01, -1.0, 50.0, -1e9], 4)
    expected = [30 * math.tanh(a / 30) for a in x.elements]

    assert _close(expected, activations.softcap(OPS, x, 30.0), 4)


def test_embeddings_take_rows() -> None:
    """An embedding is the token's row; a scaled one that row times the scale."""
    table = array(range(12), 4, 3)

    assert (6.0, 7.0, 8.0) == projections.embedding(OPS, table, indices([2], 1)).elements
    assert (24.0, 28.0, 32.0) == projections.scaled_embedding(OPS, table, indices([2], 1), 4.0).elements
    assert (Array((1, 3), (3.0, 4.0, 5.0)),) * 2 == rotary.angles(OPS, table, table, indices([1], 1))


# ---------------------------------------------------------------- attention

HEADS, GROUP, D = 2, 2, 4
SCALE = 0.5


def _cache(random: Random, length: int) -> Cache:
    return _random(random, length, HEADS, D), _random(random, length, HEADS, D)


def _lanes(position: int, tile: int, window: int | None, slots: Sequence[int]) -> Lanes[Array]:
    """The lanes of a key tile, where `slots` says for each position where its key lies."""
    positions = range(tile * KEY_TILE, (tile + 1) * KEY_TILE)
    live = [visible(position, key, window) for key in positions]
    where = [slots[key] if alive else 0 for key, alive in zip(positions, live, strict=True)]
    return Lanes(indices(where, KEY_TILE), indices(live, 1, 1, KEY_TILE))


def _attend_to(
    query: Array, cache: Cache, position: int, window: int | None, slots: Sequence[int], tiles: Sequence[int]
) -> Array:
    splits: dict[int, list[Lanes[Array]]] = {}
    for tile in tiles:
        splits.setdefault(tile // SPLIT_TILES, []).append(_lanes(position, tile, window, slots))
    return attention(OPS, query, cache, splits.values(), SCALE, D)


def _softmax_mean(query: Array, cache: Cache, position: int, window: int | None) -> list[float]:
    """Attention by its formula in binary64."""
    keys, values = (list(part.rows()) for part in cache)
    seen = [key for key in range(position + 1) if visible(position, key, window)]
    result = []
    for number, row in enumerate(query.rows()):
        head = number // GROUP
        scores = [SCALE * math.fsum(map(float.__mul__, row, keys[key * HEADS + head])) for key in seen]
        weights = [math.exp(score - max(scores)) for score in scores]
        for column in range(D):
            total = math.fsum(w * values[key * HEADS + head][column] for w, key in zip(weights, seen, strict=True))
            result.append(total / math.fsum(weights))
    return result


@pytest.mark.parametrize("window", [None, 8, KEY_TILE, KEY_TILE + 3])
@pytest.mark.parametrize("position", [0, 1, KEY_TILE - 1, KEY_TILE, 2 * KEY_TILE + 5])
def test_attention_is_near_the_formula(position: int, window: int | None) -> None:
    """The softmax-weighted mean of the values seen, within 64 roundings, with any window."""
    random = Random(position)
    query, cache = _random(random, HEADS, GROUP, D), _cache(random, 3 * KEY_TILE)

    found = _attend_to(query, cache, position, window, range(3 * KEY_TILE), visible_tiles(position, window))

    assert _close(_softmax_mean(query, cache, position, window), found, 64)


@pytest.mark.parametrize(("position", "window"), [(70, None), (150, 8), (130, KEY_TILE), (200, KEY_TILE)])
def test_tiles_without_a_visible_key_change_nothing(position: int, window: int | None) -> None:
    """Visiting every tile gives the bits of visiting the visible ones: the others are exact identities."""
    random = Random(6)
    query, cache = _random(random, HEADS, GROUP, D), _cache(random, 5 * KEY_TILE)
    slots, needed = range(5 * KEY_TILE), visible_tiles(position, window)

    assert len(needed) < 5
    assert _attend_to(query, cache, position, window, slots, needed) == _attend_to(
        query, cache, position, window, slots, range(5)
    )


def test_a_masked_tile_without_the_selection_is_no_identity() -> None:
    """Before the first visible key, the formula alone would turn the state into NaN: −∞ − (−∞)."""

    class Unselected(Floats):
        def any_lane(self, condition: Array) -> Array:
            return OPS.add(OPS.mul(super().any_lane(condition), 0.0), 1.0)

    random = Random(7)
    query, cache = _random(random, HEADS, GROUP, D), _cache(random, KEY_TILE)
    lanes = _lanes(200, 0, 8, range(KEY_TILE))

    state = attend(Unselected(), query, cache, lanes, SCALE, empty(OPS, query, D))

    assert all(map(math.isnan, state.output.elements))
    assert empty(OPS, query, D) == attend(OPS, query, cache, lanes, SCALE, empty(OPS, query, D))


def test_slots_that_are_not_seen_are_not_read() -> None:
    """NaN and infinity in every slot that the row does not see leave its bits alone."""
    random = Random(8)
    query, (keys, values) = _random(random, HEADS, GROUP, D), _cache(random, 2 * KEY_TILE)
    position, window = 90, 20
    seen = [visible(position, slot, window) for slot in range(2 * KEY_TILE) for _ in range(HEADS * D)]

    def poisoned(stored: Array, poison: float) -> Array:
        return Array(stored.shape, tuple(x if s else poison for x, s in zip(stored.elements, seen, strict=True)))

    clean = _attend_to(query, (keys, values), position, window, range(2 * KEY_TILE), range(2))
    for poison in (math.nan, math.inf):
        cache = poisoned(keys, poison), poisoned(values, poison)

        assert clean == _attend_to(query, cache, position, window, range(2 * KEY_TILE), range(2))


def test_where_keys_are_stored_does_not_matter() -> None:
    """Any placement of the positions in slots gives the same bits."""
    random = Random(9)
    query, (keys, values) = _random(random, HEADS, GROUP, D), _cache(random, 2 * KEY_TILE)
    slots = list(range(2 * KEY_TILE))
    random.shuffle(slots)

    def moved(stored: Array) -> Array:
        width = HEADS * D
        placed = {slot: stored.elements[i * width : (i + 1) * width] for i, slot in enumerate(slots)}
        return Array(stored.shape, sum((placed[slot] for slot in sorted(placed)), ()))

    found = _attend_to(query, (moved(keys), moved(values)), 100, None, slots, range(2))

    assert _attend_to(query, (keys, values), 100, None, range(2 * KEY_TILE), range(2)) == found


def _state(random: Random) -> Partial[Array]:
    maximum, total = _random(random, HEADS, GROUP, 1), _random(random, HEADS, GROUP, 1)
    return Partial(maximum, OPS.add(OPS.mul(total, total), 1.0), _random(random, HEADS, GROUP, D))


def test_merging_with_nothing_is_exact() -> None:
    """A partial state merged with an empty one, on either side, is that state, signs of zeros included."""
    random = Random(10)
    state = _state(random)
    state = Partial(state.maximum, state.total, OPS.mul(state.output, -0.0))
    nothing = empty(OPS, state.output, D)

    for merged in (merge(OPS, state, nothing), merge(OPS, nothing, state)):
        assert state == merged
        assert [math.copysign(1, x) for x in state.output.elements] == [
            math.copysign(1, x) for x in merged.output.elements
        ]


def test_merging_splits_is_near_one_run() -> None:
    """Keys in two splits, merged, give the softmax over both, within 64 roundings."""
    random = Random(11)
    length = KEY_TILE * SPLIT_TILES + 3
    query, cache = _random(random, HEADS, GROUP, D), _cache(random, KEY_TILE * (SPLIT_TILES + 1))
    position = length - 1

    found = _attend_to(query, cache, position, None, range(KEY_TILE * (SPLIT_TILES + 1)), visible_tiles(position, None))

    assert _close(_softmax_mean(query, cache, position, None), found, 64)


def test_a_row_that_sees_nothing_gets_zeros() -> None:
    """Padding, which sees no key, yields zeros and not 0/0; so does a row without any tile."""
    random = Random(12)
    query, cache = _random(random, HEADS, GROUP, D), _cache(random, KEY_TILE)

    assert Array(query.shape, (0.0,) * 16) == _attend_to(query, cache, -1, None, range(KEY_TILE), range(1))
    assert Array(query.shape, (0.0,) * 16) == _attend_to(query, cache, -1, None, range(KEY_TILE), ())


def test_nan_of_the_row_itself_is_shown() -> None:
    """A query that is no number yields no number, and does not pass for a row that sees nothing."""
    random = Random(13)
    query, cache = array([math.nan] * 16, HEADS, GROUP, D), _cache(random, KEY_TILE)

    assert all(map(math.isnan, _attend_to(query, cache, 10, None, range(KEY_TILE), range(1)).elements))


@pytest.mark.parametrize(
    ("position", "window", "expected"),
    [
        (0, None, range(1)),
        (KEY_TILE - 1, None, range(1)),
        (KEY_TILE, None, range(2)),
        (3 * KEY_TILE, KEY_TILE, range(2, 4)),
        (3 * KEY_TILE - 1, KEY_TILE, range(2, 3)),
        (5, 1000, range(1)),
    ],
)
def test_visible_tiles(position: int, window: int | None, expected: range) -> None:
    """Tiles stand at multiples of their width, and exactly those with a visible key are visited."""
    tiles = [
        tile
        for tile in range(6)
        if any(visible(position, key, window) for key in range(tile * KEY_TILE, (tile + 1) * KEY_TILE))
    ]

    assert list(expected) == tiles == list(visible_tiles(position, window))


def test_a_tile_of_rows_is_its_rows() -> None:
    """Leading axes broadcast: two rows run together have the bits of each alone."""
    random = Random(14)
    query, cache = _random(random, 2, HEADS, GROUP, D), _cache(random, 2 * KEY_TILE)
    positions = (70, 40)
    single = [
        _attend_to(Array((HEADS, GROUP, D), query.elements[i * 16 : (i + 1) * 16]), cache, p, None, range(128), (0, 1))
        for i, p in enumerate(positions)
    ]
    lanes = [[_lanes(p, tile, None, range(128)) for p in positions] for tile in (0, 1)]
    both = [
        Lanes(
            indices(sum((row.slots.elements for row in tile), ()), 2, KEY_TILE),
            indices(sum((row.live.elements for row in tile), ()), 2, 1, 1, KEY_TILE),
        )
        for tile in lanes
    ]

    together = attention(OPS, query, cache, [both], SCALE, D)

    assert single[0].elements + single[1].elements == together.elements
