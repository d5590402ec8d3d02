"""Opening models: which backend, which tokenizer, and dummy weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwards import CHECKPOINTS
from vosti.impl.errors import CheckpointError, InvalidOptionError
from vosti.impl.llm import LLM
from vosti.impl.opening import open_backend, open_tokenizer
from vosti.impl.options import SamplingParams
from vosti.impl.tokenizer import ByteTokenizer, TextStream


@given(st.text())
def test_bytes_come_back(text: str) -> None:
    """A text is its bytes; tokens that are no bytes are no text; a stream holds back half a character."""
    tokenizer = ByteTokenizer()
    tokens = tokenizer.encode(text)

    assert list(text.encode()) == list(tokens)
    assert text == tokenizer.decode([*tokens, 256, 100_000])
    stream = TextStream(tokenizer)
    assert text == "".join(stream.add([token]) for token in tokens) + stream.rest()


def test_half_a_character_is_refused() -> None:
    """Text that is not Unicode is no prompt."""
    with pytest.raises(InvalidOptionError, match="not valid Unicode"):
        ByteTokenizer().encode("\ud800")


def test_shapes_have_bytes_and_checkpoints_their_own() -> None:
    """A shape comes without a tokenizer; a folder without one is incomplete."""
    assert isinstance(open_tokenizer("llama-3.1-8b"), ByteTokenizer)
    assert not isinstance(open_tokenizer("tiny-llama3"), ByteTokenizer)
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json"):
        open_tokenizer(Path(__file__).parent)


def test_a_shape_needs_dummy_weights() -> None:
    """It has none of its own."""
    with pytest.raises(CheckpointError, match="is not a folder"):
        open_backend("llama-3.2-1b", "cpu")


def test_a_config_alone_is_served_with_dummy_weights(tmp_path: Path) -> None:
    """The same text from the same seeds; other weights give another."""
    config = json.loads((CHECKPOINTS / "tiny-llama3" / "config.json").read_text())
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**config, "num_hidden_layers": 1}))
    params = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)

    def tokens(seed: int) -> tuple[int, ...]:
        return LLM(file, backend="cpu", dummy_weights=seed, pages=8).generate("def f", params)[0].token_ids

    assert tokens(0) == tokens(0)
    assert tokens(0) != tokens(1)
