"""The device's memory beside weights and pool: buffers that grow when a forward needs more, and stay."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor


class Memory:
    """Named buffers on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.generation = 0
        """How often a buffer was replaced: addresses of an earlier generation are stale."""

        self._buffers: dict[str, Tensor] = {}
        self._host_buffers: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The beginning of the named buffer, in this shape; zeros where it is new."""
        elements = prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < elements:
            self.generation += 1
            self._buffers.pop(name, None)
            buffer = self._buffers[name] = torch.zeros(elements, dtype=dtype, device=self.device)
        return buffer[:elements].view(shape)

    def take_host(self, name: str, elements: int) -> Tensor:
        """[elements] int32 on the host, of memory that the device copies from and to."""
        buffer = self._host_buffers.get(name)
        if buffer is None or buffer.numel() < elements:
            pinned = self.device.type == "cuda"
            self._host_buffers[name] = buffer = torch.zeros(elements, dtype=torch.int32, pin_memory=pinned)
        return buffer[:elements]
