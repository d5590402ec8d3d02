"""The exact sampler: which token a row of logits yields is a function of the row and of the sampler state, bit for bit.

The paper (section 4) takes sampling as "a deterministic function of logits and explicit per-request sampler state".
Floating-point sampling is that only for as long as one program on one device computes it: a sum of probabilities
depends on its order, and a draw that falls close to a boundary turns the last bit of such a sum into another token.
Here everything after the exponential is integer arithmetic, which has no order and no device, and the exponential is a
fixed sequence of correctly rounded operations.

**A row of logits** is a sequence of float32 values, one for each token of the vocabulary, which has fewer than 2¹⁹
tokens. NaN is refused, and so is a row that is -∞ throughout. A token whose logit is -∞ is never drawn. Tokens whose
logit is +∞ share the probability evenly, and the others have none: the limit of large logits.

**The ranking** of a row puts larger logits first, and of equal ones (-0.0 and 0.0 are equal) the lower token id first.
Ties are common in bfloat16 rows; an order among them that is left to a sorting routine depends on the batch, the device
and the routine's version.

**The distribution.** With m the row's largest logit and T > 0 the temperature, token t has

    xₜ = (ℓₜ - m) / T          two float64 operations; 0 where ℓₜ = m
    wₜ = ⌊2²⁴ exp(xₜ)⌋          an integer, 0 ≤ wₜ ≤ 2²⁴; see `weight`

and then, in this order,

    temperature 0   keeps the first token of the ranking, alone, and ends here;
    top-k           keeps the first k tokens of the ranking (all if k = 0): never more than k, however many tie;
    min-p           keeps, of these, the tokens with 2²⁰ wₜ ≥ min_p · 2²⁴ (2²⁴ is the most probable token's weight);
    top-p           keeps, of these, the tokens for which 2²⁰ B < top_p · S, where S is the sum of the weights and B the
                    sum of those before it in the ranking: the shortest beginning that reaches top_p;
    the draw        takes, of these, the first token in ascending order of ids at which the sum of weights, its own
                    included, exceeds ⌊u S / 2⁶⁴⌋, where S is the sum of the weights that are left.

u, the `draw_bits`, is a 64-bit integer made from the seed and the output's index and from nothing else: not from a
generator that others advance, not from the number of drafted tokens that were rejected, not from a place in a batch.

**Precision.** A weight is within 1 + 2⁻²⁷ of 2²⁴ exp((ℓₜ - m) / T), the exact value: a probability is off by at most
2⁻²⁴ of the most probable token's, and tokens less probable than that are never drawn. The parameters p are integers, in
units of 2⁻²⁰, so that a cut at a sum of weights is decided exactly. Every product above is below 2⁶³ and fits a 64-bit
integer, but for u S, which needs 128 bits and is formed once.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

P_UNIT = 2**20
"""The value of `top_p` and `min_p` that means 1."""

WEIGHT_UNIT = 2**24
"""The weight of the most probable token."""

VOCABULARY_LIMIT = 2**19
"""A vocabulary is smaller than this: the sum of its weights, times `P_UNIT`, is then below 2⁶³."""

DRAW_TAG = b"vosti.draw.1"
"""What is hashed before seed and index, so that no other use of SHA-256 gives the same bits."""

LEAST_EXPONENT = -17.0
"""2²⁴ exp(x) < 1 for every x below: the weight is 0 without a computation."""

LN2_HIGH = float.fromhex("0x1.62e42feep-1")
"""The leading 32 bits of ln 2: its product with an integer below 2²⁰ is exact."""

LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
"""ln 2 - LN2_HIGH, rounded to float64."""

INVERSE_LN2 = float.fromhex("0x1.71547652b82fep+0")
"""1 / ln 2, rounded to float64."""

EXPONENTIAL_COEFFICIENTS = tuple(1 / math.factorial(k) for k in range(14))
"""1/k!, each rounded to float64: for |r| ≤ ½ ln 2 the terms left out are below 2⁻⁵⁷."""


@dataclass(frozen=True)
class SamplerState:
    """All that sampling depends on besides the logits: a request's parameters, its seed, and how far it has come.

    Raises TypeError for a field of another type, and ValueError for a value out of its range.
    """

    temperature: float
    """0 for the most probable token, or between 2⁻⁶⁴ and 2⁶⁴."""

    top_k: int
    """How many tokens of the ranking are kept; 0 for all of them."""

    top_p: int
    """The share of the probability that is kept, in units of 2⁻²⁰: from 1 to 2²⁰, which keeps all of it."""

    min_p: int
    """How probable a token has to be, relative to the most probable one, in units of 2⁻²⁰: from 0 to 2²⁰."""

    seed: int
    """Chooses the sequence of draws: from 0 to 2⁶⁴ - 1."""

    index: int
    """Which draw of the sequence is the next: from 0 to 2⁶⁴ - 1. A request's outputs take consecutive ones."""

    def __post_init__(self) -> None:
        if isinstance(self.temperature, bool) or not isinstance(self.temperature, int | float):
            raise TypeError(f"temperature is {self.temperature!r}; it must be a number.")
        if not (self.temperature == 0 or 2.0**-64 <= self.temperature <= 2.0**64):
            raise ValueError(f"temperature is {self.temperature!r}; it must be 0 (greedy) or between 2⁻⁶⁴ and 2⁶⁴.")
        _check_integer("top_k", self.top_k, 0, 2**63 - 1)
        _check_integer("top_p", self.top_p, 1, P_UNIT)
        _check_integer("min_p", self.min_p, 0, P_UNIT)
        _check_integer("seed", self.seed, 0, 2**64 - 1)
        _check_integer("index", self.index, 0, 2**64 - 1)

    def advanced(self) -> SamplerState:
        """The state after one output: the same parameters and seed, the next index."""
        return replace(self, index=self.index + 1)


def _check_integer(name: str, value: int, least: int, greatest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}; it must be an integer.")
    if not least <= value <= greatest:
        raise ValueError(f"{name} is {value}; it must be between {least} and {greatest}.")


def sampler_state(
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int,
    index: int = 0,
) -> SamplerState:
    """A sampler state from parameters as people write them: `top_p` in (0, 1] and `min_p` in [0, 1], as fractions.

    A fraction becomes the nearest multiple of 2⁻²⁰, the upper one of two equally near; a top_p that is nearer to 0
    becomes 2⁻²⁰, which keeps the most probable token.
    Raises ValueError for a value out of its range, and TypeError for one of another type.
    """
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p is {top_p!r}; it must be above 0 and at most 1.")
    if not 0 <= min_p <= 1:
        raise ValueError(f"min_p is {min_p!r}; it must be between 0 and 1.")
    return SamplerState(
        temperature=temperature,
        top_k=top_k,
        top_p=max(1, math.floor(top_p * P_UNIT + 0.5)),
        min_p=math.floor(min_p * P_UNIT + 0.5),
        seed=seed,
        index=index,
    )


def sample(logits: Sequence[float], state: SamplerState, history: Sequence[int], prompt_length: int) -> int:
    """The token that follows `history`, of which the first `prompt_length` tokens are the prompt.

    `logits` has one float32 value for each token of the vocabulary. The history belongs to what a sampler may look at,
    and where the prompt ends too (penalties do); none of the parameters of `SamplerState` does.
    Raises ValueError for a row that `kept` refuses, and for a prompt that is longer than the history.
    """
    if not 0 <= prompt_length <= len(history):
        raise ValueError(
            f"The prompt has {prompt_length} tokens, and the history that begins with it has {len(history)}."
        )
    return choose(kept(logits, state), draw_bits(state))


def kept(logits: Sequence[float], state: SamplerState) -> tuple[tuple[int, int], ...]:
    """The tokens that may be drawn, as (token, weight) in ascending order of tokens: never empty, no weight 0.

    (Tokens of weight 0 are the ranking's end, and the sum that top-p asks for, even all of it, is reached before them.)

    Raises ValueError if the row is empty or has `VOCABULARY_LIMIT` entries or more, holds a NaN, or is -∞ throughout.
    """
    ranking = ranked(logits)
    best = logits[ranking[0]]
    if best == -math.inf:
        raise ValueError("Every logit of the row is -∞: there is no token to sample.")
    if state.temperature == 0:
        return ((ranking[0], WEIGHT_UNIT),)
    if state.top_k > 0:
        ranking = ranking[: state.top_k]
    weights = {token: weight(exponent(logits[token], best, state.temperature)) for token in ranking}
    ranking = [token for token in ranking if probable(weights[token], state.min_p)]
    total = sum(weights[token] for token in ranking)
    nucleus = []
    before = 0
    for token in ranking:
        if before * P_UNIT >= state.top_p * total:
            break
        nucleus.append(token)
        before += weights[token]
    return tuple((token, weights[token]) for token in sorted(nucleus))


def ranked(logits: Sequence[float]) -> list[int]:
    """The ranking of a row: its tokens by descending logit, and by ascending id where logits are equal.

    Raises ValueError if the row is empty or has `VOCABULARY_LIMIT` entries or more, or holds a NaN.
    """
    check_vocabulary(len(logits))
    for token, logit in enumerate(logits):
        if math.isnan(logit):
            raise ValueError(f"The logit of token {token} is NaN.")
    return sorted(range(len(logits)), key=lambda token: (-logits[token], token))


def check_vocabulary(size: int) -> None:
    """Refuse a row of a size for which the sums above are not defined, by ValueError."""
    if not 0 < size < VOCABULARY_LIMIT:
        raise ValueError(f"The row has {size} logits; it must have at least 1 and fewer than {VOCABULARY_LIMIT}.")


def exponent(logit: float, best: float, temperature: float) -> float:
    """xₜ = (ℓₜ - m) / T, at most 0. The most probable tokens have exactly 0, also where m is infinite."""
    return 0.0 if logit == best else (logit - best) / temperature


def weight(x: float) -> int:
    """⌊2²⁴ exp(x)⌋ for x ≤ 0, as `exponential` computes it; 2²⁴ for x = 0."""
    return 0 if x < LEAST_EXPONENT else math.floor(exponential(x) * WEIGHT_UNIT)


def probable(share: int, min_p: int) -> bool:
    """Whether min-p keeps a token of this weight."""
    return share * P_UNIT >= min_p * WEIGHT_UNIT


def exponential(x: float) -> float:
    """exp(x) for -700 ≤ x ≤ 0: the same bits wherever float64 addition and multiplication are correctly rounded.

        n = ⌊½ - x / ln 2⌋           so that exp(x) = 2⁻ⁿ exp(r)
        r = (x + n · LN2_HIGH) + n · LN2_LOW         |r| ≤ ½ ln 2, but for rounding
        exp(r) ≈ Σ rᵏ/k!, k = 13, …, 0, by Horner's rule: a product is rounded before the next coefficient is added

    No operation may be contracted with another (fma), and no library's exponential takes part. The result is off by
    less than 2⁻⁵² of its value.
    """
    n = math.floor(0.5 - x * INVERSE_LN2)
    r = (x + n * LN2_HIGH) + n * LN2_LOW
    power = 0.0
    for coefficient in reversed(EXPONENTIAL_COEFFICIENTS):
        power = power * r + coefficient
    return math.ldexp(power, -n)


def through(logit: float, token: int, end_logit: float, end: int) -> bool:
    """Whether the beginning of the ranking that ends with `end` has a token: `end` itself, and what comes before it."""
    return logit > end_logit or (logit == end_logit and token <= end)


def cut_ends(
    width: int, top_k: int, top_p: int, everything: int, counted: int, shared: int, reached: int, own: int
) -> bool:
    """Whether top-k and top-p cut a row's ranking behind a token, its last: whether `kept` has what is through it.

    Of a row of `width` tokens, in whose weights 0 stands for what min-p drops, `everything` is the sum of them all;
    `counted` tokens, of the weights `shared`, are through some token that is said to be the kth, and those through the
    last weigh `reached`, of which its own weight is `own`. Tokens that weigh 0 are not in `kept`. The temperature is
    not 0.
    """
    limited = 0 < top_k < width
    total = shared if limited else everything
    return (not limited or counted == top_k) and (reached - own) * P_UNIT < top_p * total <= reached * P_UNIT


def draw_bits(state: SamplerState) -> int:
    """u: the first 8 bytes of SHA-256("vosti.draw.1" ‖ seed ‖ index); integers are 8 bytes long, big endian."""
    message = DRAW_TAG + state.seed.to_bytes(8, "big") + state.index.to_bytes(8, "big")
    return int.from_bytes(hashlib.sha256(message).digest()[:8], "big")


def choose(candidates: Sequence[tuple[int, int]], bits: int) -> int:
    """The token at which the sum of weights, in the order given, first exceeds ⌊bits · S / 2⁶⁴⌋.

    `candidates` is what `kept` returns, S the sum of all its weights, and 0 ≤ bits < 2⁶⁴.
    """
    draw = bits * sum(share for _, share in candidates) >> 64
    reached = 0
    for token, share in candidates:
        reached += share
        if reached > draw:
            return token
    raise ValueError("There are no candidates to choose from, or the draw has more than 64 bits.")
