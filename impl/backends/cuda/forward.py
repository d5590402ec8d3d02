"""One forward of one shape: its launches, one by one or replayed as a CUDA graph.

A small shape is launched the first time that it is met, captured the second time and replayed from then on. A large one
is launched as its launches are bound to calls: the device works while the host looks up what comes next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vosti.impl.backends.cuda.binding import Bound, Call, Shared, bind
from vosti.impl.backends.cuda.memory import Memory
from vosti.impl.backends.cuda.metadata import Place, Shape, layout
from vosti.impl.backends.cuda.plan import BF16, FP32, I32, DeviceBuffer, DevicePlan
from vosti.impl.models.plan import LOGITS, Rows

LARGEST_GRAPH = 512
"""Rows of a forward, at most, that is captured."""


class Forward:
    """The launches of a plan for one shape of batch."""

    def __init__(self, shape: Shape, shared: Shared, memory: Memory) -> None:
        plan = shared.plans[shape.form]
        self.places: Mapping[str, Place] = layout(shape, shared.table_width)
        self._shape, self._shared, self._memory = shape, shared, memory
        self._launched = False
        self._graph: torch.cuda.CUDAGraph | None = None
        integers = max(place.end for place in self.places.values())
        self._flags = flag_places(plan, shape)
        flags = max((place.end for place in self._flags.values()), default=0)

        self._staged = memory.take_host("metadata", integers)
        self.host: npt.NDArray[np.int32] = self._staged.numpy()
        """Where a batch's integers are written before `run`."""

        self._metadata = memory.take("metadata", (integers,), torch.int32)
        self._raised = memory.take("flags", (flags,), torch.int32)
        self._read_back = memory.take_host("flags", flags)
        self._tensors: dict[str, Tensor] = dict(shared.caches)
        self._tensors |= {name: _at(self._metadata, place) for name, place in self.places.items()}
        self._tensors |= {name: _at(self._raised, place) for name, place in self._flags.items()}
        for buffer in plan.buffers:
            if buffer.name not in self._tensors:
                dtype = {BF16: shared.storage, FP32: torch.float32, I32: torch.int32}[buffer.element]
                self._tensors[buffer.name] = memory.take(buffer.name, (_rows(buffer, shape), *buffer.shape), dtype)
        self.logits = self._tensors[LOGITS]
        self._calls = None if shape.rows > LARGEST_GRAPH else list(self._bound())
        self.generation = memory.generation
        """Of the addresses that the calls hold."""

    def run(self) -> None:
        """Copy the integers to the device, and launch everything."""
        self._metadata.copy_(self._staged, non_blocking=True)
        self._raised.zero_()
        if self._graph is None and self._launched and self._calls and self._shared.graphs and self._metadata.is_cuda:
            self._graph = _captured(self._calls)
        if self._graph is not None:
            self._graph.replay()
        else:
            for call in self._calls or self._bound():
                call()
        self._launched = True
        self._read_back.copy_(self._raised, non_blocking=True)

    @property
    def replayed(self) -> bool:
        """Whether the last `run` replayed a graph."""
        return self._graph is not None

    def _bound(self) -> Iterator[Call]:
        """The calls, one by one."""
        for launch in self._shared.plans[self._shape.form].launches:
            yield bind(Bound(launch, self._shape, self._shared, self._tensors, self._memory))

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
