"""The exact sampler as it is specified: its numbers, its cuts, its draws."""

import hashlib
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, replace
from decimal import Decimal, localcontext
from itertools import pairwise

import pytest
from hypothesis import given

from hostile_rows import HOSTILE_ROWS, STATES, float32
from sampling_rows import rows, states
from vosti.spec import sampling
from vosti.spec.sampling import (
    P_UNIT,
    VOCABULARY_LIMIT,
    WEIGHT_UNIT,
    SamplerState,
    choose,
    draw_bits,
    exponent,
    exponential,
    kept,
    ranked,
    sample,
    sampler_state,
    weight,
)

PLAIN = sampler_state(seed=0)
SHORT_ROWS = [row for row in HOSTILE_ROWS.values() if len(row) <= 300]

# ---------------------------------------------------------------- the state


def test_a_state_is_a_value() -> None:
    """States are equal by their fields, hashable, and cannot be changed."""
    state = SamplerState(temperature=0.7, top_k=5, top_p=P_UNIT, min_p=0, seed=3, index=9)

    assert state == SamplerState(temperature=0.7, top_k=5, top_p=P_UNIT, min_p=0, seed=3, index=9)
    assert 1 == len({state, SamplerState(temperature=0.7, top_k=5, top_p=P_UNIT, min_p=0, seed=3, index=9)})
    with pytest.raises(FrozenInstanceError):
        state.index = 10  # type: ignore[misc]


def test_an_output_advances_the_index_alone() -> None:
    """The next state has the next index, and the same parameters and seed."""
    state = SamplerState(temperature=0.7, top_k=5, top_p=7, min_p=3, seed=3, index=9)

    assert SamplerState(temperature=0.7, top_k=5, top_p=7, min_p=3, seed=3, index=10) == state.advanced()


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("temperature", [0, 0.0, 1, 2.0**-64, 2.0**64], [-1.0, 2.0**-65, 2.0**65, math.inf, math.nan]),
        ("top_k", [0, 1, 2**63 - 1], [-1, 2**63]),
        ("top_p", [1, P_UNIT], [0, -1, P_UNIT + 1]),
        ("min_p", [0, P_UNIT], [-1, P_UNIT + 1]),
        ("seed", [0, 1, 2**31, 2**63, 2**64 - 1], [-1, 2**64]),
        ("index", [0, 2**64 - 1], [-1, 2**64]),
    ],
)
def test_ranges_of_a_state(field: str, good: list[float], bad: list[float]) -> None:
    """Each field accepts both ends of its range and refuses what lies beyond, by its name."""
    fields = {"temperature": 1.0, "top_k": 0, "top_p": P_UNIT, "min_p": 0, "seed": 0, "index": 0}
    for value in good:
        assert value == getattr(SamplerState(**{**fields, field: value}), field)  # type: ignore[arg-type]
    for value in bad:
        with pytest.raises(ValueError, match=f"{field} is .*it must be"):
            SamplerState(**{**fields, field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["temperature", "top_k", "top_p", "min_p", "seed", "index"])
@pytest.mark.parametrize("value", ["1", None, True])
def test_types_of_a_state(field: str, value: object) -> None:
    """A field of another type is refused, by its name: a seed in a string is not a seed."""
    fields = {"temperature": 1.0, "top_k": 0, "top_p": P_UNIT, "min_p": 0, "seed": 0, "index": 0}

    with pytest.raises(TypeError, match=f"{field} is .*it must be"):
        SamplerState(**{**fields, field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fraction", "units"),
    [(1.0, 2**20), (0.5, 2**19), (0.9, 943718), (1 - 2.0**-22, 2**20), (2.0**-20, 1), (1e-12, 1), (1.5 * 2.0**-20, 2)],
)
def test_fractions_become_units(fraction: float, units: int) -> None:
    """A fraction is rounded to the nearest unit, and top_p never to nothing."""
    assert units == sampler_state(top_p=fraction, seed=0).top_p
    if fraction > 2.0**-21:
        assert units == sampler_state(min_p=fraction, seed=0).min_p


def test_fractions_out_of_range_are_refused() -> None:
    """0 < top_p ≤ 1 and 0 ≤ min_p ≤ 1, and NaN is neither."""
    for top_p in (0.0, -0.1, 1.0000001, math.nan):
        with pytest.raises(ValueError, match="top_p is"):
            sampler_state(top_p=top_p, seed=0)
    for min_p in (-0.1, 1.0000001, math.nan):
        with pytest.raises(ValueError, match="min_p is"):
            sampler_state(min_p=min_p, seed=0)
    assert 0 == sampler_state(min_p=0.0, seed=0).min_p


# ---------------------------------------------------------------- exponential and weights


def exact(x: Decimal) -> Decimal:
    """exp(x) to 50 digits."""
    with localcontext() as context:
        context.prec = 50
        return x.exp()


def awkward_exponents() -> list[float]:
    """Exponents where the range reduction changes its integer, where weights change, and many at random."""
    chooser = random.Random(20)
    borders = [-(n + 0.5) * math.log(2) * (1 + ulps * 2.0**-52) for n in range(24) for ulps in range(-6, 7)]
    steps = [math.log(chooser.randrange(1, WEIGHT_UNIT) / WEIGHT_UNIT) for _ in range(1500)]
    return [0.0, -17.0, -(2.0**-60), *borders, *steps, *(-17 * chooser.random() for _ in range(1500))]


def test_constants_of_the_reduction() -> None:
    """The two parts of ln 2 add up to it far beyond float64, and the first leaves 20 bits for an integer's product."""
    with localcontext() as context:
        context.prec = 50
        ln2 = Decimal(2).ln()

        assert abs(ln2 - Decimal(sampling.LN2_HIGH) - Decimal(sampling.LN2_LOW)) < Decimal(2) ** -85
        assert float(1 / ln2) == sampling.INVERSE_LN2
    assert (sampling.LN2_HIGH * 2**32).is_integer()


def test_exponential_is_accurate() -> None:
    """The relative error is below 2⁻⁵², over the whole domain."""
    chooser = random.Random(21)
    far = [-700.0, *(-700 * chooser.random() for _ in range(500))]

    assert all(
        abs(Decimal(exponential(x)) / exact(Decimal(x)) - 1) < Decimal(2) ** -52 for x in awkward_exponents() + far
    )


def test_weight_is_within_one() -> None:
    """⌊2²⁴ exp(x)⌋ is off only where 2²⁴ exp(x) is within 2⁻²⁸ of an integer, and then by 1."""
    bound = Decimal(2) ** -28
    wrong = 0
    for x in awkward_exponents():
        true = exact(Decimal(x)) * WEIGHT_UNIT

        assert true - 1 - bound < weight(x) <= true + bound
        wrong += weight(x) != int(true)
    assert 0 < wrong, "The exponents include the hard ones, next to integers, on purpose."


def test_weights_of_float32_logits() -> None:
    """The two roundings of (ℓ - m) / T included, a weight is within 1 + 2⁻²⁷ of the true value."""
    chooser = random.Random(22)
    for _ in range(1500):
        temperature = chooser.choice([1.0, 0.7, 0.3, 1.7, 1e-3])
        best = float32(chooser.uniform(-40, 40))
        logit = float32(best - 17 * temperature * chooser.random())
        with localcontext() as context:
            context.prec = 50
            true = exact((Decimal(logit) - Decimal(best)) / Decimal(temperature)) * WEIGHT_UNIT

        assert abs(weight(exponent(logit, best, temperature)) - true) < 1 + Decimal(2) ** -27


def test_ends_of_the_weights() -> None:
    """The most probable token weighs 2²⁴, and what is below 2⁻²⁴ of it nothing."""
    least = -24 * math.log(2)

    assert WEIGHT_UNIT == weight(0.0)
    assert 1 == weight(least + 1e-9)
    assert 0 == weight(least - 1e-9)
    assert 0 == weight(-17.0) == weight(-17.1) == weight(-1e300) == weight(-math.inf)


def test_sums_fit_64_bits() -> None:
    """The largest product of the sampler is below 2⁶³ for every vocabulary that is accepted."""
    assert (VOCABULARY_LIMIT - 1) * WEIGHT_UNIT * P_UNIT < 2**63
    assert VOCABULARY_LIMIT * WEIGHT_UNIT * P_UNIT >= 2**63
    assert 2**18 < VOCABULARY_LIMIT


def test_weights_turn_to_nothing_once() -> None:
    """Where the weight becomes 0 it is monotone: no token without weight stands before one that has some."""
    x = -24 * math.log(2) - 2e-12
    weights = []
    while x < -24 * math.log(2) + 2e-12:
        weights.append(weight(x))
        x = math.nextafter(x, 0)

    assert {0, 1} == set(weights)
    assert sorted(weights) == weights


# ---------------------------------------------------------------- ranking and cuts


def tokens_kept(logits: Sequence[float], **parameters: float) -> list[int]:
    """The tokens that remain after the cuts."""
    return [token for token, _ in kept(logits, sampler_state(seed=0, **parameters))]  # type: ignore[arg-type]


def test_ranking_breaks_ties_by_id() -> None:
    """Larger first; of equal ones the lower id first; the two zeros are equal."""
    assert [3, 1, 4, 0, 2] == ranked([0.0, 1.0, -0.0, 2.0, 1.0])


def test_rows_that_are_refused() -> None:
    """NaN, a row of nothing but -∞, an empty row and one beyond the limit are refused, greedy or not."""
    for state in (PLAIN, sampler_state(temperature=0.0, seed=0)):
        with pytest.raises(ValueError, match="token 1 is NaN"):
            kept([0.0, math.nan], state)
        with pytest.raises(ValueError, match="Every logit of the row is -∞"):
            kept([-math.inf, -math.inf], state)
        with pytest.raises(ValueError, match="has 0 logits"):
            kept([], state)
    with pytest.raises(ValueError, match=f"has {VOCABULARY_LIMIT} logits"):
        ranked([0.0] * VOCABULARY_LIMIT)


def test_greedy_takes_the_lowest_of_the_best() -> None:
    """Temperature 0 takes the first token of the ranking, whatever the other parameters and the seed say."""
    for index in range(20):
        state = sampler_state(temperature=0.0, top_k=3, top_p=0.9, min_p=0.5, seed=index, index=index)

        assert 1 == sample([0.0, 2.0, 2.0, -math.inf], state, [], 0)


def test_infinite_logits() -> None:
    """-∞ is never drawn; +∞ leaves nothing to the others."""
    assert ((0, WEIGHT_UNIT), (2, WEIGHT_UNIT)) == kept([math.inf, 3.0, math.inf, -math.inf], PLAIN)
    assert [0, 2] == tokens_kept([0.0, -math.inf, 0.0])


def test_top_k_keeps_exactly_k() -> None:
    """Of tokens that tie at the boundary the lower ids are kept: probabilities 0.4, 0.3, 0.3, 0 and k = 2."""
    row = [float32(math.log(0.4)), float32(math.log(0.3)), float32(math.log(0.3)), -math.inf]

    assert [0, 1] == tokens_kept(row, top_k=2)
    assert [0, 1, 2] == tokens_kept(row, top_k=3)
    assert [0, 1, 2] == tokens_kept(row, top_k=4) == tokens_kept(row, top_k=400) == tokens_kept(row, top_k=0)


def test_top_p_at_a_sum() -> None:
    """A beginning of the ranking that reaches top_p exactly is enough; a unit more asks for the next token."""
    row = [1.0, 1.0, 1.0, 1.0]

    assert [0] == tokens_kept(row, top_p=0.25)
    assert [0, 1] == tokens_kept(row, top_p=0.25 + 1 / P_UNIT)
    assert [0, 1] == tokens_kept(row, top_p=0.5)
    assert [0, 1, 2] == tokens_kept(row, top_p=0.5 + 1 / P_UNIT)
    assert [0, 1, 2, 3] == tokens_kept(row, top_p=1.0)


def test_top_p_keeps_one_at_least() -> None:
    """The most probable token stays, however small top_p is."""
    assert [2] == tokens_kept([0.0, 0.0, 5.0], top_p=1e-9)


def test_min_p_at_a_weight() -> None:
    """A token of exactly the least weight stays; a unit more drops it."""
    x, share = next((-n / 1024, weight(-n / 1024)) for n in range(1, 2000) if weight(-n / 1024) % 16 == 0)
    units = share // 16

    assert [0, 1] == tokens_kept([0.0, x], min_p=units / P_UNIT)
    assert [0] == tokens_kept([0.0, x], min_p=(units + 1) / P_UNIT)


def test_min_p_of_one_keeps_the_ties() -> None:
    """min_p = 1 keeps the most probable tokens, all of them."""
    assert [1, 2] == tokens_kept([0.0, 2.0, 2.0], min_p=1.0)


def test_order_of_the_cuts() -> None:
    """Top-p counts what top-k and min-p have left: three equal tokens after top-k, of which a half needs two."""
    assert [0, 1] == tokens_kept([1.0] * 8, top_k=3, top_p=0.5)
    assert [0, 1, 2, 3] == tokens_kept([1.0] * 8, top_p=0.5)
    assert [0] == tokens_kept([3.0, 0.0, 0.0, 0.0, 0.0, 0.0], min_p=0.5, top_p=0.99)


def test_a_tiny_temperature_is_nearly_greedy() -> None:
    """At 2⁻⁶⁴ one step of float32 separates tokens completely; ties stay ties. At 2⁶⁴ nothing does."""
    row = [1.0, math.nextafter(1.0, 2.0), 1.0 + 2.0**-23, 1.0 + 2.0**-23]

    assert [2, 3] == tokens_kept(row, temperature=2.0**-64)
    assert [(token, WEIGHT_UNIT) for token in range(3)] == list(
        kept([0.0, 30.0, -30.0], sampler_state(temperature=2.0**64, seed=0))
    )


# ---------------------------------------------------------------- draws


@pytest.mark.parametrize(
    ("seed", "index", "bits"),
    [
        (0, 0, 0x29DA1A89025490DE),
        (0, 1, 17224629479750822204),
        (1, 0, 2540863351113706590),
        (42, 7, 16918139613027066206),
        (2**64 - 1, 2**64 - 1, 11084540466399966738),
    ],
)
def test_golden_draws(seed: int, index: int, bits: int) -> None:
    """The bits of a draw are fixed for ever: the first is what `sha256sum` says of vosti.draw.1 and 16 zero bytes."""
    assert bits == draw_bits(sampler_state(seed=seed, index=index))


def test_draws_depend_on_seed_and_index_alone() -> None:
    """Neither temperature nor cuts move the draws; seeds and indices do, and never to the same bits."""
    other = sampler_state(temperature=0.3, top_k=4, top_p=0.5, min_p=0.1, seed=6, index=2)
    bits = {draw_bits(sampler_state(seed=seed, index=index)) for seed in range(60) for index in range(60)}

    assert draw_bits(sampler_state(seed=6, index=2)) == draw_bits(other)
    assert 3600 == len(bits)


Chooser = Callable[[Sequence[tuple[int, int]], int], int]


def wrong_choices(chooser: Chooser) -> int:
    """How often a chooser errs at the borders between tokens: the last bits of one, the first of the next."""
    wrong = 0
    for row in SHORT_ROWS:
        candidates = kept(row, PLAIN)
        total = sum(share for _, share in candidates)
        reached = 0
        for (token, share), (following, _) in pairwise(candidates):
            reached += share
            border = -(-(reached << 64) // total)
            wrong += (token, following) != (chooser(candidates, border - 1), chooser(candidates, border))
    return wrong


def choice_in_float32(candidates: Sequence[tuple[int, int]], bits: int) -> int:
    """An inverse distribution whose sums are rounded to float32."""
    draw = float32(bits / 2**64 * sum(share for _, share in candidates))
    reached = 0.0
    for token, share in candidates:
        reached = float32(reached + share)
        if reached > draw:
            return token
    return candidates[-1][0]


def test_choice_at_every_border() -> None:
    """Between two tokens the choice changes at exactly one value of the bits; float32 sums miss some of them."""
    assert 0 == wrong_choices(choose)
    assert 0 < wrong_choices(choice_in_float32)


def test_choice_is_the_inverse_distribution() -> None:
    """Every one of the S possible draws occurs for its bits, and each token gets exactly as many as it weighs."""
    candidates = ((3, 5), (4, 1), (9, 10))
    tokens = [choose(candidates, -(-(draw << 64) // 16)) for draw in range(16)]

    assert [3] * 5 + [4] + [9] * 10 == tokens
    assert 3 == choose(candidates, (5 << 60) - 1)
    assert 4 == choose(candidates, 5 << 60)
    assert 9 == choose(candidates, 2**64 - 1)


def test_a_choice_from_nothing_is_refused() -> None:
    """No candidates, or bits beyond 64, are the caller's mistake."""
    for candidates, bits in (((), 0), (((3, 5),), 2**64)):
        with pytest.raises(ValueError, match="no candidates"):
            choose(candidates, bits)


def test_frequencies() -> None:
    """4,000 draws follow the probabilities: χ² with 4 degrees of freedom, 18.5 being passed by 1 sequence in 1,000."""
    row = [float32(math.log(p)) for p in (0.4, 0.3, 0.15, 0.1, 0.05)]
    counts = [0] * 5
    for index in range(4000):
        counts[sample(row, sampler_state(seed=7, index=index), [], 0)] += 1

    chi_squared = sum(
        (count - 4000 * p) ** 2 / (4000 * p) for count, p in zip(counts, (0.4, 0.3, 0.15, 0.1, 0.05), strict=True)
    )
    assert chi_squared < 18.5


def test_seeds() -> None:
    """The same seed gives the same tokens, and seeds 0, 1, 2³¹, 2⁶³ and 2⁶⁴ - 1 give different ones."""
    row = [0.0] * 1000

    def tokens(seed: int) -> tuple[int, ...]:
        return tuple(sample(row, sampler_state(seed=seed, index=index), [], 0) for index in range(5))

    seeds = (0, 1, 2**31, 2**63, 2**64 - 1)

    assert tokens(3) == tokens(3)
    assert len(seeds) == len({tokens(seed) for seed in seeds})


def test_the_history_must_hold_the_prompt() -> None:
    """A prompt is a part of the history: longer ones, and negative lengths, are refused."""
    assert 1 == sample([0.0, 9.0], sampler_state(temperature=0.0, seed=0), [5, 6], 2)
    for prompt_length in (3, -1):
        with pytest.raises(ValueError, match="The prompt has"):
            sample([0.0], PLAIN, [5, 6], prompt_length)


@given(rows, states)
def test_what_is_kept(row: list[float], state: SamplerState) -> None:
    """On any row: tokens ascending, weights within range, the best among them; and each cut keeps a part."""
    candidates = kept(row, state)
    tokens = [token for token, _ in candidates]
    uncut = dict(kept(row, sampler_state(temperature=state.temperature or 1.0, seed=0)))

    assert sorted(set(tokens)) == tokens
    assert ranked(row)[0] in tokens
    assert all(0 < share <= WEIGHT_UNIT for _, share in candidates)
    assert set(tokens) <= set(uncut)
    assert state.top_k == 0 or len(tokens) <= state.top_k
    assert sample(row, state, [], 0) in tokens


# ---------------------------------------------------------------- golden results, and samplers that are not exact

GOLDEN = "fd73b1016775ce117426478b1e3dbef70f103aacda221dd03c14532c17943b49"


def results() -> str:
    """A digest of what is kept of the hostile rows in every state, and of the tokens drawn at three indices."""
    digest = hashlib.sha256()
    for row in SHORT_ROWS:
        for state in STATES:
            digest.update(repr(sampling.kept(row, state)).encode())
            for index in range(3):
                digest.update(repr(sampling.sample(row, replace(state, index=index), [], 0)).encode())
    return digest.hexdigest()


def test_golden_results() -> None:
    """What is drawn from the hostile rows is fixed for ever."""
    assert GOLDEN == results()


def ties_by_descending_id(logits: Sequence[float]) -> list[int]:
    """A ranking that prefers the higher of two ids."""
    return sorted(range(len(logits)), key=lambda token: (-logits[token], -token))


def weight_by_float32(x: float) -> int:
    """A weight from an exponential in float32."""
    return math.floor(float32(math.exp(x)) * WEIGHT_UNIT)


def draws_without_index(state: SamplerState) -> int:
    """One draw for all outputs of a request."""
    return draw_bits(sampler_state(seed=state.seed))


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("ranked", ties_by_descending_id),
        ("weight", weight_by_float32),
        ("draw_bits", draws_without_index),
        ("WEIGHT_UNIT", 2**23),
        ("EXPONENTIAL_COEFFICIENTS", sampling.EXPONENTIAL_COEFFICIENTS[:7]),
    ],
)
def test_an_inexact_sampler_is_noticed(
    name: str, fault: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sampler with another order of ties, other sums or another exponential draws some other token."""
    monkeypatch.setattr(sampling, name, fault)

    assert GOLDEN != results()
