"""One forward of one shape: its calls bound once, then launched one by one, or replayed as a CUDA graph.

A shape is launched the first time that it is met, captured the second time and replayed from then on; large ones are
always launched, since their launches take less time than their work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vosti.impl.backends.cuda.binding import Bound, Call, bind
from vosti.impl.backends.cuda.memory import Memory
from vosti.impl.backends.cuda.metadata import Place, Shape, layout
from vosti.impl.backends.cuda.plan import BF16, FP32, I32, DeviceBuffer, DevicePlan, Form
from vosti.impl.models.plan import LOGITS, Rows
from vosti.kernels.tables import Table

LARGEST_GRAPH = 512
"""Rows of a forward, at most, that is captured."""


@dataclass(frozen=True)
class Model:
    """What all forwards share."""

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


class Forward:
    """The launches of a plan for one shape of batch."""

    def __init__(self, shape: Shape, model: Model, memory: Memory) -> None:
        plan = model.plans[shape.form]
        self.shape = shape
        self.places: Mapping[str, Place] = layout(shape, model.table_width)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._capturing = model.graphs and shape.rows <= LARGEST_GRAPH
        self._runs = 0
        integers = max(place.end for place in self.places.values())
        self._flags = flag_places(plan, shape)
        flags = max((place.end for place in self._flags.values()), default=0)

        self._staged = memory.take_host("metadata", integers)
        self.host: npt.NDArray[np.int32] = self._staged.numpy()
        """Where a batch's integers are written before `run`."""

        self._metadata = memory.take("metadata", (integers,), torch.int32)
        self._raised = memory.take("flags", (flags,), torch.int32)
        self._read_back = memory.take_host("flags", flags)
        tensors: dict[str, Tensor] = dict(model.caches)
        tensors |= {name: _at(self._metadata, place) for name, place in self.places.items()}
        tensors |= {name: _at(self._raised, place) for name, place in self._flags.items()}
        for buffer in plan.buffers:
            if buffer.name not in tensors:
                dtype = {BF16: model.storage, FP32: torch.float32, I32: torch.int32}[buffer.element]
                tensors[buffer.name] = memory.take(buffer.name, (_rows(buffer, shape), *buffer.shape), dtype)
        self.logits = tensors[LOGITS]
        self._calls: list[Call] = [
            bind(
                Bound(
                    launch,
                    shape,
                    model.page_size,
                    model.table,
                    tensors,
                    model.parameters,
                    lambda name, sizes: memory.take(name, sizes, torch.float32),
                )
            )
            for launch in plan.launches
        ]
        self.generation = memory.generation
        """Of the addresses that the calls hold."""

    def run(self) -> None:
        """Copy the integers to the device, and launch everything."""
        self._metadata.copy_(self._staged, non_blocking=True)
        self._raised.zero_()
        self._runs += 1
        if self._graph is None and self._runs > 1 and self._metadata.is_cuda and self._capturing:
            self._graph = _captured(self._calls)
        if self._graph is not None:
            self._graph.replay()
        else:
            for call in self._calls:
                call()
        self._read_back.copy_(self._raised, non_blocking=True)

    def flagged(self, name: str) -> npt.NDArray[np.bool_]:
        """[rows] Whether any flag of a row is raised, by name of the flags' buffer, once the device is done."""
        place = self._flags[name]
        flags = self._read_back.numpy()[place.offset : place.end].reshape(place.shape)
        raised: npt.NDArray[np.bool_] = flags.max(1, initial=0) > 0
        return raised

    @property
    def kv_flags(self) -> list[str]:
        """The names of the buffers of flags on keys and values."""
        return [name for name in self._flags if name.startswith("kv_flags.")]


def flag_places(plan: DevicePlan, shape: Shape) -> dict[str, Place]:
    """Where the flags that are read back stand in their common buffer.

    Those of attention are not among them: a row whose attention is not finite has no finite number in the keys and
    values of the next layer, or else in its logits, and nothing else reads it.
    """
    places, offset = {}, 0
    for buffer in plan.buffers:
        if buffer.name.startswith(("kv_flags.", "logit_flags")):
            places[buffer.name] = Place(offset, (_rows(buffer, shape), *buffer.shape))
            offset = -(-places[buffer.name].end // 4) * 4
    return places


def _rows(buffer: DeviceBuffer, shape: Shape) -> int:
    return shape.rows if buffer.rows is Rows.TOKENS else shape.selected


def _at(buffer: Tensor, place: Place) -> Tensor:
    return buffer[place.offset : place.end].view(place.shape)


def _captured(calls: list[Call]) -> torch.cuda.CUDAGraph:
    """A graph of the calls, which have run before: capturing runs nothing, and must find nothing to compile."""
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            for call in calls:
                call()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph
