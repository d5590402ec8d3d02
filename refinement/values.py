"""The bits behind digests, beside a trace in mode "full": safetensors files in a folder TRACE.values.

Each file holds some steps' new values, as tensors of bytes that are named by their digest. A value occurs once in the
whole folder. The format is small, and is read and written here directly, so that an audit needs nothing more; the
files open with the safetensors library just as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, KeysView, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from vosti.refinement.errors import BadTrace

ALIGNMENT = 8
"""A safetensors header is padded with spaces to a multiple of this many bytes."""


class Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a safetensors header says of a tensor."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def values_folder(trace: Path) -> Path:
    """Where the values of a trace are."""
    return trace.with_name(trace.name + ".values")


def values_file(folder: Path, number: int) -> Path:
    """The folder's file of that number, from 0."""
    return folder / f"{number:06}.safetensors"


def write_values(path: Path, values: Mapping[str, bytes]) -> None:
    """Write a file of values. It must not exist."""
    tensors: dict[str, Tensor] = {}
    start = 0
    for name, data in values.items():
        tensors[name] = Tensor("U8", (len(data),), (start, start + len(data)))
        start += len(data)
    head = msgspec.json.encode(tensors)
    head += b" " * (-len(head) % ALIGNMENT)
    with path.open("xb") as file:
        file.write(len(head).to_bytes(8, "little"))
        file.write(head)
        for data in values.values():
            file.write(data)


class Place(NamedTuple):
    """Where a value's bits are."""

    path: Path
    offset: int
    length: int


class StoredValues:
    """All values of a trace. Headers are read at once, bits when they are asked for."""

    def __init__(self, trace: Path) -> None:
        """Open the folder beside `trace`.

        Raises:
            BadTrace: if it is missing, or a file in it is not such a file.
        """
        self._folder = values_folder(trace)
        self._trace = trace
        self._places: dict[str, Place] = {}
        self._file: tuple[Path, BinaryIO] | None = None
        self.files = 0
        if not self._folder.is_dir():
            raise BadTrace(trace, None, f"its mode is full, and there is no folder {self._folder} with its values")
        for path in sorted(self._folder.iterdir()):
            if path != values_file(self._folder, self.files):
                raise BadTrace(path, None, f"{values_file(self._folder, self.files).name} should stand here")
            self._index(path)
            self.files += 1

    def _index(self, path: Path) -> None:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                raise BadTrace(path, None, "the file is cut off in its header")
            try:
                tensors = msgspec.json.decode(file.read(length), type=dict[str, Tensor])
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise BadTrace(path, None, f"the safetensors header is malformed ({error})") from error
        end = 0
        for name, tensor in sorted(tensors.items(), key=lambda item: item[1].data_offsets):
            start, stop = tensor.data_offsets
            if (start, tensor.dtype, tensor.shape) != (end, "U8", (stop - start,)) or stop < start:
                raise BadTrace(path, None, f"tensor {name!r} is not a row of bytes that follows the tensor before it")
            if name in self._places:
                raise BadTrace(path, None, f"value {name!r} is stored a second time")
            self._places[name] = Place(path, 8 + length + start, stop - start)
            end = stop
        if size != 8 + length + end:
            raise BadTrace(path, None, f"the file has {size} bytes, and its header speaks of {8 + length + end}")

    def names(self) -> KeysView[str]:
        """The digests of all values."""
        return self._places.keys()

    def read(self, name: str) -> bytes:
        """The bits of a value."""
        path, offset, length = self._places[name]
        if self._file is None or self._file[0] != path:
            self.close()
            self._file = (path, path.open("rb"))
        self._file[1].seek(offset)
        data = self._file[1].read(length)
        if len(data) != length:
            raise BadTrace(path, None, "the file changed while it was read")
        return data

    def close(self) -> None:
        """Close the file that was read last."""
        if self._file is not None:
            self._file[1].close()
            self._file = None


class EntryValues(Mapping[str, bytes]):
    """The values that one forward entry names: read when asked for."""

    def __init__(self, stored: StoredValues, names: Collection[str]) -> None:
        """Those of `stored` that `names` lists; all of them exist."""
        self._stored = stored
        self._names = frozenset(names)

    def __getitem__(self, name: str) -> bytes:
        if name not in self._names:
            raise KeyError(name)
        return self._stored.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
