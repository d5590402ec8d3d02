"""Reading the config.json of Mistral, Qwen 3 and Gemma 4: defaults, spellings, and what is not supported."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest

from checkpoint_files import Tensors, file_bytes, layout, write_folder
from vosti.impl.bundled import SHAPES, find_checkpoint
from vosti.impl.errors import CheckpointError, EngineError, UnsupportedModelError
from vosti.impl.models.config import Attention, ModelConfig
from vosti.impl.models.families import STYLES, load_config
from vosti.impl.models.layers import build_plan
from vosti.impl.models.model import Model
from vosti.impl.models.rope_config import Rope

MISTRAL, QWEN, GEMMA, UNIFIED = "mistral-7b-v0.1", "qwen3-8b", "gemma-4-31b", "gemma-4-12b"

SPARSE = ("architectures", "model_type", "hidden_size", "intermediate_size", "num_hidden_layers")
"""Fields without a default."""


def _fields(name: str) -> dict[str, Any]:
    fields = json.loads((SHAPES / f"{name}.json").read_text())
    assert isinstance(fields, dict)
    return fields


def _config(folder: Path, name: str, *without: str, **changed: Any) -> ModelConfig:
    """The description that a named shape yields with some fields left out, and some changed."""
    fields = {key: value for key, value in {**_fields(name), **changed}.items() if key not in without}
    return load_config(write_folder(folder, fields, {"nothing": b""}))


# ---------------------------------------------------------------- defaults and spellings


def test_sparse_configs_have_the_defaults_of_transformers(tmp_path: Path) -> None:
    """A file with the sizes of rows and layers only gets the rest from its architecture."""
    found = {}
    for name in (MISTRAL, QWEN, UNIFIED):
        fields = {key: value for key, value in _fields(name).items() if key in SPARSE}
        found[name] = load_config(write_folder(tmp_path / name, fields, {"nothing": b""}))
    mistral, qwen, gemma = found.values()

    plain = Rope("default", 10_000.0)
    assert {"sliding": Attention(8, 128, plain, 4096)} == mistral.attention
    assert (32_000, 32, 131_072, False) == (mistral.vocab_size, mistral.heads, mistral.max_positions, mistral.tied_head)
    assert {"full": Attention(32, 128, plain)} == qwen.attention
    assert (151_936, 32, 32_768, False) == (qwen.vocab_size, qwen.heads, qwen.max_positions, qwen.tied_head)
    assert {
        "full": Attention(4, 512, Rope("proportional", 1e6, share=0.25)),
        "sliding": Attention(4, 256, plain, 1024),
    } == gemma.attention
    assert (262_144, 8, 262_144, True) == (gemma.vocab_size, gemma.heads, gemma.max_positions, gemma.tied_head)
    assert (None, 1.0) == (gemma.final_softcap, gemma.attention_scale)


def test_the_window_of_mistral_may_be_null(tmp_path: Path) -> None:
    """Null is no window; a missing field is the default; other values are the window's."""
    assert ("full",) * 32 == _config(tmp_path / "a", MISTRAL, sliding_window=None).layer_types
    assert {4096} == {a.window for a in _config(tmp_path / "b", MISTRAL, "sliding_window").attention.values()}
    assert {64} == {a.window for a in _config(tmp_path / "c", MISTRAL, sliding_window=64).attention.values()}


@pytest.mark.parametrize("name", [MISTRAL, QWEN])
def test_key_value_heads_may_be_null(tmp_path: Path, name: str) -> None:
    """Null is as many as heads of queries."""
    config = _config(tmp_path, name, num_key_value_heads=None)

    assert {32} == {attention.kv_heads for attention in config.attention.values()}


@pytest.mark.parametrize("name", [MISTRAL, QWEN])
def test_the_older_spelling_is_the_same_model(tmp_path: Path, name: str) -> None:
    """`rope_theta` and `torch_dtype` describe the model as `rope_parameters` and `dtype` do."""
    theta = _fields(name)["rope_parameters"]["rope_theta"]

    older = _config(tmp_path, name, "rope_parameters", "dtype", rope_theta=theta, torch_dtype="bfloat16")

    assert load_config(find_checkpoint(name)) == older


def test_a_window_of_qwen_that_is_not_used_is_none(tmp_path: Path) -> None:
    """As published files have it: a window and layers for it, switched off, or the layers' types spelt out."""
    off = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}

    assert load_config(find_checkpoint(QWEN)) == _config(tmp_path / "a", QWEN, **off)
    assert load_config(find_checkpoint(QWEN)) == _config(tmp_path / "b", QWEN, layer_types=["full_attention"] * 36)


def test_sizes_of_full_layers_are_read_in_both_spellings(tmp_path: Path) -> None:
    """`global_head_dim` and `num_global_key_value_heads`, or each layer's own entry, as transformers writes it."""
    own = {str(layer): {"head_dim": 512, "num_key_value_heads": 4} for layer in range(5, 60, 6)}

    spelt = _config(tmp_path, GEMMA, "global_head_dim", "num_global_key_value_heads", per_layer_config=own)

    assert load_config(find_checkpoint(GEMMA)) == spelt
    assert [(4, 512), (16, 256)] == [(a.kv_heads, a.head_dim) for a in spelt.attention.values()]


def test_heads_of_full_layers_follow_their_sharing(tmp_path: Path) -> None:
    """Without shared values all layers have as many heads, whatever `num_global_key_value_heads` says."""
    config = _config(tmp_path, GEMMA, attention_k_eq_v=False)

    assert (16, False) == (config.attention["full"].kv_heads, config.attention["full"].shared_values)
    assert (True, False) == tuple(a.shared_values for a in load_config(find_checkpoint(GEMMA)).attention.values())


def _scaled(factor: float) -> dict[str, Any]:
    """Llama 3's scaling of rotary frequencies in the older spelling."""
    return {
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    }


def _gemma3(**text: Any) -> dict[str, Any]:
    """A Gemma 3 as larger models are published: few fields in the text half, the rest left to the architecture."""
    sliding = {"sliding_window": 1024, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}
    return {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "eos_token_id": 1,
        "boi_token_index": 255_999,
        "mm_tokens_per_image": 256,
        "torch_dtype": "bfloat16",
        "text_config": {"model_type": "gemma3_text", **sliding, **text},
        "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"},
    }


PUBLISHED: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "eos_token_id": 128_001,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "max_position_embeddings": 131_072,
        "mlp_bias": False,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": _scaled(8.0),
        "rope_theta": 500_000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": 128_256,
    },
    "llama-3.2-1b": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "eos_token_id": 128_001,
        "head_dim": 64,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "max_position_embeddings": 131_072,
        "num_attention_heads": 32,
        "num_hidden_layers": 16,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-05,
        "rope_scaling": _scaled(32.0),
        "rope_theta": 500_000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "vocab_size": 128_256,
    },
    "qwen3-8b": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "eos_token_id": 151_645,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 12_288,
        "max_position_embeddings": 40_960,
        "max_window_layers": 36,
        "num_attention_heads": 32,
        "num_hidden_layers": 36,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1_000_000,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_sliding_window": False,
        "vocab_size": 151_936,
    },
    "mistral-7b-v0.3": {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "max_position_embeddings": 32_768,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-05,
        "rope_theta": 1_000_000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": 32_768,
    },
    "gemma-3-1b": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "attention_bias": False,
        "attn_logit_softcapping": None,
        "cache_implementation": "hybrid",
        "eos_token_id": 1,
        "final_logit_softcapping": None,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 1152,
        "intermediate_size": 6912,
        "max_position_embeddings": 32_768,
        "num_attention_heads": 4,
        "num_hidden_layers": 26,
        "num_key_value_heads": 1,
        "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-06,
        "rope_local_base_freq": 10_000,
        "rope_scaling": None,
        "rope_theta": 1_000_000,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "torch_dtype": "bfloat16",
        "vocab_size": 262_144,
    },
    "gemma-3-4b": _gemma3(hidden_size=2560, intermediate_size=10_240, num_hidden_layers=34),
    "gemma-3-12b": _gemma3(
        hidden_size=3840,
        intermediate_size=15_360,
        num_attention_heads=16,
        num_hidden_layers=48,
        num_key_value_heads=8,
    ),
    "gemma-3-27b": _gemma3(
        head_dim=128,
        hidden_size=5376,
        intermediate_size=21_504,
        num_attention_heads=32,
        num_hidden_layers=62,
        num_key_value_heads=16,
        query_pre_attn_scalar=168,
    ),
}
"""Models in the older spelling, with the fields that were usual when they came out."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_shapes_are_the_models_as_they_were_published(tmp_path: Path, name: str) -> None:
    """The older spelling, sparse or nested, describes the model that the shape describes in full."""
    published = load_config(write_folder(tmp_path, PUBLISHED[name], {"nothing": b""}))

    assert load_config(find_checkpoint(name)) == replace(published, text_half=False)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("name", "changed", "reason"),
    [
        (MISTRAL, {"layer_types": ["full_attention"] * 32}, "layer_types is not supported in this architecture"),
        (MISTRAL, {"hidden_act": "gelu"}, "hidden_act = 'gelu' is not supported"),
        (MISTRAL, {"architectures": ["Ministral3ForCausalLM"]}, "architecture ['Ministral3ForCausalLM']"),
        (QWEN, {"use_sliding_window": True}, "use_sliding_window = True is not supported"),
        (QWEN, {"attention_bias": True}, "attention_bias = True is not supported"),
        (QWEN, {"layer_types": ["sliding_attention"] * 36}, "layer_types must be 36 times full_attention"),
        (QWEN, {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rope type 'yarn' is not supported"),
        (GEMMA, {"hidden_size_per_layer_input": 256}, "hidden_size_per_layer_input = 256 is not supported"),
        (GEMMA, {"enable_moe_block": True}, "enable_moe_block = True is not supported"),
        (GEMMA, {"num_kv_shared_layers": 20}, "num_kv_shared_layers = 20 is not supported"),
        (GEMMA, {"use_double_wide_mlp": True}, "use_double_wide_mlp = True is not supported"),
        (GEMMA, {"use_bidirectional_attention": "all"}, "use_bidirectional_attention = 'all' is not supported"),
        (GEMMA, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50.0"),
        (GEMMA, {"layer_types": ["sliding_attention"] * 60}, "layer_types must end with full_attention"),
        (GEMMA, {"per_layer_config": {"0": {"hidden_size": 8}}}, "hidden_size is not supported"),
        (GEMMA, {"per_layer_config": {"5": {"head_dim": 512}}}, "sizes must be the same in all full layers"),
        (GEMMA, {"rope_parameters": {"chunked_attention": {}}}, "'chunked_attention' is not a layer type"),
    ],
)
def test_unsupported_features_are_named(tmp_path: Path, name: str, changed: dict[str, Any], reason: str) -> None:
    """Each is refused in a sentence of its own."""
    _refused(tmp_path, UnsupportedModelError, reason, name, changed)


@pytest.mark.parametrize(
    ("name", "changed", "reason"),
    [
        (QWEN, {"num_key_value_heads": 5}, "num_attention_heads = 32 is not a multiple of num_key_value_heads = 5"),
        (GEMMA, {"num_global_key_value_heads": 3}, "is not a multiple of num_key_value_heads = 3"),
        (GEMMA, {"global_head_dim": 511}, "head_dim = 511 must be even"),
        (GEMMA, {"per_layer_config": {"60": {}}}, "'60' is not the number of a layer"),
        (GEMMA, {"per_layer_config": {"5": 3}}, "5 must be an object, not 3"),
        (GEMMA, {"attention_k_eq_v": 1}, "attention_k_eq_v must be true or false, not 1"),
        (
            GEMMA,
            {"rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
            "full_attention must be an object, and is missing",
        ),
        (
            GEMMA,
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 1.5},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                }
            },
            "partial_rotary_factor must be at most 1, not 1.5",
        ),
    ],
)
def test_contradictions_are_refused(tmp_path: Path, name: str, changed: dict[str, Any], reason: str) -> None:
    """Fields that do not fit each other, and fields of the wrong kind."""
    _refused(tmp_path, CheckpointError, reason, name, changed)


def test_per_layer_inputs_are_the_default_of_their_architecture(tmp_path: Path) -> None:
    """A file that does not say that there are none is one with them; the unified architecture never has them."""
    with pytest.raises(UnsupportedModelError, match="hidden_size_per_layer_input = 256 is not supported"):
        _config(tmp_path / "a", GEMMA, "hidden_size_per_layer_input")

    assert "gemma4" == _config(tmp_path / "b", UNIFIED).family


def _refused(folder: Path, kind: type[EngineError], reason: str, name: str, changed: dict[str, Any]) -> None:
    with pytest.raises(kind, match=re.escape(reason)) as caught:
        _config(folder, name, **changed)
    assert "config.json" in str(caught.value)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- the text half of a larger model

SMALL = {
    "hidden_size": 8,
    "intermediate_size": 6,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_global_key_value_heads": 1,
    "head_dim": 4,
    "global_head_dim": 6,
    "vocab_size": 9,
    "max_position_embeddings": 16,
    "layer_types": ["sliding_attention", "full_attention"],
}


@pytest.mark.parametrize(
    ("name", "architecture", "other"),
    [
        (GEMMA, "Gemma4ForConditionalGeneration", "model.vision_tower.patch_embedder.input_proj.weight"),
        (GEMMA, "Gemma4ForConditionalGeneration", "model.embed_vision.embedding_projection.weight"),
        (UNIFIED, "Gemma4UnifiedForConditionalGeneration", "model.vision_embedder.patch_dense.weight"),
        (UNIFIED, "Gemma4UnifiedForConditionalGeneration", "model.embed_audio.embedding_projection.weight"),
    ],
)
def test_the_text_half_is_the_same_model(tmp_path: Path, name: str, architecture: str, other: str) -> None:
    """Nested in a larger checkpoint, the same weights and config give the same digests."""
    text = {**_fields(name), **SMALL}
    config = load_config(write_folder(tmp_path / "config", text, {"nothing": b""}))
    sources = {s.name: s for p in build_plan(config, STYLES["gemma4"]).parameters for s in p.sources}
    tensors: Tensors = {}
    for number, source in enumerate(sources.values()):
        data = bytes(byte for i in range(prod(source.shape)) for byte in ((i + number) % 251, 60))
        tensors[source.name] = ("BF16", source.shape, data)
    nested: Tensors = {key.replace("model.", "model.language_model.", 1): tensor for key, tensor in tensors.items()}
    nested[other] = ("F32", (2, 2), bytes(16))
    outer = {
        "architectures": [architecture],
        "model_type": text["model_type"].removesuffix("_text"),
        "text_config": {key: value for key, value in text.items() if key != "architectures"},
        "vision_config": {"hidden_size": 2},
    }

    plain = Model.load(write_folder(tmp_path / "a", text, {"model.safetensors": file_bytes(*layout(tensors))}))
    half = Model.load(write_folder(tmp_path / "b", outer, {"model.safetensors": file_bytes(*layout(nested))}))

    assert (plain.weights_identity, plain.config_digest) == (half.weights_identity, half.config_digest)
    assert half.config.text_half
