"""What is written is read back; a head tells one trace from another."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from event_streams import Stream, stream
from event_walk import EventWalk, Habits
from trace_lines import Lines, refusal
from vosti.refinement.audit import audit
from vosti.refinement.codec import entry_of, event_of, is_canonical
from vosti.refinement.differences import EMPTY, applied, difference
from vosti.refinement.entries import decode, encode, header, line_digest
from vosti.refinement.errors import (
    HeadMissing,
    IncompleteTrace,
    TraceClosed,
    TraceExists,
    TraceNotWritable,
    UnwritableEvent,
)
from vosti.refinement.reader import TraceReader
from vosti.refinement.writer import TraceWriter
from vosti.spec.events import PlanEvent, SettleEvent
from vosti.spec.state import Domain, RequestId, Sampler, Token
from vosti.spec.step import Admit

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
