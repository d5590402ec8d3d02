"""From a launch of the device's plan to a call: tensors looked up, the tile chosen by the number of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vosti.impl.backends.cuda.memory import Memory
from vosti.impl.backends.cuda.metadata import Shape
from vosti.impl.backends.cuda.plan import SCRATCH, SEQUENCE_METADATA, TABLES, DevicePlan, Form, KernelLaunch
from vosti.impl.models.plan import Rows
from vosti.kernels.attention import Sequences, attention
from vosti.kernels.attention_split import ATTENTION_MERGE, ATTENTION_SPLIT, splits_needed
from vosti.kernels.attention_tiles import ROW_PROGRAM
from vosti.kernels.embedding import embedding
from vosti.kernels.finite import flag_logits
from vosti.kernels.gate_up import gate_up
from vosti.kernels.launch import distinct
from vosti.kernels.linear import linear
from vosti.kernels.rms_norm import rms_norm
from vosti.kernels.rotary_store import rotary_store
from vosti.kernels.tables import Choice, Table

Call = Callable[[], object]


@dataclass(frozen=True)
class Shared:
    """What all forwards over one pool share."""

    plans: Mapping[Form, DevicePlan]
    parameters: Mapping[str, Tensor]
    table: Table
    storage: torch.dtype
    """Of what contracts call bf16."""

    page_size: int
    table_width: int
    caches: Mapping[str, Tensor]
    """Keys and values of each layer by name, [slots, kv heads, d]."""

    graphs: bool
    """Whether small shapes are captured."""


@dataclass(frozen=True)
class Bound:
    """A launch with what it needs to become a call."""

    launch: KernelLaunch
    shape: Shape
    shared: Shared
    tensors: Mapping[str, Tensor]
    """Of all buffers, metadata and caches, in this forward's sizes."""

    memory: Memory
    """Where the states of splits stand."""

    def read(self, role: str) -> Tensor:
        """The tensor in a role that is read."""
        return self.tensors[dict(self.launch.reads)[role]]

    def written(self, role: str) -> Tensor:
        """The tensor in a role that is written."""
        return self.tensors[dict(self.launch.writes)[role]]

    def parameter(self, role: str) -> Tensor:
        """The parameter in a role."""
        return self.shared.parameters[dict(self.launch.parameters)[role]]

    def real(self, name: str) -> float | None:
        """A number, if the launch has one of this name."""
        return dict(self.launch.reals).get(name)

    def choice(self) -> Choice:
        """The tile for the launch."""
        return choice_of(self.launch, self.shape, self.shared.table)

    def cache(self) -> tuple[Tensor, Tensor]:
        """The layer's keys and values."""
        return self.read("keys"), self.read("values")

    def heads(self, tensor: Tensor) -> Tensor:
        """[rows, heads · d] → [rows, heads, d]."""
        return tensor.view(tensor.shape[0], self.launch.size("heads"), self.launch.size("head_dim"))


def choice_of(launch: KernelLaunch, shape: Shape, table: Table) -> Choice:
    """The tile for a launch: by its rows, and where a sequence's rows share a tile by those of a sequence."""
    rows = shape.rows if launch.rows is Rows.TOKENS else shape.selected
    if launch.operation == "attention_split":
        rows = shape.most_rows
    return table.entry(launch.operation, **dict(launch.sizes)).choice(rows)


def bind(bound: Bound) -> Call:
    """The call that launches it. Raises `KernelError` if there is no tile for it."""
    return CALLS[bound.launch.operation](bound)


def _embedding(bound: Bound) -> Call:
    out = bound.written("out")
    scale = bound.real("scale")
    return partial(embedding, bound.read("tokens"), bound.parameter("table"), out, bound.choice().tile, scale=scale)


def _rms_norm(bound: Bound) -> Call:
    reads = dict(bound.launch.reads)
    epsilon = bound.real("epsilon")
    assert epsilon is not None
    return partial(
        rms_norm,
        bound.read("x"),
        bound.parameter("weight"),
        bound.written("out"),
        epsilon,
        bound.choice().tile,
        unit_offset=bool(bound.launch.size("unit_offset")),
        residual=(bound.read("y"), bound.written("total_out")) if "y" in reads else None,
        row_map=bound.read("row_map") if "row_map" in reads else None,
        **({"scale": bound.parameter("scale")} if "scale" in dict(bound.launch.parameters) else {}),
    )


def _linear(bound: Bound) -> Call:
    choice = bound.choice()
    stream = choice.kernel.endswith("_stream")
    return partial(linear, bound.read("x"), bound.parameter("weight"), bound.written("out"), choice.tile, stream=stream)


def _gate_up(bound: Bound) -> Call:
    choice, activation = bound.choice(), bound.launch.size("activation")
    return partial(
        gate_up,
        bound.read("x"),
        bound.parameter("weight"),
        bound.written("out"),
        activation,
        choice.tile,
        stream=choice.kernel.endswith("_stream"),
    )


def _rotary_store(bound: Bound) -> Call:
    launch, epsilon = bound.launch, bound.real("epsilon")
    kind = launch.size("norm")
    # A pointer that is not read still has to be of its type.
    weight = bound.parameter("norm_weight") if kind else bound.read("qkv")
    return partial(
        rotary_store,
        bound.read("qkv"),
        (bound.parameter("cosines"), bound.parameter("sines")),
        bound.read("positions"),
        bound.read("slots"),
        bound.heads(bound.written("queries")),
        (bound.written("keys"), bound.written("values")),
        bound.written("flags"),
        bound.choice().tile,
        norm=None if epsilon is None else (kind, weight, epsilon),
        value_norm=bool(launch.size("value_norm")),
        shared=bool(launch.size("shared")),
    )


def _attention(bound: Bound) -> Call:
    scale = bound.real("scale")
    assert scale is not None
    return partial(
        attention,
        bound.heads(bound.read("queries")),
        bound.cache(),
        _sequences(bound),
        bound.heads(bound.written("out")),
        bound.written("flags"),
        scale,
        bound.choice().tile,
        window=bound.launch.size("window") or None,
    )


def _sequences(bound: Bound) -> Sequences:
    starts, counts, lengths = (bound.read(name) for name in SEQUENCE_METADATA)
    return Sequences(bound.read(TABLES), starts, counts, lengths, bound.shape.most_rows, bound.shared.page_size)


def _attention_split(bound: Bound) -> Call:
    sequences, tile = _sequences(bound), bound.choice().tile
    keys, values = bound.cache()
    queries = bound.heads(bound.read("queries"))
    states, sizes = _states(bound, tile.block("BLOCK_R"))
    distinct("attention_split", states["outputs"], queries, keys, values)
    arguments: dict[str, Any] = {
        "queries": queries,
        "keys": keys,
        "values": values,
        "tables": sequences.tables,
        "table_width": sequences.tables.shape[1],
        "scale": bound.real("scale"),
        "PAGE": bound.shared.page_size,
        "TILE": ROW_PROGRAM["TILE"],
        **sequences.metadata(),
        **states,
        **sizes,
    }
    return partial(
        ATTENTION_SPLIT.launch,
        arguments,
        tile,
        sequences=bound.shape.sequences,
        cells=states["maxima"].numel(),
        most_rows=bound.shape.most_rows,
    )


def _attention_merge(bound: Bound) -> Call:
    dimensions = dict(bound.launch.sizes)
    split = bound.shared.table.entry("attention_split", **dimensions).choice(bound.shape.most_rows).tile
    block_r = split.block("BLOCK_R")
    states, sizes = _states(bound, block_r)
    arguments: dict[str, Any] = {
        **{name: bound.read(name) for name in SEQUENCE_METADATA},
        **states,
        **sizes,
        "out": bound.heads(bound.written("out")),
        "flags": bound.written("flags"),
        "BLOCK_R": block_r,
    }
    return partial(
        ATTENTION_MERGE.launch,
        arguments,
        bound.choice().tile,
        sequences=bound.shape.sequences,
        most_rows=bound.shape.most_rows,
    )


def _states(bound: Bound, block_r: int) -> tuple[dict[str, Tensor], dict[str, int]]:
    """The scratch of a split and its merge, and the sizes that both are told."""
    launch, shape = bound.launch, bound.shape
    window = launch.size("window") or None
    splits = splits_needed(shape.longest, shape.most_rows, window)
    cells = shape.sequences * launch.size("kv_heads") * splits * block_r
    columns = {SCRATCH[2]: (launch.size("head_dim"),)}
    states = {name: bound.memory.take(name, (cells, *columns.get(name, ())), torch.float32) for name in SCRATCH}
    sizes = {
        "splits": splits,
        "HEADS": launch.size("heads"),
        "KV_HEADS": launch.size("kv_heads"),
        "HEAD_DIM": launch.size("head_dim"),
        "WINDOW": window or 0,
        "SPLIT": ROW_PROGRAM["SPLIT"],
    }
    return states, sizes


def _logits(bound: Bound) -> Call:
    assert bound.read("x").dtype == torch.float32
    return partial(flag_logits, bound.read("x"), bound.written("flags"), bound.choice().tile, cap=bound.real("cap"))


CALLS: Mapping[str, Callable[[Bound], Call]] = {
    "attention": _attention,
    "attention_merge": _attention_merge,
    "attention_split": _attention_split,
    "embedding": _embedding,
    "gate_up": _gate_up,
    "head": _linear,
    "linear": _linear,
    "logits": _logits,
    "rms_norm": _rms_norm,
    "rotary_store": _rotary_store,
}
"""How each operation becomes a call."""
