"""Opening a model: the backend that computes it, and its tokenizer."""

from __future__ import annotations

from pathlib import Path

from vosti.impl.backend import Backend
from vosti.impl.bundled import find_checkpoint
from vosti.impl.errors import InvalidOptionError
from vosti.impl.options import PROVE_MISSING, Certification
from vosti.impl.tokenizer import ByteTokenizer, TextTokenizer, Tokenizer

AUTO, CPU, CUDA = "auto", "cpu", "cuda"

BACKENDS = (AUTO, CPU, CUDA)
"""The names of the backends; `AUTO` is `CUDA` where there is a GPU, and `CPU` elsewhere."""


def open_backend(
    path: str | Path,
    backend: str = AUTO,
    *,
    dummy_weights: int | None = None,
    unsafe_unprobed: bool = False,
    certification: Certification = PROVE_MISSING,
) -> Backend:
    """A model, loaded for a backend.

    Args:
        path: a checkpoint's folder, or the name of a bundled one; with dummy weights, a shape's name or file, too.
        backend: one of `BACKENDS`.
        dummy_weights: a seed for weights that are made up.
        unsafe_unprobed: whether a GPU is used on which the kernels were never checked.
        certification: which certificates are asked for of the kernels that a GPU runs.

    Raises:
        InvalidOptionError: for a backend that does not exist.
        NoDeviceError: for one that needs what is not here.
        UncertifiedKernelError: for a kernel that has no certificate, and gets none.
        CheckpointError: and `UnsupportedModelError`, for what cannot be served.
    """
    if backend not in BACKENDS:
        raise InvalidOptionError(f"There is no backend {backend!r}: the backends are {', '.join(BACKENDS)}.")
    found = find_checkpoint(path)
    if backend == CUDA or (backend == AUTO and _gpu_found()):
        from vosti.impl.backends.cuda.opening import open_cuda

        return open_cuda(
            found, dummy_weights=dummy_weights, unsafe_unprobed=unsafe_unprobed, certification=certification
        )
    from vosti.impl.backends.cpu import CpuBackend
    from vosti.impl.models.model import Model

    return CpuBackend(Model.load(found, dummy_weights=dummy_weights))


def open_tokenizer(path: str | Path) -> TextTokenizer:
    """The tokenizer of a checkpoint's folder; of a shape, which has none, one token for each byte.

    Raises `CheckpointError` for a folder whose tokenizer.json is missing or malformed.
    """
    found = find_checkpoint(path)
    return ByteTokenizer() if found.is_file() else Tokenizer(found)


def _gpu_found() -> bool:
    import torch

    return torch.cuda.is_available()
