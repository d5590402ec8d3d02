"""Loading parameters: each tensor of the checkpoint exactly once, into exactly one place.

On the CPU everything is widened to float32, which is exact for the three dtypes that are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from vosti.impl.errors import CheckpointError, UnsupportedModelError
from vosti.impl.models.layers import parameter_shape
from vosti.impl.models.plan import Parameter, Plan, Source
from vosti.impl.models.safetensors import StoredTensor, find_tensors

DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
"""The dtypes that parameters may be stored in."""

HEAD = "lm_head.weight"
"""The head's tensor; a checkpoint with a tied head may hold it too, if it equals the embedding."""

EMBEDDING = "model.embed_tokens.weight"

OTHER_HALVES = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")
"""Beginnings of the names of tensors that a larger model has beside its text half."""

TEXT_PREFIXES = {"language_model.lm_head.": "lm_head.", "language_model.": "", "model.language_model.": "model."}
"""How larger models name the tensors of their text half, and how the text half alone names them."""


@dataclass(frozen=True)
class Loaded:
    """Parameters in memory."""

    parameters: Mapping[str, torch.Tensor]
    """float32, shaped as `parameter_shape` says."""

    digest: str
    """SHA-256 (hexadecimal) of names, dtypes, shapes and bytes of all tensors used, in the order of their names.

    It does not depend on how the checkpoint is cut into files.
    """


def load_parameters(folder: Path, plan: Plan, text_half: bool) -> Loaded:
    """All parameters of the plan.

    Raises `CheckpointError` if a tensor is missing, left over, of another shape, or stored as no number that is read,
    and if a tied head contradicts the embedding: all before the first parameter is allocated.
    """
    stored: dict[str, StoredTensor] = {}
    for tensor in find_tensors(folder).values():
        name = _text_name(tensor.name) if text_half else tensor.name
        if name in stored:
            raise CheckpointError(f"{folder}: tensors {stored[name].name!r} and {tensor.name!r} are the same one.")
        if name is not None:
            stored[name] = tensor
    sources = {source.name: source for parameter in plan.parameters for source in parameter.sources}
    duplicate = stored.pop(HEAD, None) if plan.tied else None
    _check_names(folder, set(sources), set(stored))
    for name, source in sources.items():
        _check_tensor(stored[name], source)
    hashes: dict[str, bytes] = {}
    if duplicate is not None:
        _check_duplicate(duplicate, stored[EMBEDDING], sources[EMBEDDING])
    parameters = {parameter.name: _load(parameter, stored, hashes) for parameter in plan.parameters}
    for alias, name in plan.tied:
        parameters[alias] = parameters[name].t()
    digest = hashlib.sha256(b"".join(hashes[name] for name in sorted(hashes))).hexdigest()
    return Loaded(parameters, digest)


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


def _check_duplicate(head: StoredTensor, embedding: StoredTensor, source: Source) -> None:
    _check_tensor(head, source)
    if head.dtype != embedding.dtype or not torch.equal(_read(head), _read(embedding)):
        raise CheckpointError(
            f"{head.file}: the head is tied to the embedding (tie_word_embeddings), but {head.name!r} differs from it."
        )


def _load(parameter: Parameter, stored: Mapping[str, StoredTensor], hashes: dict[str, bytes]) -> torch.Tensor:
    """One parameter; adds the hash of each tensor read to `hashes`."""
    target = torch.empty(parameter_shape(parameter), dtype=torch.float32)
    rows = target.t() if parameter.transposed else target
    counts: Sequence[int] = parameter.repeats or [source.shape[0] for source in parameter.sources]
    begin = 0
    for source, count in zip(parameter.sources, counts, strict=True):
        tensor = stored[source.name]
        data = _read(tensor)
        hashes[source.name] = _hash(source.name, tensor, data)
        rows[begin : begin + count].copy_(data.view(DTYPES[tensor.dtype]).view(source.shape))
        begin += count
    return target


def _hash(name: str, tensor: StoredTensor, data: torch.Tensor) -> bytes:
    header = f"{len(name)}:{name} {tensor.dtype} {tensor.shape}\n".encode()
    digest = hashlib.sha256(header)
    digest.update(data.numpy().data)
    return digest.digest()


def _read(tensor: StoredTensor) -> torch.Tensor:
    """The tensor's bytes. Raises `CheckpointError` if the file has become shorter since its header was checked."""
    data = torch.empty(tensor.size, dtype=torch.uint8)
    with tensor.file.open("rb") as file:
        file.seek(tensor.start)
        if file.readinto(data.numpy().data) != tensor.size:
            raise CheckpointError(f"{tensor.file}: tensor {tensor.name!r} ends beyond the end of the file.")
    return data
