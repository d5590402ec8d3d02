"""The sampler on tensors draws the specification's tokens, and log-probabilities are those of the raw row."""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given

from hostile_rows import HOSTILE_ROWS, STATES, float32
from sampling_rows import rows, states
from vosti.impl import sampling
from vosti.impl.sampling import Logprobs, logprobs, sample_row, sample_rows
from vosti.spec import sampling as specification
from vosti.spec.sampling import SamplerState, draw_bits, exponential, sampler_state, weight

PLAIN = sampler_state(seed=0)
GREEDY = sampler_state(temperature=0.0, seed=0)


def tensor(row: Sequence[float]) -> torch.Tensor:
    """A row of logits as the engine has it."""
    return torch.tensor(row, dtype=torch.float32)


def positive(tokens: torch.Tensor, weights: torch.Tensor) -> tuple[tuple[int, int], ...]:
    """The tokens that may be drawn, in the specification's form."""
    return tuple((token, share) for token, share in zip(tokens.tolist(), weights.tolist(), strict=True) if share > 0)


# ---------------------------------------------------------------- the same numbers


def exponents() -> list[float]:
    """Exponents at the borders of the range reduction and at random, over its whole domain."""
    chooser = random.Random(5)
    borders = [-(n + 0.5) * math.log(2) * (1 + ulps * 2.0**-52) for n in range(1000) for ulps in range(-3, 4)]
    return [0.0, -700.0, *borders, *(-17 * chooser.random() for _ in range(20_000))]


def exponential_by_numpy(x: np.ndarray) -> np.ndarray:
    """The specification's exponential in a third library."""
    n = np.floor(0.5 - x * specification.INVERSE_LN2)
    r = (x + n * specification.LN2_HIGH) + n * specification.LN2_LOW
    power = np.zeros_like(r)
    for coefficient in reversed(specification.EXPONENTIAL_COEFFICIENTS):
        power = power * r + coefficient
    return np.ldexp(power, -n.astype(np.int64))


def test_exponentials_are_equal_bit_for_bit() -> None:
    """Plain Python, numpy and torch compute one and the same float64 for every exponent."""
    x = exponents()
    plain = [exponential(value) for value in x]

    assert plain == sampling._exponential(torch.tensor(x, dtype=torch.float64)).tolist()
    assert plain == exponential_by_numpy(np.array(x)).tolist()


def test_library_exponentials_differ() -> None:
    """The libraries' own exponentials do not: this is why the specification has its own."""
    x = exponents()

    assert [exponential(value) for value in x] != torch.tensor(x, dtype=torch.float64).exp().tolist()


def delicate_divisions() -> list[tuple[float, float]]:
    """Logits and temperatures for which (ℓ - 0) · (1 / T), rounded twice, has another weight than (ℓ - 0) / T."""
    chooser = random.Random(6)
    found = []
    for _ in range(4000):
        logit = float32(-8 * chooser.random())
        temperature = logit / math.log(chooser.randrange(2**20, 2**24) / 2**24)
        for _ in range(8):
            temperature = math.nextafter(temperature, math.inf)
            if weight(logit / temperature) != weight(logit * (1 / temperature)):
                found.append((logit, temperature))
    return found


def test_division_is_rounded_once() -> None:
    """A temperature divides, and is not replaced by its reciprocal, where that would show."""
    cases = delicate_divisions()

    assert 20 < len(cases), "There are enough of them to tell."
    for logit, temperature in cases:
        state = sampler_state(temperature=temperature, seed=0)
        assert specification.kept([0.0, logit], state) == positive(*sampling.kept(tensor([0.0, logit]), state))


@pytest.mark.parametrize("name", [name for name in HOSTILE_ROWS if len(HOSTILE_ROWS[name]) < 50])
def test_draws_at_every_border(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the last bits that yield one token and the first that yield the next, the two draw alike."""
    row = HOSTILE_ROWS[name]
    candidates = specification.kept(row, PLAIN)
    sums = list(itertools.accumulate(share for _, share in candidates))
    for reached in sums[:-1]:
        border = -(-(reached << 64) // sums[-1])
        for bits in (border - 1, border):
            monkeypatch.setattr(sampling, "draw_bits", lambda _, bits=bits: bits)
            assert specification.choose(candidates, bits) == sample_row(tensor(row), PLAIN, [], 0)


@pytest.mark.parametrize("name", HOSTILE_ROWS)
def test_hostile_rows(name: str) -> None:
    """In every state, the same tokens are kept with the same weights, and the same one is drawn."""
    row = HOSTILE_ROWS[name]
    for state in STATES:
        assert specification.kept(row, state) == positive(*sampling.kept(tensor(row), state))
        assert specification.sample(row, state, [], 0) == sample_row(tensor(row), state, [], 0)


@pytest.mark.gpu
def test_hostile_rows_on_a_gpu() -> None:
    """A row that lies on a GPU gives the tokens and the weights that it gives anywhere else."""
    for row in HOSTILE_ROWS.values():
        there = tensor(row).cuda()
        for state in STATES:
            assert specification.kept(row, state) == positive(*sampling.kept(there, state))
            assert specification.sample(row, state, [], 0) == sample_row(there, state, [], 0)
    for logit, temperature in delicate_divisions():
        state = sampler_state(temperature=temperature, seed=0)
        there = tensor([0.0, logit]).cuda()
        assert specification.kept([0.0, logit], state) == positive(*sampling.kept(there, state))
    x = exponents()
    there = torch.tensor(x, dtype=torch.float64, device="cuda")
    assert [exponential(value) for value in x] == sampling._exponential(there).tolist()


@given(rows, states)
def test_any_row(row: list[float], state: SamplerState) -> None:
    """On any row that the specification accepts, in any state, the same token is drawn."""
    assert specification.kept(row, state) == positive(*sampling.kept(tensor(row), state))
    assert specification.sample(row, state, [], 0) == sample_row(tensor(row), state, [], 0)


@pytest.mark.parametrize("scale", [0.25, 2.0, 8.0])
@pytest.mark.parametrize("vocabulary", [1023, 1024, 1025, 4096])
def test_rows_like_a_model(scale: float, vocabulary: int) -> None:
    """Rows of bfloat16 values, full of ties, flat and peaked, at sizes around the first look for the nucleus."""
    logits = (torch.randn(vocabulary, generator=torch.Generator().manual_seed(3)) * scale).bfloat16().float()
    row = logits.tolist()
    for state in STATES[::3]:
        assert specification.kept(row, state) == positive(*sampling.kept(logits, state))
        assert specification.sample(row, state, [], 0) == sample_row(logits, state, [], 0)


def test_a_whole_vocabulary() -> None:
    """A row as long as Gemma's, and equal throughout: the sums are at their largest, and exact."""
    logits = torch.zeros(262_208)
    state = sampler_state(top_p=0.75, seed=1)
    tokens, weights = sampling.kept(logits, state)

    assert 196_656 == len(tokens)
    assert 196_656 << 24 == int(weights.sum())
    assert draw_bits(state) * 196_656 >> 64 == sample_row(logits, state, [], 0)


def test_the_row_is_left_alone() -> None:
    """Sampling and log-probabilities do not change the row, and take one that is a strided view."""
    matrix = torch.randn(50, 3, generator=torch.Generator().manual_seed(4))
    before = matrix.clone()
    view = matrix[:, 1]
    state = sampler_state(top_k=10, top_p=0.8, min_p=0.01, seed=9)

    assert sample_row(view.contiguous(), state, [], 0) == sample_row(view, state, [], 0)
    assert logprobs(view.contiguous(), 3, 0) == logprobs(view, 3, 0)
    assert before.equal(matrix)


# ---------------------------------------------------------------- company


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 16, 17])
def test_a_row_does_not_know_its_batch(count: int) -> None:
    """Each row of a batch gives the token that it gives alone, in any order, greedy and sampled rows mixed."""
    generator = torch.Generator().manual_seed(count)
    logits = torch.randn(count, 300, generator=generator).bfloat16().float()
    mixed = [STATES[5 * row % len(STATES)] for row in range(count)]
    alone = [sample_row(logits[row].clone(), mixed[row], [1, 2], 1) for row in range(count)]
    order = torch.randperm(count, generator=generator)

    assert alone == sample_rows(logits, mixed, [[1, 2]] * count, [1] * count)
    permuted = sample_rows(logits[order], [mixed[row] for row in order], [[1, 2]] * count, [1] * count)
    assert [alone[row] for row in order] == permuted


def test_no_rows() -> None:
    """A batch without rows yields no tokens."""
    assert [] == sample_rows(torch.empty(0, 5), [], [], [])


# ---------------------------------------------------------------- refusals


def test_rows_that_are_refused() -> None:
    """What the specification refuses is refused, and what is no row of float32 logits."""
    for state in (PLAIN, GREEDY):
        for row, message in (
            (tensor([0.0, math.nan]), "token 1 is NaN"),
            (tensor([-math.inf] * 3), "Every logit of the row is -∞"),
            (torch.empty(0), "has 0 logits"),
            (torch.zeros(2**19), "has 524288 logits"),
        ):
            with pytest.raises(ValueError, match=message):
                sample_row(row, state, [], 0)
            with pytest.raises(ValueError, match=message):
                logprobs(row, 1, 0)
        for other in (torch.zeros(3, dtype=torch.bfloat16), torch.zeros(1, 3)):
            with pytest.raises(TypeError, match="A row of logits is a float32 vector"):
                sample_row(other, state, [], 0)
    with pytest.raises(ValueError, match="The prompt has 1 tokens"):
        sample_row(torch.zeros(3), PLAIN, [], 1)
    with pytest.raises(ValueError, match="came with 1 sampler states"):
        sample_rows(torch.zeros(2, 3), [PLAIN], [[], []], [0, 0])


def test_log_probabilities_that_are_refused() -> None:
    """+∞ has no log-probability, and neither has a token outside the row."""
    with pytest.raises(ValueError, match="a logit of \\+∞"):
        logprobs(tensor([math.inf, 0.0]), 1, 0)
    for k, token in ((-1, 0), (1, 2), (1, -1)):
        with pytest.raises(ValueError, match=f"Asked for {k} log-probabilities and token {token}"):
            logprobs(tensor([0.0, 0.0]), k, token)


# ---------------------------------------------------------------- log-probabilities


def reference_logprob(row: Sequence[float], token: int) -> float:
    """log softmax with an exactly rounded sum."""
    best = max(row)
    return row[token] - best - math.log(math.fsum(math.exp(logit - best) for logit in row))


@pytest.mark.parametrize("name", [name for name in HOSTILE_ROWS if name != "+inf"])
def test_log_probabilities(name: str) -> None:
    """They agree with an exactly summed softmax within 10⁻¹⁴ of their size, and stand in the ranking's order."""
    row = HOSTILE_ROWS[name]
    for token in {0, len(row) // 2, len(row) - 1}:
        result = logprobs(tensor(row), 4, token)
        ranking = specification.ranked(row)[:4]

        assert (token, ranking) == (result.token, [best for best, _ in result.top])
        for one, logprob in [(token, result.logprob), *result.top]:
            assert math.isclose(reference_logprob(row, one), logprob, rel_tol=1e-14, abs_tol=1e-14)


def test_log_probabilities_of_ties() -> None:
    """Four equal tokens have log ¼ each, and the lower ids come first; -∞ stays -∞."""
    quarter = -math.log(4.0)
    row = tensor([-math.inf, 2.0, 2.0, 2.0, 2.0])

    assert Logprobs(token=4, logprob=quarter, top=((1, quarter), (2, quarter))) == logprobs(row, 2, 4)
    assert Logprobs(token=0, logprob=-math.inf, top=()) == logprobs(row, 0, 0)
    assert (0, -math.inf) == logprobs(row, 99, 1).top[-1]
    assert 5 == len(logprobs(row, 99, 1).top)


@given(rows)
def test_probabilities_add_up(row: list[float]) -> None:
    """The probabilities of all tokens add up to 1."""
    finite = [logit if logit < math.inf else 0.0 for logit in row]
    total = math.fsum(math.exp(logprob) for _, logprob in logprobs(tensor(finite), len(finite), 0).top)

    assert abs(total - 1) < 1e-13


def test_log_probabilities_look_at_raw_logits() -> None:
    """Neither temperature nor cuts enter: two rows that differ by a factor have different log-probabilities."""
    row = tensor([0.0, 1.0, 3.0])

    assert logprobs(row, 3, 0) != logprobs(row / 2, 3, 0)


# ---------------------------------------------------------------- samplers that are not exact

Sampler = Callable[[torch.Tensor, SamplerState], int]


def disagreements(sampler: Sampler) -> Iterator[tuple[str, SamplerState]]:
    """The hostile rows and states where a sampler draws another token than the specification."""
    for name, row in HOSTILE_ROWS.items():
        if len(row) <= 300:
            for state in STATES:
                for index in range(3):
                    later = replace(state, index=index)
                    if specification.sample(row, later, [], 0) != sampler(tensor(row), later):
                        yield name, later


def ours(row: torch.Tensor, state: SamplerState) -> int:
    """The sampler under test."""
    return sample_row(row, state, [], 0)


def floating_point(row: torch.Tensor, state: SamplerState) -> int:
    """What engines do: float32 probabilities, a sort without an order of ties, a cumulative sum, a cut, a draw."""
    if state.temperature == 0:
        return int(row.argmax())
    values, tokens = (row / state.temperature).sort(descending=True)
    if state.top_k:
        values[state.top_k :] = -math.inf
    probabilities = values.softmax(0)
    probabilities[probabilities < state.min_p / 2**20 * probabilities[0]] = 0
    probabilities[probabilities.cumsum(0) - probabilities > state.top_p / 2**20] = 0
    reached = probabilities.cumsum(0)
    return int(tokens[(reached <= draw_bits(state) / 2**64 * reached[-1]).sum().clamp(max=len(tokens) - 1)])


def in_ranking_order(row: torch.Tensor, state: SamplerState) -> int:
    """Exact, but drawn along the ranking and not along the ids."""
    weights = dict(specification.kept(row.tolist(), state))
    ranking = [token for token in specification.ranked(row.tolist()) if token in weights]
    return specification.choose([(token, weights[token]) for token in ranking], draw_bits(state))


def by_topk_indices(row: torch.Tensor, state: SamplerState) -> int:
    """Top-k by the library's choice among ties: reversed ids stand for a library that prefers the last."""
    if 0 < state.top_k < len(row) and state.temperature > 0:
        chosen = row.flip(0).sort(descending=True, stable=True).indices[: state.top_k]
        masked = torch.full_like(row, -math.inf)
        masked[len(row) - 1 - chosen] = row[len(row) - 1 - chosen]
        row = masked
    return sample_row(row, state, [], 0)


def test_the_sampler_agrees_everywhere() -> None:
    """No hostile row and no state gives another token."""
    assert [] == list(disagreements(ours))


@pytest.mark.parametrize("sampler", [floating_point, in_ranking_order, by_topk_indices])
def test_an_inexact_sampler_is_noticed(sampler: Sampler) -> None:
    """Float32 sums, another order of the draw, other ties at the k boundary: each disagrees on some row."""
    assert next(disagreements(sampler), None) is not None


@pytest.mark.parametrize("guess", [1, 2, 16])
def test_the_first_look_for_the_nucleus_does_not_matter(guess: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tokens top-p ranks first, it keeps the same ones."""
    monkeypatch.setattr(sampling, "NUCLEUS_GUESS", guess)

    assert [] == list(disagreements(ours))
