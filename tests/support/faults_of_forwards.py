"""Faults in packed rows, and in the values that come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from event_streams import NOBODY, OTHER, Edit, Fault, Stream, at_event
from vosti.spec.events import (
    ForwardEvent,
)
from vosti.spec.rows import Row
from vosti.spec.state import Logits, PageId, State, Token, history


def at_row(change: Any) -> Edit:
    """Change the first row for which `change(row, state, rows)` has something to offer."""

    def edit(event: ForwardEvent, s: State) -> ForwardEvent | None:
        for i, row in enumerate(event.rows):
            new = change(row, s, event.rows)
            if new is not None:
                return replace(event, rows=(*event.rows[:i], new, *event.rows[i + 1 :]))
        return None

    return at_event(ForwardEvent, edit)


def live(change: Any) -> Any:
    """Only rows that are not padding."""
    return lambda row, s, rows: None if row.request is None else change(row, s, rows)


def other_table(row: Row, s: State, rows: Sequence[Row]) -> Row | None:
    """The row reads through another request's table."""
    tables = [other.table for other in rows if other.request not in (None, row.request)]
    return replace(row, table=tables[0]) if tables and tables[0][:1] != row.table[:1] else None


def exchange_logits(event: ForwardEvent, s: State) -> ForwardEvent | None:
    """The logits of two requests are exchanged: each gets the other's row."""
    last = [
        k
        for k, bits in enumerate(event.logits)
        for row in [event.rows[bits.row]]
        if row.request is not None and row.position == len(history(s.requests[row.request])) - 1
    ]
    if len(last) < 2:
        return None
    logits = list(event.logits)
    a, b = last[:2]
    logits[a], logits[b] = (
        replace(logits[a], logits=logits[b].logits),
        replace(logits[b], logits=logits[a].logits),
    )
    return replace(event, logits=tuple(logits))


def seen_before(kind: str, change: Any) -> Edit:
    """Change what a row yielded where the same was yielded before: `kind` is "written" or "logits"."""

    def edit(s: Stream) -> Stream | None:
        seen: set[str] = set()
        for i, event in enumerate(s.events):
            values = getattr(event, kind, ())
            for k, bits in enumerate(values if isinstance(event, ForwardEvent) else ()):
                name = bits.kv if kind == "written" else str(bits.logits)
                if name in seen:
                    changed: dict[str, Any] = {kind: (*values[:k], change(bits), *values[k + 1 :])}
                    return s.with_event(i, replace(event, **changed))
                seen.add(name)
        return None

    return edit


def limit(**limits: int) -> Edit:
    """The header promises a smaller limit."""

    def edit(s: Stream) -> Stream:
        values = {field: getattr(s.header, field) for field in s.header.__struct_fields__}
        return replace(s, header=type(s.header)(**{**values, **limits}))

    return edit


FORWARD = [
    Fault(
        "a padding row writes",
        "padding_is_inert",
        at_row(lambda row, s, rows: replace(row, write=(PageId(0), 0)) if row.request is None else None),
    ),
    Fault("a row of nobody", "row_is_live", at_row(live(lambda row, s, rows: replace(row, request=NOBODY)))),
    Fault(
        "a row skips a position",
        "row_is_next",
        at_row(live(lambda row, s, rows: replace(row, position=row.position + 1))),
    ),
    Fault(
        "a row has another token",
        "row_has_its_token",
        at_row(live(lambda row, s, rows: replace(row, token=Token(row.token + 1)))),
    ),
    Fault(
        "a row writes the slot beside its own",
        "row_writes_its_slot",
        at_row(live(lambda row, s, rows: replace(row, write=(row.write[0], row.write[1] + 1)))),
    ),
    Fault("a row writes nothing", "row_writes_its_slot", at_row(live(lambda row, s, rows: replace(row, write=None)))),
    Fault(
        "a row reads a slot too many",
        "row_reads_its_prefix",
        at_row(live(lambda row, s, rows: replace(row, readable=row.readable + 1))),
    ),
    Fault("a row reads another's pages", "row_reads_its_prefix", at_row(live(other_table))),
    Fault("more rows than the budget", "within_token_budget", limit(token_budget=1)),
    Fault("more requests than allowed", "within_max_seqs", limit(max_seqs=1)),
    Fault(
        "a written value is missing",
        "written_matches_rows",
        at_event(ForwardEvent, lambda e, s: replace(e, written=e.written[1:]) if e.written else None),
    ),
    Fault(
        "a row of logits is missing",
        "logits_match_rows",
        at_event(ForwardEvent, lambda e, s: replace(e, logits=e.logits[1:]) if e.logits else None),
    ),
    Fault(
        "bits in mode digest",
        "values_fit_the_mode",
        at_event(ForwardEvent, lambda e, s: replace(e, values={OTHER: b"bits"})),
    ),
    Fault("logits of two requests are exchanged", "emitted_logits", at_event(ForwardEvent, exchange_logits)),
    Fault(
        "the same prefix gives another value",
        "values_are_canonical",
        seen_before("written", lambda bits: replace(bits, kv=OTHER)),
    ),
    Fault(
        "the same history gives other logits",
        "logits_are_canonical",
        seen_before("logits", lambda bits: replace(bits, logits=Logits(OTHER))),
    ),
    Fault(
        "the same value is finite, and then not",
        "finiteness_follows_bits",
        seen_before("written", lambda bits: replace(bits, finite=not bits.finite)),
    ),
    Fault(
        "the same logits are finite, and then not",
        "finiteness_follows_bits",
        seen_before("logits", lambda bits: replace(bits, finite=not bits.finite)),
    ),
]
