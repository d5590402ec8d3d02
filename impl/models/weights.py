"""Loading parameters: each tensor into exactly one place, in the dtype and on the device of a backend.

Tensors come one at a time, so that a model needs no more memory on the host than its largest one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from vosti.impl.models.layers import parameter_shape
from vosti.impl.models.plan import Parameter
from vosti.impl.models.tensors import Tensors


def load_parameters(
    parameters: Sequence[Parameter], tensors: Tensors, dtype: torch.dtype, device: torch.device, *, tied: bool
) -> dict[str, torch.Tensor]:
    """Each parameter by name, shaped as `parameter_shape` says; `tied` says that the head is the embedding.

    float32 holds exactly what is stored; bf16 is rounded to nearest even where it is stored as another dtype. Raises
    `CheckpointError` and `UnsupportedModelError`, before the first parameter is allocated.
    """
    tensors.check((source for parameter in parameters for source in parameter.sources), tied)
    return {parameter.name: _load(parameter, tensors, dtype, device) for parameter in parameters}


def _load(parameter: Parameter, tensors: Tensors, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    target = torch.empty(parameter_shape(parameter), dtype=dtype, device=device)
    rows = target.t() if parameter.transposed else target
    counts: Sequence[int] = parameter.repeats or [source.shape[0] for source in parameter.sources]
    begin = 0
    for number, (source, count) in enumerate(zip(parameter.sources, counts, strict=True)):
        places = slice(number, None, len(counts)) if parameter.interleaved else slice(begin, begin + count)
        rows[places].copy_(tensors.read(source, device))
        begin += count
    return target
