"""The forward phase: packed rows, and the values that came out."""

from __future__ import annotations

from math import isfinite

from vosti.refinement.explain import explain
from vosti.refinement.performing import floats, require
from vosti.refinement.run import Forward, Run
from vosti.spec import actions
from vosti.spec.control import false_row
from vosti.spec.digests import ALGORITHMS
from vosti.spec.events import ForwardEvent, RowBits, SlotBits
from vosti.spec.rows import Row
from vosti.spec.state import Value
from vosti.spec.step import last_position


def compute(run: Run, event: ForwardEvent) -> None:
    """Let a forward happen in a run.

    Raises:
        Refuted: if its rows are not those that the plan asks for, or a value contradicts an earlier one.
    """
    _check_rows(run, event)
    _check_values(run, event)
    run.witnesses.forward(run.state, event.rows)
    run.forward = Forward(rows=event.rows, values=event.values)
    slots = iter(event.written)
    for i, row in enumerate(event.rows):
        if row.request is not None:
            run.rows += 1
            _write(run, i, row, next(slots))
    for bits in event.logits:
        _take(run, event.rows[bits.row], bits)


def _check_rows(run: Run, event: ForwardEvent) -> None:
    s, rows, place = run.state, event.rows, run.place
    false = false_row(s, rows)
    if false is not None:
        condition, i = false
        expected, actual = explain(condition, s, rows, i)
        page = rows[i].write
        place.refute(
            condition.__name__,
            expected=expected,
            actual=actual,
            request=rows[i].request,
            page=None if page is None else page[0],
            position=rows[i].position,
            row=i,
        )
    live = [row.request for row in rows if row.request is not None]
    if len(live) > run.header.token_budget:
        place.refute("within_token_budget", expected=f"at most {run.header.token_budget} rows", actual=len(live))
    if len(set(live)) > run.header.max_seqs:
        place.refute("within_max_seqs", expected=f"at most {run.header.max_seqs} requests", actual=len(set(live)))
    for check, wanted, recorded in (
        ("written_matches_rows", [i for i, row in enumerate(rows) if row.write], [bits.row for bits in event.written]),
        ("logits_match_rows", [i for i, row in enumerate(rows) if row.logits], [bits.row for bits in event.logits]),
    ):
        if wanted != recorded:
            place.refute(check, expected=wanted, actual=recorded)


def _check_values(run: Run, event: ForwardEvent) -> None:
    """In mode "full": the bits are there, have their digests, and are finite or not as is said."""
    expected = {str(bits.logits) for bits in event.logits} | {bits.kv for bits in event.written} if run.full else set()
    if event.values.keys() != expected:
        odd = min(expected ^ event.values.keys())
        run.place.refute(
            "values_fit_the_mode",
            expected=f"the bits of {odd}" if odd in expected else f"no bits of {odd}",
            actual="none" if odd in expected else "bits",
        )
    digest = ALGORITHMS[run.header.digest].digest
    for name, data in event.values.items():
        if digest(data) != name:
            run.place.refute("values_have_their_digest", expected=name, actual=digest(data))
    for bits in event.logits if run.full else ():
        data = event.values[str(bits.logits)]
        if len(data) % 4 or bits.finite != all(map(isfinite, floats(data))):
            said = "finite" if bits.finite else "not finite"
            run.place.refute("finiteness_follows_bits", expected="what the bits say", actual=said, row=bits.row)


def _write(run: Run, i: int, row: Row, bits: SlotBits) -> None:
    """A live row computes the next position of its request, and `bits` is what its slot holds afterwards."""
    r, seen = row.request, run.observations.kv
    assert r is not None
    require(run, actions.compute_guard, r)
    prefix = run.positions.compute(r, row.token, bits.finite)
    first = seen.observe(prefix, bits.kv, run.place.trace, run.step)
    if first is not None and first.answer != bits.kv:
        run.place.refute(
            "values_are_canonical",
            expected=str(first),
            actual=bits.kv,
            request=r,
            page=None if row.write is None else row.write[0],
            position=row.position,
            row=i,
        )
    _note_finiteness(run, row, bits.kv, bits.finite, first is not None, i)
    run.state = actions.written(run.state, r, Value(bits.kv))


def _take(run: Run, row: Row, bits: RowBits) -> None:
    """A live row's logits are taken, after the forward."""
    r, seen = row.request, run.observations.logits
    assert r is not None
    prefix = run.positions.prefix(r, row.position)
    first = seen.observe(prefix, str(bits.logits), run.place.trace, run.step)
    if first is not None and first.answer != bits.logits:
        run.place.refute(
            "logits_are_canonical",
            expected=str(first),
            actual=bits.logits,
            request=r,
            position=row.position,
            row=bits.row,
        )
    _note_finiteness(run, row, str(bits.logits), bits.finite, first is not None, bits.row)
    run.forward.yielded[r, row.position] = bits
    run.forward.lengths[r] = last_position(run.state.requests[r]) + 1


def _note_finiteness(run: Run, row: Row, name: str, finite: bool, known: bool, i: int) -> None:
    if not run.observations.note_finiteness(name, finite, known):
        before, now = ("finite", "not finite") if not finite else ("not finite", "finite")
        run.place.refute(
            "finiteness_follows_bits",
            expected=f"{before}, as {name} was before",
            actual=now,
            request=row.request,
            position=row.position,
            row=i,
        )
