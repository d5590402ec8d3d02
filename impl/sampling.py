"""The exact sampler on tensors, and log-probabilities.

`vosti.spec.sampling` is the specification; here it is computed with whole-row operations, on any device, to the same
token. Each row is treated alone, so that nothing depends on how many rows there are; on a GPU,
`vosti.impl.device_sampling` finds most tokens in a few launches for all rows.

What keeps the arithmetic exact: float64 operations are separate calls, so that none is contracted with another; a
division takes its divisor from a tensor of the same device (a Python number becomes a multiplication by its reciprocal
on a GPU, which rounds twice); powers of two come from a table; sums and cuts are in int64; nothing relies on the order
in which a library routine returns equal elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vosti.spec.candidates import Candidates, runner_up_weight
from vosti.spec.sampling import (
    EXPONENTIAL_COEFFICIENTS,
    INVERSE_LN2,
    LEAST_EXPONENT,
    LN2_HIGH,
    LN2_LOW,
    P_UNIT,
    VOCABULARY_LIMIT,
    WEIGHT_UNIT,
    SamplerState,
    check_vocabulary,
    draw_bits,
)

NUCLEUS_GUESS = 1024
"""How many tokens top-p ranks at first: enough for most rows, and much faster than ranking them all."""

LEAST_LOG_EXPONENT = -700.0
"""exp(x) for x below is taken as 0 in log-probabilities: it is less than 2⁻¹⁰⁰⁰ of the sum."""


@dataclass(frozen=True)
class Logprobs:
    """Log-probabilities of one output position: of raw logits, before temperature and cuts."""

    token: int
    """The token that was sampled."""

    logprob: float
    """Its log-probability; -∞ if its logit is."""

    top: tuple[tuple[int, float], ...]
    """The most probable tokens with theirs, by descending logit and then ascending id."""


def sample_rows(
    logits: Tensor,
    states: Sequence[SamplerState],
    histories: Sequence[Sequence[int]],
    prompt_lengths: Sequence[int],
) -> list[int]:
    """One token for each row of `logits` [rows, vocabulary], float32: each row's is `sample_row` of that row.

    Raises ValueError for a row that `sample_row` refuses, and if the arguments differ in their number of rows.
    """
    if logits.dim() != 2 or not len(logits) == len(states) == len(histories) == len(prompt_lengths):
        raise ValueError(
            f"Logits of shape {tuple(logits.shape)} came with {len(states)} sampler states, {len(histories)} histories "
            f"and {len(prompt_lengths)} prompt lengths; there must be one of each for a row."
        )
    for history, prompt_length in zip(histories, prompt_lengths, strict=True):
        _check_prompt(history, prompt_length)
    found: list[int | None] = _tokens_on_device(logits, states) if logits.is_cuda else [None] * len(logits)
    rows = zip(found, logits, states, strict=True)
    return [_sample(row, state) if token is None else token for token, row, state in rows]


def sample_row(row: Tensor, state: SamplerState, history: Sequence[int], prompt_length: int) -> int:
    """The token that `vosti.spec.sampling.sample` draws from this row [vocabulary], float32.

    Raises ValueError for what the specification refuses, and TypeError for another dtype.
    """
    if row.is_cuda and row.dim() == 1:
        return sample_rows(row[None], [state], [history], [prompt_length])[0]
    _check_prompt(history, prompt_length)
    return _sample(row, state)


def _check_prompt(history: Sequence[int], prompt_length: int) -> None:
    if not 0 <= prompt_length <= len(history):
        raise ValueError(
            f"The prompt has {prompt_length} tokens, and the history that begins with it has {len(history)}."
        )


def _tokens_on_device(logits: Tensor, states: Sequence[SamplerState]) -> list[int | None]:
    """Tokens of rows on a GPU, where they are quickly found."""
    from vosti.impl.device_sampling import tokens

    if logits.dtype != torch.float32 or not 0 < logits.shape[1] < VOCABULARY_LIMIT:
        return [None] * len(logits)
    return tokens(logits, states)


def _sample(row: Tensor, state: SamplerState) -> int:
    """`sample_row` by whole-row operations, on any device."""
    tokens, weights = kept(row, state)
    if len(tokens) == 1:
        return int(tokens[0])
    reached = weights.cumsum(0)
    draw = draw_bits(state) * int(reached[-1]) >> 64
    return int(tokens[(reached <= draw).sum()])


def kept(row: Tensor, state: SamplerState) -> tuple[Tensor, Tensor]:
    """The tokens that may be drawn, ascending, and their weights: both int64, of one length. Does not change `row`.

    As `vosti.spec.sampling.kept`, but that tokens of weight 0 may be among them.
    """
    best = _largest(row)
    if state.temperature == 0:
        first = (row == best).nonzero()[:1, 0]
        return first, torch.full_like(first, WEIGHT_UNIT)

    temperature = torch.tensor([state.temperature], dtype=torch.float64, device=row.device)
    exponents = torch.where(row == best, 0.0, (row.double() - best) / temperature)
    # Lower tokens have weight 0 and are the end of the ranking: cuts and draw are the same without them.
    tokens = (exponents >= LEAST_EXPONENT).nonzero()[:, 0]
    if 0 < state.top_k < len(tokens):
        tokens = tokens[_first_ranked(row[tokens], state.top_k)]
    weights = (_exponential(exponents[tokens]) * WEIGHT_UNIT).floor().long()
    if state.min_p > 0:
        probable = weights * P_UNIT >= state.min_p * WEIGHT_UNIT
        tokens, weights = tokens[probable], weights[probable]
    if state.top_p < P_UNIT:
        nucleus = _nucleus(row[tokens], weights, state.top_p)
        tokens, weights = tokens[nucleus], weights[nucleus]
    return tokens, weights


def candidates_of(row: Tensor, state: SamplerState) -> Candidates:
    """What the token of this row [vocabulary] is drawn from, as `vosti.spec.candidates.candidates` has it.

    Raises like `kept`.
    """
    tokens, weights = kept(row, state)
    tokens, weights = tokens[weights > 0], weights[weights > 0]
    found = tuple(zip(tokens.tolist(), weights.tolist(), strict=True))
    others = torch.ones_like(row, dtype=torch.bool)
    others[tokens] = False
    if len(found) == len(row):
        return Candidates(found, None)
    next_best = row[others].max()
    token = int(((row == next_best) & others).nonzero()[0, 0])
    return Candidates(found, (token, runner_up_weight(next_best.item(), row.max().item(), state)))


def logprobs(row: Tensor, k: int, token: int) -> Logprobs:
    """Log-probabilities of `token` and of the k first tokens of the ranking (all, if the row [vocabulary] has fewer).

        log pₜ = (ℓₜ - m) - log Σ exp(ℓₛ - m)

    in float64, the sum taken as a binary tree over token ids: a function of the row alone.
    Raises ValueError for a row that the sampler refuses or that holds +∞, for k < 0, and for a token outside the row.
    """
    best = _largest(row)
    if best == math.inf:
        raise ValueError("The row holds a logit of +∞: log-probabilities are not defined.")
    if k < 0 or not 0 <= token < len(row):
        raise ValueError(f"Asked for {k} log-probabilities and token {token} of a row of {len(row)} logits.")
    exponents = row.double() - best
    terms = torch.where(exponents >= LEAST_LOG_EXPONENT, _exponential(exponents.clamp(min=LEAST_LOG_EXPONENT)), 0.0)
    values = exponents - math.log(_tree_sum(terms))
    top = _first_ranked(row, min(k, len(row))) if k > 0 else torch.empty(0, dtype=torch.int64, device=row.device)
    top = top[_ranking(row[top])]
    return Logprobs(
        token=token,
        logprob=values[token].item(),
        top=tuple(zip(top.tolist(), values[top].tolist(), strict=True)),
    )


def _largest(row: Tensor) -> float:
    """The row's largest logit, once the row is known to be one that the specification accepts."""
    if row.dim() != 1 or row.dtype != torch.float32:
        raise TypeError(
            f"A row of logits is a float32 vector, not a tensor of {row.dtype} and shape {tuple(row.shape)}."
        )
    check_vocabulary(len(row))
    best = row.max().item()  # NaN if one of them is
    if math.isnan(best):
        raise ValueError(f"The logit of token {int(row.isnan().nonzero()[0, 0])} is NaN.")
    if best == -math.inf:
        raise ValueError("Every logit of the row is -∞: there is no token to sample.")
    return best


def _nucleus(logits: Tensor, weights: Tensor, top_p: int) -> Tensor:
    """Indices that the top-p cut keeps of logits [n] with weights [n], ascending: int64."""
    enough = top_p * weights.sum()
    size = NUCLEUS_GUESS
    while True:
        head = _first_ranked(logits, min(size, len(logits)))
        ranking = head[_ranking(logits[head])]
        ranked_weights = weights[ranking]
        reached = ranked_weights.cumsum(0)
        if len(head) == len(logits) or reached[-1] * P_UNIT >= enough:
            break
        size *= 16
    return ranking[(reached - ranked_weights) * P_UNIT < enough].sort().values


def _ranking(logits: Tensor) -> Tensor:
    """Indices of logits [n] by descending value, and ascending where values are equal: int64 [n]."""
    # -0.0 + 0.0 is 0.0: a sort that looks at bits sees the two zeros as equal, too.
    return (logits + 0.0).sort(descending=True, stable=True).indices


def _first_ranked(logits: Tensor, k: int) -> Tensor:
    """The k indices that come first in the ranking of logits [n], ascending: int64 [k]. Needs 1 ≤ k ≤ n."""
    least = logits.topk(k, sorted=False).values.min()
    above = logits > least
    level = logits == least
    return (above | (level & (level.cumsum(0) <= k - above.sum()))).nonzero()[:, 0]


def _exponential(x: Tensor) -> Tensor:
    """`vosti.spec.sampling.exponential` of every element of x [n], float64, -700 ≤ x ≤ 0."""
    n = (0.5 - x * INVERSE_LN2).floor()
    r = (x + n * LN2_HIGH) + n * LN2_LOW
    power = torch.zeros_like(r)
    for coefficient in reversed(EXPONENTIAL_COEFFICIENTS):
        power *= r
        power += coefficient
    scales = [math.ldexp(1.0, -shift) for shift in range(int(n.max()) + 1)]
    return power * torch.tensor(scales, dtype=torch.float64, device=x.device)[n.long()]


def _tree_sum(terms: Tensor) -> float:
    """The sum of terms [n], float64: neighbours at distance ⌈n/2⌉ are added, again and again, until one is left."""
    while len(terms) > 1:
        half = (len(terms) + 1) // 2
        folded = terms[:half].clone()
        folded[: len(terms) - half] += terms[half:]
        terms = folded
    return terms.item()
