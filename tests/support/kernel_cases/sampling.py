"""Digests, and the sampler."""

from __future__ import annotations

from kernel_cases import case, int32, tile

# ---------------------------------------------------------------- digests


def _digests(block: int, merge_block: int) -> None:
    import torch

    from vosti.kernels.digest import digest, hexadecimal, layout
    from vosti.kernels.tables import Choice, Entry
    from vosti.spec.digests import word_sum

    generator = torch.Generator().manual_seed(3)
    words = torch.randint(-(2**31), 2**31, (500,), generator=generator).to(torch.int32)
    # Three parts of rows of 40, 7 and 12 words, of which the last is not read whole; row 2 of no part is asked for.
    parts, sources = [(8, 40, 40), (250, 7, 7), (300, 12, 10)], [4, 0, -1, 1, 4]
    entries = (
        Entry("digest", (), (Choice(None, "digest", tile(BLOCK=block)),)),
        Entry("digest_merge", (), (Choice(None, "digest_merge", tile(BLOCK=merge_block)),)),
    )
    found = hexadecimal(digest(words, layout(parts, "cpu"), int32(sources), entries))
    for source, actual in zip(sources, found, strict=True):
        row = [words[begin + source * stride :][:count] for begin, stride, count in parts]
        assert source < 0 or word_sum(torch.cat(row).numpy().astype("<i4").tobytes()) == actual


@case
def digests_of_rows_in_parts() -> None:
    """Blocks that are longer and shorter than the parts give the digest of the row's bytes."""
    _digests(64, 4)
    _digests(16, 2)


@case
def digests_of_matrices() -> None:
    """Stretches of a row that is longer than one, and whose words fill no block."""
    import torch

    from vosti.kernels.candidates import starting_entry
    from vosti.kernels.digest import digest, hexadecimal, matrix_layout
    from vosti.spec.digests import word_sum

    logits = torch.randn(3, 9001, generator=torch.Generator().manual_seed(4))
    first, second = (starting_entry(name, (), "sm_90") for name in ("digest", "digest_merge"))
    rows = matrix_layout(9001, "cpu")
    found = hexadecimal(digest(logits.view(torch.int32), rows, int32([2, 0]), (first, second)))
    assert [word_sum(logits[i].numpy().astype("<f4").tobytes()) for i in (2, 0)] == found


# ---------------------------------------------------------------- sampling


def _sampled(names: list[str]) -> None:
    """Tokens of hostile rows in every eighth state that draws."""
    import torch

    from hostile_rows import HOSTILE_ROWS, STATES
    from vosti.impl.device_sampling import tokens
    from vosti.spec.sampling import sample

    for name in names:
        drawing = [state for state in STATES if state.temperature > 0]
        states = [state for number, state in enumerate(drawing) if number % 8 == len(name) % 8]
        row = torch.tensor(HOSTILE_ROWS[name], dtype=torch.float32)
        for state, token in zip(states, tokens(row[None].repeat(len(states), 1), states), strict=True):
            assert sample(HOSTILE_ROWS[name], state, [], 0) == token, (name, state, token)


@case
def tokens_of_hostile_rows() -> None:
    """Of short rows all is looked at."""
    _sampled(["one token", "ties at the k boundary", "two zeros", "huge", "+inf", "at the end of the weights"])


@case
def tokens_of_rows_that_are_longer_than_the_head() -> None:
    """Where the largest logits do not tell, the cut is found among all: behind them, or among equal logits."""
    from vosti.kernels import sample

    before, sample.HEAD = sample.HEAD, 8
    try:
        _sampled(["all equal", "bfloat16 ladder", "powers of a half"])
    finally:
        sample.HEAD = before


@case
def no_tokens_of_rows_that_are_refused() -> None:
    """Beside rows that have one, without cuts and with them; those of the last are found among all, as one is level."""
    import torch

    from hostile_rows import sampler_state
    from vosti.impl.device_sampling import tokens
    from vosti.kernels import sample as module
    from vosti.spec.sampling import sample

    nan, inf = float("nan"), float("inf")
    rows = [[nan] * 3, [0.0, nan, 1.0], [inf, nan, 0.0], [-inf] * 3, [0.0, -inf, 0.0]]
    before, module.HEAD = module.HEAD, 1
    try:
        for cuts in ({}, {"top_k": 1}, {"top_k": 2}, {"top_p": 0.5}):
            states = [sampler_state(temperature=1.0, seed=seed, **cuts) for seed in range(len(rows))]
            expected = [None] * 4 + [sample(rows[4], states[4], [], 0)]
            assert expected == tokens(torch.tensor(rows), states), cuts
    finally:
        module.HEAD = before


@case
def tokens_of_a_row_that_is_longer_than_two_blocks() -> None:
    """Drawn from one block or another, the last one not full; with cuts, too, of which some are beyond the head."""
    import torch

    from hostile_rows import sampler_state
    from vosti.impl.device_sampling import tokens
    from vosti.kernels.sample import BLOCK
    from vosti.spec.sampling import sample

    row = torch.randn(2 * BLOCK + 900, generator=torch.Generator().manual_seed(5))
    states = [sampler_state(temperature=temperature, seed=seed) for temperature, seed in ((1.0, 0), (0.5, 9), (2.0, 4))]
    drawn = tokens(row[None].repeat(len(states), 1), states)
    assert [sample(row.tolist(), state, [], 0) for state in states] == drawn
    assert len({token // BLOCK for token in drawn if token is not None}) == 3
    cuts = [(3000, 1.0, 1), (3000, 0.9, 2), (0, 0.97, 3), (5, 0.5, 4)]
    states = [sampler_state(temperature=2.0, top_k=k, top_p=p, min_p=0.001, seed=seed) for k, p, seed in cuts]
    drawn = tokens(row[None].repeat(len(states), 1), states)
    assert [sample(row.tolist(), state, [], 0) for state in states] == drawn
