"""Reading a trace: line by line, each verified before anything is made of it.

An event is handed out only after the line behind it has confirmed its digest, so that a broken chain is found before
the event is judged. A line is refused unless it is the very text that its meaning would be written as: no two texts
mean the same entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from vosti.refinement.codec import NO_VALUES, event_of, is_canonical
from vosti.refinement.differences import EMPTY
from vosti.refinement.entries import (
    FIRST_PREVIOUS,
    FORMAT,
    VERSION,
    AnyEntry,
    EndEntry,
    ForwardEntry,
    Header,
    HeaderEntry,
    PlanEntry,
    decode,
    decode_preamble,
    encode,
    fingerprint_of,
    line_digest,
)
from vosti.refinement.errors import BadTrace, IncompleteTrace, TraceNotFound
from vosti.refinement.values import EntryValues, StoredValues
from vosti.spec.digests import ALGORITHMS
from vosti.spec.events import Event, SettleEvent

CUT_OFF = "the run that wrote it was cut off"


class TraceReader:
    """A trace's header, and its events in order. Reading on past the last event verifies the trace's end."""

    def __init__(self, path: str | Path, head: str | None = None) -> None:
        """Open a trace and read its header.

        Args:
            path: the trace.
            head: the `line_digest` of its last line, if it is known from elsewhere.

        Raises:
            TraceNotFound: if the file cannot be read.
            IncompleteTrace: if it is empty.
            BadTrace: if its first line is not the header of a trace that this version reads.
        """
        self.path = Path(path)
        self._head = head
        self._line = 0
        self._previous = FIRST_PREVIOUS
        self._before = EMPTY
        self._steps = 0
        self._stored: StoredValues | None = None
        self._used: set[str] = set()
        try:
            self._file: BinaryIO = self.path.open("rb")
            self.size = self.path.stat().st_size
        except OSError as error:
            raise TraceNotFound(self.path, error.strerror or str(error)) from error
        try:
            self.header = self._read_header()
            if self.header.mode == "full":
                self._stored = StoredValues(self.path)
        except BaseException:
            self.close()
            raise

    @property
    def line(self) -> int:
        """How many lines were read."""
        return self._line

    @property
    def position(self) -> int:
        """How many bytes were read."""
        return self._file.tell()

    @property
    def head(self) -> str:
        """The `line_digest` of the last line that was read."""
        return self._previous

    def _bad(self, reason: str) -> BadTrace:
        return BadTrace(self.path, self._line, reason)

    # ------------------------------------------------------------ lines

    def _next_line(self) -> bytes:
        """The next line, without its newline. Raises `IncompleteTrace` if there is none, or only a part of one."""
        line = self._file.readline()
        if not line:
            reason = (
                "the file is empty" if self._line == 0 else f"the trace ends here without an `end` entry: {CUT_OFF}"
            )
            raise IncompleteTrace(self.path, self._line or None, reason)
        self._line += 1
        if not line.endswith(b"\n"):
            raise IncompleteTrace(self.path, self._line, f"the line is not complete: {CUT_OFF}, or the end was removed")
        return line[:-1]

    def _entry(self, line: bytes) -> AnyEntry:
        try:
            entry = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._bad(f"the line is not an entry of the trace format ({error})") from error
        if entry.prev != self._previous:
            raise self._bad(
                f"the chain is broken: `prev` should be {self._previous[:16]}…, the digest of the line before it, and "
                f"is {entry.prev[:16]}…; a line was changed, lost, added or moved"
            )
        self._previous = line_digest(line)
        return entry

    def _canonical(self, entry: AnyEntry, line: bytes) -> None:
        if encode(entry) != line:
            raise self._bad("the line is not the canonical text of its entry: it was written by something else")

    def _read_header(self) -> Header:
        line = self._next_line()
        try:
            preamble = decode_preamble(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._bad(f"the file does not begin with a trace's header ({error})") from error
        if preamble.kind != "header" or preamble.format != FORMAT:
            raise self._bad(f"the file is not a trace: its format is {preamble.format!r} and should be {FORMAT!r}")
        if preamble.version != VERSION:
            raise self._bad(f"the trace has version {preamble.version}, and this program reads version {VERSION}")
        entry = self._entry(line)
        assert isinstance(entry, HeaderEntry)
        self._canonical(entry, line)
        header = entry.header
        if header.digest not in ALGORITHMS:
            raise self._bad(f"digests are made by {header.digest!r}, and this program knows {', '.join(ALGORITHMS)}")
        if header.fingerprint != fingerprint_of(header.configuration):
            raise self._bad("the fingerprint is not that of the configuration beside it")
        for name in ("page_size", "pages", "max_seqs", "token_budget"):
            if getattr(header, name) < 1:
                raise self._bad(f"{name} is {getattr(header, name)}, and should be at least 1")
        return header

    # ------------------------------------------------------------ events

    def __iter__(self) -> Iterator[Event]:
        """The events, in order.

        Raises:
            IncompleteTrace: if the trace stops before its `end` entry.
            BadTrace: at the first line that is not what the format says.
        """
        line = self._next_line()
        entry = self._entry(line)
        while not isinstance(entry, EndEntry):
            here = self._line
            try:
                following = self._next_line()
            except IncompleteTrace:
                yield self._event(entry, line, here)  # nothing confirms it, but it is the last that there is
                raise
            after = self._entry(following)  # its `prev` confirms the line before
            yield self._event(entry, line, here)
            line, entry = following, after
        self._canonical(entry, line)
        self._verify_end(entry)

    def _event(self, entry: AnyEntry, line: bytes, number: int) -> Event:
        if isinstance(entry, HeaderEntry | EndEntry):
            raise BadTrace(self.path, number, "a second header stands here")
        try:
            event = event_of(entry, self._before, self._values_of(entry, number))
        except (ValueError, TypeError) as error:
            raise BadTrace(self.path, number, f"the entry has no meaning: {error}") from error
        if encode(entry) != line or not is_canonical(entry, event, self._before):
            raise BadTrace(
                self.path, number, "the line is not the canonical text of its entry: it was written by something else"
            )
        if isinstance(event, SettleEvent):
            self._before = event.after
        self._steps += isinstance(entry, PlanEntry)
        return event

    def _values_of(self, entry: AnyEntry, number: int) -> EntryValues | dict[str, bytes]:
        if self._stored is None or not isinstance(entry, ForwardEntry):
            return dict(NO_VALUES)
        names = {value.digest for value in (*entry.written, *entry.logits)}
        missing = sorted(names - self._stored.names())
        if missing:
            raise BadTrace(self.path, number, f"the bits of {missing[0]} are in no file of the trace's values")
        self._used |= names
        return EntryValues(self._stored, names)

    def _verify_end(self, end: EndEntry) -> None:
        if self._file.read(1):
            raise BadTrace(self.path, self._line + 1, "something follows the `end` entry")
        if end.entries != self._line:
            raise self._bad(f"the `end` entry counts {end.entries} entries, and there are {self._line}")
        if end.steps != self._steps:
            raise self._bad(f"the `end` entry counts {end.steps} steps, and there are {self._steps}")
        files = 0 if self._stored is None else self._stored.files
        if end.files != files:
            raise self._bad(f"the `end` entry counts {end.files} files of values, and there are {files}")
        unused = [] if self._stored is None else sorted(self._stored.names() - self._used)
        if unused:
            raise self._bad(f"the bits of {unused[0]} are stored, and no entry speaks of them")
        if self._head is not None and self._head != self._previous:
            raise self._bad(f"the head is {self._previous}, and should be {self._head}: this is another trace")

    # ------------------------------------------------------------ closing

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._stored is not None:
            self._stored.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
