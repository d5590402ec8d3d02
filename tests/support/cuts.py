"""What a cut is, on plain rows: the weights as the kernels have them, and whether a hint is accepted."""

from __future__ import annotations

from collections.abc import Sequence

from vosti.spec.sampling import P_UNIT, SamplerState, exponent, probable, weight


def weights_of(row: Sequence[float], state: SamplerState) -> list[int]:
    """Each token's weight, 0 where min-p drops it; of any row without NaN that is not -∞ throughout."""
    found = [weight(exponent(logit, max(row), state.temperature)) for logit in row]
    return [share if probable(share, state.min_p) else 0 for share in found]


def through(row: Sequence[float], token: int, end: int) -> bool:
    """Whether a token's place in the ranking is not behind the other's."""
    return row[token] > row[end] or (row[token] == row[end] and token <= end)


def accepted(row: Sequence[float], weights: Sequence[int], state: SamplerState, kth: int, last: int) -> bool:
    """Whether these two tokens end what top-k and top-p keep of a row."""

    def reached(end: int) -> list[int]:
        return [share for token, share in enumerate(weights) if through(row, token, end)]

    is_cut = 0 < state.top_k < len(row)
    if is_cut and len(reached(kth)) != state.top_k:
        return False
    enough = state.top_p * sum(reached(kth) if is_cut else weights)
    return (sum(reached(last)) - weights[last]) * P_UNIT < enough <= sum(reached(last)) * P_UNIT
