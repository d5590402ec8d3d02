"""The Mistral family: layers of Llama 3; in its first versions all of them see a sliding window."""

from __future__ import annotations

from vosti.impl.models.config import (
    Attention,
    LayerType,
    ModelConfig,
    check_activation,
    describe,
    head_size,
    layer_count,
    refuse_fields,
)
from vosti.impl.models.fields import Fields
from vosti.impl.models.rope_config import read_plain_rope


def read_mistral(fields: Fields) -> ModelConfig:
    """The description of a Mistral. A window that is null is none; one that is absent has 4,096 positions."""
    check_activation(fields, "hidden_act", "silu")
    refuse_fields(fields, "layer_types", "final_logit_softcapping")
    heads = fields.integer("num_attention_heads", 32)
    head_dim = head_size(fields, heads)
    window = None
    if fields.has("sliding_window") or "sliding_window" not in fields.values:
        window = fields.integer("sliding_window", 4096)
    kind: LayerType = "full" if window is None else "sliding"
    kv_heads = fields.integer("num_key_value_heads", heads if "num_key_value_heads" in fields.values else 8)
    return describe(
        fields,
        "mistral",
        tied=False,
        positions=131_072,
        vocab_size=fields.integer("vocab_size", 32_000),
        heads=heads,
        attention={kind: Attention(kv_heads, head_dim, read_plain_rope(fields), window)},
        attention_scale=head_dim**-0.5,
        embedding_scale=None,
        final_softcap=None,
        layer_types=(kind,) * layer_count(fields),
    )
