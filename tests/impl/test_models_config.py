"""Reading config.json: both spellings, contradictions, and what is not supported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from checkpoint_files import TINY_CONFIG, bundled_config, copy_bundled, write_folder
from forwards import CHECKPOINTS, NAMES
from vosti.impl.errors import CheckpointError, EngineError, UnsupportedModelError
from vosti.impl.models.config import Attention, ModelConfig
from vosti.impl.models.families import load_config
from vosti.impl.models.model import Model, load_tokenizer
from vosti.impl.models.rope_config import Rope

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def _config(folder: Path, base: dict[str, Any], **changed: Any) -> ModelConfig:
    """The description that a config.json yields; None removes a field."""
    fields = {key: value for key, value in {**base, **changed}.items() if value is not None}
    return load_config(write_folder(folder, fields, {"nothing": b""}))


def _llama(folder: Path, **changed: Any) -> ModelConfig:
    return _config(folder, TINY_CONFIG, **changed)


def _gemma(folder: Path, **changed: Any) -> ModelConfig:
    base = bundled_config("tiny-gemma3")
    for name in changed.pop("without", ()):
        del base[name]
    return _config(folder, base, **changed)


def _refused(kind: type[EngineError], reason: str, read: Any, *arguments: Any, **changed: Any) -> None:
    with pytest.raises(kind, match=re.escape(reason)) as caught:
        read(*arguments, **changed)
    assert "config.json" in str(caught.value)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- the two spellings


def test_the_older_spelling_of_llama_is_the_same_model(tmp_path: Path) -> None:
    """`rope_theta`, `rope_scaling` and `torch_dtype` describe the bundled Llama as `rope_parameters` and `dtype` do."""
    new = load_config(CHECKPOINTS / "tiny-llama3")
    scaling = dict(bundled_config("tiny-llama3")["rope_parameters"])
    theta = scaling.pop("rope_theta")

    older = _config(
        tmp_path,
        bundled_config("tiny-llama3"),
        rope_parameters=None,
        dtype=None,
        rope_theta=theta,
        rope_scaling=scaling,
        torch_dtype="bfloat16",
    )

    assert new == older


def test_the_older_spelling_of_gemma_is_the_same_model(tmp_path: Path) -> None:
    """`sliding_window_pattern`, `rope_theta` and `rope_local_base_freq` describe the bundled Gemma as well."""
    new = load_config(CHECKPOINTS / "tiny-gemma3")

    older = _gemma(
        tmp_path,
        without=("rope_parameters", "dtype", "layer_types", "_sliding_window_pattern"),
        rope_theta=1_000_000.0,
        rope_local_base_freq=10_000.0,
        sliding_window_pattern=6,
        torch_dtype="bfloat16",
    )

    assert new == older


def test_the_digest_does_not_know_the_spelling(tmp_path: Path) -> None:
    """Two spellings of one model have one digest, also under other limits; a model with another scale has another."""
    plain = Model.load(CHECKPOINTS / "tiny-gemma3")
    older = copy_bundled(
        "tiny-gemma3",
        tmp_path / "older",
        rope_parameters=None,
        layer_types=None,
        rope_theta=1_000_000.0,
        max_position_embeddings=100,
    )
    other = copy_bundled("tiny-gemma3", tmp_path / "other", query_pre_attn_scalar=63)

    assert plain.config_digest == Model.load(older).config_digest
    assert plain.config_digest != Model.load(other).config_digest


def test_sparse_configs_have_the_defaults_of_transformers(tmp_path: Path) -> None:
    """A Gemma config with the few fields that published ones have gets the rest from the architecture."""
    config = _config(
        tmp_path,
        {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "model_type": "gemma3",
            "eos_token_id": [1, 106],
            "text_config": {
                "model_type": "gemma3_text",
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "num_hidden_layers": 34,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                "sliding_window": 1024,
            },
        },
    )

    assert (262_208, 8, 131_072) == (config.vocab_size, config.heads, config.max_positions)
    assert (0.0625, 2560**0.5, True) == (config.attention_scale, config.embedding_scale, config.tied_head)
    assert {
        "full": Attention(4, 256, Rope("linear", 1e6, 8.0)),
        "sliding": Attention(4, 256, Rope("default", 1e4), 1024),
    } == config.attention
    assert [5, 11, 17, 23, 29] == [i for i, kind in enumerate(config.layer_types) if kind == "full"]
    assert (1, 106) == config.eos_ids


def test_llama_defaults(tmp_path: Path) -> None:
    """Head size, key/value heads, epsilon, base frequency and tying have the defaults of the architecture."""
    config = _llama(tmp_path, num_key_value_heads=None, tie_word_embeddings=None)

    assert (2, 1e-6, False) == (config.heads, config.norm_epsilon, config.tied_head)
    assert {"full": Attention(2, 2, Rope("default", 10_000.0))} == config.attention


def test_endless_contexts_are_cut(tmp_path: Path) -> None:
    """A config that promises more positions than tables are made for is read, and offers fewer."""
    assert 2**20 == _llama(tmp_path, max_position_embeddings=10**9).max_positions


def test_a_null_field_is_an_absent_one(tmp_path: Path) -> None:
    """`"rope_scaling": null` and the like, as many files have them, mean nothing."""
    fields = {**TINY_CONFIG, "rope_scaling": None, "head_dim": None, "quantization_config": None, "mlp_bias": None}
    folder = write_folder(tmp_path / "null", fields, {"nothing": b""})

    assert _llama(tmp_path / "plain") == load_config(folder)


@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_both_names_of_the_rope_type_are_read(tmp_path: Path, key: str) -> None:
    """`type` is the older name of `rope_type`."""
    scaling = {key: "llama3", **{name: value for name, value in LLAMA3_ROPE.items() if name != "rope_type"}}

    config = _llama(tmp_path, rope_scaling=scaling, rope_theta=500_000.0)

    assert Rope("llama3", 500_000.0, 8.0, 1.0, 4.0, 8192) == config.attention["full"].rope


def test_spellings_may_stand_side_by_side_if_they_agree(tmp_path: Path) -> None:
    """A file that says the same thing in both spellings is read."""
    config = _llama(
        tmp_path,
        rope_scaling=LLAMA3_ROPE,
        rope_theta=5e5,
        rope_parameters={**LLAMA3_ROPE, "rope_theta": 5e5},
        dtype="bfloat16",
        torch_dtype="bfloat16",
    )

    assert 5e5 == config.attention["full"].rope.theta


# ---------------------------------------------------------------- contradictions


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"dtype": "bfloat16", "torch_dtype": "float16"}, "dtype = 'bfloat16' but torch_dtype = 'float16'"),
        (
            {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}},
            "rope_theta = 500000.0, but rope_theta = 10000.0",
        ),
        (
            {"rope_scaling": LLAMA3_ROPE, "rope_parameters": {**LLAMA3_ROPE, "factor": 32.0}},
            "factor = 32.0, but",
        ),
        ({"rope_scaling": {**LLAMA3_ROPE, "type": "linear"}}, "rope_type = 'llama3' but type = 'linear'"),
        ({"rope_scaling": {**LLAMA3_ROPE, "low_freq_factor": 4.0}}, "low_freq_factor must be below high_freq_factor"),
        ({"model_type": "gemma3_text"}, "LlamaForCausalLM needs model_type 'llama'"),
        ({"num_key_value_heads": 3}, "num_attention_heads = 2 is not a multiple of num_key_value_heads = 3"),
        ({"num_attention_heads": 3}, "hidden_size = 4 is not a multiple of 3 heads"),
        ({"head_dim": 3}, "head_dim = 3 must be even"),
        ({"eos_token_id": 8}, "eos_token_id must be below the vocabulary's size 8"),
    ],
)
def test_contradictions_in_llama_are_refused(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    """Fields that say different things, each named with its values."""
    _refused(CheckpointError, reason, _llama, tmp_path, **changed)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"sliding_window_pattern": 3}, "layer_types do not follow sliding_window_pattern = 3"),
        ({"layer_types": ["full_attention"] * 5}, "layer_types must be a list of 6 names"),
        ({"layer_types": ["chunked_attention"] * 6}, "layer_types must be a list of 6 names"),
        ({"layer_types": [["full_attention"]] * 6}, "layer_types must be a list of 6 names"),
        ({"layer_types": "full_attention"}, "layer_types must be a list of 6 names"),
        ({"rope_local_base_freq": 20_000.0}, "rope_theta = 10000.0, but rope_local_base_freq = 20000.0"),
        ({"rope_theta": 10_000.0}, "rope_theta = 1000000.0, but rope_theta = 10000.0"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, "rope_type = 'default', but"),
    ],
)
def test_contradictions_in_gemma_are_refused(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    """Fields that say different things about layers and their rotary bases."""
    _refused(CheckpointError, reason, _gemma, tmp_path, **changed)


# ---------------------------------------------------------------- what is not supported


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "architecture ['MixtralForCausalLM'] is not supported"),
        ({"architectures": ["LlamaForCausalLM", "Other"]}, "architecture ['LlamaForCausalLM', 'Other']"),
        ({"architectures": []}, "architecture"),
        ({"architectures": [["LlamaForCausalLM"]]}, "architecture"),
        ({"rope_scaling": {"rope_type": ["linear"], "factor": 2.0}}, "rope type ['linear'] is not supported"),
        ({"architectures": None, "model_type": "qwen3_moe"}, "architecture 'qwen3_moe' is not supported"),
        ({"attention_bias": True}, "attention_bias = True is not supported"),
        ({"mlp_bias": True}, "mlp_bias = True is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu' is not supported; 'silu' is"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        ({"pretraining_tp": 2}, "pretraining_tp = 2"),
        ({"sliding_window": 4096}, "sliding_window is not supported in this architecture"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping is not supported in this architecture"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50.0"),
        ({"dtype": "float64"}, "dtype 'float64' is not supported"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope type 'yarn' is not supported"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope type 'dynamic' is not supported"),
        ({"rope_parameters": {"rope_type": "axial"}}, "rope type 'axial' is not supported"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "beta_fast": 32}}, "beta_fast is not supported"),
        (
            {"rope_parameters": {"rope_type": "default", "factor": 2.0}},
            "factor is not supported with rope type",
        ),
        (
            {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}},
            "partial_rotary_factor is not supported",
        ),
    ],
)
def test_unsupported_features_of_llama_are_named(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    """Each is refused in a sentence of its own, before any weight is looked at."""
    _refused(UnsupportedModelError, reason, _llama, tmp_path, **changed)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50.0"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention = True"),
        ({"hidden_activation": "silu"}, "hidden_activation = 'silu'"),
        (
            {"rope_parameters": {"chunked_attention": {"rope_type": "default"}}},
            "'chunked_attention' is not a layer",
        ),
    ],
)
def test_unsupported_features_of_gemma_are_named(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    """Each is refused in a sentence of its own."""
    _refused(UnsupportedModelError, reason, _gemma, tmp_path, **changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"attention_bias": False, "mlp_bias": False, "pretraining_tp": 1},
        {"partial_rotary_factor": 1.0, "use_bidirectional_attention": False, "torch_dtype": "float32"},
        {"unknown_field": 3, "attention_dropout": 0.1},
    ],
)
def test_features_that_are_switched_off_are_accepted(tmp_path: Path, changed: dict[str, Any]) -> None:
    """The neutral values of the same fields, and fields that no value depends on, change nothing."""
    assert _llama(tmp_path / "a") == _llama(tmp_path / "b", **changed)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"hidden_size": None}, "hidden_size must be an integer from 1 to 1099511627776, and is missing"),
        ({"hidden_size": 0}, "hidden_size must be an integer from 1 to 1099511627776, not 0"),
        ({"hidden_size": -4}, "hidden_size"),
        ({"hidden_size": 4.0}, "hidden_size must be an integer from 1 to 1099511627776, not 4.0"),
        ({"hidden_size": "4"}, "hidden_size must be an integer from 1 to 1099511627776, not '4'"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers must be an integer from 1 to 1000, not 1000000000"),
        ({"vocab_size": 2**64}, "vocab_size"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps"),
        ({"rms_norm_eps": 0}, "rms_norm_eps must be a finite number above 0, not 0"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rope_theta": float("inf")}, "rope_theta"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings must be true or false, not 'yes'"),
        ({"model_type": None}, "model_type must be a string"),
        ({"rope_scaling": [1]}, "rope_scaling must be an object"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor must be a finite number above 0, and is missing"),
        ({"rope_scaling": {**LLAMA3_ROPE, "original_max_position_embeddings": 0}}, "original_max_position_embeddings"),
        ({"eos_token_id": "</s>"}, "eos_token_id must be a token id or a list of token ids"),
        ({"eos_token_id": [1, -1]}, "eos_token_id"),
    ],
)
def test_fields_of_the_wrong_kind_are_named(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    """Missing fields, and values that are not what the field must hold."""
    _refused(CheckpointError, reason, _llama, tmp_path, **changed)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": 1, "a": 2}', "\ud800"])
def test_a_config_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    """Broken JSON, other JSON, a key twice, and bytes that are not UTF-8."""
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogatepass"))

    _refused(CheckpointError, "config.json", load_config, tmp_path)


# ---------------------------------------------------------------- end of sequence, tokenizer


@pytest.mark.parametrize(
    ("generation", "own", "expected"),
    [
        ({"eos_token_id": 3}, 1, (3,)),
        ({"eos_token_id": [5, 3, 5]}, 1, (3, 5)),
        ({"eos_token_id": None}, 1, (1,)),
        ({}, [2, 1], (1, 2)),
        (None, 1, (1,)),
        (None, None, ()),
        ({}, None, ()),
    ],
)
def test_where_end_of_sequence_ids_come_from(
    tmp_path: Path, generation: dict[str, Any] | None, own: Any, expected: tuple[int, ...]
) -> None:
    """generation_config.json first, then config.json; one id, a list, or none; ascending and each once."""
    fields = {**TINY_CONFIG, "eos_token_id": own}
    files = {"nothing": b""}
    if generation is not None:
        files["generation_config.json"] = json.dumps(generation).encode()

    assert expected == load_config(write_folder(tmp_path, fields, files)).eos_ids


def test_a_malformed_generation_config_is_refused(tmp_path: Path) -> None:
    """The file counts if it is there."""
    for content in (b"[]", b'{"eos_token_id": 1.5}', b'{"eos_token_id": 99}'):
        folder = write_folder(tmp_path, TINY_CONFIG, {"generation_config.json": content})

        with pytest.raises(CheckpointError, match=r"generation_config\.json"):
            load_config(folder)


@pytest.mark.parametrize("name", NAMES)
def test_the_bundled_tokenizers_are_read(name: str) -> None:
    """Text becomes tokens and text again."""
    tokenizer = load_tokenizer(CHECKPOINTS / name)
    text = "import os\n\ndef read_file(path):\n"

    ids = tokenizer.encode(text).ids

    assert text == tokenizer.decode(ids)
    assert max(ids) < 4096


def test_a_missing_or_malformed_tokenizer_is_refused(tmp_path: Path) -> None:
    """No tokenizer.json, or one that the library cannot read."""
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is no tokenizer"):
        load_tokenizer(tmp_path)
