"""Kernels as they are compiled → the tile IR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton import JITFunction, knobs
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
        RefusedError: if an autotuner or the like wraps it; if Triton does not compile it, with its words; or for what
            the IR has that is not understood.
    """
    if not isinstance(kernel.function, JITFunction):
        raise RefusedError(
            f"{kernel.contract.kernel} is no function of triton.jit but {type(kernel.function).__name__}: what is "
            "chosen when it is launched is in no typed IR. List each choice as an instance of the function itself."
        )
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
