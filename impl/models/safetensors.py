"""A strict reader of safetensors files.

The header is checked whole before anything is allocated, and each error names file and tensor. Format: 8 bytes of
little-endian header length, a JSON object that gives each tensor's dtype, shape and byte span, and the data, which
the spans must cover without gap and without overlap.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vosti.impl.errors import CheckpointError
from vosti.impl.models.fields import Fields, read_json_object, unique_keys

SINGLE = "model.safetensors"
"""The file of a checkpoint that is not sharded."""

INDEX = "model.safetensors.index.json"
"""The file that says which shard holds which tensor."""

ITEM_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
"""Bits per element of each dtype of the format whose elements fill whole bytes."""

LONGEST_HEADER = 100_000_000
"""Bytes; the limit of the reference implementation."""


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies."""

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    """Offset of its first byte in the file."""

    size: int
    """In bytes."""


def find_tensors(folder: Path) -> dict[str, StoredTensor]:
    """All tensors of a checkpoint, single or sharded, by name. Raises `CheckpointError` for every irregularity."""
    single, index = folder / SINGLE, folder / INDEX
    if single.is_file() and index.is_file():
        raise CheckpointError(f"{folder} holds both {SINGLE} and {INDEX}; keep the one that is meant.")
    if index.is_file():
        return _sharded(index)
    if single.is_file():
        return read_header(single)
    raise CheckpointError(f"{folder} has neither {SINGLE} nor {INDEX}; only safetensors checkpoints can be read.")


def _sharded(index: Path) -> dict[str, StoredTensor]:
    weight_map = Fields(read_json_object(index), str(index)).object("weight_map").values
    shards: dict[str, dict[str, StoredTensor]] = {}
    for name, file in weight_map.items():
        if not isinstance(file, str) or file in ("", ".", "..") or any(sign in file for sign in "/\\:\0"):
            raise CheckpointError(f"{index}: tensor {name!r} must lie in a file of this folder, not in {file!r}.")
        if file not in shards:
            shards[file] = read_header(index.parent / file)
    for file, tensors in shards.items():
        for name in tensors:
            if weight_map.get(name) != file:
                raise CheckpointError(f"{index}: tensor {name!r} lies in {file}, which the index does not say.")
    for name, file in weight_map.items():
        if name not in shards[file]:
            raise CheckpointError(f"{index}: tensor {name!r} should lie in {file}, which does not hold it.")
    return {name: shards[file][name] for name, file in weight_map.items()}


def read_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of one file, by name. Raises `CheckpointError` unless header and file size fit each other exactly."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length < 2 or length > min(size - 8, LONGEST_HEADER):
                raise CheckpointError(
                    f"{path}: a header of {length} bytes is impossible in a file of {size}; the file is damaged or "
                    "is no safetensors file."
                )
            text = file.read(length)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: the header is not valid JSON: {error}.") from error
    if not text.startswith(b"{") or not isinstance(header, dict):
        raise CheckpointError(f"{path}: the header must be a JSON object.")
    _check_metadata(path, header.pop("__metadata__", {}))
    tensors = {name: _entry(path, name, entry, 8 + length) for name, entry in header.items()}
    _check_cover(path, tensors, 8 + length, size)
    return tensors


def _check_metadata(path: Path, metadata: Any) -> None:
    if not isinstance(metadata, dict) or any(not isinstance(value, str) for value in metadata.values()):
        raise CheckpointError(f"{path}: __metadata__ must map names to strings.")


def _entry(path: Path, name: str, entry: Any, data: int) -> StoredTensor:
    """A tensor's entry of the header, checked on its own; `data` is where the data part begins."""

    def wrong(reason: str) -> CheckpointError:
        return CheckpointError(f"{path}: tensor {name!r} {reason}.")

    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise wrong("must have dtype, shape and data_offsets, and nothing else")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BITS:
        raise wrong(f"has unknown dtype {dtype!r}")
    if not _are_counts(shape):
        raise wrong(f"has shape {shape!r}, which is not a list of integers of at least 0")
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise wrong(f"has data_offsets {offsets!r}, which are not a begin and an end")
    begin, end = offsets
    wanted = math.prod(shape) * ITEM_BITS[dtype] // 8
    if end - begin != wanted:
        raise wrong(f"spans {end - begin} bytes, but shape {shape} of {dtype} takes {wanted}")
    return StoredTensor(path, name, dtype, tuple(shape), data + begin, wanted)


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_cover(path: Path, tensors: Mapping[str, StoredTensor], data: int, size: int) -> None:
    """Raises `CheckpointError` unless the spans cover the data part exactly."""
    reached = data
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.start, tensor.size)):
        if tensor.start + tensor.size > size:
            raise CheckpointError(
                f"{path}: tensor {tensor.name!r} ends {tensor.start + tensor.size - size} bytes beyond the end of the "
                "file, which is truncated or damaged."
            )
        if tensor.start != reached:
            problem = "overlaps the tensor before it" if tensor.start < reached else "leaves a gap before it"
            raise CheckpointError(f"{path}: tensor {tensor.name!r} {problem}.")
        reached = tensor.start + tensor.size
    if reached != size:
        raise CheckpointError(f"{path}: {size - reached} bytes at the end belong to no tensor.")
