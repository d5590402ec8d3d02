"""A row program's term, worked out with numbers, is what the same text gives in plain Python floats.

The two instances of the primitives, `vosti.kernels.verifier.canonical.Terms` and `vosti.spec.numerics.floats.Floats`,
run the same functions; loops of unknown length, compiled for the one, are loops of Python for the other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("triton", reason="the verifier's package needs Triton, which is not installed")

from term_numbers import Memory, buffer, primitives
from vosti.kernels.attention import VALUE
from vosti.kernels.verifier.canonical import Array
from vosti.kernels.verifier.expressions import evaluated
from vosti.kernels.verifier.integers import integer
from vosti.kernels.verifier.terms import Argument, Term
from vosti.kernels.verifier.vocabulary import BufferArray, Vocabulary
from vosti.spec.numerics import activations, attention, norms, projections, rotary
from vosti.spec.numerics.floats import Floats, array, indices

FLOATS = Floats()


def numbers(count: int, seed: int) -> tuple[float, ...]:
    """Some numbers of binary32."""
    source = random.Random(seed)
    return array((source.uniform(-2.0, 2.0) for _ in range(count)), count).elements


WIDTH = 12
"""No power of two: sums are padded."""

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], tuple[Any, ...]]] = {
    "linear": (projections.linear, ((WIDTH,), (WIDTH, 5)), ()),
    "residual_add": (projections.residual_add, ((WIDTH,), (WIDTH,)), ()),
    "rms_norm": (norms.rms_norm, ((WIDTH,), (WIDTH,)), (WIDTH, 1e-5)),
    "rms_norm_unit_offset": (norms.rms_norm_unit_offset, ((WIDTH,), (WIDTH,)), (WIDTH, 1e-6)),
    "silu_mul": (activations.silu_mul, ((WIDTH,),), ()),
    "gelu_tanh_mul": (activations.gelu_tanh_mul, ((WIDTH,),), ()),
    "softcap": (activations.softcap, ((WIDTH,),), (30.0,)),
    "rotate": (rotary.rotate, ((2, WIDTH), (1, WIDTH // 2), (1, WIDTH // 2)), ()),
}


def places(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All places of an array, in row-major order."""
    found: list[tuple[int, ...]] = [()]
    for length in shape:
        found = [(*place, index) for place in found for index in range(length)]
    return found


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_terms_and_floats_agree(name: str) -> None:
    """Every number of the result, to the bit."""
    program, shapes, rest = PROGRAMS[name]
    memory, floats, terms = {}, [], []
    for position, shape in enumerate(shapes):
        count = len(places(shape))
        memory[f"b{position}"] = numbers(count, position)
        floats.append(array(memory[f"b{position}"], *shape))
        terms.append(buffer(f"b{position}", *shape))
    expected = program(FLOATS, *floats, *rest)
    found: Array = program(primitives(), *terms, *rest)
    worth = Memory(memory)

    assert expected.elements == tuple(
        worth.number(found.term(tuple(map(integer, place)))) for place in places(expected.shape)
    )


HEAD, PAGE, KV_HEADS, HEADS = 2, 16, 2, 4


@pytest.mark.parametrize(
    ("position", "window"),
    [
        (0, 0),
        (64, 0),
        (130, 40),
        (1100, 90),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((63, 0), (200, 0), (150, 100), (1100, 0))),
    ],
)
def test_attention_is_the_row_program(position: int, window: int) -> None:
    """The contract's value of attention, over shuffled pages: tiles, splits and their merge, with and without a window.

    Its loops run over as many tiles and splits as the position asks for, the first split treated apart in the text.
    """
    pages = position // PAGE + 1
    table = random.Random(position).sample(range(pages + 3), pages)
    slots = (pages + 3) * PAGE
    memory = {
        "queries": numbers(HEADS * HEAD, 1),
        "keys": numbers(slots * KV_HEADS * HEAD, 2),
        "values": numbers(slots * KV_HEADS * HEAD, 3),
    }
    integers = {"tables": table, "starts": [0], "counts": [1], "lengths": [position + 1]}

    def stored(name: str, *lengths: int) -> BufferArray:
        element = "i32" if name in integers else "f32"
        return BufferArray(name, element, tuple(map(integer, lengths)), name in integers)

    scope: dict[str, object] = {
        **Vocabulary(primitives()).words,
        "queries": stored("queries", 1, HEADS, HEAD),
        "keys": stored("keys", slots, KV_HEADS, HEAD),
        "values": stored("values", slots, KV_HEADS, HEAD),
        "tables": stored("tables", 1, pages),
        **{name: stored(name, 1) for name in ("starts", "counts", "lengths")},
        "scale": Argument("scale", element="f32"),
        "HEAD_DIM": HEAD,
        "KV_HEADS": KV_HEADS,
        "GROUP": HEADS // KV_HEADS,
        "PAGE": PAGE,
        "WINDOW": window,
    }
    worth = Memory(memory, {"scale": 0.7}, integers)

    def lanes(tile: int) -> attention.Lanes[Any]:
        at = range(tile * attention.KEY_TILE, (tile + 1) * attention.KEY_TILE)
        seen = [attention.visible(position, j, window or None) for j in at]
        where = [table[j // PAGE] * PAGE + j % PAGE if j <= position else 0 for j in at]
        return attention.Lanes(indices(where, len(where)), indices(seen, 1, 1, len(seen)))

    tiles = attention.visible_tiles(position, window or None)
    splits: dict[int, list[Any]] = {}
    for tile in tiles:
        splits.setdefault(tile // attention.SPLIT_TILES, []).append(lanes(tile))
    expected = attention.attention(
        FLOATS,
        array(memory["queries"], KV_HEADS, HEADS // KV_HEADS, HEAD),
        (array(memory["keys"], slots, KV_HEADS, HEAD), array(memory["values"], slots, KV_HEADS, HEAD)),
        list(splits.values()),
        array([0.7], 1).elements[0],
        HEAD,
    )
    found = []
    for head, column in ((0, 0), (HEADS - 1, HEAD - 1)):
        names = {"b": integer(0), "i": integer(0), "h": integer(head), "d": integer(column)}
        term = evaluated(VALUE, {**scope, **names})
        assert isinstance(term, Term)
        found.append(worth.number(term))

    assert [expected.elements[0], expected.elements[-1]] == found
