"""A counterexample as a trace file, so that it can be audited, kept and compared like any other run.

A trace consists of engine steps, and an exploration of the specification takes actions one by one. They are mapped so:

- Neighbours that stand against the order of phases (plan, forward, settle) are exchanged where that changes nothing:
  both happen in the other order too, and lead to the same state. The last action stays the last.
- A step ends where the phase goes back after that.
- The forward's rows are the step's computes, request by request; logits are taken where the step reports them.
- Digests are those of the values' texts, the snapshot after a step is the specification's own state, and the caller
  hears what was emitted.
- An action whose effect raises leads to no state, and is left out.

The audit of such a trace finds what the exploration found, as far as a trace can show it: the action whose guard was
weakened, or the conjunct that is false afterwards. One thing may come first: an emit or observe whose row was computed
in an earlier step, which the specification's actions allow and an engine's step does not (`logits_were_taken`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from vosti.proofs.explore_counterexample import Run
from vosti.refinement.entries import header
from vosti.refinement.writer import TraceWriter
from vosti.spec import step
from vosti.spec.determinism import Record
from vosti.spec.digests import sha256
from vosti.spec.events import (
    Event,
    ForwardEvent,
    OutputEvent,
    PageView,
    PlanEvent,
    Reading,
    RowBits,
    SettleEvent,
    SlotBits,
    Snapshot,
)
from vosti.spec.reference import finite_kv, finite_logits, kernel_logits
from vosti.spec.rows import Row
from vosti.spec.state import Logits, RequestId, State, cached_value, cached_values, sequence
from vosti.spec.step import (
    RULES,
    Action,
    Attach,
    Cancel,
    Compute,
    Emit,
    Evict,
    Fail,
    Finish,
    Observe,
    Phase,
    last_position,
)

Guard = Callable[[State, Any], bool]
Effect = Callable[[State, Any], State]

ORDER = tuple(Phase)
ENDS = {Cancel: "cancelled", Finish: "length", Fail: "error"}
"""How an end of a request is told to its caller."""


def write_trace(path: str | Path, run: Run, guard: Guard = step.guard, effect: Effect = step.effect) -> None:
    """Write a run as a trace file.

    Args:
        path: of the file, which must not exist.
        run: the run.
        guard: the guard that the exploration used.
        effect: the effect that it used.

    Raises:
        RefinementError: if the file cannot be written.
    """
    told = header(
        {"model": "the specification without a model"},
        page_size=run.start.page_size,
        pages=len(run.start.capacity),
        max_seqs=max(1, len(run.actions)),
        token_budget=max(1, len(run.actions)),
        context={"bounds": run.bounds},
    )
    with TraceWriter(path, told) as writer:
        for event in events(run, guard, effect):
            writer.record(event)


def events(run: Run, guard: Guard = step.guard, effect: Effect = step.effect) -> Iterator[Event]:
    """The events of a run; the arguments are those of `write_trace`."""
    s = run.start
    actions = _possible(run.actions, s, effect)
    steps = _steps(actions, run.steps) if run.steps else _grouped(arranged(actions, s, guard, effect))
    for number, one_step in enumerate(steps):
        yield from _StepEvents(number, effect).of(s, one_step)
        for action in one_step:
            s = effect(s, action)


def arranged(actions: Sequence[Action], start: State, guard: Guard, effect: Effect) -> tuple[Action, ...]:
    """The same actions, nearer to the order of phases, with the same last action and the same state at the end."""
    order = list(actions)
    changed = True
    while changed:
        changed = False
        s = start
        for i in range(len(order) - 2):
            first, second = order[i], order[i + 1]
            if _rank(second) < _rank(first) and _commute(s, first, second, guard, effect):
                order[i : i + 2] = [second, first]
                changed = True
            s = effect(s, order[i])
    return tuple(order)


def _commute(s: State, first: Action, second: Action, guard: Guard, effect: Effect) -> bool:
    """Whether two actions that happen one after the other may change places."""
    if not guard(s, second):
        return False
    between = effect(s, second)
    return guard(between, first) and effect(between, first) == effect(effect(s, first), second)


def _rank(action: Action) -> int:
    return ORDER.index(RULES[type(action)].phase)


def _possible(actions: Sequence[Action], start: State, effect: Effect) -> tuple[Action, ...]:
    """The actions up to the first that raises: no other than the last one of a counterexample does."""
    s = start
    for number, action in enumerate(actions):
        try:
            s = effect(s, action)
        except Exception:
            return tuple(actions[:number])
    return tuple(actions)


def _steps(actions: Sequence[Action], counts: Sequence[int]) -> Iterator[list[Action]]:
    """The steps of an engine, by how many actions each has."""
    left = iter(actions)
    return (list(islice(left, count)) for count in counts)


def _grouped(actions: Sequence[Action]) -> Iterator[list[Action]]:
    """Steps: each goes on for as long as the phase does not go back."""
    group: list[Action] = []
    for action in actions:
        if group and _rank(action) < _rank(group[-1]):
            yield group
            group = []
        group.append(action)
    if group:
        yield group


# ---------------------------------------------------------------- one step


@dataclass(frozen=True)
class _StepEvents:
    """Makes the events of one step."""

    step: int
    effect: Effect

    def of(self, s: State, actions: Sequence[Action]) -> Iterator[Event]:
        """The events of the step that takes `actions` from s."""
        plan, forward, settle = ([a for a in actions if RULES[type(a)].phase is phase] for phase in ORDER)
        readings = []
        for action in plan:
            if isinstance(action, Attach | Evict):
                kv = s.pages[action.page].kv if action.page in s.pages else ()
                readings.append(Reading(action.page, tuple(map(_digest, kv))))
            s = self.effect(s, action)
        yield PlanEvent(self.step, tuple(plan), tuple(readings))
        planned = s
        for action in forward:
            s = self.effect(s, action)
        computed, taken = s, set()
        for action in settle:
            if isinstance(action, Emit) and action.request in s.requests:
                taken.add((action.request, last_position(s.requests[action.request])))
            elif isinstance(action, Observe):
                taken.add((action.request, action.position))
            s = self.effect(s, action)
        yield self._forward(planned, computed, forward, taken)
        yield SettleEvent(self.step, tuple(map(_with_digests, settle)), _snapshot(s), ())
        yield from self._outputs([*plan, *settle])

    def _forward(
        self, s: State, computed: State, computes: Sequence[Action], taken: set[tuple[RequestId, int]]
    ) -> ForwardEvent:
        rows: list[Row] = []
        written: list[SlotBits] = []
        logits: list[RowBits] = []
        counts = {r: sum(a == Compute(r) for a in computes) for r in s.requests}
        for r, count in counts.items():
            request = s.requests[r]
            for p in range(request.cached, request.cached + count):
                slot = (request.table[p // s.page_size], p % s.page_size)
                is_taken = (r, p) in taken
                rows.append(Row(r, sequence(request)[p], p, slot, request.table, p + 1, is_taken))
                value = cached_value(computed, r, p)
                written.append(SlotBits(len(rows) - 1, _digest(value), finite_kv(value)))
                if is_taken:
                    row = kernel_logits(cached_values(computed, r, p + 1), sequence(request)[: p + 1])
                    logits.append(RowBits(len(rows) - 1, Logits(_digest(row)), finite_logits(row)))
        return ForwardEvent(self.step, tuple(rows), tuple(written), tuple(logits), {})

    def _outputs(self, actions: Sequence[Action]) -> Iterator[OutputEvent]:
        records: dict[RequestId, list[Record]] = {}
        ended: dict[RequestId, str] = {}
        for action in actions:
            if isinstance(action, Emit):
                records.setdefault(action.request, []).append(action.record)
            elif isinstance(action, Cancel | Finish | Fail):
                records.setdefault(action.request, [])
                ended[action.request] = ENDS[type(action)]
        for r, emitted in records.items():
            tokens = tuple(record.token for record in emitted)
            logits = tuple(Logits(_digest(record.logits)) for record in emitted)
            yield OutputEvent(self.step, r, tokens, logits, ended.get(r))


def _digest(value: object) -> str:
    return sha256(repr(value).encode())


def _with_digests(action: Action) -> Action:
    match action:
        case Emit(record=record):
            return replace(action, record=replace(record, logits=Logits(_digest(record.logits))))
        case Observe(logits=logits):
            return replace(action, logits=Logits(_digest(logits)))
        case _:
            return action


def _snapshot(s: State) -> Snapshot:
    pages = {
        page_id: PageView(page.registered, page.parent, page.domain, len(page.holders), page.tokens, page.registered)
        for page_id, page in s.pages.items()
    }
    return Snapshot(requests=s.requests, pages=pages, free=s.capacity - s.pages.keys())
