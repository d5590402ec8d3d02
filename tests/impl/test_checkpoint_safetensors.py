"""Malformed safetensors files and indices are refused, each with file and tensor named, before any loading."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoint_files import (
    TINY_CONFIG,
    TINY_SHAPES,
    Header,
    file_bytes,
    index_bytes,
    layout,
    tiny_tensors,
    write_folder,
)
from vosti.impl.errors import CheckpointError
from vosti.impl.models import tensors
from vosti.impl.models.model import Model
from vosti.impl.models.safetensors import find_tensors, read_header

FIRST = "model.embed_tokens.weight"
SECOND = "model.layers.0.input_layernorm.weight"
LAST = "model.norm.weight"


@pytest.fixture(autouse=True)
def _nothing_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor of a file with a bad header may be read."""

    def refuse(tensor: Any) -> None:
        raise AssertionError(f"{tensor.name} was read")

    monkeypatch.setattr(tensors, "read_bytes", refuse)


def _refused(folder: Path, *named: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        Model.load(folder)
    message = str(caught.value)
    assert [] == [part for part in named if part not in message], message
    assert "\n" not in message
    assert re.match(r".*[.]$", message)


def _with_header(folder: Path, change: Callable[[Header], Any], data: bytes | None = None) -> Path:
    """The tiny checkpoint with its header changed."""
    header, content = layout(tiny_tensors())
    change(header)
    return write_folder(folder, files={"model.safetensors": file_bytes(header, content if data is None else data)})


def test_a_sound_file_is_read(tmp_path: Path) -> None:
    """The file that the malformed ones are one step away from is accepted, with or without metadata."""
    folder = _with_header(tmp_path, lambda header: header.update(__metadata__={"format": "pt"}))

    found = find_tensors(folder)

    assert TINY_SHAPES == {name: tensor.shape for name, tensor in found.items()}
    assert {"BF16"} == {tensor.dtype for tensor in found.values()}


def test_tensors_without_elements_and_without_axes_are_read(tmp_path: Path) -> None:
    """An empty tensor spans no bytes, a scalar one element."""
    path = tmp_path / "file"
    path.write_bytes(file_bytes(*layout({"none": ("F32", (0, 3), b""), "one": ("I64", (), bytes(8))})))

    assert {"none": ((0, 3), 0), "one": ((), 8)} == {
        name: (tensor.shape, tensor.size) for name, tensor in read_header(path).items()
    }


@pytest.mark.parametrize("length", [0, 1, 2**31, 2**63, 2**64 - 1])
def test_an_impossible_header_length_is_refused(tmp_path: Path, length: int) -> None:
    """A header of no bytes, or of more than the file has."""
    header, data = layout(tiny_tensors())

    _refused(
        write_folder(tmp_path, files={"model.safetensors": file_bytes(header, data, length)}),
        "model.safetensors",
        f"header of {length} bytes",
    )


@pytest.mark.parametrize("size", [0, 1, 7, 8])
def test_a_file_without_a_header_is_refused(tmp_path: Path, size: int) -> None:
    """A file of a few bytes."""
    content = file_bytes(*layout(tiny_tensors()))[:size]

    _refused(write_folder(tmp_path, files={"model.safetensors": content or b"\0"}), "model.safetensors", "damaged")


@pytest.mark.parametrize(
    ("missing", "named"),
    [(1, LAST), (8, LAST), (9, "model.layers.0.self_attn.v_proj.weight"), (300, FIRST)],
)
def test_a_truncated_file_is_refused(tmp_path: Path, missing: int, named: str) -> None:
    """A file that ends early names the first tensor that ends beyond it."""
    content = file_bytes(*layout(tiny_tensors()))[:-missing]
    folder = write_folder(tmp_path, files={"model.safetensors": content})

    _refused(folder, "model.safetensors", named, "beyond the end of the file")


def test_bytes_behind_the_last_tensor_are_refused(tmp_path: Path) -> None:
    """A file that is longer than its tensors."""
    content = file_bytes(*layout(tiny_tensors())) + b"12345"

    _refused(write_folder(tmp_path, files={"model.safetensors": content}), "model.safetensors", "5 bytes at the end")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        " {}",
        '{"a": 1',
        "null",
        '{"a": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 4]}}',
        "[" * 100_000,
        '{"a": ' + "9" * 5000 + "}",
    ],
)
def test_a_header_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    """Broken JSON, other JSON, JSON that begins with a space, deep JSON and endless numbers."""
    _refused(write_folder(tmp_path, files={"model.safetensors": file_bytes(text, b"")}), "model.safetensors")


def test_a_header_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """Bytes that are not UTF-8."""
    content = (4).to_bytes(8, "little") + b"{\xff\xfe}"

    _refused(write_folder(tmp_path, files={"model.safetensors": content}), "model.safetensors", "not valid JSON")


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """Two entries of one name, as JSON allows and dictionaries hide."""
    header, data = layout(tiny_tensors())
    entry = json.dumps({LAST: header[LAST]})
    text = json.dumps(header)[:-1] + ", " + entry[1:]

    _refused(write_folder(tmp_path, files={"model.safetensors": file_bytes(text, data)}), LAST, "stands twice")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda e: e.update(dtype="F128"), "unknown dtype 'F128'"),
        (lambda e: e.update(dtype=None), "unknown dtype None"),
        (lambda e: e.update(dtype=["F32"]), "unknown dtype"),
        (lambda e: e.update(shape=[-4]), "shape [-4]"),
        (lambda e: e.update(shape=[4.0]), "shape [4.0]"),
        (lambda e: e.update(shape=[True, 4]), "shape [True, 4]"),
        (lambda e: e.update(shape=4), "shape 4"),
        (lambda e: e.update(shape=[2**62, 2**62]), "spans 8 bytes, but shape"),
        (lambda e: e.update(shape=[5]), "spans 8 bytes, but shape [5] of BF16 takes 10"),
        (lambda e: e.update(shape=[3]), "takes 6"),
        (lambda e: e.update(dtype="F32"), "takes 16"),
        (lambda e: e.update(data_offsets=[10, 2]), "data_offsets [10, 2]"),
        (lambda e: e.update(data_offsets=[-8, 0]), "data_offsets [-8, 0]"),
        (lambda e: e.update(data_offsets=[0]), "data_offsets [0]"),
        (lambda e: e.update(data_offsets=[0, "8"]), "data_offsets"),
        (lambda e: e.pop("dtype"), "must have dtype, shape and data_offsets"),
        (lambda e: e.pop("shape"), "must have dtype, shape and data_offsets"),
        (lambda e: e.pop("data_offsets"), "must have dtype, shape and data_offsets"),
        (lambda e: e.update(strides=[1]), "and nothing else"),
    ],
)
def test_a_malformed_entry_is_refused(tmp_path: Path, change: Callable[[Header], Any], reason: str) -> None:
    """Dtypes, shapes and spans that are not what they must be, or do not fit each other."""
    _refused(_with_header(tmp_path, lambda header: change(header[SECOND])), "model.safetensors", SECOND, reason)


def test_an_unknown_dtype_of_an_unused_tensor_is_refused(tmp_path: Path) -> None:
    """Every entry is checked, not only those of parameters."""

    def add(header: Header) -> None:
        header["other"] = {"dtype": "F128", "shape": [0], "data_offsets": [0, 0]}

    _refused(_with_header(tmp_path, add), "other", "F128")


def test_an_entry_that_is_no_object_is_refused(tmp_path: Path) -> None:
    """An entry that is a list."""
    _refused(_with_header(tmp_path, lambda header: header.update({SECOND: []})), SECOND, "must have dtype")


def test_metadata_that_is_no_map_of_strings_is_refused(tmp_path: Path) -> None:
    """Numbers in the metadata, or a list."""
    for metadata in ({"a": 1}, ["a"]):
        _refused(
            _with_header(tmp_path, lambda header, m=metadata: header.update(__metadata__=m)),  # type: ignore[misc]
            "__metadata__",
        )


def test_a_tensor_beyond_the_end_is_refused(tmp_path: Path) -> None:
    """A span that ends behind the file's last byte."""

    def shift(header: Header) -> None:
        begin, end = header[LAST]["data_offsets"]
        header[LAST]["data_offsets"] = [begin + 2, end + 2]

    _refused(_with_header(tmp_path, shift), LAST, "2 bytes beyond the end")


def test_overlapping_tensors_are_refused(tmp_path: Path) -> None:
    """Two spans that share bytes, and two that are equal."""

    def overlap(header: Header) -> None:
        header[SECOND]["data_offsets"] = [header[SECOND]["data_offsets"][0] - 2, header[SECOND]["data_offsets"][1] - 2]

    def equal(header: Header) -> None:
        header[LAST]["data_offsets"] = header[SECOND]["data_offsets"]

    _refused(_with_header(tmp_path, overlap), SECOND, "overlaps")
    _refused(_with_header(tmp_path, equal), LAST, "overlaps")


def test_a_gap_between_tensors_is_refused(tmp_path: Path) -> None:
    """Bytes between two spans that belong to neither."""
    _, data = layout(tiny_tensors())

    def gap(header: Header) -> None:
        for entry in header.values():
            if entry["data_offsets"][0]:
                entry["data_offsets"] = [offset + 4 for offset in entry["data_offsets"]]

    _refused(_with_header(tmp_path, gap, data + b"1234"), SECOND, "leaves a gap")


# ---------------------------------------------------------------- folders and shards


def test_a_missing_folder_or_file_is_refused(tmp_path: Path) -> None:
    """No folder, a file in its place, a folder without config, and one without weights."""
    _refused(tmp_path / "nowhere", "nowhere", "not a folder")
    (tmp_path / "file").write_text("")
    _refused(tmp_path / "file", "not a folder")
    (tmp_path / "empty").mkdir()
    _refused(tmp_path / "empty", "no config.json")
    folder = write_folder(tmp_path / "weightless")
    (folder / "model.safetensors").unlink()
    _refused(folder, "neither model.safetensors nor")


def test_a_single_file_beside_an_index_is_refused(tmp_path: Path) -> None:
    """A folder that holds the weights twice."""
    folder = write_folder(tmp_path)
    (folder / "model.safetensors.index.json").write_bytes(index_bytes({}))

    _refused(folder, "holds both")


def _shards(folder: Path, weight_map: dict[str, Any], split: int = 5) -> Path:
    """The tiny checkpoint in two shards, with the given index."""
    tensors = list(tiny_tensors().items())
    files = {
        "a.safetensors": file_bytes(*layout(dict(tensors[:split]))),
        "b.safetensors": file_bytes(*layout(dict(tensors[split:]))),
        "model.safetensors.index.json": index_bytes(weight_map),
    }
    return write_folder(folder, TINY_CONFIG, files)


def _sound_map(split: int = 5) -> dict[str, Any]:
    return {name: "a.safetensors" if i < split else "b.safetensors" for i, name in enumerate(TINY_SHAPES)}


def test_shards_are_read(tmp_path: Path) -> None:
    """The index that the malformed ones are one step away from is accepted."""
    assert set(TINY_SHAPES) == set(find_tensors(_shards(tmp_path, _sound_map())))


@pytest.mark.parametrize(
    "file", ["../a.safetensors", "/etc/passwd", "sub/a.safetensors", "..", ".", "", "a\\b", "c:a", 3, None, "a\0b"]
)
def test_a_shard_outside_the_folder_is_refused(tmp_path: Path, file: Any) -> None:
    """The index may name files of its own folder only."""
    _refused(
        _shards(tmp_path, {**_sound_map(), FIRST: file}),
        "model.safetensors.index.json",
        FIRST,
        "must lie in a file of this folder",
    )


def test_a_missing_shard_is_refused(tmp_path: Path) -> None:
    """The index names a file that is not there."""
    _refused(_shards(tmp_path, {**_sound_map(), FIRST: "c.safetensors"}), "c.safetensors", "cannot be read")


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    """One name in two files, of which the index knows one."""
    folder = _shards(tmp_path, _sound_map())
    tensors = dict(list(tiny_tensors().items())[4:])
    (folder / "b.safetensors").write_bytes(file_bytes(*layout(tensors)))

    _refused(folder, list(TINY_SHAPES)[4], "b.safetensors", "which the index does not say")


def test_an_index_that_is_wrong_about_a_tensor_is_refused(tmp_path: Path) -> None:
    """A tensor that lies in another shard than the index says, and one that lies in none."""
    _refused(_shards(tmp_path, {**_sound_map(), FIRST: "b.safetensors"}), FIRST, "a.safetensors")
    _refused(_shards(tmp_path, {**_sound_map(), "extra": "b.safetensors"}), "extra", "does not hold it")


def test_a_malformed_index_is_refused(tmp_path: Path) -> None:
    """An index that is no JSON object, or whose map is none."""
    folder = _shards(tmp_path, {})
    for content in (b"[]", b"{", b'{"weight_map": []}', b'{"weight_map": {"a": "b", "a": "c"}}'):
        (folder / "model.safetensors.index.json").write_bytes(content)

        _refused(folder, "model.safetensors.index.json")
