"""The models against transformers, in float32: bundled checkpoints, and small ones with every supported feature."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

from forwards import CHECKPOINTS, NAMES, alone, differing, random_steps, random_tokens, run, scattered_pages
from vosti.impl.backends.cpu import CpuBackend
from vosti.impl.models.model import Model, load_tokenizer

logging.disable_progress_bar()

TEXT = (
    "import os\nimport sys\n\n\ndef read_file(path):\n    with open(path) as stream:\n        return stream.read()\n\n"
    "\nclass Reader:\n    def __init__(self, name, *, encoding=None):\n        self.name = name\n"
    "        self.encoding = encoding or 'utf-8'\n\n    def lines(self):\n        for line in read_file(self.name):\n"
    "            yield line.rstrip()\n\n\n"
)
"""Of the kind that the bundled models were trained on."""


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """A bundled checkpoint."""
    return str(request.param)


@pytest.fixture(scope="module")
def backend(name: str) -> CpuBackend:
    """Ours."""
    return CpuBackend(Model.load(CHECKPOINTS / name))


@pytest.fixture(scope="module")
def reference(name: str) -> Any:
    """Theirs."""
    return AutoModelForCausalLM.from_pretrained(CHECKPOINTS / name, dtype=torch.float32, attn_implementation="eager")


def _logits(backend: CpuBackend, tokens: list[int]) -> Tensor:
    """[length, vocabulary] of one sequence."""
    rows = alone(backend, [tokens])
    ordered = b"".join(rows[0, position].logits for position in range(len(tokens)))
    return torch.frombuffer(bytearray(ordered), dtype=torch.float32).view(len(tokens), -1)


def _reference_logits(reference: Any, tokens: list[int]) -> Tensor:
    with torch.no_grad():
        logits = reference(torch.tensor([tokens])).logits[0]
    assert isinstance(logits, Tensor)
    return logits


def _text_tokens(name: str, length: int) -> list[int]:
    ids = load_tokenizer(CHECKPOINTS / name).encode(TEXT).ids
    return [ids[i % len(ids)] for i in range(length)]


@pytest.mark.parametrize("length", [1, 40, 63, 64, 65, 129, 300])
def test_logits_agree_with_the_reference(name: str, backend: CpuBackend, reference: Any, length: int) -> None:
    """Below, at and above the sliding window, every logit of every position is within 0.001."""
    tokens = _text_tokens(name, length)

    difference = (_logits(backend, tokens) - _reference_logits(reference, tokens)).abs().max().item()

    assert difference < 1e-3


def test_logits_of_random_tokens_agree(backend: CpuBackend, reference: Any) -> None:
    """Tokens that the model has never seen in this order, as the tests of invariance use them."""
    (tokens,) = random_tokens([150], seed=1)

    assert (_logits(backend, tokens) - _reference_logits(reference, tokens)).abs().max().item() < 1e-3


def test_greedy_continuations_agree(name: str, backend: CpuBackend, reference: Any) -> None:
    """From a prompt below the window to a text beyond it, each next token is the reference's."""
    tokens = _text_tokens(name, 50)
    for _ in range(40):
        tokens.append(int(_reference_logits(reference, tokens)[-1].argmax()))

    chosen = _logits(backend, tokens).argmax(1).tolist()

    assert tokens[50:] == chosen[49:-1]


def test_a_wrong_model_would_show(name: str, backend: CpuBackend, reference: Any) -> None:
    """The bound is tight enough: one weight of a norm or of a matrix, half as large again, exceeds it."""
    tokens = _text_tokens(name, 64)
    expected = _reference_logits(reference, tokens)
    parameters = dict(backend.model.parameters)
    for changed in ("final_norm", "layers.2.output"):
        values = parameters[changed].clone()
        values.view(-1)[7] *= 1.5
        twin = Model(backend.model.path, backend.model.config, backend.model.plan, {**parameters, changed: values}, "")

        assert (_logits(CpuBackend(twin), tokens) - expected).abs().max().item() > 1e-3


# ---------------------------------------------------------------- every supported feature, on models of odd sizes

LLAMA: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 40,
    "intermediate_size": 36,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}

GEMMA: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 52,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 14,
    "max_position_embeddings": 256,
    "query_pre_attn_scalar": 24,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention", "full_attention", "sliding_attention"],
}

LINEAR_ROPE = {
    "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 700.0},
}

VARIANTS: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
    "llama tied, one head": lambda: LlamaForCausalLM(
        LlamaConfig(**{**LLAMA, "num_attention_heads": 1, "num_key_value_heads": 1, "tie_word_embeddings": True})
    ),
    "llama linear": lambda: LlamaForCausalLM(
        LlamaConfig(**LLAMA, rope_parameters={"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0})
    ),
    "gemma": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**GEMMA)),
    "gemma capped, untied, linear": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(**GEMMA, final_logit_softcapping=2.0, tie_word_embeddings=False, rope_parameters=LINEAR_ROPE)
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_variants_agree_and_are_invariant(tmp_path: Path, variant: str, dtype: torch.dtype) -> None:
    """Sizes that fill no vector, untied and capped heads, scaled rope, three dtypes, in shards.

    Logits are near the reference's, and every row's bits do not depend on its company.
    """
    torch.manual_seed(1)
    theirs = VARIANTS[variant]().eval()
    for parameter in theirs.parameters():
        parameter.data.normal_(0, 0.4)
    theirs.to(dtype).save_pretrained(tmp_path, max_shard_size="20KB")
    # The conversion rounded the tables of rotary embedding, too; the reference is the stored model in float32.
    theirs = type(theirs).from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager")
    lengths = [70, 9, 21]
    sequences = random_tokens(lengths, seed=2, vocabulary=97)
    backend = CpuBackend(Model.load(tmp_path))

    expected = alone(backend, sequences)
    found = run(backend, sequences, random_steps(lengths, seed=3), scattered_pages(lengths, 4, seed=4))

    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert (_logits(backend, sequences[0]) - _reference_logits(theirs, sequences[0])).abs().max().item() < 1e-3
    assert [] == differing(expected, found)
