"""The Gemma 3 family (text): four norms per layer with weights 1 + w, normalised queries and keys, GELU gate.

The scaled embedding, the sliding layers with their own rotary base, and the scale of the scores
(`query_pre_attn_scalar`) are in the description that `vosti.impl.models.config` reads.
"""

from __future__ import annotations

from vosti.impl.models.layers import Style
from vosti.impl.models.plan import Operation

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
