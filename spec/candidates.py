"""What of a row of logits decides a token: the tokens that may be drawn, with their weights, and the one after them.

Candidates are a function of the row and of the sampler's parameters; the token is a function of candidates, seed and
index (`vosti.spec.sampling`). So whoever has the candidates can check the token without the row, and what can be asked
of candidates without a row is `may_be_candidates`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vosti.spec.sampling import (
    P_UNIT,
    WEIGHT_UNIT,
    SamplerState,
    choose,
    draw_bits,
    exponent,
    kept,
    ranked,
    weight,
)


@dataclass(frozen=True)
class Candidates:
    """What a token was drawn from."""

    kept: tuple[tuple[int, int], ...]
    """The tokens that may be drawn, as (token, weight) in ascending order of tokens: `vosti.spec.sampling.kept`."""

    runner_up: tuple[int, int] | None
    """The first token of the ranking that may not, with its weight (at temperature 0, what it has at temperature 1);
    None if every token may be drawn.
    """


def candidates(logits: Sequence[float], state: SamplerState) -> Candidates:
    """The candidates of a row. Raises like `kept`."""
    found = kept(logits, state)
    ranking = ranked(logits)
    if len(found) == len(ranking):
        return Candidates(found, None)
    token = ranking[len(found)]
    return Candidates(found, (token, runner_up_weight(logits[token], logits[ranking[0]], state)))


def runner_up_weight(logit: float, best: float, state: SamplerState) -> int:
    """The weight of a token that may not be drawn."""
    return weight(exponent(logit, best, state.temperature or 1.0))


def drawn(found: Candidates, state: SamplerState) -> int:
    """The token that is drawn from candidates. Needs `may_be_candidates`."""
    return choose(found.kept, draw_bits(state))


def may_be_candidates(found: Candidates, state: SamplerState) -> bool:
    """Whether some row has these candidates, as far as they tell.

    Tokens ascend, the most probable one has the largest weight there is, each of them passes top-k and min-p; and the
    runner-up is none of them, is at most as probable, and fails one of the cuts.
    """
    weights = tuple(share for _, share in found.kept)
    tokens = tuple(token for token, _ in found.kept)
    return (
        len(tokens) >= 1
        and tokens[0] >= 0
        and all(tokens[i] < tokens[i + 1] for i in range(len(tokens) - 1))
        and max(weights) == WEIGHT_UNIT
        and min(weights) >= 1
        and (state.temperature > 0 or len(tokens) == 1)
        and (state.top_k == 0 or len(tokens) <= state.top_k)
        and all(share * P_UNIT >= state.min_p * WEIGHT_UNIT for share in weights)
        and (found.runner_up is None or may_be_runner_up(found.runner_up, tokens, weights, state))
    )


def may_be_runner_up(
    runner_up: tuple[int, int], tokens: tuple[int, ...], weights: tuple[int, ...], state: SamplerState
) -> bool:
    """Whether a token may be the first that is not among `tokens`, which have these weights."""
    token, share = runner_up
    return (
        token >= 0
        and token not in tokens
        and 0 <= share <= min(weights)
        and (
            share == 0
            or state.temperature == 0
            or len(tokens) == state.top_k
            or share * P_UNIT < state.min_p * WEIGHT_UNIT
            or sum(weights) * P_UNIT >= state.top_p * (sum(weights) + share)
        )
    )
