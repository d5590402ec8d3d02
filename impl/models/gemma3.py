"""The Gemma 3 family (text): four norms per layer with weights 1 + w, normalised queries and keys, GELU gate.

The embedding is scaled, sliding layers have a rotary base of their own, and the scale of the scores is a field
(`query_pre_attn_scalar`).
"""

from __future__ import annotations

from vosti.impl.models.config import (
    Attention,
    LayerType,
    ModelConfig,
    check_activation,
    describe,
    read_layer_types,
    rope_of_types,
)
from vosti.impl.models.fields import Fields
from vosti.impl.models.layers import Style
from vosti.impl.models.plan import Operation
from vosti.impl.models.rope_config import read_rope

GEMMA3 = Style(
    norm=Operation.RMS_NORM_UNIT_OFFSET,
    residual_norm=Operation.RESIDUAL_RMS_NORM_UNIT_OFFSET,
    norm_centre=0.0,
    activation=Operation.GELU_TANH_MUL,
    mlp_norm="pre_feedforward_layernorm",
    attention_result_norm="post_attention_layernorm",
    mlp_result_norm="post_feedforward_layernorm",
    query_key_norm=True,
)
"""How the layers of Gemma 3 differ from another family's."""


def read_gemma3(fields: Fields) -> ModelConfig:
    """The description of a Gemma 3."""
    check_activation(fields, "hidden_activation", "gelu_pytorch_tanh")
    layer_types = read_layer_types(fields)
    new, none = rope_of_types(fields), Fields({}, fields.where)
    full = read_rope(fields, new.object("full_attention"), fields.object("rope_scaling"), "rope_theta", 1_000_000.0)
    local = read_rope(fields, new.object("sliding_attention"), none, "rope_local_base_freq", 10_000.0)
    kv_heads, head_dim = fields.integer("num_key_value_heads", 4), fields.integer("head_dim", 256)
    attention: dict[LayerType, Attention] = {}
    if "full" in layer_types:
        attention["full"] = Attention(kv_heads, head_dim, full)
    if "sliding" in layer_types:
        attention["sliding"] = Attention(kv_heads, head_dim, local, fields.integer("sliding_window", 4096))
    return describe(
        fields,
        "gemma3",
        tied=True,
        positions=131_072,
        vocab_size=fields.integer("vocab_size", 262_208),
        heads=fields.integer("num_attention_heads", 8),
        attention=attention,
        attention_scale=fields.number("query_pre_attn_scalar", 256) ** -0.5,
        embedding_scale=fields.integer("hidden_size") ** 0.5,
        final_softcap=fields.optional_number("final_logit_softcapping"),
        layer_types=layer_types,
    )
