"""Writing a trace while the run goes on."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from vosti.refinement.codec import entry_of
from vosti.refinement.differences import EMPTY
from vosti.refinement.entries import (
    FIRST_PREVIOUS,
    FORMAT,
    VERSION,
    AnyEntry,
    EndEntry,
    Header,
    HeaderEntry,
    encode,
    line_digest,
)
from vosti.refinement.errors import TraceClosed, TraceExists, TraceNotWritable, UnwritableEvent
from vosti.refinement.values import values_file, values_folder, write_values
from vosti.spec.events import Event, ForwardEvent, PlanEvent, SettleEvent, Snapshot

STEPS_PER_FILE = 16
"""After so many steps the new values of mode "full" are written to a file."""

BYTES_PER_FILE = 2**26
"""Or after so many bytes."""


class TraceWriter:
    """Writes events to a file, each at once (`vosti.spec.events.Tracer`).

    `close()` writes the `end` entry; a trace without one says of itself that it is incomplete. Used as a context
    manager it is closed when the block ends well, and left incomplete when the block raises.
    """

    def __init__(self, path: str | Path, header: Header) -> None:
        """Begin a trace.

        Raises:
            TraceExists: if there is a file (or a folder of values) at the path.
            TraceNotWritable: if no file can be made there.
            UnwritableEvent: if the header's free-form parts are not JSON.
        """
        self.path = Path(path)
        self._full = header.mode == "full"
        self._folder = values_folder(self.path)
        self._previous = FIRST_PREVIOUS
        self._before = EMPTY
        self._entries = 0
        self._steps = 0
        self._settled = 0
        self._values: dict[str, bytes] = {}
        self._stored: set[str] = set()
        self._files = 0
        first = _encoded(HeaderEntry(prev=FIRST_PREVIOUS, format=FORMAT, version=VERSION, header=header))
        if self.path.exists() or self._folder.exists():
            raise TraceExists(self.path if self.path.exists() else self._folder)
        try:
            self._file: BinaryIO | None = self.path.open("xb")
            if self._full:
                self._folder.mkdir()
        except FileExistsError as error:
            raise TraceExists(self.path) from error
        except OSError as error:
            raise TraceNotWritable(self.path, error.strerror or str(error)) from error
        self._write(first)

    @property
    def head(self) -> str:
        """The `line_digest` of the last line so far: after `close()`, the head of the whole trace."""
        return self._previous

    def record(self, event: Event) -> None:
        """Write one event.

        Raises:
            TraceClosed: after `close()`.
            UnwritableEvent: if it holds something that the format has no place for.
        """
        self._write(_encoded(entry_of(event, self._previous, self._before)))
        match event:
            case PlanEvent():
                self._steps += 1
            case ForwardEvent(values=values) if self._full:
                fresh = {name: bytes(data) for name, data in values.items() if name not in self._stored}
                self._values |= fresh
                self._stored |= fresh.keys()
            case SettleEvent(after=after):
                # A copy: the engine may go on to change its own mappings.
                self._before = Snapshot(dict(after.requests), dict(after.pages), after.free)
                self._settled += 1
                large = sum(map(len, self._values.values())) >= BYTES_PER_FILE
                if large or self._settled % STEPS_PER_FILE == 0:
                    self._write_values()
            case _:
                pass

    def _write_values(self) -> None:
        if not self._values:
            return
        write_values(values_file(self._folder, self._files), self._values)
        self._values = {}
        self._files += 1

    def _write(self, line: bytes) -> None:
        if self._file is None:
            raise TraceClosed(self.path)
        self._file.write(line + b"\n")
        self._file.flush()  # what was recorded is in the file even if the process is killed in the next instant
        self._previous = line_digest(line)
        self._entries += 1

    def close(self) -> None:
        """Write the `end` entry and close the file. A second call does nothing."""
        if self._file is None:
            return
        self._write_values()
        end = EndEntry(prev=self._previous, steps=self._steps, entries=self._entries + 1, files=self._files)
        self._write(_encoded(end))
        self.abandon()

    def abandon(self) -> None:
        """Close the file without an `end` entry: the run did not come to its end."""
        if self._file is not None:
            self._write_values()
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()


def _encoded(entry: AnyEntry) -> bytes:
    try:
        return encode(entry)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnwritableEvent(f"A trace holds JSON's types only ({error}): convert the value before.") from error
