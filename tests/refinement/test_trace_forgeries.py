"""What is not the text of a whole trace is refused, with its line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from event_streams import Stream
from trace_lines import Lines, put, rechained, refusal
from vosti.refinement.audit import audit
from vosti.refinement.errors import (
    IncompleteTrace,
    TraceNotFound,
)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """There is no trace."""
    with pytest.raises(TraceNotFound, match="cannot be read"):
        audit([tmp_path / "trace"])


def test_an_empty_file_is_incomplete(tmp_path: Path) -> None:
    """An empty file is not a trace of nothing."""
    (tmp_path / "trace").touch()
    with pytest.raises(IncompleteTrace, match="empty"):
        audit([tmp_path / "trace"])


def test_a_trace_of_nothing_is_a_trace(run: Stream, tmp_path: Path) -> None:
    """A run without steps has a header and an end."""
    run.with_events(()).write(tmp_path / "trace")

    assert (True, 0) == (audit([tmp_path / "trace"]).refines, audit([tmp_path / "trace"]).steps)


def test_truncation_is_found_at_every_entry(lines: Lines, tmp_path: Path) -> None:
    """A trace that stops after any of its entries but the last is incomplete."""
    path = tmp_path / "trace"
    for n in range(1, len(lines)):
        with pytest.raises(IncompleteTrace, match=f"line {n}: the trace ends here without an `end` entry"):
            audit([put(path, lines[:n])])


def test_truncation_is_found_inside_every_line(lines: Lines, tmp_path: Path) -> None:
    """A trace that stops inside any of its lines is incomplete, even if only the last newline is missing."""
    path = tmp_path / "trace"
    for n, line in enumerate(lines):
        for kept in {1, len(line) // 2, len(line)}:
            put(path, lines[:n])
            path.write_bytes(path.read_bytes() + line[:kept])
            with pytest.raises(IncompleteTrace, match=f"line {n + 1}: the line is not complete"):
                audit([path])


def test_a_changed_byte_breaks_the_chain(lines: Lines, tmp_path: Path) -> None:
    """A digit changed in a line is found by the next one, before anything is made of the line.

    (The header is judged at once, and the last line has nothing behind it but the head.)
    """
    for n in range(1, len(lines) - 1):
        digit = next(m for m in re.finditer(rb"[0-9]", lines[n]) if m.start() > 90)
        other = b"1" if digit.group() != b"1" else b"2"
        changed = lines[n][: digit.start()] + other + lines[n][digit.end() :]
        error = refusal(put(tmp_path / "trace", [*lines[:n], changed, *lines[n + 1 :]]))

        assert (n + 2, True) == (error.line, "the chain is broken" in str(error))


def test_any_line_lost_doubled_or_moved_breaks_the_chain(lines: Lines, tmp_path: Path) -> None:
    """The order of lines is part of the chain."""
    path = tmp_path / "trace"
    for n in range(1, len(lines) - 1):
        for edited in (
            [*lines[:n], *lines[n + 1 :]],
            [*lines[: n + 1], *lines[n:]],
            [*lines[:n], lines[n + 1], lines[n], *lines[n + 2 :]],
        ):
            assert "the chain is broken" in str(refusal(put(path, edited)))


FORGERIES: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "a space": (lambda lines: [*lines[:2], lines[2] + b" ", *lines[3:]], "not the canonical text"),
    "a space in the header": (lambda lines: [lines[0].replace(b",", b", ", 1), *lines[1:]], "not the canonical text"),
    "a space in the end": (lambda lines: [*lines[:-1], lines[-1] + b" "], "not the canonical text"),
    "a key twice": (
        lambda lines: [lines[0], lines[1].replace(b'"step":0', b'"step":0,"step":0'), *lines[2:]],
        "not the canonical text",
    ),
    "another order of keys": (
        lambda lines: [lines[0], re.sub(rb'("step":0),("actions":.*),("read)', rb"\2,\1,\3", lines[1]), *lines[2:]],
        "not the canonical text",
    ),
    "an escaped letter": (
        lambda lines: [lines[0], lines[1].replace(b'"tenant', b'"\\u0074enant', 1), *lines[2:]],
        "not the canonical text",
    ),
    "an unknown field": (
        lambda lines: [lines[0], lines[1][:-1] + b',"more":1}', *lines[2:]],
        "not an entry of the trace format",
    ),
    "a missing field": (
        lambda lines: [lines[0], re.sub(rb',"readings":\[.*\]', b"", lines[1]), *lines[2:]],
        "not an entry of the trace format",
    ),
    "a field of another type": (
        lambda lines: [lines[0], lines[1].replace(b'"step":0', b'"step":"0"'), *lines[2:]],
        "not an entry of the trace format",
    ),
    "an unknown action": (
        lambda lines: [lines[0], lines[1].replace(b'["admit"', b'["invite"', 1), *lines[2:]],
        "not an entry of the trace format",
    ),
    "a sampler state out of its range": (
        lambda lines: [lines[0], re.sub(rb"\[[0-9.]+,0,1048576,0,", b"[-1.0,0,1048576,0,", lines[1]), *lines[2:]],
        "has no meaning: temperature",
    ),
    "no JSON": (lambda lines: [lines[0], b"{", *lines[1:]], "not an entry of the trace format"),
    "no UTF-8": (lambda lines: [lines[0], b"\xff\xfe", *lines[1:]], "not an entry of the trace format"),
    "an empty line": (lambda lines: [lines[0], b"", *lines[1:]], "not an entry of the trace format"),
    "a second header": (lambda lines: [lines[0], *lines], "a second header"),
    "something after the end": (lambda lines: [*lines, lines[-1]], "something follows the `end` entry"),
    "an end in the middle": (lambda lines: [*lines[:3], lines[-1], *lines[3:]], "something follows the `end` entry"),
    "no header": (lambda lines: lines[1:], "does not begin with a trace's header"),
    "another file": (lambda lines: [b'{"kind":"header","format":"a list","version":1}'], "the file is not a trace"),
    "another version": (
        lambda lines: [lines[0].replace(b'"version":1', b'"version":2'), *lines[1:]],
        "has version 2, and this program reads version 1",
    ),
    "an unknown mode": (
        lambda lines: [lines[0].replace(b'"mode":"digest"', b'"mode":"tokens"'), *lines[1:]],
        "mode",
    ),
    "an unknown digest": (
        lambda lines: [lines[0].replace(b'"sha256-128"', b'"md5"'), *lines[1:]],
        "digests are made by 'md5'",
    ),
    "another configuration": (
        lambda lines: [lines[0].replace(b'"model":"', b'"model":"not '), *lines[1:]],
        "the fingerprint is not that of the configuration",
    ),
    "a pool without pages": (
        lambda lines: [re.sub(rb'"pages":[0-9]+', b'"pages":0', lines[0]), *lines[1:]],
        "pages is 0",
    ),
    "a page size of 0": (
        lambda lines: [re.sub(rb'"page_size":[0-9]+', b'"page_size":0', lines[0]), *lines[1:]],
        "page_size is 0",
    ),
    "too few steps counted": (
        lambda lines: [*lines[:-1], re.sub(rb'"steps":[0-9]+', b'"steps":1', lines[-1])],
        "counts 1 steps",
    ),
    "too few entries counted": (
        lambda lines: [*lines[:-1], re.sub(rb'"entries":[0-9]+', b'"entries":1', lines[-1])],
        "counts 1 entries",
    ),
    "files counted": (
        lambda lines: [*lines[:-1], re.sub(rb'"files":[0-9]+', b'"files":1', lines[-1])],
        "counts 1 files",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_text_is_refused(name: str, lines: Lines, tmp_path: Path) -> None:
    """With its chain made whole again, a text that is not what its meaning would be written as is still refused."""
    forge, reason = FORGERIES[name]
    forged = forge(list(lines))

    assert forged != lines
    assert reason in str(refusal(put(tmp_path / "trace", rechained(forged))))


DIFFERENCES: dict[str, tuple[bytes, bytes]] = {
    "more kept than there is": (rb'"output":\[\d+,', rb'"output":[99,'),
    "fewer kept than none": (rb'"output":\[0,', rb'"output":[-1,'),
    "a change to what it was": (rb'"cached":(\d+)', rb'"cached":\1,"arrival":0'),
    "a request that was not there": (rb'"changed":\[\["r\d+"', rb'"changed":[["r77"'),
    "a page that was not there": (rb'"pages":\{"changed":\[\[\d+', rb'"pages":{"changed":[[77'),
    "a removed page that was not there": (rb'"free":\{', rb'"free":{"removed":[77],'),
    "an empty part": (rb'"requests":\{', rb'"requests":{"removed":[],'),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_has_one_text(name: str, lines: Lines, tmp_path: Path) -> None:
    """A difference that is not the difference of the two snapshots is refused."""
    pattern, replacement = DIFFERENCES[name]
    for n, line in enumerate(lines):
        if b'"kind":"settle"' in line and re.search(pattern, line):
            forged = [*lines[:n], re.sub(pattern, replacement, line, count=1), *lines[n + 1 :]]
            error = refusal(put(tmp_path / "trace", rechained(forged)))

            assert n + 1 == error.line
            assert "canonical" in str(error) or "no meaning" in str(error)
            return
    raise AssertionError("no line of the trace has such a part")


def test_tables_of_rows_have_one_text(lines: Lines, tmp_path: Path) -> None:
    """A row that points to no table, and a table that no row points to, are refused."""
    n = next(n for n, line in enumerate(lines) if b'"kind":"forward"' in line and b'"rows":[]' not in line)
    for pattern, replacement in (
        (rb'"tables":\[', rb'"tables":[[77],'),
        (rb'"tables":\[(.*)\],"rows"', rb'"tables":[\1,[77]],"rows"'),
        (rb'"tables":\[.*\],"rows"', rb'"tables":[],"rows"'),
    ):
        forged = [*lines[:n], re.sub(pattern, replacement, lines[n], count=1), *lines[n + 1 :]]
        error = refusal(put(tmp_path / "trace", rechained(forged)))

        assert n + 1 == error.line
