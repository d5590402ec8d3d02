"""The Qwen 3 family (dense): layers of Llama 3, with normalised heads of queries and keys."""

from __future__ import annotations

from dataclasses import replace

from vosti.impl.errors import UnsupportedModelError
from vosti.impl.models.config import Attention, ModelConfig, check_activation, describe, layer_count, refuse_fields
from vosti.impl.models.fields import Fields
from vosti.impl.models.llama3 import LLAMA3
from vosti.impl.models.rope_config import read_plain_rope

QWEN3 = replace(LLAMA3, query_key_norm=True)
"""How the layers of Qwen 3 differ from another family's."""


def read_qwen3(fields: Fields) -> ModelConfig:
    """The description of a Qwen 3. `sliding_window` counts only with `use_sliding_window`, which is refused."""
    check_activation(fields, "hidden_act", "silu")
    refuse_fields(fields, "final_logit_softcapping")
    count = layer_count(fields)
    if fields.values.get("layer_types", ["full_attention"] * count) not in (None, ["full_attention"] * count):
        raise UnsupportedModelError(f"{fields.where}: layer_types must be {count} times full_attention.")
    heads, head_dim = fields.integer("num_attention_heads", 32), fields.integer("head_dim", 128)
    kv_heads = fields.integer("num_key_value_heads", heads if "num_key_value_heads" in fields.values else 32)
    return describe(
        fields,
        "qwen3",
        tied=False,
        positions=32_768,
        vocab_size=fields.integer("vocab_size", 151_936),
        heads=heads,
        attention={"full": Attention(kv_heads, head_dim, read_plain_rope(fields))},
        attention_scale=head_dim**-0.5,
        embedding_scale=None,
        final_softcap=None,
        layer_types=("full",) * count,
    )
