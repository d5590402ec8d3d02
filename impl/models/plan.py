"""The forward as data: a launch plan.

A plan lists, in order, everything that happens between the token ids and the logits. A backend runs it and adds
nothing; a proof composes the operations' contracts along it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Operation(Enum):
    """The row program that a launch runs; the value is its name in `vosti.spec.numerics`."""

    EMBEDDING = "embedding"
    SCALED_EMBEDDING = "scaled_embedding"
    ANGLES = "angles"
    LINEAR = "linear"
    RMS_NORM = "rms_norm"
    RMS_NORM_UNIT_OFFSET = "rms_norm_unit_offset"
    UNWEIGHTED_RMS_NORM = "unweighted_rms_norm"
    RESIDUAL_RMS_NORM = "residual_rms_norm"
    RESIDUAL_RMS_NORM_UNIT_OFFSET = "residual_rms_norm_unit_offset"
    SCALED_RESIDUAL_RMS_NORM = "scaled_residual_rms_norm"
    ROTATE = "rotate"
    STORE = "store"
    """Keep the row's key and value in its slot; no arithmetic."""

    ATTENTION = "attention"
    SILU_MUL = "silu_mul"
    GELU_TANH_MUL = "gelu_tanh_mul"
    SOFTCAP = "softcap"


class Rows(Enum):
    """Which rows a launch computes, and from which rows of its inputs."""

    TOKENS = "tokens"
    """Each row of the batch, from the same row of each input."""

    SELECTED = "selected"
    """Output row i, for each wanted logit row i, from row `logit_rows[i]` of each input."""

    LOGITS = "logits"
    """Each wanted logit row, from the same row of each input."""


TOKEN_IDS, POSITIONS = "tokens", "positions"
"""Inputs of a plan: an integer per row of the batch."""

LOGITS = "logits"
"""The output of a plan: [vocabulary] per wanted logit row."""


@dataclass(frozen=True)
class Launch:
    """One operation over all its rows. An output may be an input's name: it is overwritten.

    Where one result has several outputs, its columns (heads, of a row with heads) are divided among them in order.
    """

    operation: Operation
    inputs: tuple[str, ...]
    """Buffers read, row by row as `rows` says."""

    outputs: tuple[str, ...]
    """Buffers written."""

    parameters: tuple[str, ...] = ()
    """Names of the model's parameters and tables, shared by all rows."""

    constants: tuple[float, ...] = ()
    """In the order of the row program's arguments."""

    rows: Rows = Rows.TOKENS
    layer: int | None = None
    """Whose keys and values are stored or read."""

    window: int | None = None
    """Positions that each row sees, its own included; None for all. Of attention only."""


@dataclass(frozen=True)
class Buffer:
    """An array with one entry per row."""

    name: str
    shape: tuple[int, ...]
    """Of one row's entry."""


@dataclass(frozen=True)
class Source:
    """A part of a parameter, as the checkpoint stores it."""

    name: str
    shape: tuple[int, ...]
    centre: float = 0.0
    """What dummy numbers in its place scatter about."""


@dataclass(frozen=True)
class Parameter:
    """A parameter as the plan uses it.

    The sources are stacked along their first axis (a source may stand in two places); a `transposed` parameter is kept
    [inputs, outputs], the checkpoint's sources being [outputs, inputs].
    """

    name: str
    sources: tuple[Source, ...]
    transposed: bool = False
    interleaved: bool = False
    """Whether the rows of the sources, which have one shape, alternate: row i of source j is row i · sources + j."""

    repeats: tuple[int, ...] = ()
    """If given, one count per source: a source [n] is repeated to [count, n] before stacking."""


@dataclass(frozen=True)
class KVShape:
    """What one layer keeps of a row: a key and a value of [heads, head_dim] each."""

    heads: int
    head_dim: int


@dataclass(frozen=True)
class Plan:
    """The launches of one forward, and what they name."""

    buffers: tuple[Buffer, ...]
    parameters: tuple[Parameter, ...]
    launches: tuple[Launch, ...]
    kv_shapes: tuple[KVShape, ...]
    """Of each layer, in order."""

    tables: tuple[str, ...] = ()
    """Parameters that are computed from the configuration and not loaded: the tables of rotary embedding."""

    tied: tuple[tuple[str, str], ...] = ()
    """(alias, parameter): the alias is the parameter, transposed."""


def plan_problems(plan: Plan) -> list[str]:
    """What is wrong with a plan; empty for a sound one.

    Names that nothing defines or uses, reads before writes, attention before its layer's store, layers left out.
    """
    problems = []
    declared = [buffer.name for buffer in plan.buffers]
    known = {parameter.name for parameter in plan.parameters} | set(plan.tables) | {alias for alias, _ in plan.tied}
    used = {name for launch in plan.launches for name in launch.parameters} | {name for _, name in plan.tied}
    problems += [f"parameter {name} is unknown" for name in sorted(used - known)]
    problems += [f"parameter {name} is unused" for name in sorted(known - used)]
    problems += [f"buffer {name} is declared twice" for name in _repeated(declared)]
    space = {TOKEN_IDS: Rows.TOKENS, POSITIONS: Rows.TOKENS}
    stored: list[int | None] = []
    for number, launch in enumerate(plan.launches):
        wanted = Rows.LOGITS if launch.rows is Rows.LOGITS else Rows.TOKENS
        for name in launch.inputs:
            if space.get(name) is not wanted:
                problems.append(f"launch {number} ({launch.operation.value}) reads {name} before it is written")
        if launch.operation is Operation.STORE:
            stored.append(launch.layer)
            problems += _misshapen(plan, number, launch)
        if launch.operation is Operation.ATTENTION and launch.layer not in stored:
            problems.append(f"launch {number} attends to layer {launch.layer} before its keys are stored")
        for name in launch.outputs:
            space[name] = Rows.TOKENS if launch.rows is Rows.TOKENS else Rows.LOGITS
            if name not in declared:
                problems.append(f"buffer {name} is not declared")
    if stored != list(range(len(plan.kv_shapes))):
        problems.append(f"layers {stored} are stored, not each of {len(plan.kv_shapes)} once, in order")
    if space.get(LOGITS) is not Rows.LOGITS:
        problems.append("no launch writes the logits")
    return problems


def _misshapen(plan: Plan, number: int, launch: Launch) -> list[str]:
    """What is wrong with the sizes of a store's key and value; an unknown layer or buffer is reported elsewhere."""
    if launch.layer is None or launch.layer not in range(len(plan.kv_shapes)):
        return []
    kv = plan.kv_shapes[launch.layer]
    shapes = {buffer.name: buffer.shape for buffer in plan.buffers}
    return [
        f"launch {number} stores {name} of {shapes[name]} in layer {launch.layer} of {(kv.heads, kv.head_dim)}"
        for name in launch.inputs
        if shapes.get(name, (kv.heads, kv.head_dim)) != (kv.heads, kv.head_dim)
    ]


def _repeated(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
