"""What is written is read back; what is not the text of a whole trace is refused, with its line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from event_streams import Stream, stream
from event_walk import EventWalk, Habits
from vosti.refinement.audit import audit
from vosti.refinement.codec import entry_of, event_of, is_canonical
from vosti.refinement.differences import EMPTY, applied, difference
from vosti.refinement.entries import decode, encode, header, line_digest
from vosti.refinement.errors import (
    BadTrace,
    HeadMissing,
    IncompleteTrace,
    TraceClosed,
    TraceExists,
    TraceNotFound,
    TraceNotWritable,
    UnwritableEvent,
)
from vosti.refinement.reader import TraceReader
from vosti.refinement.writer import TraceWriter
from vosti.spec.events import PlanEvent, SettleEvent
from vosti.spec.state import Domain, RequestId, Sampler, Token
from vosti.spec.step import Admit

Lines = list[bytes]


@pytest.fixture(scope="module")
def run() -> Stream:
    """A run with a bit of everything."""
    return stream(3, 12, Habits(pages=9, sick=0.1))


@pytest.fixture
def lines(run: Stream, tmp_path: Path) -> Lines:
    """The lines of its trace, without newlines."""
    run.write(tmp_path / "original")
    return (tmp_path / "original").read_bytes().splitlines()


def rechained(lines: Lines) -> Lines:
    """The lines with every `prev` made to fit."""
    fitting: Lines = []
    previous = "0" * 64
    for line in lines:
        fitting.append(re.sub(rb'"prev":"[0-9a-f]*"', b'"prev":"' + previous.encode() + b'"', line, count=1))
        previous = line_digest(fitting[-1])
    return fitting


def put(path: Path, lines: Lines) -> Path:
    """Write lines."""
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def refusal(path: Path, head: str | None = None) -> BadTrace:
    """How an audit refuses a trace."""
    with pytest.raises(BadTrace) as caught:
        audit([path], head)
    return caught.value


# ---------------------------------------------------------------- round trips


@given(seed=st.integers(0, 2**32), reread=st.booleans())
@settings(max_examples=30)
def test_events_come_back(seed: int, reread: bool) -> None:
    """Reading an entry's text gives the event that it was written for, and writing that gives the text."""
    walk = EventWalk(seed, Habits(pages=9, sick=0.1, reread=reread))
    before = EMPTY
    for event in walk.events(8):
        line = encode(entry_of(event, "", before))
        entry = decode(line)
        back = event_of(entry, before)  # type: ignore[arg-type]  # it is neither a header nor an end

        assert event == back
        assert is_canonical(entry, back, before)  # type: ignore[arg-type]
        assert line == encode(entry_of(back, "", before))
        before = event.after if isinstance(event, SettleEvent) else before


@given(first=st.integers(0, 2**32), second=st.integers(0, 2**32))
@settings(max_examples=60)
def test_differences_lose_nothing(first: int, second: int) -> None:
    """The difference of any two snapshots leads from one to the other; that of a snapshot and itself is empty."""
    ends = []
    for seed in (first, second):
        events = list(EventWalk(seed, Habits(pages=9)).events(6))
        ends.append(next(event.after for event in reversed(events) if isinstance(event, SettleEvent)))
    before, after = ends

    assert after == applied(before, difference(before, after))
    assert difference(EMPTY, EMPTY) == difference(after, after)


def test_a_trace_is_read_as_it_was_written(run: Stream, tmp_path: Path) -> None:
    """Header, events and head come back from the file."""
    head = run.write(tmp_path / "trace")
    with TraceReader(tmp_path / "trace", head) as reader:
        events = tuple(reader)

    assert run.events == events
    assert run.header == reader.header
    assert head == reader.head == line_digest((tmp_path / "trace").read_bytes().splitlines()[-1])


# ---------------------------------------------------------------- writing


def test_a_trace_never_replaces_a_file(run: Stream, tmp_path: Path) -> None:
    """Writing where something stands is refused, and what stands there stays."""
    (tmp_path / "trace").write_text("precious")

    with pytest.raises(TraceExists, match="exists already"):
        TraceWriter(tmp_path / "trace", run.header)
    assert "precious" == (tmp_path / "trace").read_text()


def test_a_trace_needs_a_folder(run: Stream, tmp_path: Path) -> None:
    """A path in a folder that does not exist is refused in one sentence."""
    with pytest.raises(TraceNotWritable, match="cannot be written"):
        TraceWriter(tmp_path / "nowhere" / "trace", run.header)


def test_a_closed_trace_takes_no_event(run: Stream, tmp_path: Path) -> None:
    """Recording after the end is refused; closing twice does nothing."""
    writer = TraceWriter(tmp_path / "trace", run.header)
    writer.close()
    writer.close()

    with pytest.raises(TraceClosed):
        writer.record(run.events[0])
    assert audit([tmp_path / "trace"]).refines


def test_each_event_is_on_disk_at_once(run: Stream, tmp_path: Path) -> None:
    """After each event its line is in the file, whole."""
    writer = TraceWriter(tmp_path / "trace", run.header)
    for i, event in enumerate(run.events):
        writer.record(event)

        content = (tmp_path / "trace").read_bytes()
        assert content.endswith(b"\n")
        assert i + 2 == content.count(b"\n")
    writer.abandon()


def test_a_crash_leaves_a_prefix_that_says_so(run: Stream, tmp_path: Path) -> None:
    """A run that raises leaves its trace without an end; all of it can be read, and then what is missing is said."""
    with pytest.raises(ZeroDivisionError), TraceWriter(tmp_path / "trace", run.header) as writer:  # noqa: PT012
        for event in run.events[:20]:
            writer.record(event)
        raise ZeroDivisionError

    with TraceReader(tmp_path / "trace") as reader:
        events = iter(reader)
        assert run.events[:20] == tuple(next(events) for _ in range(20))
        with pytest.raises(IncompleteTrace, match="without an `end` entry"):
            next(events)


def test_what_is_no_sampler_state_is_not_written(run: Stream, tmp_path: Path) -> None:
    """An event with something that the format has no place for is refused."""
    writer = TraceWriter(tmp_path / "trace", run.header)
    admit = Admit(RequestId("r"), (Token(1),), Sampler("a sampler"), Domain(""), 0)

    with pytest.raises(UnwritableEvent, match="no sampler state"):
        writer.record(PlanEvent(0, (admit,), ()))
    with pytest.raises(UnwritableEvent, match="JSON"):
        TraceWriter(
            tmp_path / "other",
            header({}, page_size=1, pages=1, max_seqs=1, token_budget=1, context={"made of": object()}),
        )
    assert not (tmp_path / "other").exists()


# ---------------------------------------------------------------- broken files


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
        lambda lines: [lines[0].replace(b'"mode":"digest"', b'"mode":"candidates"'), *lines[1:]],
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


# ---------------------------------------------------------------- heads


def test_a_head_finds_a_trace_that_was_replaced(run: Stream, tmp_path: Path) -> None:
    """A trace that was written anew is whole; only the head, kept elsewhere, tells that it is another one."""
    head = run.write(tmp_path / "trace")
    stream(4, 12).write(tmp_path / "other")

    assert audit([tmp_path / "trace"], head).refines
    assert audit([tmp_path / "other"]).refines
    assert "this is another trace" in str(refusal(tmp_path / "other", head))


def test_there_is_a_head_for_each_trace(run: Stream, tmp_path: Path) -> None:
    """Heads are given in the order of the traces, and for all of them or for none."""
    heads = [run.write(tmp_path / name) for name in ("a", "b")]
    paths = [tmp_path / "a", tmp_path / "b"]

    assert audit(paths, heads).refines
    with pytest.raises(HeadMissing, match="1 heads for 2 traces"):
        audit(paths, heads[0])


def test_entries_are_json(lines: Lines) -> None:
    """Every line is a JSON object that any reader of JSON can read."""
    kinds = [msgspec.json.decode(line)["kind"] for line in lines]

    assert ("header", "end") == (kinds[0], kinds[-1])
    assert {"header", "plan", "forward", "settle", "output", "end"} == set(kinds)
