"""Where parameters come from: the tensors of a checkpoint, each used exactly once, or dummy ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import torch

from vosti.impl.errors import CheckpointError, UnsupportedModelError
from vosti.impl.models.plan import Source
from vosti.impl.models.safetensors import StoredTensor, find_tensors

DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
"""The dtypes that parameters may be stored in."""

EMBEDDING = "model.embed_tokens.weight"

HEAD = "lm_head.weight"
"""The head's tensor; a checkpoint with a tied head may hold it too, if it equals the embedding."""

PARTS = ("vision_tower", "audio_tower", "multi_modal_projector", "embed_vision", "embed_audio", "vision_embedder")
"""What a larger model has beside its text half."""

OTHER_HALVES = tuple(f"{prefix}{part}." for prefix in ("", "model.") for part in PARTS)
"""Beginnings of the names of its tensors."""

TEXT_PREFIXES = {"language_model.lm_head.": "lm_head.", "language_model.": "", "model.language_model.": "model."}
"""How larger models name the tensors of their text half, and how the text half alone names them."""


class Tensors(Protocol):
    """The tensors of a model, by name."""

    def check(self, sources: Iterable[Source], tied: bool) -> None:
        """Refuse what cannot be read as these sources and nothing else, before any of them is read.

        `tied` says that the head is the embedding. Raises `CheckpointError` and `UnsupportedModelError`.
        """

    def read(self, source: Source, device: torch.device) -> torch.Tensor:
        """One of the sources checked, on the device, in the dtype that it is stored in."""

    def identity(self) -> str:
        """What W says of the weights; known once all of them were read."""


class CheckpointTensors:
    """The tensors of a checkpoint's folder: each one used, none missing, none left over."""

    def __init__(self, folder: Path, text_half: bool) -> None:
        """Find the tensors. Raises `CheckpointError` for files that are no safetensors checkpoint."""
        self._folder = folder
        self._stored: dict[str, StoredTensor] = {}
        self._hashes: dict[str, bytes] = {}
        for tensor in find_tensors(folder).values():
            name = _text_name(tensor.name) if text_half else tensor.name
            if name in self._stored:
                first = self._stored[name].name
                raise CheckpointError(f"{folder}: tensors {first!r} and {tensor.name!r} are the same one.")
            if name is not None:
                self._stored[name] = tensor

    def check(self, sources: Iterable[Source], tied: bool) -> None:
        """Refuse tensors that are missing, left over, of another shape or dtype, and a tied head that differs."""
        wanted = {source.name: source for source in sources}
        head = self._stored.pop(HEAD, None) if tied else None
        _check_names(self._folder, set(wanted), set(self._stored))
        for name, source in wanted.items():
            _check_tensor(self._stored[name], source)
        if head is not None:
            _check_head(head, self._stored[EMBEDDING], wanted[EMBEDDING])

    def read(self, source: Source, device: torch.device) -> torch.Tensor:
        """The tensor; only one at a time is in the host's memory, unless the device is the host."""
        stored = self._stored[source.name]
        data = read_bytes(stored)
        self._hashes[source.name] = _hash(source.name, stored, data)
        return data.view(DTYPES[stored.dtype]).view(source.shape).to(device)

    def identity(self) -> str:
        """SHA-256 (hexadecimal) of names, dtypes, shapes and bytes of all tensors read, in the order of their names.

        It does not depend on how the checkpoint is cut into files.
        """
        return hashlib.sha256(b"".join(self._hashes[name] for name in sorted(self._hashes))).hexdigest()


def _text_name(name: str) -> str | None:
    """The name that the text half alone would use; None for a tensor of another half."""
    if name.startswith(OTHER_HALVES):
        return None
    for prefix, replacement in TEXT_PREFIXES.items():
        if name.startswith(prefix):
            return replacement + name.removeprefix(prefix)
    return name


def _check_names(folder: Path, wanted: set[str], found: set[str]) -> None:
    if wanted - found:
        raise CheckpointError(f"{folder}: {_listed(wanted - found)} missing from the checkpoint.")
    if found - wanted:
        raise CheckpointError(f"{folder}: {_listed(found - wanted)} not used by this architecture.")


def _listed(names: set[str]) -> str:
    first = sorted(names)[0]
    return f"tensor {first!r} is" if len(names) == 1 else f"tensor {first!r} and {len(names) - 1} more are"


def _check_tensor(tensor: StoredTensor, source: Source) -> None:
    if tensor.dtype not in DTYPES:
        raise UnsupportedModelError(
            f"{tensor.file}: tensor {tensor.name!r} has dtype {tensor.dtype}; parameters must be {', '.join(DTYPES)}."
        )
    if tensor.shape != source.shape:
        raise CheckpointError(
            f"{tensor.file}: tensor {tensor.name!r} has shape {tensor.shape}, but config.json makes it {source.shape}."
        )


def _check_head(head: StoredTensor, embedding: StoredTensor, source: Source) -> None:
    _check_tensor(head, source)
    if head.dtype != embedding.dtype or not torch.equal(read_bytes(head), read_bytes(embedding)):
        raise CheckpointError(
            f"{head.file}: the head is tied to the embedding (tie_word_embeddings), but {head.name!r} differs from it."
        )


def _hash(name: str, tensor: StoredTensor, data: torch.Tensor) -> bytes:
    header = f"{len(name)}:{name} {tensor.dtype} {tensor.shape}\n".encode()
    digest = hashlib.sha256(header)
    digest.update(data.numpy().data)
    return digest.digest()


def read_bytes(tensor: StoredTensor) -> torch.Tensor:
    """The tensor's bytes. Raises `CheckpointError` if the file has become shorter since its header was checked."""
    data = torch.empty(tensor.size, dtype=torch.uint8)
    with tensor.file.open("rb") as file:
        file.seek(tensor.start)
        if file.readinto(data.numpy().data) != tensor.size:
            raise CheckpointError(f"{tensor.file}: tensor {tensor.name!r} ends beyond the end of the file.")
    return data
