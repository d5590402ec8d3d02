"""Rotary position embedding as config.json describes it, in both spellings."""

from __future__ import annotations

from dataclasses import dataclass

from vosti.impl.errors import CheckpointError, UnsupportedModelError
from vosti.impl.models.fields import Fields

ROPE_FIELDS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "proportional": ("factor", "partial_rotary_factor"),
}
"""Supported rope types and the fields, beside the base frequency, that each has."""


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding of one layer type."""

    kind: str
    theta: float
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 1.0
    original_positions: int = 1
    share: float = 1.0
    """Of the pairs of a head that turn; the others, behind them, do not."""


def read_plain_rope(fields: Fields) -> Rope:
    """The rope of an architecture that has one for all layers, and 10,000 for its base if the file says nothing."""
    return read_rope(fields, fields.object("rope_parameters"), fields.object("rope_scaling"), "rope_theta", 10_000.0)


def read_rope(fields: Fields, new: Fields, old: Fields, theta_name: str, default_theta: float) -> Rope:
    """One layer type's rope.

    Args:
        fields: the file's fields, among them the base frequency in the older spelling.
        new: the object of transformers 5, or an empty one.
        old: the older object that only scales, or an empty one.
        theta_name: the field of the base frequency in the older spelling.
        default_theta: the base frequency if the file names none.
    """
    for name, value in new.values.items():
        if value is not None and old.has(name) and old.values[name] != value:
            raise CheckpointError(f"{new.where}: {name} = {value!r}, but {old.where} says {old.values[name]!r}.")
    stated = {name: value for name, value in new.values.items() if value is not None}
    merged = Fields({**old.values, **stated}, new.where if stated else old.where)
    kind = merged.agreeing("rope_type", "type") or "default"
    if not isinstance(kind, str) or kind not in ROPE_FIELDS:
        raise UnsupportedModelError(
            f"{merged.where}: rope type {kind!r} is not supported; supported are {', '.join(ROPE_FIELDS)}."
        )
    allowed = {"rope_type", "type", "rope_theta", *ROPE_FIELDS[kind]}
    if merged.values.get("partial_rotary_factor") == 1:
        allowed.add("partial_rotary_factor")
    for name in merged.values:
        if merged.has(name) and name not in allowed:
            raise UnsupportedModelError(f"{merged.where}: {name} is not supported with rope type {kind!r}.")
    if merged.has("rope_theta") and fields.has(theta_name) and merged.values["rope_theta"] != fields.values[theta_name]:
        raise CheckpointError(
            f"{merged.where}: rope_theta = {merged.values['rope_theta']!r}, but {theta_name} = "
            f"{fields.values[theta_name]!r}."
        )
    theta = merged.number("rope_theta") if merged.has("rope_theta") else fields.number(theta_name, default_theta)
    if kind == "default":
        return Rope(kind, theta)
    if kind == "linear":
        return Rope(kind, theta, merged.number("factor"))
    if kind == "proportional":
        share = merged.number("partial_rotary_factor", 1.0)
        if share > 1:
            raise merged.wrong("partial_rotary_factor", "at most 1")
        return Rope(kind, theta, merged.number("factor", 1.0), share=share)
    rope = Rope(
        kind,
        theta,
        merged.number("factor"),
        merged.number("low_freq_factor"),
        merged.number("high_freq_factor"),
        merged.integer("original_max_position_embeddings"),
    )
    if rope.low_frequency_factor >= rope.high_frequency_factor:
        raise CheckpointError(f"{merged.where}: low_freq_factor must be below high_freq_factor.")
    return rope
