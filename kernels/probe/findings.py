"""What a comparison comes to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vosti.kernels.hostile import bits


@dataclass(frozen=True)
class Finding:
    """A rule, tried in one form."""

    rule: str
    """Its name in `vosti.kernels.verifier.rules`, or `vosti.kernels.probe.repeats.REPEATABILITY`."""

    form: str
    """Element type, operation and tile."""

    classes: tuple[str, ...]
    """Of the matrix instructions in the machine code that ran."""

    compared: int
    """Elements."""

    different: int
    """Elements that the rule says are equal, and are not."""

    control: int
    """Elements in which what breaks the rule on purpose was found: of several controls, in the one found least."""

    kernel: str = ""
    """Of the catalogue, if this is about that kernel alone."""

    @property
    def problem(self) -> str | None:
        """Why it has not passed; None if it has."""
        if self.different:
            return f"{self.different} of {self.compared} elements differ"
        if not self.compared:
            return "nothing was compared"
        return None if self.control else "its control was not found, so that the data show nothing"


def differing(x: Tensor, y: Tensor) -> int:
    """Elements whose bits differ; a NaN is like any other."""
    return int((bits(x) != bits(y)).sum())


def next_up(x: Tensor) -> Tensor:
    """[...] → the same shape: each finite number's neighbour away from zero, by its bits."""
    words = torch.int16 if x.element_size() == 2 else torch.int32
    return torch.where(x.isfinite(), (x.view(words) + 1).view(x.dtype), x)
