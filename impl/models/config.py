"""A decoder's description, read from config.json.

Both spellings are read: that of transformers 5 (`rope_parameters`, `dtype`, `layer_types`) and the older one
(`rope_theta`, `rope_scaling`, `torch_dtype`, `rope_local_base_freq`, `sliding_window_pattern`). Where a file uses both
they must agree; what is not computed here is refused by name. Absent fields have the defaults of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from vosti.impl.errors import CheckpointError, UnsupportedModelError
from vosti.impl.models.fields import Fields, read_json_object
from vosti.impl.models.rope_config import Rope, read_rope

Family = Literal["llama3", "gemma3"]

LayerType = Literal["full", "sliding"]
"""Whether a layer attends to all earlier positions or to those in its window."""

ARCHITECTURES: dict[str, tuple[Family, str]] = {
    "LlamaForCausalLM": ("llama3", "llama"),
    "Gemma3ForCausalLM": ("gemma3", "gemma3_text"),
    "Gemma3ForConditionalGeneration": ("gemma3", "gemma3"),
}
"""Supported architectures, each with its family and its `model_type`; of the last one the text half is used."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "attn_logit_softcapping": (),
    "quantization_config": (),
    "partial_rotary_factor": (1, 1.0),
    "pretraining_tp": (1,),
    "use_bidirectional_attention": (False,),
}
"""Features that are not computed here, with the values (beside null) that switch each of them off."""


MOST_LAYERS = 1000
"""More layers than any model has: a larger number is a mistake, to be found before a plan of that length is made."""

MOST_POSITIONS = 2**20
"""Positions that are offered at most, whatever a config says: each takes a row in the tables of rotary embedding."""


@dataclass(frozen=True)
class Attention:
    """The attention of the layers of one type."""

    kv_heads: int
    head_dim: int
    rope: Rope
    window: int | None = None
    """Positions that a row sees, its own included; None for all earlier ones."""


@dataclass(frozen=True)
class ModelConfig:
    """What the families have in common, and where they differ, as data."""

    family: Family
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    heads: int
    """Of queries; the same in all layers."""

    attention: Mapping[LayerType, Attention]
    """One entry for each layer type that occurs."""

    norm_epsilon: float
    attention_scale: float
    """Factor on the scores."""

    embedding_scale: float | None
    """Factor on the embedding; None for no product at all."""

    final_softcap: float | None
    """Soft cap on the logits."""

    layer_types: tuple[LayerType, ...]
    tied_head: bool
    """Whether the language-model head is the embedding table."""

    max_positions: int
    eos_ids: tuple[int, ...]
    text_half: bool
    """Whether the checkpoint holds a larger model, of which this is the text half."""


def load_config(path: Path) -> ModelConfig:
    """The description in a checkpoint's folder, or in a config.json.

    Raises `CheckpointError` if files are missing, malformed or contradict themselves, and `UnsupportedModelError` for
    what is not computed here.
    """
    if not path.exists():
        raise CheckpointError(f"{path} does not exist; give a folder in the format of Hugging Face.")
    file, generation = (path / "config.json", path / "generation_config.json") if path.is_dir() else (path, None)
    if not file.is_file():
        raise CheckpointError(f"{path} has no config.json; give a folder in the format of Hugging Face.")
    outer = Fields(read_json_object(file), str(file))
    family, text_half = _architecture(outer)
    fields = _text_fields(outer) if text_half else outer
    _refuse_features(outer)
    _refuse_features(fields)
    config = _llama3(fields) if family == "llama3" else _gemma3(fields, text_half)
    return _with_eos(config, generation, [fields, outer])


def _architecture(fields: Fields) -> tuple[Family, bool]:
    """The family, and whether the model is the text half of a larger one."""
    names = fields.values.get("architectures")
    model_type = fields.text("model_type")
    if names is None:
        names = [name for name, (_, expected) in ARCHITECTURES.items() if expected == model_type]
    if not isinstance(names, list) or len(names) != 1 or names[0] not in list(ARCHITECTURES):
        named = names or model_type
        raise UnsupportedModelError(
            f"{fields.where}: architecture {named!r} is not supported; supported are {', '.join(ARCHITECTURES)}."
        )
    family, expected = ARCHITECTURES[names[0]]
    if model_type != expected:
        raise CheckpointError(f"{fields.where}: {names[0]} needs model_type {expected!r}, not {model_type!r}.")
    return family, names[0] == "Gemma3ForConditionalGeneration"


def _text_fields(outer: Fields) -> Fields:
    """The fields of the text half; whether the head is tied may be said there, outside, or in both places alike."""
    fields = outer.object("text_config")
    tie = "tie_word_embeddings"
    if outer.has(tie) and fields.has(tie) and outer.values[tie] != fields.values[tie]:
        raise CheckpointError(f"{outer.where} contradicts itself: {tie} differs between the file and its text_config.")
    return Fields({**fields.values, tie: outer.values[tie]}, fields.where) if outer.has(tie) else fields


def _refuse_features(fields: Fields) -> None:
    for name, neutral in NEUTRAL.items():
        value = fields.values.get(name)
        if value is not None and not any(value is off or value == off for off in neutral):
            raise UnsupportedModelError(f"{fields.where}: {name} = {value!r} is not supported.")
    dtype = fields.agreeing("dtype", "torch_dtype")
    if dtype not in (None, "bfloat16", "float16", "float32"):
        raise UnsupportedModelError(f"{fields.where}: dtype {dtype!r} is not supported.")


def _common(fields: Fields, family: Family, **chosen: Any) -> ModelConfig:
    """The fields that both families read alike, with the family's own."""
    config = ModelConfig(
        family=family,
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size"),
        norm_epsilon=fields.number("rms_norm_eps", 1e-6),
        eos_ids=(),
        **chosen,
    )
    for attention in config.attention.values():
        if config.heads % attention.kv_heads:
            raise CheckpointError(
                f"{fields.where}: num_attention_heads = {config.heads} is not a multiple of "
                f"num_key_value_heads = {attention.kv_heads}."
            )
        if attention.head_dim % 2:
            raise CheckpointError(f"{fields.where}: head_dim = {attention.head_dim} must be even.")
    return config


def _activation(fields: Fields, name: str, supported: str) -> None:
    activation = fields.text(name, supported)
    if activation != supported:
        raise UnsupportedModelError(f"{fields.where}: {name} = {activation!r} is not supported; {supported!r} is.")


def _llama3(fields: Fields) -> ModelConfig:
    _activation(fields, "hidden_act", "silu")
    for name in ("sliding_window", "final_logit_softcapping"):
        if fields.has(name):
            raise UnsupportedModelError(f"{fields.where}: {name} is not supported in this architecture.")
    heads = fields.integer("num_attention_heads")
    hidden = fields.integer("hidden_size")
    if not fields.has("head_dim") and hidden % heads:
        raise CheckpointError(f"{fields.where}: hidden_size = {hidden} is not a multiple of {heads} heads.")
    head_dim = fields.integer("head_dim", hidden // heads)
    rope = read_rope(fields, fields.object("rope_parameters"), fields.object("rope_scaling"), "rope_theta", 10_000.0)
    return _common(
        fields,
        "llama3",
        vocab_size=fields.integer("vocab_size"),
        heads=heads,
        attention={"full": Attention(fields.integer("num_key_value_heads", heads), head_dim, rope)},
        attention_scale=head_dim**-0.5,
        embedding_scale=None,
        final_softcap=None,
        layer_types=("full",) * fields.integer("num_hidden_layers", most=MOST_LAYERS),
        tied_head=fields.flag("tie_word_embeddings", False),
        max_positions=min(fields.integer("max_position_embeddings", 2048), MOST_POSITIONS),
        text_half=False,
    )


def _gemma3(fields: Fields, text_half: bool) -> ModelConfig:
    _activation(fields, "hidden_activation", "gelu_pytorch_tanh")
    layer_types = _gemma3_layer_types(fields)
    new = fields.object("rope_parameters")
    for name in new.values:
        if name not in ("full_attention", "sliding_attention"):
            raise UnsupportedModelError(f"{new.where}: {name!r} is not a layer type.")
    none = Fields({}, fields.where)
    full = read_rope(fields, new.object("full_attention"), fields.object("rope_scaling"), "rope_theta", 1_000_000.0)
    sliding = read_rope(fields, new.object("sliding_attention"), none, "rope_local_base_freq", 10_000.0)
    kv_heads, head_dim = fields.integer("num_key_value_heads", 4), fields.integer("head_dim", 256)
    attention = {"full": Attention(kv_heads, head_dim, full)}
    if "sliding" in layer_types:
        attention["sliding"] = Attention(kv_heads, head_dim, sliding, fields.integer("sliding_window", 4096))
    return _common(
        fields,
        "gemma3",
        vocab_size=fields.integer("vocab_size", 262_208),
        heads=fields.integer("num_attention_heads", 8),
        attention={kind: attention[kind] for kind in attention if kind in layer_types},
        attention_scale=fields.number("query_pre_attn_scalar", 256) ** -0.5,
        embedding_scale=fields.integer("hidden_size") ** 0.5,
        final_softcap=fields.number("final_logit_softcapping") if fields.has("final_logit_softcapping") else None,
        layer_types=layer_types,
        tied_head=fields.flag("tie_word_embeddings", True),
        max_positions=min(fields.integer("max_position_embeddings", 131_072), MOST_POSITIONS),
        text_half=text_half,
    )


def _gemma3_layer_types(fields: Fields) -> tuple[LayerType, ...]:
    """The type of each layer: a list, or one full layer after every `pattern` − 1 sliding ones.

    `_sliding_window_pattern`, which transformers writes whatever the list says and never reads, is left alone.
    """
    count = fields.integer("num_hidden_layers", most=MOST_LAYERS)
    pattern = fields.integer("sliding_window_pattern", 6)
    periodic = ["full_attention" if (i + 1) % pattern == 0 else "sliding_attention" for i in range(count)]
    names = fields.values.get("layer_types")
    if names is None:
        names = periodic
    known: dict[str, LayerType] = {"full_attention": "full", "sliding_attention": "sliding"}
    if not isinstance(names, list) or len(names) != count or any(name not in list(known) for name in names):
        raise fields.wrong("layer_types", f"a list of {count} names, each one of {', '.join(known)}")
    if fields.has("sliding_window_pattern") and names != periodic:
        raise CheckpointError(
            f"{fields.where} contradicts itself: layer_types do not follow sliding_window_pattern = {pattern}."
        )
    return tuple(known[name] for name in names)


def _with_eos(config: ModelConfig, generation: Path | None, fallbacks: list[Fields]) -> ModelConfig:
    """The description with the ids that end a sequence: of generation_config.json, or else of config.json."""
    sources = fallbacks
    if generation is not None and generation.is_file():
        sources = [Fields(read_json_object(generation), str(generation)), *fallbacks]
    source = next((fields for fields in sources if fields.has("eos_token_id")), sources[0])
    ids = source.token_ids("eos_token_id")
    if any(i >= config.vocab_size for i in ids):
        raise source.wrong("eos_token_id", f"below the vocabulary's size {config.vocab_size}")
    return replace(config, eos_ids=ids)
