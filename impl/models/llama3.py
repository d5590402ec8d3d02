"""The Llama 3 family: pre-norm layers, SiLU gate."""

from __future__ import annotations

from vosti.impl.models.config import (
    Attention,
    ModelConfig,
    check_activation,
    describe,
    head_size,
    layer_count,
    refuse_fields,
)
from vosti.impl.models.fields import Fields
from vosti.impl.models.layers import Style
from vosti.impl.models.plan import Operation
from vosti.impl.models.rope_config import read_plain_rope

LLAMA3 = Style(
    norm=Operation.RMS_NORM,
    residual_norm=Operation.RESIDUAL_RMS_NORM,
    norm_centre=1.0,
    activation=Operation.SILU_MUL,
    mlp_norm="post_attention_layernorm",
)
"""How the layers of Llama 3 differ from another family's."""


def read_llama3(fields: Fields) -> ModelConfig:
    """The description of a Llama 3."""
    check_activation(fields, "hidden_act", "silu")
    refuse_fields(fields, "sliding_window", "layer_types", "final_logit_softcapping")
    heads = fields.integer("num_attention_heads")
    head_dim = head_size(fields, heads)
    return describe(
        fields,
        "llama3",
        tied=False,
        positions=2048,
        vocab_size=fields.integer("vocab_size"),
        heads=heads,
        attention={"full": Attention(fields.integer("num_key_value_heads", heads), head_dim, read_plain_rope(fields))},
        attention_scale=head_dim**-0.5,
        embedding_scale=None,
        final_softcap=None,
        layer_types=("full",) * layer_count(fields),
    )
