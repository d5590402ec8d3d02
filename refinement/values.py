"""The bits behind digests, beside a trace in mode "full": safetensors files in a folder TRACE.values.

Each file holds some steps' new values, as tensors of bytes that are named by their digest. A value occurs once in the
whole folder. (The library reads them. It writes through raw addresses or numpy, and a file is only a header and the
bytes, so they are written here.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, KeysView, Mapping
from pathlib import Path

import msgspec
from safetensors import SafetensorError, deserialize, safe_open

from vosti.refinement.errors import BadTrace

ALIGNMENT = 8
"""A safetensors header is padded with spaces to a multiple of this many bytes."""


def values_folder(trace: Path) -> Path:
    """Where the values of a trace are."""
    return trace.with_name(trace.name + ".values")


def values_file(folder: Path, number: int) -> Path:
    """The folder's file of that number, from 0."""
    return folder / f"{number:06}.safetensors"


def write_values(path: Path, values: Mapping[str, bytes]) -> None:
    """Write a file of values. It must not exist."""
    tensors = {}
    start = 0
    for name, data in values.items():
        tensors[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [start, start + len(data)]}
        start += len(data)
    head = msgspec.json.encode(tensors)
    head += b" " * (-len(head) % ALIGNMENT)
    with path.open("xb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.writelines(values.values())


class StoredValues:
    """All values of a trace. Their names are read at once, bits when they are asked for, a file at a time."""

    def __init__(self, trace: Path) -> None:
        """Open the folder beside `trace`.

        Raises:
            BadTrace: if it is missing, or a file in it is not such a file.
        """
        self._folder = values_folder(trace)
        self._files: dict[str, Path] = {}
        self._open: tuple[Path, dict[str, bytes]] | None = None
        self.files = 0
        if not self._folder.is_dir():
            raise BadTrace(trace, None, f"its mode is full, and there is no folder {self._folder} with its values")
        for path in sorted(self._folder.iterdir()):
            if path != values_file(self._folder, self.files):
                raise BadTrace(path, None, f"{values_file(self._folder, self.files).name} should stand here")
            self._index(path)
            self.files += 1

    def _index(self, path: Path) -> None:
        try:
            with safe_open(path, framework="numpy") as file:
                names = file.keys()
        except SafetensorError as error:
            raise BadTrace(path, None, f"the safetensors file is malformed ({error})") from error
        for name in names:
            if name in self._files:
                raise BadTrace(path, None, f"value {name!r} is stored a second time")
            self._files[name] = path

    def names(self) -> KeysView[str]:
        """The digests of all values."""
        return self._files.keys()

    def read(self, name: str) -> bytes:
        """The bits of a value.

        Raises:
            BadTrace: if the file has changed since it was opened, or holds it in another shape than a row of bytes.
        """
        path = self._files[name]
        if self._open is None or self._open[0] != path:
            self._open = (path, self._load(path))
        if name not in self._open[1]:
            raise BadTrace(path, None, "the file changed while it was read")
        return self._open[1][name]

    def _load(self, path: Path) -> dict[str, bytes]:
        try:
            tensors = dict(deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]  # has no annotations
        except SafetensorError as error:
            raise BadTrace(path, None, f"the safetensors file is malformed ({error})") from error
        for name, tensor in tensors.items():
            if tensor["dtype"] != "U8" or len(tensor["shape"]) != 1:
                raise BadTrace(path, None, f"tensor {name!r} is not a row of bytes")
        return {name: bytes(tensor["data"]) for name, tensor in tensors.items()}

    def close(self) -> None:
        """Let go of the file that was read last."""
        self._open = None


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
