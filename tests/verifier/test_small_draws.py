"""The sampler's kernels that no proof covers, on all small rows: their tile IR draws what `vosti.spec.sampling` draws.

Tiles have two lanes, so that a row of three or four tokens is longer than the head, and has several blocks and a tail.
Logits are of few levels, so that there are ties everywhere. Of each token that may be drawn, both bits at the ends of
its share are tried: a draw that is off by one takes another token there.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from small_draws import Case, Edits, deciding_bits, differing
from vosti.spec.sampling import P_UNIT, SamplerState

STATES = [
    SamplerState(1.0, top_k, top_p, min_p, 0, 0)
    for top_k, top_p, min_p in product([0, 1, 2, 3], [P_UNIT // 4, P_UNIT // 2, P_UNIT], [0, P_UNIT // 2])
]
"""Cuts by each parameter and by several, and none. At -0.75 a token is 0.47 as probable as the first: min-p drops it,
and at -0.5, 0.61, it does not."""


def rows(length: int, levels: Iterable[float]) -> list[tuple[float, ...]]:
    """All rows of a length that have some token to draw."""
    return [row for row in product(levels, repeat=length) if max(row) > -inf]


def cases(some: Iterable[tuple[float, ...]], states: Iterable[SamplerState]) -> list[Case]:
    """Each row in each state, at the bits that decide."""
    return [(row, state, bits) for row, state in product(some, states) for bits in deciding_bits(row, state)]


FEW = [
    *cases(
        [(0.0, -0.75, 0.0, -0.75), (-0.75, -0.75, -0.75, 0.0), (0.0, -0.5, -inf, -0.75)], [*STATES[::4], STATES[17]]
    ),
    *cases([(-0.75, 0.0, 0.0, 0.0)], STATES[7::6]),
    *cases([(0.0, 0.0), (0.0, -0.75)], [*STATES[::5], SamplerState(1.0, 2, P_UNIT, P_UNIT, 0, 0)]),
]
"""Of which each fault below is found in some."""


@pytest.mark.parametrize("length", [1, 2])
def test_rows_that_the_head_holds_are_drawn_from(length: int) -> None:
    """All rows of one or two tokens of three levels and both zeros, in all states."""
    assert [] == differing(cases(rows(length, [-inf, -0.75, -0.0, 0.0]), STATES[length - 1 :: 2]))


def test_some_rows_beyond_the_head_are_drawn_from() -> None:
    """Those in which the faults below are found."""
    assert [] == differing(FEW)


@pytest.mark.slow
@pytest.mark.parametrize("states", [STATES[part::4] for part in range(4)], ids=range(4))
def test_all_rows_of_three_tokens_are_drawn_from(states: list[SamplerState]) -> None:
    """Of three levels and both zeros, in all states."""
    assert [] == differing(cases(rows(3, [-inf, -0.75, -0.0, 0.0]), states))


@pytest.mark.slow
@pytest.mark.parametrize("states", [STATES[part::4] for part in range(4)], ids=range(4))
def test_all_rows_of_four_and_five_tokens_are_drawn_from(states: list[SamplerState]) -> None:
    """Of two levels, in all states."""
    for length in (4, 5):
        assert [] == differing(cases(rows(length, [-0.75, 0.0]), states))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from([-inf, -3.0, -0.5, -0.25, -0.0, 0.0, 1.0]), min_size=3, max_size=8).filter(
        lambda row: max(row) > -inf
    ),
    st.builds(
        SamplerState,
        st.sampled_from([0.5, 1.0, 8.0]),
        st.integers(0, 9),
        st.integers(1, P_UNIT),
        st.integers(0, P_UNIT),
        st.just(0),
        st.just(0),
    ),
    st.integers(0, 2**64 - 1),
)
def test_random_rows_are_drawn_from(row: list[float], state: SamplerState, bits: int) -> None:
    """At random bits, in random states."""
    assert [] == differing([(tuple(row), state, bits)])


FAULTS: dict[str, tuple[str, Edits]] = {
    "head: a sum that is the draw exceeds it": (
        "draw_from_head",
        (("%181 = arith.cmpi sle", "%181 = arith.cmpi slt"),),
    ),
    "head: of equal logits the last comes first": (
        "draw_from_head",
        (
            ("%25 = arith.subi %cst_30, %17", "%25 = arith.maxsi %17, %17"),
            ("%36 = arith.subi %cst_30, %35", "%36 = arith.maxsi %35, %35"),
        ),
    ),
    "head: one more than top-k": ("draw_from_head", (("%117 = arith.cmpi slt", "%117 = arith.cmpi sle"),)),
    "head: one more than top-p": ("draw_from_head", (("%141 = arith.cmpi slt", "%141 = arith.cmpi sle"),)),
    "head: what just passes min-p is dropped": (
        "draw_from_head",
        (("%112 = arith.cmpi sge", "%112 = arith.cmpi sgt"),),
    ),
    "head: decided where equal logits lie beyond": (
        "draw_from_head",
        (("%151 = arith.cmpi sgt", "%151 = arith.cmpi slt"),),
    ),
    "beyond: a sum that is the draw exceeds it": (
        "draw_beyond_head",
        (("%80 = arith.cmpi sle", "%80 = arith.cmpi slt"),),
    ),
    "beyond: the sum of the blocks before is not carried": (
        "draw_beyond_head",
        (("%87 = arith.addi %reached, %86", "%87 = arith.addi %reached, %reached"),),
    ),
    "beyond: equal logits of the blocks before are not counted": (
        "draw_beyond_head",
        (("%85 = arith.addi %seen, %84", "%85 = arith.addi %seen, %seen"),),
    ),
    "beyond: one more of equal logits": ("draw_beyond_head", (("%68 = arith.cmpi slt", "%68 = arith.cmpi sle"),)),
    "beyond: another bound of top-k": (
        "draw_beyond_head",
        (("%46 = arith.cmpi slt, %45, %10", "%46 = arith.cmpi sgt, %45, %10"),),
    ),
    "beyond: as many as are equal, instead of what top-k leaves of them": (
        "draw_beyond_head",
        (("%k_level_11 = arith.subi %10, %15", "%k_level_11 = arith.addi %10, %15"),),
    ),
    "beyond: another bound of top-p": (
        "draw_beyond_head",
        (("%47 = arith.cmpi slt, %46, %22", "%47 = arith.cmpi sgt, %46, %22"),),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str) -> None:
    """A kernel with it draws another token in some case."""
    kernel, edits = FAULTS[fault]

    assert differing(FEW, kernel, edits)
