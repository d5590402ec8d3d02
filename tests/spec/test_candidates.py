"""Candidates are what decides a token: they are kept by the sampler's own cuts, and the token is drawn from them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given

from hostile_rows import HOSTILE_ROWS, STATES
from sampling_rows import rows, states
from vosti.spec.candidates import Candidates, candidates, drawn, may_be_candidates
from vosti.spec.sampling import P_UNIT, WEIGHT_UNIT, SamplerState, ranked, sample, sampler_state

HALF = WEIGHT_UNIT // 2


@given(row=rows, state=states)
def test_the_token_is_drawn_from_the_candidates(row: list[float], state: SamplerState) -> None:
    """For any row: the candidates are possible, are a beginning of the ranking, and give the sampler's token."""
    found = candidates(row, state)
    beginning = ranked(row)[: len(found.kept) + 1]

    assert may_be_candidates(found, state)
    assert sample(row, state, [], 0) == drawn(found, state)
    assert {token for token, _ in found.kept} == set(beginning[: len(found.kept)])
    assert beginning[len(found.kept) :] == ([] if found.runner_up is None else [found.runner_up[0]])


@pytest.mark.parametrize("name", HOSTILE_ROWS)
def test_hostile_rows(name: str) -> None:
    """The same on awkward rows."""
    for state in STATES:
        found = candidates(HOSTILE_ROWS[name], state)

        assert may_be_candidates(found, state)
        assert sample(HOSTILE_ROWS[name], state, [], 0) == drawn(found, state)


def test_written_out() -> None:
    """Of e⁰, e⁻¹, e⁻² and nothing, two are kept by top-k, and the third is the runner-up."""
    row = [-1.0, 0.0, -math.inf, -2.0]
    second, third = math.floor(math.exp(-1) * WEIGHT_UNIT), math.floor(math.exp(-2) * WEIGHT_UNIT)
    two, greedy = sampler_state(top_k=2, seed=0), sampler_state(temperature=0.0, seed=0)

    assert Candidates(((0, second), (1, WEIGHT_UNIT)), (3, third)) == candidates(row, two)
    assert Candidates(((1, WEIGHT_UNIT),), (0, second)) == candidates(row, greedy)
    assert Candidates(((0, second), (1, WEIGHT_UNIT), (3, third)), (2, 0)) == candidates(row, replace(two, top_k=0))
    assert Candidates(((0, WEIGHT_UNIT),), None) == candidates([5.0], two)


ANY = sampler_state(seed=0)


@pytest.mark.parametrize(
    ("state", "possible", "impossible"),
    [
        (ANY, Candidates(((1, WEIGHT_UNIT), (4, 1)), (0, 0)), Candidates(((1, WEIGHT_UNIT), (4, 0)), (0, 0))),
        (ANY, Candidates(((1, WEIGHT_UNIT), (4, 9)), None), Candidates(((4, 9), (1, WEIGHT_UNIT)), None)),
        (ANY, Candidates(((1, WEIGHT_UNIT),), None), Candidates(((1, WEIGHT_UNIT + 1),), None)),
        (ANY, Candidates(((1, WEIGHT_UNIT),), None), Candidates(((1, WEIGHT_UNIT - 1),), None)),
        (ANY, Candidates(((1, WEIGHT_UNIT),), None), Candidates((), None)),
        (ANY, Candidates(((1, WEIGHT_UNIT),), None), Candidates(((1, WEIGHT_UNIT), (1, WEIGHT_UNIT)), None)),
        (ANY, Candidates(((1, WEIGHT_UNIT),), (0, 0)), Candidates(((1, WEIGHT_UNIT),), (0, 1))),
        (ANY, Candidates(((1, WEIGHT_UNIT),), (0, 0)), Candidates(((1, WEIGHT_UNIT),), (1, 0))),
        (ANY, Candidates(((0, WEIGHT_UNIT),), (1, 0)), Candidates(((-1, WEIGHT_UNIT),), (1, 0))),
        (
            replace(ANY, temperature=0.0),
            Candidates(((1, WEIGHT_UNIT),), (0, WEIGHT_UNIT)),
            Candidates(((0, WEIGHT_UNIT), (1, WEIGHT_UNIT)), None),
        ),
        (
            replace(ANY, top_k=2),
            Candidates(((0, HALF), (1, WEIGHT_UNIT)), (2, HALF)),
            Candidates(((0, HALF), (1, WEIGHT_UNIT), (2, HALF)), None),
        ),
        (
            replace(ANY, top_k=2),
            Candidates(((0, HALF), (1, WEIGHT_UNIT)), (2, 7)),
            Candidates(((0, HALF), (1, WEIGHT_UNIT)), (2, HALF + 1)),
        ),
        (
            replace(ANY, min_p=P_UNIT // 2),
            Candidates(((0, HALF), (1, WEIGHT_UNIT)), (2, HALF - 1)),
            Candidates(((0, HALF - 1), (1, WEIGHT_UNIT)), (2, HALF - 1)),
        ),
        (
            replace(ANY, top_p=P_UNIT // 2),
            Candidates(((1, WEIGHT_UNIT),), (2, WEIGHT_UNIT)),
            Candidates(((1, WEIGHT_UNIT),), (2, WEIGHT_UNIT + 1)),
        ),
        (
            replace(ANY, top_p=P_UNIT * 3 // 4),
            Candidates(((1, WEIGHT_UNIT),), (2, WEIGHT_UNIT // 3)),
            Candidates(((1, WEIGHT_UNIT),), (2, WEIGHT_UNIT // 2)),
        ),
    ],
)
def test_what_no_row_has(state: SamplerState, possible: Candidates, impossible: Candidates) -> None:
    """Each thing that can be asked of candidates is asked: of two neighbours, one is possible."""
    assert may_be_candidates(possible, state)
    assert not may_be_candidates(impossible, state)
