"""Launches of kernels, recorded: what lay in their buffers before and after; and what the tile IR makes of the same.

They are Triton's interpreter's, in float32, or a GPU's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import torch

from vosti.kernels.catalogue import TARGETS
from vosti.kernels.contract import Buffer, Descriptor
from vosti.kernels.launch import Kernel as Launched
from vosti.kernels.tile import Tile
from vosti.kernels.verifier import interpret
from vosti.kernels.verifier.errors import VerifierError
from vosti.kernels.verifier.ir import Kernel
from vosti.kernels.verifier.parse import parse

TOLERANCE = 2e-6
"""Relative to the largest number: the interpreters add products in different orders. 0 where nothing is multiplied."""


@dataclass(frozen=True)
class Described:
    """A tensor descriptor of a buffer."""

    buffer: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Launch:
    """One launch. Buffers are flat arrays under a key; two arguments may be one buffer."""

    kernel: str
    module: str
    """Where the kernel is defined."""

    constants: dict[str, int]
    blocks: tuple[tuple[str, int], ...]
    grid: tuple[int, int, int]
    numbers: dict[str, int | float]
    pointers: dict[str, str]
    descriptors: dict[str, Described]
    before: dict[str, Any]
    after: dict[str, Any]
    text: str = ""
    """The typed IR of the binary that ran; Triton's interpreter has none."""

    def ttir(self) -> str:
        """The typed IR of this form of the kernel, with float32 in the place of bfloat16."""
        kernels = [one for one in vars(import_module(self.module)).values() if isinstance(one, Launched)]
        (kernel,) = [one for one in kernels if one.contract.kernel == self.kernel]
        elements = {
            parameter.name: "fp32"
            for parameter in kernel.contract.parameters
            if isinstance(parameter, Buffer | Descriptor) and parameter.element == "bf16"
        }
        return kernel.ttir(self.constants, Tile(self.blocks, 4, 1), TARGETS["sm_90"], elements)

    def run(self, kernel: Kernel) -> dict[str, Any]:
        """The buffers after running the tile IR."""
        buffers = {key: array.copy() for key, array in self.before.items()}
        arguments: dict[str, interpret.Argument] = {
            **self.numbers,
            **{name: buffers[key] for name, key in self.pointers.items()},
            **{
                name: interpret.Array(buffers[described.buffer], described.shape, described.strides)
                for name, described in self.descriptors.items()
            },
        }
        interpret.run(kernel, arguments, self.grid)
        return buffers

    def problem(self, text: str, edit: Callable[[str], str] = lambda text: text) -> str | None:
        """How the tile IR of a text differs from what Triton's interpreter did, if it does."""
        try:
            found = self.run(parse(edit(text)))
        except VerifierError as error:
            return str(error)
        tolerance = TOLERANCE if "tt.dot" in text or "__nv_tanhf" in text else 0.0
        for key, expected in self.after.items():
            names = [name for name, other in self.pointers.items() if other == key]
            names += [name for name, described in self.descriptors.items() if described.buffer == key]
            if not _equal(expected, found[key], tolerance):
                return f"{' and '.join(names)} differs"
        return None


def _equal(expected: Any, found: Any, tolerance: float) -> bool:
    if expected.dtype.kind != "f" or tolerance == 0.0:
        return bool(np.array_equal(expected, found, equal_nan=expected.dtype.kind == "f"))
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))))
    return bool(np.allclose(expected, found, rtol=0.0, atol=tolerance * scale, equal_nan=True))


Launcher = Callable[..., Any]
"""`Kernel.launch`, or what stands for it: it gives what was compiled, as `asm`."""


@contextmanager
def recorded(launch: Launcher = Launched.launch) -> Iterator[list[Launch]]:
    """Every launch in the block is done by `launch`, and taken down."""
    launches: list[Launch] = []

    def recording(self: Launched, arguments: dict[str, Any], tile: Tile, **sizes: int) -> Any:
        before = taken_down(self, arguments, tile, sizes)
        binary = launch(self, arguments, tile, **sizes)
        after = taken_down(self, arguments, tile, sizes).before
        launches.append(replace(before, after=after, text=binary.asm["ttir"] if hasattr(binary, "asm") else ""))
        return binary

    original = Launched.launch
    Launched.launch = recording  # type: ignore[method-assign,assignment]
    try:
        yield launches
    finally:
        Launched.launch = original  # type: ignore[method-assign]


def taken_down(kernel: Launched, arguments: dict[str, Any], tile: Tile, sizes: dict[str, int]) -> Launch:
    """A launch that is to come."""
    tensors = tensors_of(arguments)
    constants = {name: value for name, value in arguments.items() if name in kernel.contract.constants}
    described = {
        name: Described(key_of(tensors[name]), tuple(value.shape), tuple(value.strides))
        for name, value in arguments.items()
        if hasattr(value, "base")
    }
    return Launch(
        kernel=kernel.contract.kernel,
        module=kernel.function.fn.__module__,
        constants=constants,
        blocks=tile.blocks,
        grid=kernel.contract.programs({**arguments, **dict(tile.blocks), **sizes}),
        numbers={name: value for name, value in arguments.items() if name not in {*constants, *tensors}},
        pointers={name: key_of(tensor) for name, tensor in tensors.items() if name not in described},
        descriptors=described,
        before={key_of(tensor): as_array(tensor) for tensor in tensors.values()},
        after={},
    )


def tensors_of(arguments: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The buffers among arguments; of a descriptor, what it describes."""
    bases = {name: getattr(value, "base", value) for name, value in arguments.items()}
    return {name: base for name, base in bases.items() if isinstance(base, torch.Tensor)}


def key_of(tensor: torch.Tensor) -> str:
    """The same for the same memory; a buffer that is not used may be another one under another type."""
    return f"{tensor.data_ptr()} {tensor.dtype}"


def as_array(tensor: torch.Tensor) -> Any:
    """A copy of a tensor's elements; of bf16 numbers, their bits as uint16."""
    flat = tensor.detach().reshape(-1).cpu()
    return np.array(flat.view(torch.int16).numpy().view(np.uint16) if flat.dtype == torch.bfloat16 else flat.numpy())
