"""A tile: one of the ways to run a kernel, all of which give the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

OPTIONS: Mapping[str, object] = {"enable_fp_fusion": False}
"""Of every compilation: a multiplication and an addition stay two roundings."""


@dataclass(frozen=True)
class Tile:
    """Compile-time sizes of a kernel, and how a program is divided among threads."""

    blocks: tuple[tuple[str, int], ...]
    """Compile-time parameters of the kernel that change no value."""

    warps: int
    stages: int

    def options(self) -> dict[str, object]:
        """Options of the compiler."""
        return {"num_warps": self.warps, "num_stages": self.stages, **OPTIONS}

    def block(self, name: str) -> int:
        """One of the sizes."""
        return dict(self.blocks)[name]
