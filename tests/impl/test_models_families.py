"""Every family against transformers, in float32, on models of odd sizes; and that a wrong model would show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.gemma4_unified import Gemma4UnifiedForCausalLM, Gemma4UnifiedTextConfig
from transformers.utils import logging

from forwards import alone, differing, random_steps, random_tokens, run, scattered_pages
from vosti.impl.backends.cpu import CpuBackend
from vosti.impl.models.config import LayerType, ModelConfig
from vosti.impl.models.families import STYLES
from vosti.impl.models.layers import Style, build_plan
from vosti.impl.models.model import Model, tables_of
from vosti.impl.models.plan import Operation
from vosti.impl.models.rope_config import Rope

logging.disable_progress_bar()
logging.set_verbosity_error()

BOUND = 1e-4
"""On the difference of logits of the order of 1."""

PLAIN: dict[str, Any] = {
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
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
}

GEMMA3 = {**GEMMA, "query_pre_attn_scalar": 24}

GEMMA4 = {
    **GEMMA,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "global_head_dim": 24,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "final_logit_softcapping": 3.0,
}

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 1000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

LINEAR_ROPE = {
    "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 700.0},
}

ONE_HEAD = {"num_attention_heads": 1, "num_key_value_heads": 1, "tie_word_embeddings": True}

SEPARATE = {"attention_k_eq_v": False, "final_logit_softcapping": None, "hidden_size_per_layer_input": 0}

VARIANTS: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**PLAIN, rope_parameters=LLAMA3_ROPE)),
    "llama tied, one head": lambda: LlamaForCausalLM(LlamaConfig(**{**PLAIN, **ONE_HEAD})),
    "llama linear": lambda: LlamaForCausalLM(
        LlamaConfig(**PLAIN, rope_parameters={"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0})
    ),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**PLAIN, sliding_window=8)),
    "mistral without a window": lambda: MistralForCausalLM(MistralConfig(**PLAIN, sliding_window=None)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**PLAIN)),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**GEMMA3)),
    "gemma3 capped, untied, linear": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(**GEMMA3, final_logit_softcapping=2.0, tie_word_embeddings=False, rope_parameters=LINEAR_ROPE)
    ),
    "gemma4": lambda: Gemma4ForCausalLM(Gemma4TextConfig(**GEMMA4, hidden_size_per_layer_input=0)),
    "gemma4 with values of its own": lambda: Gemma4ForCausalLM(Gemma4TextConfig(**{**GEMMA4, **SEPARATE})),
    "gemma4 unified": lambda: Gemma4UnifiedForCausalLM(Gemma4UnifiedTextConfig(**GEMMA4)),
}


@dataclass(frozen=True)
class Pair:
    """One model, ours and theirs."""

    model: Model
    tokens: list[int]
    expected: Tensor
    """[length, vocabulary] Their logits."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Pair]:
    """Makes a variant's pair, once for each dtype that it is stored in."""
    pairs: dict[tuple[str, torch.dtype], Pair] = {}

    def make(variant: str, dtype: torch.dtype = torch.bfloat16) -> Pair:
        if (variant, dtype) not in pairs:
            pairs[variant, dtype] = _pair(VARIANTS[variant], dtype, tmp_path_factory.mktemp("model"))
        return pairs[variant, dtype]

    return make


def _pair(variant: Callable[[], Any], dtype: torch.dtype, folder: Path) -> Pair:
    torch.manual_seed(1)
    theirs = variant().eval()
    for parameter in theirs.parameters():
        parameter.data.normal_(0, 0.4)
    for name, buffer in theirs.named_buffers():
        if name.endswith("layer_scalar"):
            buffer.data.uniform_(0.5, 1.5)
    theirs.to(dtype).save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    # The conversion rounded the tables of rotary embedding, too; the reference is the stored model in float32.
    theirs = type(theirs).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    (tokens,) = random_tokens([70], seed=2, vocabulary=97)
    with torch.no_grad():
        expected = theirs(torch.tensor([tokens])).logits[0]
    return Pair(Model.load(folder), tokens, expected)


def _difference(pair: Pair, model: Model) -> float:
    """The largest, of the logits of all positions, to the reference."""
    rows = alone(CpuBackend(model), [pair.tokens])
    found = b"".join(rows[0, position].logits for position in range(len(pair.tokens)))
    logits = torch.frombuffer(bytearray(found), dtype=torch.float32).view_as(pair.expected)
    return (logits - pair.expected).abs().max().item()


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_agree_with_the_reference(pair: Callable[..., Pair], variant: str) -> None:
    """Sizes that fill no vector, from the first position over the window's edge to many windows; stored in shards."""
    made = pair(variant)

    assert made.expected.std().item() > 0.3
    assert _difference(made, made.model) < BOUND


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("variant", ["llama", "gemma4"])
def test_dtypes_agree_with_the_reference(pair: Callable[..., Pair], variant: str, dtype: torch.dtype) -> None:
    """Checkpoints of other dtypes are widened as exactly."""
    made = pair(variant, dtype)

    assert _difference(made, made.model) < BOUND


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_do_not_depend_on_their_company(pair: Callable[..., Pair], variant: str) -> None:
    """Prefills in chunks, decodes and padding in random order, on scattered pages: the bits of rows computed alone."""
    lengths = [70, 9, 21]
    sequences = random_tokens(lengths, seed=2, vocabulary=97)
    backend = CpuBackend(pair(variant).model)

    expected = alone(backend, sequences)
    found = run(backend, sequences, random_steps(lengths, seed=3), scattered_pages(lengths, 4, seed=4))

    assert [] == differing(expected, found)


# ---------------------------------------------------------------- a wrong model would show

Fault = Callable[[ModelConfig, Style], tuple[ModelConfig, Style]]
"""Another description, or another style."""


def _config(**changed: Any) -> Fault:
    return lambda config, style: (replace(config, **changed), style)


def _style(**changed: Any) -> Fault:
    return lambda config, style: (config, replace(style, **changed))


def _attention(layer_type: LayerType, /, **changed: Any) -> Fault:
    """Another attention of one layer type; fields of its rope among them."""

    def fault(config: ModelConfig, style: Style) -> tuple[ModelConfig, Style]:
        attention = config.attention[layer_type]
        rope = replace(attention.rope, **{name: changed[name] for name in changed if name in Rope.__annotations__})
        plain = {name: changed[name] for name in changed if name not in Rope.__annotations__}
        return replace(
            config, attention={**config.attention, layer_type: replace(attention, rope=rope, **plain)}
        ), style

    return fault


FAULTS: list[tuple[str, str, Fault]] = [
    ("llama", "a smaller rotary base", _attention("full", theta=900.0)),
    ("llama", "no scaling of rotary frequencies", _attention("full", kind="default")),
    ("llama", "another scaling factor", _attention("full", factor=7.0)),
    ("llama", "another activation", _style(activation=Operation.GELU_TANH_MUL)),
    ("llama", "norms with the unit offset", _style(residual_norm=Operation.RESIDUAL_RMS_NORM_UNIT_OFFSET)),
    ("llama", "another epsilon", _config(norm_epsilon=1e-3)),
    ("llama", "a scaled embedding", _config(embedding_scale=1.5)),
    ("llama", "another scale of scores", _config(attention_scale=0.3)),
    ("llama linear", "no linear scaling", _attention("full", factor=1.0)),
    ("mistral", "a window less by one", _attention("sliding", window=7)),
    ("mistral", "a window more by one", _attention("sliding", window=9)),
    ("mistral", "no window", _attention("sliding", window=None)),
    ("qwen3", "no norm of queries and keys", _style(query_key_norm=False)),
    ("gemma3", "one rotary base for both layer types", _attention("sliding", theta=1e6)),
    ("gemma3", "a window less by one", _attention("sliding", window=7)),
    ("gemma3", "no scale of embeddings", _config(embedding_scale=None)),
    ("gemma3", "the usual scale of scores", _config(attention_scale=14**-0.5)),
    ("gemma3", "no norm of attention's result", _style(attention_result_norm=None)),
    ("gemma3", "layer types the other way round", _config(layer_types=("full", "sliding") * 2)),
    ("gemma3 capped, untied, linear", "no cap", _config(final_softcap=None)),
    ("gemma3 capped, untied, linear", "no linear scaling of full layers", _attention("full", kind="default")),
    ("gemma4", "no layer scale", _style(layer_scale=None)),
    ("gemma4", "no norm of values", _style(value_norm=False)),
    ("gemma4", "all pairs turn", _attention("full", share=1.0)),
    ("gemma4", "fewer pairs turn", _attention("full", share=0.2)),
    ("gemma4", "a scale of scores", _config(attention_scale=14**-0.5)),
    ("gemma4", "no cap", _config(final_softcap=None)),
    ("gemma4", "a window more by one", _attention("sliding", window=9)),
    ("gemma4 with values of its own", "no norm of values", _style(value_norm=False)),
]


@pytest.mark.parametrize(
    ("variant", "name", "fault"), FAULTS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_wrong_model_would_show(pair: Callable[..., Pair], variant: str, name: str, fault: Fault) -> None:
    """Each departure from the family exceeds the bound, by a factor of ten at least."""
    made = pair(variant)
    config, style = fault(made.model.config, STYLES[made.model.config.family])
    parameters = {**made.model.parameters, **tables_of(config)}

    twin = replace(made.model, config=config, plan=build_plan(config, style), parameters=parameters)

    assert _difference(made, twin) > 10 * BOUND


def test_values_of_their_own_would_show(pair: Callable[..., Pair]) -> None:
    """Shared values that are not the keys' projection exceed the bound."""
    made = pair("gemma4")
    weight = made.model.parameters["layers.1.qkv"].clone()
    weight[:, -24:] = weight[:, -24:].flip(0)

    twin = replace(made.model, parameters={**made.model.parameters, "layers.1.qkv": weight})

    assert _difference(made, twin) > 10 * BOUND
