"""The bits of mode full: files beside the trace, read back by digest, and judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors import deserialize
from safetensors.numpy import load, save

from event_streams import Stream, stream
from event_walk import Habits
from event_worlds import FloatWorld
from vosti.refinement.audit import audit
from vosti.refinement.errors import BadTrace, TraceExists
from vosti.refinement.reader import TraceReader
from vosti.refinement.values import StoredValues, values_file, values_folder, write_values
from vosti.refinement.writer import TraceWriter
from vosti.spec.digests import sha256
from vosti.spec.events import ForwardEvent


@pytest.fixture
def run() -> Stream:
    """A run with all its bits, long enough for several files."""
    return stream(3, 40, Habits(pages=9, full=True), FloatWorld())


@pytest.fixture
def trace(run: Stream, tmp_path: Path) -> Path:
    """Its trace."""
    run.write(tmp_path / "trace")
    return tmp_path / "trace"


def test_bits_come_back(run: Stream, trace: Path) -> None:
    """Each forward has the bits that it was written with, though each value is stored once in the whole trace."""
    with TraceReader(trace) as reader:
        for event, back in zip(run.events, reader, strict=True):
            assert event == back
            if isinstance(event, ForwardEvent) and isinstance(back, ForwardEvent):
                assert event.values == dict(back.values)
    names = [name for path in values_folder(trace).iterdir() for name, _ in deserialize(path.read_bytes())]

    assert len(set(names)) == len(names)
    assert audit([trace]).refines


def test_the_files_are_safetensors(run: Stream, trace: Path) -> None:
    """The safetensors library reads the files, and finds under each digest the bits that have it."""
    paths = sorted(values_folder(trace).iterdir())
    stored = dict(pair for path in paths for pair in deserialize(path.read_bytes()))

    assert [values_file(values_folder(trace), n) for n in range(3)] == paths
    assert all(sha256(bytes(tensor["data"])) == name for name, tensor in stored.items())
    assert {name for event in run.events if isinstance(event, ForwardEvent) for name in event.values} == set(stored)


def test_files_of_the_library_are_read(trace: Path) -> None:
    """A file that the safetensors library wrote, with the same tensors, is read like one of ours."""
    path = values_file(values_folder(trace), 0)
    path.write_bytes(save(load(path.read_bytes())))

    assert audit([trace]).refines


def test_bits_that_were_changed_are_found(trace: Path) -> None:
    """The digest under which bits are stored is theirs."""
    path = values_file(values_folder(trace), 1)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)

    assert ["values_have_their_digest"] == [violation.check for violation in audit([trace]).violations]


def cut(path: Path) -> None:
    """The file is shorter."""
    path.write_bytes(path.read_bytes()[:-3])


def cut_header(path: Path) -> None:
    """Only the length of the header is left."""
    path.write_bytes(path.read_bytes()[:8])


def lengthen(path: Path) -> None:
    """The file is longer."""
    path.write_bytes(path.read_bytes() + b"more")


def scramble(path: Path) -> None:
    """The header is no JSON."""
    data = path.read_bytes()
    path.write_bytes(data[:8] + b"!" + data[9:])


def with_header(change: Callable[[dict[str, dict[str, object]]], object]) -> Callable[[Path], None]:
    """A file whose header was changed."""

    def edit(path: Path) -> None:
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        tensors = json.loads(data[8 : 8 + length])
        change(tensors)
        head = json.dumps(tensors).encode()
        path.write_bytes(len(head).to_bytes(8, "little") + head + data[8 + length :])

    return edit


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut off": (cut, "file is malformed"),
    "cut off in the header": (cut_header, "file is malformed"),
    "empty": (lambda path: path.write_bytes(b""), "file is malformed"),
    "too long": (lengthen, "file is malformed"),
    "no JSON": (scramble, "file is malformed"),
    "missing": (lambda path: path.unlink(), "should stand here"),
    "another name": (lambda path: path.rename(path.with_name("other.safetensors")), "should stand here"),
    "a gap between tensors": (
        with_header(lambda tensors: next(iter(tensors.values())).update(data_offsets=[1, 33])),
        "file is malformed",
    ),
    "another type": (
        with_header(lambda tensors: next(iter(tensors.values())).update(dtype="I8")),
        "not a row of bytes",
    ),
    "a tensor fewer": (with_header(lambda tensors: tensors.popitem()), "file is malformed"),
    "a tensor renamed": (
        with_header(lambda tensors: tensors.update({"0" * 32: tensors.pop(list(tensors)[-1])})),
        "are in no file of the trace's values",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_broken_file_is_refused(name: str, trace: Path) -> None:
    """A file that is not what its header says, or not where it belongs, makes the trace a bad one."""
    edit, reason = FILES[name]
    edit(values_file(values_folder(trace), 1))

    with pytest.raises(BadTrace, match=reason):
        audit([trace])


def test_a_missing_folder_is_refused(trace: Path) -> None:
    """A trace in mode full without its values is not whole."""
    values_folder(trace).rename(trace.with_name("elsewhere"))

    with pytest.raises(BadTrace, match="no folder"):
        audit([trace])


def test_a_value_that_nobody_speaks_of_is_refused(trace: Path) -> None:
    """Everything that is stored is accounted for."""
    path = values_file(values_folder(trace), 2)
    path.write_bytes(save({**load(path.read_bytes()), sha256(b"x"): np.frombuffer(b"x", np.uint8)}))

    with pytest.raises(BadTrace, match="no entry speaks of them"):
        audit([trace])


def test_a_value_is_stored_once(tmp_path: Path, trace: Path) -> None:
    """The same name in two files is refused."""
    first = dict(deserialize(values_file(values_folder(trace), 0).read_bytes()))
    name = next(iter(first))
    write_values(values_file(values_folder(trace), 3), {name: bytes(first[name]["data"])})

    with pytest.raises(BadTrace, match="a second time"):
        StoredValues(trace)


def test_a_folder_of_values_is_never_reused(run: Stream, tmp_path: Path) -> None:
    """Where values of another trace stand, no trace is begun."""
    values_folder(tmp_path / "trace").mkdir()

    with pytest.raises(TraceExists):
        TraceWriter(tmp_path / "trace", run.header)
