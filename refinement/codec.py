"""Events of the specification to entries of a trace, and back.

`entry_of` and `event_of` are inverse to each other, given the snapshot after the step before: `entry_of` makes one of
several entries that could tell of an event, and `is_canonical` knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vosti.refinement import entries, parts
from vosti.refinement.differences import applied, difference, is_minimal
from vosti.refinement.errors import UnwritableEvent
from vosti.refinement.samplers import sampler_fields, sampler_from
from vosti.spec import step as spec
from vosti.spec.candidates import Candidates
from vosti.spec.determinism import Record
from vosti.spec.events import (
    Event,
    ForwardEvent,
    OutputEvent,
    PlanEvent,
    Reading,
    RowBits,
    SettleEvent,
    SlotBits,
    Snapshot,
)
from vosti.spec.rows import Row
from vosti.spec.state import Logits, Token

EventEntry = entries.PlanEntry | entries.ForwardEntry | entries.SettleEntry | entries.OutputEntry

NO_VALUES: Mapping[str, bytes] = {}


def logits_digest(logits: Logits) -> str:
    """The digest that stands for a row of logits. Raises `UnwritableEvent` if it is none."""
    if not isinstance(logits, str):
        raise UnwritableEvent(f"{logits!r} is no digest of logits: record digests (vosti.spec.events.digest).")
    return logits


# ---------------------------------------------------------------- events to entries


def entry_of(event: Event, previous: str, before: Snapshot) -> EventEntry:
    """The entry for an event.

    Args:
        event: what the engine showed.
        previous: the `line_digest` of the line before.
        before: the snapshot after the step before; needed by a `SettleEvent`.

    Raises:
        UnwritableEvent: if the event holds something that the format has no place for.
    """
    match event:
        case PlanEvent():
            return entries.PlanEntry(
                prev=previous,
                step=event.step,
                actions=tuple(map(action_entry, event.actions)),
                readings=tuple(map(_reading_entry, event.readings)),
            )
        case ForwardEvent():
            tables = {table: place for place, table in enumerate(dict.fromkeys(row.table for row in event.rows))}
            return entries.ForwardEntry(
                prev=previous,
                step=event.step,
                tables=tuple(tables),
                rows=tuple(
                    parts.Row(r.request, r.token, r.position, r.write, tables[r.table], r.readable, r.logits)
                    for r in event.rows
                ),
                written=tuple(parts.RowValue(bits.row, bits.kv, bits.finite) for bits in event.written),
                logits=tuple(
                    parts.RowValue(bits.row, logits_digest(bits.logits), bits.finite) for bits in event.logits
                ),
            )
        case SettleEvent():
            return entries.SettleEntry(
                prev=previous,
                step=event.step,
                actions=tuple(map(action_entry, event.actions)),
                after=difference(before, event.after),
                rereadings=tuple(map(_reading_entry, event.rereadings)),
                candidates=tuple(map(_candidates_entry, event.candidates)),
            )
        case OutputEvent():
            return entries.OutputEntry(
                prev=previous,
                step=event.step,
                request=event.request,
                tokens=event.tokens,
                logits=tuple(map(logits_digest, event.logits)),
                ended=event.ended,
            )


def _reading_entry(reading: Reading) -> parts.Reading:
    return parts.Reading(reading.page, reading.slots)


def _candidates_entry(found: Candidates) -> parts.Candidates:
    kept = tuple((Token(token), share) for token, share in found.kept)
    runner_up = None if found.runner_up is None else (Token(found.runner_up[0]), found.runner_up[1])
    return parts.Candidates(kept, runner_up)


TO_ENTRY: dict[type, Callable[[Any], parts.AnyAction]] = {
    spec.Admit: lambda a: parts.Admit(a.request, a.prompt, sampler_fields(a.sampler), a.domain, a.arrival),
    spec.Propose: lambda a: parts.Propose(a.request, a.draft),
    spec.Attach: lambda a: parts.Attach(a.request, a.page),
    spec.Allocate: lambda a: parts.Allocate(a.request, a.page),
    spec.Evict: lambda a: parts.Evict(a.page),
    spec.Compute: lambda a: parts.Compute(a.request),
    spec.Emit: lambda a: parts.Emit(
        a.request, logits_digest(a.record.logits), a.record.token, sampler_fields(a.sampler)
    ),
    spec.Observe: lambda a: parts.Observe(a.request, a.position, logits_digest(a.logits)),
    spec.Retract: lambda a: parts.Retract(a.request),
    spec.Publish: lambda a: parts.Publish(a.request, a.block),
    spec.Preempt: lambda a: parts.Preempt(a.request, a.in_favour_of),
    spec.Finish: lambda a: parts.Finish(a.request),
    spec.Cancel: lambda a: parts.Cancel(a.request),
    spec.Fail: lambda a: parts.Fail(a.request),
}


def action_entry(action: spec.Action) -> parts.AnyAction:
    """An action as it stands in a trace. Raises `UnwritableEvent`."""
    return TO_ENTRY[type(action)](action)


# ---------------------------------------------------------------- entries to events


def event_of(entry: EventEntry, before: Snapshot, values: Mapping[str, bytes] = NO_VALUES) -> Event:
    """The event that an entry tells of.

    Args:
        entry: a decoded line.
        before: the snapshot after the step before.
        values: in mode "full", the bits behind a forward entry's digests.

    Raises:
        ValueError, TypeError: if the entry says something that no event can mean.
    """
    match entry:
        case entries.PlanEntry():
            return PlanEvent(
                step=entry.step,
                actions=tuple(map(action_of, entry.actions)),
                readings=tuple(map(_reading_of, entry.readings)),
            )
        case entries.ForwardEntry():
            return ForwardEvent(
                step=entry.step,
                rows=tuple(_row_of(row, entry.tables) for row in entry.rows),
                written=tuple(SlotBits(value.row, value.digest, value.finite) for value in entry.written),
                logits=tuple(RowBits(value.row, Logits(value.digest), value.finite) for value in entry.logits),
                values=values,
            )
        case entries.SettleEntry():
            return SettleEvent(
                step=entry.step,
                actions=tuple(map(action_of, entry.actions)),
                after=applied(before, entry.after),
                rereadings=tuple(map(_reading_of, entry.rereadings)),
                candidates=tuple(Candidates(found.kept, found.runner_up) for found in entry.candidates),
            )
        case entries.OutputEntry():
            return OutputEvent(
                step=entry.step,
                request=entry.request,
                tokens=entry.tokens,
                logits=tuple(map(Logits, entry.logits)),
                ended=entry.ended,
            )


def is_canonical(entry: EventEntry, event: Event, before: Snapshot) -> bool:
    """Whether `entry`, which tells of `event`, is the one that `entry_of` makes of it."""
    match entry, event:
        case entries.ForwardEntry(), _:
            places = dict.fromkeys(row.table for row in entry.rows)
            return list(places) == list(range(len(entry.tables))) and len(set(entry.tables)) == len(entry.tables)
        case entries.SettleEntry(), SettleEvent():
            return is_minimal(entry.after, before, event.after)
        case _:
            return True


def _reading_of(reading: parts.Reading) -> Reading:
    return Reading(reading.page, reading.slots)


def _row_of(row: parts.Row, tables: tuple[parts.Pages, ...]) -> Row:
    if not 0 <= row.table < len(tables):
        raise ValueError(f"a row's table is number {row.table} of {len(tables)}")
    return Row(row.request, row.token, row.position, row.write, tables[row.table], row.readable, row.logits)


FROM_ENTRY: dict[type, Callable[[Any], spec.Action]] = {
    parts.Admit: lambda a: spec.Admit(a.request, a.prompt, sampler_from(a.sampler), a.domain, a.arrival),
    parts.Propose: lambda a: spec.Propose(a.request, a.draft),
    parts.Attach: lambda a: spec.Attach(a.request, a.page),
    parts.Allocate: lambda a: spec.Allocate(a.request, a.page),
    parts.Evict: lambda a: spec.Evict(a.page),
    parts.Compute: lambda a: spec.Compute(a.request),
    parts.Emit: lambda a: spec.Emit(a.request, Record(Logits(a.logits), a.token), sampler_from(a.sampler)),
    parts.Observe: lambda a: spec.Observe(a.request, a.position, Logits(a.logits)),
    parts.Retract: lambda a: spec.Retract(a.request),
    parts.Publish: lambda a: spec.Publish(a.request, a.block),
    parts.Preempt: lambda a: spec.Preempt(a.request, a.in_favour_of),
    parts.Finish: lambda a: spec.Finish(a.request),
    parts.Cancel: lambda a: spec.Cancel(a.request),
    parts.Fail: lambda a: spec.Fail(a.request),
}


def action_of(action: parts.AnyAction) -> spec.Action:
    """The action that stands in a trace. Raises ValueError or TypeError if its sampler state is none."""
    return FROM_ENTRY[type(action)](action)
