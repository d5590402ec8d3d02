"""A decoder's description: what families have in common, where they differ, and how their fields are read.

Both spellings of config.json are read: that of transformers 5 (`rope_parameters`, `dtype`, `layer_types`) and the
older one (`rope_theta`, `rope_scaling`, `torch_dtype`, `rope_local_base_freq`, `sliding_window_pattern`). Where a file
uses both they must agree; what is not computed here is refused by name. Absent fields have the defaults of
transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vosti.impl.errors import CheckpointError, UnsupportedModelError
from vosti.impl.models.fields import Fields
from vosti.impl.models.rope_config import Rope

LayerType = Literal["full", "sliding"]
"""Whether a layer attends to all earlier positions or to those in its window."""

LAYER_TYPES: dict[str, LayerType] = {"full_attention": "full", "sliding_attention": "sliding"}
"""By their names in files."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "attn_logit_softcapping": (),
    "quantization_config": (),
    "partial_rotary_factor": (1, 1.0),
    "pretraining_tp": (1,),
    "use_bidirectional_attention": (False, "vision"),  # "vision": among the tokens of an image
    "use_sliding_window": (False,),
    "enable_moe_block": (False,),
    "use_double_wide_mlp": (False,),
    "num_kv_shared_layers": (0,),
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

    shared_values: bool = False
    """Whether values are the projection of the keys."""


@dataclass(frozen=True)
class ModelConfig:
    """A decoder. Which norms and activations it has follows from its family (`vosti.impl.models.families`)."""

    family: str
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
    text_half: bool = False
    """Whether the checkpoint holds a larger model, of which this is the text half."""


def refuse_features(fields: Fields) -> None:
    """Raises `UnsupportedModelError` for a feature that is switched on and not computed here."""
    for name, neutral in NEUTRAL.items():
        value = fields.values.get(name)
        if value is not None and not any(value is off or value == off for off in neutral):
            raise UnsupportedModelError(f"{fields.where}: {name} = {value!r} is not supported.")
    dtype = fields.agreeing("dtype", "torch_dtype")
    if dtype not in (None, "bfloat16", "float16", "float32"):
        raise UnsupportedModelError(f"{fields.where}: dtype {dtype!r} is not supported.")


def refuse_fields(fields: Fields, *names: str) -> None:
    """Raises `UnsupportedModelError` for a field that has no meaning in this architecture."""
    for name in names:
        if fields.has(name):
            raise UnsupportedModelError(f"{fields.where}: {name} is not supported in this architecture.")


def describe(fields: Fields, family: str, *, tied: bool, positions: int, **chosen: Any) -> ModelConfig:
    """The description: fields that all families read alike, and those that the family has `chosen`.

    `tied` and `positions` are defaults. Raises `CheckpointError` for heads that do not fit each other.
    """
    config = ModelConfig(
        family=family,
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size"),
        norm_epsilon=fields.number("rms_norm_eps", 1e-6),
        tied_head=fields.flag("tie_word_embeddings", tied),
        max_positions=min(fields.integer("max_position_embeddings", positions), MOST_POSITIONS),
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


def check_activation(fields: Fields, name: str, supported: str) -> None:
    """Raises `UnsupportedModelError` for another activation than the family's."""
    activation = fields.text(name, supported)
    if activation != supported:
        raise UnsupportedModelError(f"{fields.where}: {name} = {activation!r} is not supported; {supported!r} is.")


def head_size(fields: Fields, heads: int) -> int:
    """`head_dim`, or else what makes all heads together as wide as a row."""
    hidden = fields.integer("hidden_size")
    if not fields.has("head_dim") and hidden % heads:
        raise CheckpointError(f"{fields.where}: hidden_size = {hidden} is not a multiple of {heads} heads.")
    return fields.integer("head_dim", hidden // heads)


def layer_count(fields: Fields) -> int:
    """`num_hidden_layers`."""
    return fields.integer("num_hidden_layers", most=MOST_LAYERS)


def read_layer_types(fields: Fields) -> tuple[LayerType, ...]:
    """The type of each layer: a list, or one full layer after every `sliding_window_pattern` − 1 sliding ones.

    `_sliding_window_pattern`, which transformers writes whatever the list says and never reads, is left alone.
    """
    count = layer_count(fields)
    pattern = fields.integer("sliding_window_pattern", 6)
    periodic = ["full_attention" if (i + 1) % pattern == 0 else "sliding_attention" for i in range(count)]
    names = fields.values.get("layer_types")
    if names is None:
        names = periodic
    if not isinstance(names, list) or len(names) != count or any(name not in list(LAYER_TYPES) for name in names):
        raise fields.wrong("layer_types", f"a list of {count} names, each one of {', '.join(LAYER_TYPES)}")
    if fields.has("sliding_window_pattern") and names != periodic:
        raise CheckpointError(
            f"{fields.where} contradicts itself: layer_types do not follow sliding_window_pattern = {pattern}."
        )
    return tuple(LAYER_TYPES[name] for name in names)


def rope_of_types(fields: Fields) -> Fields:
    """`rope_parameters` with an object for each layer type. Raises `UnsupportedModelError` for any other entry."""
    parameters = fields.object("rope_parameters")
    for name in parameters.values:
        if name not in LAYER_TYPES:
            raise UnsupportedModelError(f"{parameters.where}: {name!r} is not a layer type.")
    return parameters
