"""The Llama 3 family: pre-norm layers, SiLU gate."""

from __future__ import annotations

from vosti.impl.models.layers import Style
from vosti.impl.models.plan import Operation

LLAMA3 = Style(
    norm=Operation.RMS_NORM,
    residual_norm=Operation.RESIDUAL_RMS_NORM,
    norm_centre=1.0,
    activation=Operation.SILU_MUL,
    mlp_norm="post_attention_layernorm",
    attention_result_norm=None,
    mlp_result_norm=None,
    query_key_norm=False,
)
"""How the layers of Llama 3 differ from another family's."""
