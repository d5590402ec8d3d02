"""Errors of this part: traces that cannot be read or written. A run that does not refine is no error but a verdict.

Every message is one sentence that names the cause, where it lies, and what can be done about it.
"""

from __future__ import annotations

from pathlib import Path


class RefinementError(Exception):
    """Base of all errors that recording and auditing are expected to raise."""


class TraceNotFound(RefinementError):
    """There is no trace at a path, or it cannot be opened."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be read ({reason}): give the path of a trace.")


class TraceExists(RefinementError):
    """A trace would be written over a file that exists."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} exists already, and a trace never replaces a file: choose another path or remove it.")


class TraceNotWritable(RefinementError):
    """A trace's file cannot be made."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be written ({reason}): choose another path.")


class TraceClosed(RefinementError):
    """An event was recorded after the trace was closed."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"The trace {path} is closed, and takes no event more: record before close().")


class UnwritableEvent(RefinementError):
    """An event holds something that the trace format has no place for."""


class BadTrace(RefinementError):
    """A trace is not what its format says: malformed, not canonical, its chain broken, or of an unknown version."""

    def __init__(self, path: Path, line: int | None, reason: str) -> None:
        self.path = path
        self.line = line
        super().__init__(f"{path}, line {line}: {reason}" if line is not None else f"{path}: {reason}")


class IncompleteTrace(BadTrace):
    """A trace is empty, or ends before its `end` entry: the run that wrote it was cut off."""


class HeadMissing(RefinementError):
    """The number of heads is not the number of traces."""

    def __init__(self, heads: int, paths: int) -> None:
        super().__init__(f"There are {heads} heads for {paths} traces: give one for each trace, in order, or none.")


class DigestsDiffer(RefinementError):
    """Traces of one configuration, whose values would be compared, have digests made by different algorithms."""

    def __init__(self, first: Path, algorithm: str, second: Path, other: str) -> None:
        super().__init__(
            f"{first} has digests made by {algorithm}, and {second}, of the same configuration, by {other}, so that "
            "their values cannot be compared: audit them one by one, or record one of them again."
        )


class CheckerStopped(RefinementError):
    """An event was fed to a checker that has found a violation, or was finished."""

    def __init__(self) -> None:
        super().__init__("The checker has come to its end, and takes no event more: make a new one.")
