"""What a cut is, on plain rows: weights as the kernels have them, and whether two tokens are accepted as its ends."""

from __future__ import annotations

from collections.abc import Sequence

from vosti.spec.sampling import SamplerState, cut_ends, exponent, probable, through, weight


def weights_of(row: Sequence[float], state: SamplerState) -> list[int]:
    """Each token's weight, 0 where min-p drops it; of any row without NaN that is not -∞ throughout."""
    best = max(row)
    found = [weight(exponent(logit, best, state.temperature)) for logit in row]
    return [share if probable(share, state.min_p) else 0 for share in found]


def accepted(row: Sequence[float], weights: Sequence[int], state: SamplerState, kth: int, last: int) -> bool:
    """Whether these two tokens end what top-k and top-p keep of a row."""

    def reached(end: int) -> list[int]:
        return [share for token, share in enumerate(weights) if through(row[token], token, row[end], end)]

    shares, everything = reached(kth), sum(weights)
    return cut_ends(
        len(row),
        state.top_k,
        state.top_p,
        everything,
        len(shares),
        sum(shares),
        sum(reached(last)),
        weights[last],
    )
