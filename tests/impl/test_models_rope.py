"""Rotary tables: equal to transformers' with zero difference, and what scaling does to which pairs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformers import Gemma3TextConfig, Gemma4TextConfig, LlamaConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.gemma4.modeling_gemma4 import Gemma4TextRotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from vosti.impl.models.rope import inverse_frequencies, rope_tables
from vosti.impl.models.rope_config import Rope

POSITIONS = [0, 1, 1000, 8192, 60000]
"""Position 0 hides everything: all angles are 0 there."""

LLAMA3_8 = Rope("llama3", 500_000.0, 8.0, 1.0, 4.0, 8192)
LLAMA3_32 = Rope("llama3", 500_000.0, 32.0, 1.0, 4.0, 8192)
BUNDLED = Rope("llama3", 500_000.0, 8.0, 1.0, 4.0, 512)


def _parameters(rope: Rope) -> dict[str, Any]:
    """The rope in the spelling of transformers 5."""
    parameters: dict[str, Any] = {"rope_type": rope.kind, "rope_theta": rope.theta}
    if rope.kind != "default":
        parameters["factor"] = rope.factor
    if rope.kind == "proportional":
        parameters["partial_rotary_factor"] = rope.share
    if rope.kind == "llama3":
        parameters["low_freq_factor"] = rope.low_frequency_factor
        parameters["high_freq_factor"] = rope.high_frequency_factor
        parameters["original_max_position_embeddings"] = rope.original_positions
    return parameters


def _agree(rope: Rope, head_dim: int, reference: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Assert that the tables' rows equal the reference's halves, bit for bit."""
    for table, expected in zip(rope_tables(rope, head_dim, POSITIONS[-1] + 1), reference, strict=True):
        for half in expected[0].split(head_dim // 2, 1):
            assert torch.equal(half, table[POSITIONS])


@pytest.mark.parametrize("head_dim", [32, 64, 128])
@pytest.mark.parametrize(
    "rope",
    [
        Rope("default", 10_000.0),
        Rope("default", 500_000.0),
        Rope("linear", 10_000.0, 4.0),
        LLAMA3_8,
        LLAMA3_32,
        BUNDLED,
    ],
    ids=lambda rope: f"{rope.kind}-{rope.theta:.0f}-{rope.factor:.0f}",
)
def test_llama_tables_equal_the_reference(rope: Rope, head_dim: int) -> None:
    """Inverse frequencies, cosines and sines, at positions where errors show, with zero difference."""
    config = LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        head_dim=head_dim,
        max_position_embeddings=131_072,
        rope_parameters=_parameters(rope),
    )
    reference = LlamaRotaryEmbedding(config)

    assert torch.equal(reference.inv_freq, inverse_frequencies(rope, head_dim))
    _agree(rope, head_dim, reference(torch.zeros(1), torch.tensor([POSITIONS])))


@pytest.mark.parametrize("head_dim", [64, 256])
def test_gemma_tables_equal_the_reference(head_dim: int) -> None:
    """Each layer type has its own base frequency, and linear scaling applies to the full layers only."""
    ropes = {"full_attention": Rope("linear", 1e6, 8.0), "sliding_attention": Rope("default", 1e4)}
    config = Gemma3TextConfig(
        head_dim=head_dim,
        num_hidden_layers=6,
        rope_parameters={kind: _parameters(rope) for kind, rope in ropes.items()},
    )
    reference = Gemma3RotaryEmbedding(config)

    for kind, rope in ropes.items():
        assert torch.equal(getattr(reference, f"{kind}_inv_freq"), inverse_frequencies(rope, head_dim))
        _agree(rope, head_dim, reference(torch.zeros(1), torch.tensor([POSITIONS]), kind))


@pytest.mark.parametrize(
    ("head_dim", "share", "factor"), [(512, 0.25, 1.0), (64, 0.25, 4.0), (6, 0.4, 1.0), (8, 1.0, 1.0)]
)
def test_gemma_4_tables_equal_the_reference(head_dim: int, share: float, factor: float) -> None:
    """Full layers have heads of their own size, of which a part turns, at the frequencies of the whole."""
    ropes = {
        "full_attention": Rope("proportional", 1e6, factor, share=share),
        "sliding_attention": Rope("default", 1e4),
    }
    config = Gemma4TextConfig(
        head_dim=32,
        global_head_dim=head_dim,
        num_hidden_layers=6,
        rope_parameters={kind: _parameters(rope) for kind, rope in ropes.items()},
    )
    reference = Gemma4TextRotaryEmbedding(config)

    for kind, size in (("full_attention", head_dim), ("sliding_attention", 32)):
        assert torch.equal(getattr(reference, f"{kind}_inv_freq"), inverse_frequencies(ropes[kind], size))
        _agree(ropes[kind], size, reference(torch.zeros(1), torch.tensor([POSITIONS]), kind))


def test_pairs_that_do_not_turn_have_the_angle_zero() -> None:
    """Head dim 512, a quarter: pairs 0 to 63 turn as ever, 64 to 255 keep cosine 1 and sine 0 at every position."""
    cosines, sines = rope_tables(Rope("proportional", 1e6, share=0.25), 512, 1001)
    whole, _ = rope_tables(Rope("default", 1e6), 512, 1001)

    assert torch.equal(whole[:, :64], cosines[:, :64])
    assert {1.0} == set(cosines[:, 64:].flatten().tolist())
    assert {0.0} == set(sines[:, 64:].flatten().tolist())


def test_llama3_scaling_splits_the_pairs() -> None:
    """Head dim 64, factor 32: pairs 0 to 14 unchanged, 15 to 17 blended, 18 to 31 divided by the factor."""
    plain = inverse_frequencies(Rope("default", 500_000.0), 64)
    scaled = inverse_frequencies(LLAMA3_32, 64)
    unchanged, divided = scaled == plain, scaled == plain / 32

    assert list(range(15)) == unchanged.nonzero().flatten().tolist()
    assert list(range(18, 32)) == divided.nonzero().flatten().tolist()
    assert (scaled[15:18] < plain[15:18]).all()
    assert (scaled[15:18] > plain[15:18] / 32).all()


def test_ignored_scaling_would_show() -> None:
    """The tables without scaling differ from those with it, the more the later the position."""
    tables = [torch.cat(rope_tables(rope, 64, 60_001), 1) for rope in (LLAMA3_32, Rope("default", 500_000.0))]
    similarity = [
        torch.nn.functional.cosine_similarity(tables[0][position], tables[1][position], dim=0).item()
        for position in (0, 1000, 8192, 60_000)
    ]

    assert 1.0 == pytest.approx(similarity[0])
    assert all(similarity[i] < similarity[0] - 0.01 for i in (1, 2, 3))


def test_tables_are_near_the_exact_angles() -> None:
    """At small positions, cosine and sine are those of position · θ^(−2i/d) within float32."""
    cosines, sines = rope_tables(Rope("default", 10_000.0), 16, 10)
    for position in range(10):
        for pair in range(8):
            angle = position * 10_000.0 ** (-2 * pair / 16)

            assert math.cos(angle) == pytest.approx(cosines[position, pair].item(), abs=3e-6)
            assert math.sin(angle) == pytest.approx(sines[position, pair].item(), abs=3e-6)


def test_the_length_of_a_table_does_not_matter() -> None:
    """A row of a table has the same bits however long the table is."""
    long, short = rope_tables(LLAMA3_8, 128, 5000), rope_tables(LLAMA3_8, 128, 777)

    assert all(torch.equal(a[:777], b) for a, b in zip(long, short, strict=True))
