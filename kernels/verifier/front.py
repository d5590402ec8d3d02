"""Kernels as they are compiled → the tile IR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton import knobs
from triton.backends.compiler import GPUTarget

from vosti.kernels.errors import KernelError
from vosti.kernels.launch import Kernel
from vosti.kernels.tile import Tile
from vosti.kernels.verifier import ir
from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.parse import parse


def located(
    kernel: Kernel,
    constants: Mapping[str, int],
    tile: Tile,
    target: GPUTarget,
    elements: Mapping[str, str] | None = None,
) -> ir.Kernel:
    """A kernel's IR with the lines of its source, without a GPU.

    Binaries are compiled without line information, so that their hashes do not depend on where the source is
    installed; the digest of the IR is the same either way.

    Raises:
        RefusedError: if Triton does not compile it, with its words; or for what the IR has that is not understood.
    """
    with knobs.compilation.scope():
        knobs.compilation.disable_line_info = False
        try:
            text = kernel.ttir(constants, tile, target, elements)
        except KernelError:
            raise
        except Exception as error:
            raise RefusedError(f"Triton does not compile the kernel: {type(error).__name__}: {error}") from error
        return parse(text)


def compiled(binary: Any) -> ir.Kernel:
    """The IR that a binary was made from: what `Kernel.compiled` gives, and what a launch returns."""
    return parse(binary.asm["ttir"])
