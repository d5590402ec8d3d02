"""The bundled checkpoints against transformers, in float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from forwards import CHECKPOINTS, NAMES, alone, random_tokens
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
