"""The sampler on all small rows, from search to draw: its kernels' tile IR draws what `vosti.spec.sampling` draws.

Each kernel is proved; here they are what they are together. Tiles have two lanes, so that a row of three or four tokens
is longer than the head, and has several blocks and a tail.
Logits are of few levels, so that there are ties everywhere. Of each token that may be drawn, both bits at the ends of
its share are tried: a draw that is off by one takes another token there.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from itertools import product
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

import torch

from small_draws import Case, Edits, deciding_bits, differing, interpreted
from vosti.kernels import sample
from vosti.kernels.errors import PremiseError, UndecidedRowError
from vosti.spec.sampling import P_UNIT, SamplerState, choose, kept

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


# ---------------------------------------------------------------- ends that are none

ENDS = (-(2**31), -1, 0, 1, 2, 3, 2**31 - 1)
"""Of a row of three tokens: each, and what is none."""

LIES = [
    (case, ends)
    for state in (
        SamplerState(1.0, 2, P_UNIT, 0, 0, 0),
        SamplerState(1.0, 0, P_UNIT // 2, P_UNIT // 2, 0, 0),
        STATES[7],
    )
    for case in cases([(-0.75, 0.0, -0.0)], [state])[::3]
    for ends in product(ENDS, repeat=2)
]


def test_a_lie_is_found_out() -> None:
    """Whatever the search says first of a row, what is drawn is what the text draws."""
    assert [] == differing([case for case, _ in LIES], lies=[ends for _, ends in LIES])


def test_a_search_that_lies_again_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is drawn of a row whose cut is not found at all, nor of those beside it."""
    row, state = (-0.75, 0.0, 0.0), SamplerState(1.0, 2, P_UNIT, 0, 0, 0)
    parameters = sample.Parameters(
        torch.ones(2, dtype=torch.float64), *torch.tensor([[2, 2], [P_UNIT] * 2, [0, 0], [0, 0]])
    )
    for ends, refused in (((2, 2), False), ((2, 1), True), ((1, 2), True), ((0, 0), True)):
        told = torch.tensor([(2, 2), ends], dtype=torch.int32)
        monkeypatch.setattr(sample, "boundaries", lambda logits, *_, told=told: told[-len(logits) :].clone())
        with interpreted(), pytest.raises(UndecidedRowError, match="1 of 2 rows") if refused else nullcontext():
            sample.draw(torch.tensor([row, row]), parameters, cuts=True)
    assert 1 == choose(kept(row, state), 0)


@pytest.mark.parametrize(("name", "shape"), [("ends", (2, 1)), ("ends", (1, 2)), ("top_ks", (1,)), ("bits", (2, 1))])
def test_what_has_another_shape_is_refused(name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel reads beside what a search finds, or beside a parameter."""
    given = dict.fromkeys(("top_ks", "top_ps", "min_ps", "bits"), torch.ones(2, dtype=torch.int64))
    if name in given:
        given[name] = torch.ones(shape, dtype=torch.int64)
    else:
        monkeypatch.setattr(sample, "boundaries", lambda *_: torch.zeros(shape, dtype=torch.int32))
    parameters = sample.Parameters(torch.ones(2, dtype=torch.float64), **given)

    with interpreted(), pytest.raises(PremiseError, match=f"{name} have the shape"):
        sample.draw(torch.tensor([[0.0, 1.0, 2.0]] * 2), parameters, cuts=True)


# ---------------------------------------------------------------- faults

FAULTS: dict[str, tuple[str, Edits]] = {
    "cut: of the last's level all are kept": ("cut_weights", (("%43 = arith.cmpf ogt", "%43 = arith.cmpf oge"),)),
    "cut: of the last's level those behind it are kept": (
        "cut_weights",
        (("%46 = arith.cmpi sle", "%46 = arith.cmpi sge"),),
    ),
    "cut: the last is not kept": ("cut_weights", (("%46 = arith.cmpi sle", "%46 = arith.cmpi slt"),)),
    "cut: of the kth's level all count": ("cut_weights", (("%34 = arith.cmpf ogt", "%34 = arith.cmpf oge"),)),
    "cut: the kth is taken for the last": (
        "cut_weights",
        (("tt.addptr %11, %30", "tt.addptr %11, %25"), ("tt.splat %30", "tt.splat %25")),
    ),
    "cut: everything is kept": ("cut_weights", (("%58 = arith.trunci %49", "%58 = arith.trunci %19"),)),
    "cut: all weights are summed up": ("cut_weights", (("%60 = arith.select %8, %49", "%60 = arith.select %8, %19"),)),
    "cut: all weights are shares": ("cut_weights", (("%68 = arith.select %8, %67", "%68 = arith.select %8, %19"),)),
    "check: any kth will do": ("check_cuts", (("%58 = arith.cmpi eq, %16, %41", "%58 = arith.cmpi eq, %16, %16"),)),
    "check: top-k does not count": ("check_cuts", (("arith.select %44, %21, %11", "arith.select %44, %11, %11"),)),
    "check: top-k cuts always": ("check_cuts", (("%42 = arith.cmpi sgt", "%42 = arith.cmpi sge"),)),
    "check: top-p may be reached before the last": ("check_cuts", (("%51 = arith.cmpi slt", "%51 = arith.cmpi sle"),)),
    "check: top-p need not be reached": ("check_cuts", (("%54 = arith.andi %51, %53", "%54 = arith.andi %51, %51"),)),
    "check: the last may come too late": ("check_cuts", (("%54 = arith.andi %51, %53", "%54 = arith.andi %53, %53"),)),
    "check: without the last's own weight": ("check_cuts", (("%52 = arith.muli %26", "%52 = arith.muli %49"),)),
    "check: with the last's own weight": ("check_cuts", (("%50 = arith.muli %49", "%50 = arith.muli %26"),)),
    "check: top-p in other units": (
        "check_cuts",
        (("%52 = arith.muli %26, %c1048576_i64", "%52 = arith.muli %26, %c1_i64"),),
    ),
    "check: the kth's own weight": (
        "check_cuts",
        (("%31 = arith.addi %30, %c1_i64", "%31 = arith.muli %30, %c1_i64"),),
    ),
    "check: everything is decided": ("check_cuts", (("%61 = arith.xori %60, %true", "%61 = arith.andi %57, %58"),)),
    "draw: a sum that is the draw exceeds it": ("draw_from_all", (("%44 = arith.cmpi sle", "%44 = arith.cmpi slt"),)),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str) -> None:
    """With it, another token is drawn in some case, or none."""
    kernel, edits = FAULTS[fault]

    assert differing(FEW, kernel, edits) or differing(
        [case for case, _ in LIES], kernel, edits, [ends for _, ends in LIES]
    )
