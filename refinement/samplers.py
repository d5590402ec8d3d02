"""Sampler states in traces."""

from __future__ import annotations

from vosti.refinement.errors import UnwritableEvent
from vosti.refinement.parts import SamplerFields
from vosti.spec.sampling import SamplerState
from vosti.spec.state import Sampler


def sampler_fields(sampler: Sampler) -> SamplerFields:
    """A sampler state's fields. Raises `UnwritableEvent` if it is not a `SamplerState`."""
    if not isinstance(sampler, SamplerState):
        raise UnwritableEvent(f"{sampler!r} is no sampler state: record vosti.spec.sampling.SamplerState objects.")
    return SamplerFields(
        temperature=float(sampler.temperature),
        top_k=sampler.top_k,
        top_p=sampler.top_p,
        min_p=sampler.min_p,
        seed=sampler.seed,
        index=sampler.index,
    )


def sampler_from(fields: SamplerFields) -> Sampler:
    """The sampler state of these fields. Raises ValueError or TypeError if one is out of its range."""
    return Sampler(
        SamplerState(
            temperature=fields.temperature,
            top_k=fields.top_k,
            top_p=fields.top_p,
            min_p=fields.min_p,
            seed=fields.seed,
            index=fields.index,
        )
    )
