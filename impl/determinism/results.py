"""The file of results: a header, then one line for each case that was run. Cases are added at the end, each whole.

A file belongs to one suite, one engine and one configuration W: what was found under another is not mixed in.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from vosti.impl.determinism.bits import Divergence, divergence, is_constant, is_finite, row_digest
from vosti.impl.determinism.cases import Case, Pair
from vosti.impl.determinism.errors import ResultsError
from vosti.impl.fingerprint import fingerprint_of

FORMAT = "vosti-determinism-1"

State = Literal["match", "mismatch", "invalid"]


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the results are of."""

    format: str
    suite: str
    engine: str
    model: str
    fingerprint: str
    """Of W."""

    configuration: Mapping[str, object]
    """W itself."""

    environment: Mapping[str, str]
    scale: int
    counts: Mapping[str, int]
    """By case, how many pairs it has."""

    axes: Mapping[str, str]
    """By case, its axis."""

    skipped: Mapping[str, str] = {}
    """Axes that this engine has no means to run, and why."""


class Compared(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What became of a pair."""

    name: str
    request: str
    position: int
    state: State
    left: str
    """The digest of the row under the schedule that was tried."""

    right: str
    """The digest of the reference."""

    differs: tuple[str, ...] = ()
    """What differed between the two schedules."""

    why: str | None = None
    """Why it is invalid; of a mismatch, what else is to be said."""

    divergence: Divergence | None = None


class Done(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A case that was run."""

    case: str
    seconds: float
    pairs: tuple[Compared, ...]


def compare(pair: Pair) -> Compared:
    """The verdict on a pair.

    Rows that differ are a mismatch, whatever the schedules were. Equal ones match if the schedules differed as the
    axis wants and all numbers are finite.
    """
    why = pair.invalid
    state: State = "match" if why is None else "invalid"
    found = None
    if pair.left and pair.right:
        if not pair.same_history:
            state, why = "mismatch", "an earlier token of the same request differs"
        elif pair.left != pair.right:
            state, why = "mismatch", None
            comparable = pair.numbers and len(pair.left) == len(pair.right)
            found = divergence(pair.left, pair.right) if comparable else None
            why = None if comparable or not pair.numbers else "the rows differ in length"
        elif pair.left_token != pair.right_token:
            state, why = "mismatch", f"equal logits gave the tokens {pair.left_token} and {pair.right_token}"
        elif state == "match" and pair.numbers:
            why = _says_nothing(pair.left)
            state = "invalid" if why else "match"
    return Compared(
        name=pair.name,
        request=pair.request,
        position=pair.position,
        state=state,
        left=row_digest(pair.left),
        right=row_digest(pair.right),
        differs=pair.differs,
        why=why,
        divergence=found,
    )


def _says_nothing(row: bytes) -> str | None:
    """Why two rows of these bits prove nothing, if so."""
    if not is_finite(row):
        return "both rows hold a number that is not finite"
    return "all logits of both rows are one number" if is_constant(row) else None


def header(
    *,
    suite: str,
    engine: str,
    model: str,
    configuration: Mapping[str, object],
    environment: Mapping[str, str],
    scale: int,
    cases: Iterable[Case],
    skipped: Mapping[str, str],
) -> Header:
    """The header of a run's results."""
    planned = list(cases)
    return Header(
        format=FORMAT,
        suite=suite,
        engine=engine,
        model=model,
        fingerprint=fingerprint_of(configuration),
        configuration=configuration,
        environment=environment,
        scale=scale,
        counts={case.name: case.count for case in planned},
        axes={case.name: case.axis for case in planned},
        skipped=skipped,
    )


class Results:
    """A file of results, new or to be continued."""

    def __init__(self, path: Path, expected: Header) -> None:
        """Open a file, for one run at a time.

        Raises `ResultsError` if there is one that was made under another configuration, suite or engine, or that
        another run is adding to.
        """
        self.header = expected
        self.done: list[Done] = []
        self._file = path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ResultsError(f"Another run is adding to {path}: wait for its end, or give another folder.") from error
        if path.stat().st_size:
            found, self.done, length = read(path)
            _refuse_another(path, found, expected)
            self._file.truncate(length)  # less the line that an interrupted run left unfinished
        else:
            self._write(expected)

    @property
    def names(self) -> set[str]:
        """Of the cases that are done."""
        return {done.case for done in self.done}

    def add(self, case: str, seconds: float, pairs: Sequence[Compared]) -> None:
        """Add a case to the end of the file."""
        done = Done(case, seconds, tuple(pairs))
        self._write(done)
        self.done.append(done)

    def close(self) -> None:
        """Let another run go on."""
        self._file.close()

    def _write(self, line: Header | Done) -> None:
        """Add a line, and see it on its way."""
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()


def read(path: Path) -> tuple[Header, list[Done], int]:
    """A file's header, its cases, and how many bytes they take. A last line without an end is left out.

    Raises `ResultsError` for a file that is none of results.
    """
    data = path.read_bytes()
    lines = data.split(b"\n")[:-1]
    try:
        found = msgspec.json.decode(lines[0], type=Header)
        done = [msgspec.json.decode(line, type=Done) for line in lines[1:]]
    except (IndexError, msgspec.DecodeError) as error:
        raise ResultsError(f"{path} holds no results of the determinism suite: {error}.") from error
    if found.format != FORMAT:
        raise ResultsError(f"{path} has the format {found.format!r}, and this program reads {FORMAT!r}.")
    return found, done, sum(len(line) + 1 for line in lines)


def _refuse_another(path: Path, found: Header, expected: Header) -> None:
    for what in ("suite", "engine", "model", "scale"):
        if getattr(found, what) != getattr(expected, what):
            raise ResultsError(
                f"{path} holds results of the {what} {getattr(found, what)!r}, and this is "
                f"{getattr(expected, what)!r}: give another folder."
            )
    if found.fingerprint != expected.fingerprint:
        keys = sorted(
            key
            for key in {*found.configuration, *expected.configuration}
            if found.configuration.get(key) != expected.configuration.get(key)
        )
        raise ResultsError(
            f"{path} holds results under W {found.fingerprint[:16]}, and this is W {expected.fingerprint[:16]} "
            f"(they differ in {', '.join(keys)}): results of two configurations are not mixed; give another folder."
        )
    if (found.counts, found.axes) != (expected.counts, expected.axes):
        raise ResultsError(f"{path} holds results of another selection or version of the suite: give another folder.")
