"""The search for the sampler's cuts: exact where it looks at the whole row, and otherwise right or refused."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuts import accepted, weights_of
from hostile_rows import HOSTILE_ROWS, STATES
from sampling_rows import rows, states
from vosti.kernels import sample_search
from vosti.kernels.sample_search import boundaries
from vosti.spec.sampling import P_UNIT, SamplerState, kept, ranked

BLOCK = 4
"""Tokens of a block of sums."""

DRAWING = [state for state in STATES if state.temperature > 0]


def found(row: Sequence[float], weights: Sequence[int], cuts: Sequence[SamplerState], head: int) -> list[list[int]]:
    """What the search finds of one row in several states; the weights are the same in all of them, and stay."""
    logits = torch.tensor(row, dtype=torch.float32)[None].repeat(len(cuts), 1)
    shares = torch.tensor(weights, dtype=torch.int32)[None].repeat(len(cuts), 1)
    sums = torch.stack([part.sum(1) for part in shares.long().split(BLOCK, 1)], 1)
    top_ks = torch.tensor([state.top_k for state in cuts])
    top_ps = torch.tensor([state.top_p for state in cuts])
    inputs = logits, shares, sums, top_ks, top_ps
    before = [one.numpy().tobytes() for one in inputs]
    ends = boundaries(*inputs, head)
    assert before == [one.numpy().tobytes() for one in inputs]
    assert (torch.int32, (len(cuts), 2)) == (ends.dtype, tuple(ends.shape))
    return ends.tolist()


def expected(row: Sequence[float], state: SamplerState) -> tuple[int | None, int]:
    """The ends by the specification; None for top-k's where it keeps the row."""
    ranking = ranked(row)
    place = {token: number for number, token in enumerate(ranking)}
    kth = ranking[state.top_k - 1] if 0 < state.top_k < len(row) else None
    return kth, max((token for token, _ in kept(row, state)), key=place.__getitem__)


def same(right: tuple[int | None, int], ends: Sequence[int]) -> bool:
    """Whether both ends are those, as far as there are two."""
    return right[0] in (None, ends[0]) and right[1] == ends[1]


@pytest.mark.parametrize("name", HOSTILE_ROWS)
def test_ends_of_hostile_rows(name: str) -> None:
    """Both tokens are the specification's where the search looks at all of the row."""
    row = HOSTILE_ROWS[name]
    for state in DRAWING[::4]:
        (ends,) = found(row, weights_of(row, state), [state], len(row))

        assert same(expected(row, state), ends), state


@given(row=rows, state=states.filter(lambda state: state.temperature > 0), head=st.integers(1, 60))
def test_ends_of_any_row_are_right_or_refused(row: list[float], state: SamplerState, head: int) -> None:
    """Whatever part of the row is looked at: what the check accepts are the specification's ends."""
    weights = weights_of(row, state)
    (ends,) = found(row, weights, [state], min(head, len(row)))

    assert same(expected(row, state), ends) == accepted(row, weights, state, *ends)
    assert head < len(row) or accepted(row, weights, state, *ends)


def test_a_head_finds_what_lies_in_it() -> None:
    """The two largest of five logits tell, unless a cut lies behind them or among tokens that are level with them."""
    row, weights = [1.0, 3.0, 2.0, 0.0, 0.0], [4, 20, 8, 1, 1]
    told = {
        (1, 1): (1, 1),
        (1, 9): (1, 1),
        (2, 5): (2, 1),
        (2, 9): (2, 2),
        (0, 5): (1, 1),
        (0, 8): (1, 2),
        (9, 7): (2, 2),
    }
    for (top_k, tenths), ends in told.items():
        state = SamplerState(1.0, top_k, tenths * P_UNIT // 10, 0, 0, 0)

        assert [list(ends)] == found(row, weights, [state], 2)
        assert accepted(row, weights, state, *ends)
    for top_k, tenths in ((3, 5), (0, 9), (4, 9)):
        state = SamplerState(1.0, top_k, tenths * P_UNIT // 10, 0, 0, 0)
        (unsure,) = found(row, weights, [state], 2)

        assert not accepted(row, weights, state, *unsure)


def test_level_tokens_of_a_head_are_ranked_by_id() -> None:
    """Whatever order the largest logits are found in."""
    cuts = [SamplerState(1.0, top_k, P_UNIT, 0, 0, 0) for top_k in (1, 2, 3)]

    assert [[1, 1], [2, 2], [3, 3]] == found([0.0, 1.0, 1.0, 1.0], [1, 8, 8, 8], cuts, 3)


@pytest.mark.parametrize("ranked_at_once", [2**22, 200, 1])
def test_rows_of_a_batch_are_searched_alone(ranked_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row has its own cuts: together they give what each gives alone, however many are ranked at once."""
    monkeypatch.setattr(sample_search, "RANKED", ranked_at_once)
    row = HOSTILE_ROWS["bfloat16 ladder"]
    cuts = [SamplerState(1.0, top_k, top_p, 0, 0, 0) for top_k in (0, 1, 43, 299, 2**63 - 1) for top_p in (1, P_UNIT)]
    weights = weights_of(row, cuts[0])

    assert [found(row, weights, [state], 64)[0] for state in cuts] == found(row, weights, cuts, 64)


@pytest.mark.parametrize("head", [1, 2, 5])
def test_rows_without_a_token_are_searched(head: int) -> None:
    """Where the specification refuses a row, and weights may be anything, what is found is tokens of the row."""
    states_of_cuts = [SamplerState(1.0, top_k, top_p, 0, 0, 0) for top_k in (0, 1, 4, 9) for top_p in (1, P_UNIT)]
    for row in ([math.nan] * 5, [0.0, math.nan, math.inf, -math.inf, -0.0], [-math.inf] * 5):
        for weights in ([0] * 5, [2**31 - 1] * 5, [-(2**31)] * 5, [-1, 2, -3, 4, -5]):
            ends = found(row, weights, states_of_cuts, head)

            assert all(0 <= token < 5 for pair in ends for token in pair)
