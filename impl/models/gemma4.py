"""The Gemma 4 family (text, dense): layers of Gemma 3 with plain weights of norms, and more.

Values are normalised, without weights. Full layers have heads of another size and number, rotate a part of each, and
may use the projection of their keys as values. Each layer ends with a scale on the residual stream. Scores have no
scale of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vosti.impl.errors import CheckpointError, UnsupportedModelError
from vosti.impl.models.config import (
    LAYER_TYPES,
    Attention,
    LayerType,
    ModelConfig,
    check_activation,
    describe,
    read_layer_types,
    rope_of_types,
)
from vosti.impl.models.fields import Fields
from vosti.impl.models.gemma3 import GEMMA3
from vosti.impl.models.plan import Operation
from vosti.impl.models.rope_config import read_rope

GEMMA4 = replace(
    GEMMA3,
    norm=Operation.RMS_NORM,
    residual_norm=Operation.RESIDUAL_RMS_NORM,
    norm_centre=1.0,
    value_norm=True,
    layer_scale="layer_scalar",
)
"""How the layers of Gemma 4 differ from another family's."""

ROPE: dict[str, dict[str, Any]] = {
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}
"""`rope_parameters` of a file without them."""

KV_FIELDS = ("num_key_value_heads", "head_dim")
"""What may differ between layer types."""


def read_gemma4(fields: Fields) -> ModelConfig:
    """The description of a Gemma 4 with its embeddings at the first layer only."""
    return _read(fields, positions=131_072, window=512, per_layer_input=256)


def read_gemma4_unified(fields: Fields) -> ModelConfig:
    """The description of a Gemma 4 that takes images and sound without towers of their own."""
    return _read(fields, positions=262_144, window=1024, per_layer_input=0)


def _read(fields: Fields, *, positions: int, window: int, per_layer_input: int) -> ModelConfig:
    """The description; positions, window and the width of per-layer inputs are the defaults of an architecture."""
    check_activation(fields, "hidden_activation", "gelu_pytorch_tanh")
    width = fields.values.get("hidden_size_per_layer_input", per_layer_input)
    if width not in (None, 0):
        raise UnsupportedModelError(f"{fields.where}: hidden_size_per_layer_input = {width!r} is not supported.")
    layer_types = read_layer_types(fields)
    if layer_types[-1] != "full":
        raise UnsupportedModelError(f"{fields.where}: layer_types must end with full_attention in this architecture.")
    if not fields.has("rope_parameters"):
        fields = Fields({**fields.values, "rope_parameters": ROPE}, fields.where)
    shared = fields.flag("attention_k_eq_v", False)
    sizes = _kv_sizes(fields, layer_types, shared)
    ropes, none = rope_of_types(fields), Fields({}, fields.where)
    attention = {
        kind: Attention(
            *sizes[kind],
            read_rope(fields, ropes.required(name), none, "rope_theta", 10_000.0),
            fields.integer("sliding_window", window) if kind == "sliding" else None,
            shared_values=shared and kind == "full",
        )
        for name, kind in LAYER_TYPES.items()
        if kind in layer_types
    }
    return describe(
        fields,
        "gemma4",
        tied=True,
        positions=positions,
        vocab_size=fields.integer("vocab_size", 262_144),
        heads=fields.integer("num_attention_heads", 8),
        attention=attention,
        attention_scale=1.0,
        embedding_scale=fields.integer("hidden_size") ** 0.5,
        final_softcap=fields.optional_number("final_logit_softcapping"),
        layer_types=layer_types,
    )


def _kv_sizes(fields: Fields, layer_types: tuple[LayerType, ...], shared: bool) -> dict[LayerType, tuple[int, int]]:
    """(kv heads, head size) of each layer type: of fields for full layers, or of `per_layer_config`."""
    plain = fields.integer("num_key_value_heads", 4), fields.integer("head_dim", 256)
    if not fields.has("per_layer_config"):
        heads = fields.integer("num_global_key_value_heads", plain[0]) if shared else plain[0]
        return {"sliding": plain, "full": (heads, fields.integer("global_head_dim", 512))}
    overrides = fields.object("per_layer_config")
    for layer in overrides.values:
        if layer not in [str(number) for number in range(len(layer_types))]:
            raise CheckpointError(f"{overrides.where}: {layer!r} is not the number of a layer.")
    sizes: dict[LayerType, tuple[int, int]] = {}
    for number, kind in enumerate(layer_types):
        own = overrides.object(str(number))
        for name in own.values:
            if name not in KV_FIELDS:
                raise UnsupportedModelError(f"{own.where}: {name} is not supported.")
        found = own.integer("num_key_value_heads", plain[0]), own.integer("head_dim", plain[1])
        if sizes.setdefault(kind, found) != found:
            raise UnsupportedModelError(f"{own.where}: sizes must be the same in all {kind} layers.")
    return sizes
