"""The step checker: whether each step of a run is a step of the specification (section 4.3 of the paper).

| recorded | checked |
| --- | --- |
| an action of a plan or settle | its guard holds in the state that it finds; its effect gives the next state |
| a value that the action speaks of | the guard's value part, by what was observed (`vosti.refinement.observations`) |
| a packed row | the conditions of `vosti.spec.rows.ROW_CONJUNCTS`; `compute` writes the digest that was read back |
| a reading of a page | the digests that the state has for its slots |
| a snapshot | field by field, the state that the actions lead to, and Inv |
| an output | the records of the step |

`compute` writes whatever digest was observed; that it is the canonical one is the conjunct `values_are_canonical`:
where the same prefix was computed before, the same digest was seen. Nothing that is recorded is left unexplained, and
the first thing that is not explained ends the check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vosti.refinement.computing import compute
from vosti.refinement.entries import Header
from vosti.refinement.errors import CheckerStopped
from vosti.refinement.inv import Invariant
from vosti.refinement.observations import Observations
from vosti.refinement.performing import perform
from vosti.refinement.run import Run
from vosti.refinement.snapshots import SnapshotComparison
from vosti.refinement.violation import Refuted
from vosti.spec.determinism import Record
from vosti.spec.events import Event, ForwardEvent, OutputEvent, PlanEvent, Reading, SettleEvent
from vosti.spec.state import RequestId, State
from vosti.spec.step import Action, Attach, Emit, Evict, Fail, Finish, Phase, Retract

EVERY = 64
"""After so many steps Inv is evaluated on all objects, and not only on those that were touched."""

FOLLOWS: dict[str | None, tuple[type, ...]] = {
    None: (PlanEvent,),
    "plan": (ForwardEvent,),
    "forward": (SettleEvent,),
    "settle": (OutputEvent, PlanEvent),
    "output": (OutputEvent, PlanEvent),
}
"""Phase → the events that may come next; None stands for the beginning."""

PHASES: dict[type, str] = {PlanEvent: "plan", ForwardEvent: "forward", SettleEvent: "settle", OutputEvent: "output"}


class Checker:
    """Checks a run event by event: from a trace, or in memory while the engine runs."""

    def __init__(
        self,
        header: Header,
        *,
        every: int = EVERY,
        observations: Observations | None = None,
        trace: str = "this run",
    ) -> None:
        """A checker at the beginning of a run.

        Args:
            header: what the run is: the engine's limits, the mode.
            every: after how many steps Inv is evaluated on all objects.
            observations: what was observed under the same configuration in other runs; this run adds to it.
            trace: how reports call the run.

        Raises:
            ValueError: if `every` is not at least 1.
        """
        if every < 1:
            raise ValueError(f"every is {every}: Inv is evaluated on all objects after 1 step or more.")
        self.run = Run(header, Observations() if observations is None else observations, trace)
        self.steps = 0
        self._every = every
        self._invariant = Invariant(self.run.state, self.run.observations)
        self._comparison = SnapshotComparison()
        self._phase: str | None = None
        self._stopped = False

    @property
    def state(self) -> State:
        """The state of the specification that the events lead to. Values are digests."""
        return self.run.state

    @property
    def records(self) -> dict[RequestId, tuple[Record, ...]]:
        """The view of each request so far."""
        return {r: tuple(records) for r, records in self.run.records.items()}

    def feed(self, event: Event) -> None:
        """Take the next event.

        Raises:
            Refuted: at the first event that is not explained.
            CheckerStopped: if a violation was found before, or after `finish()`.
        """
        self._guarded(lambda: self._feed(event))

    def finish(self) -> None:
        """Take the end of the run. Raises like `feed`."""
        self._guarded(self._finish)
        self._stopped = True

    def _guarded(self, what: Callable[[], None]) -> None:
        if self._stopped:
            raise CheckerStopped
        try:
            what()
        except Refuted:
            self._stopped = True
            raise

    def _feed(self, event: Event) -> None:
        place, phase = self.run.place, PHASES[type(event)]
        if not isinstance(event, FOLLOWS[self._phase]):
            expected = " or ".join(PHASES[kind] for kind in FOLLOWS[self._phase])
            place.refute("phases_are_in_order", expected=expected, actual=f"{phase} of step {event.step}")
        begins = isinstance(event, PlanEvent)
        if begins:
            self._close_step()
        if event.step != self.steps - (0 if begins else 1):
            place.refute(
                "steps_are_consecutive",
                expected=f"step {self.steps - (0 if begins else 1)}",
                actual=f"{phase} of step {event.step}",
            )
        place.step, place.phase, place.action = event.step, phase, None
        self._phase = phase
        match event:
            case PlanEvent():
                self.steps += 1
                self._plan(event)
            case ForwardEvent():
                compute(self.run, event)
            case SettleEvent():
                self._settle(event)
            case OutputEvent():
                self.run.outputs.take(event, place)

    def _close_step(self) -> None:
        """Nothing that a step owes is left."""
        if self._phase is not None:
            self.run.place.phase = "output"
            self.run.outputs.close(self.run.place)

    def _finish(self) -> None:
        place = self.run.place
        if self._phase in ("plan", "forward"):
            place.refute(
                "step_is_complete", expected="the rest of the step", actual=f"the end, after its {self._phase}"
            )
        self._close_step()
        place.phase = "end"
        self._invariant.check(self.run.state, self._invariant.touch(self.run.state), place, whole=True)

    # ------------------------------------------------------------ phases

    def _plan(self, event: PlanEvent) -> None:
        run = self.run
        readings = iter(event.readings)
        for action in event.actions:
            if isinstance(action, Attach | Evict):
                run.place.action = action
                self._check_reading(next(readings, None), action)
            perform(run, Phase.PLAN, action)
        extra = next(readings, None)
        if extra is not None:
            run.place.refute(
                "readings_match_actions", expected="no more readings", actual=f"page {extra.page}", page=extra.page
            )
        run.witnesses.planned(run.state)

    def _check_reading(self, reading: Reading | None, action: Attach | Evict) -> None:
        run, page_id = self.run, action.page
        if reading is None or reading.page != page_id:
            actual = "none" if reading is None else f"one of page {reading.page}"
            run.place.refute("readings_match_actions", expected=f"a reading of page {page_id}", actual=actual)
        if page_id in run.state.pages:  # otherwise the action's guard says so
            self._check_slots(reading, "reading_agrees")

    def _check_slots(self, reading: Reading, check: str) -> None:
        page = self.run.state.pages[reading.page]
        kv: tuple[object, ...] = page.kv
        slots: tuple[object, ...] = reading.slots
        if slots != kv:
            shorter = min(len(kv), len(slots))
            slot = next((i for i in range(shorter) if kv[i] != slots[i]), shorter)
            self.run.place.refute(
                check,
                expected=kv[slot] if slot < len(kv) else f"{len(kv)} slots",
                actual=slots[slot] if slot < len(slots) else f"{len(slots)} slots",
                page=reading.page,
                position=len(page.prefix) + slot,
            )

    def _settle(self, event: SettleEvent) -> None:
        run = self.run
        self._take_candidates(event)
        for action in event.actions:
            perform(run, Phase.SETTLE, action)
        self._check_used(event.actions)
        touched = self._invariant.touch(run.state)
        self._comparison.compare(run.state, event.after, touched, run.place)
        self._invariant.check(run.state, touched, run.place, whole=self.steps % self._every == 0)
        self._check_rereadings(event.rereadings)

    def _take_candidates(self, event: SettleEvent) -> None:
        run = self.run
        wanted = sum(isinstance(action, Emit) for action in event.actions) if run.header.mode == "candidates" else 0
        if len(event.candidates) != wanted:
            run.place.refute("candidates_match_emits", expected=wanted, actual=len(event.candidates))
        run.drawn_from = iter(event.candidates) if run.header.mode == "candidates" else None

    def _check_used(self, settled: Sequence[Action]) -> None:
        """Every row of logits has a use, or a reason why it has none."""
        forward = self.run.forward
        unused = forward.yielded.keys() - forward.used
        if not unused:
            return
        failed = {action.request for action in settled if isinstance(action, Fail)}
        dropped = {action.request for action in settled if isinstance(action, Retract | Finish)}
        for r, position in sorted(unused):
            drafted = position >= forward.lengths[r]
            if r not in failed and not (drafted and r in dropped):
                self.run.place.refute(
                    "taken_logits_are_used",
                    expected="an emit or observe of these logits, or the end of their draft or request",
                    actual="none",
                    request=r,
                    position=position,
                    row=forward.yielded[r, position].row,
                )

    def _check_rereadings(self, rereadings: Sequence[Reading]) -> None:
        place, pages = self.run.place, self.run.state.pages
        wanted = {page_id for page_id, page in pages.items() if page.tokens} if self.run.header.reread else set()
        read = [reading.page for reading in rereadings]
        allowed = pages.keys() if self.run.header.reread else ()
        if len(set(read)) != len(read) or not wanted.issubset(read) or not set(read).issubset(allowed):
            place.refute("rereadings_are_complete", expected=sorted(wanted), actual=read)
        for reading in rereadings:
            self._check_slots(reading, "rereading_agrees")
