"""Any row of logits that the specification accepts, and any sampler state, for hypothesis."""

import math

from hypothesis import strategies as st

from hostile_rows import LARGEST, SUBNORMAL
from vosti.spec.sampling import P_UNIT, SamplerState

logit_values = st.one_of(
    st.floats(width=32, allow_nan=False),
    st.floats(min_value=-30, max_value=30, width=32),
    st.sampled_from([0.0, -0.0, 0.5, 1.0, -math.inf, SUBNORMAL, LARGEST, -LARGEST]),
)
"""Any float32 but NaN, with the likely and the awkward ones made common."""

rows = st.lists(logit_values, min_size=1, max_size=60).filter(lambda row: max(row) > -math.inf)
"""Rows that the specification accepts."""

states = st.builds(
    SamplerState,
    temperature=st.one_of(st.sampled_from([0.0, 1.0, 0.7]), st.floats(2.0**-64, 2.0**64)),
    top_k=st.one_of(st.just(0), st.integers(1, 70)),
    top_p=st.one_of(st.just(P_UNIT), st.just(P_UNIT // 2), st.integers(1, P_UNIT)),
    min_p=st.one_of(st.just(0), st.just(P_UNIT // 4), st.integers(0, P_UNIT)),
    seed=st.integers(0, 2**64 - 1),
    index=st.integers(0, 2**64 - 1),
)
"""Sampler states over the whole range of every parameter."""
