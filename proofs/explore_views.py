"""What requests are seen to emit, over all runs of an exploration at once: Theorem 4.1 and Definition 2.1.

Definition 2.1 goes through one map from (prompt, initial sampler state, index) to the record that every run has there.
A run's records reach the map one by one, so two views that differ do so at the first record that differs, and a
shortest run to either is known. An error ends a view: beside the records stand the lengths at which requests failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from vosti.proofs.explore_counterexample import DETERMINISM, OUTPUT, Counterexample, Run, described
from vosti.refinement.explain import shown
from vosti.spec.determinism import Admission, Record
from vosti.spec.reference import forward
from vosti.spec.state import Logits, RequestId, State, Token, history
from vosti.spec.step import Action, Admit, Emit, Fail, Observe

Lazy = Callable[[], Run]
"""Gives the run that leads to what is being looked at; called when it is worth keeping."""

Origins = Mapping[RequestId, tuple[int, int]]
"""Of each request: the number of its admission (prompt and initial sampler state), and how many records it has emitted.
Ghost: what Definition 2.1 speaks of, whatever the state says.
"""


@dataclass
class Views:
    """The views of all requests of all runs so far."""

    records: dict[tuple[Admission, int], tuple[Record, Run]] = field(default_factory=dict)
    """Admission and index → the record, and a shortest run to it."""

    ends: dict[Admission, tuple[int, Run]] = field(default_factory=dict)
    """Admission → how many records there are before the error that ends the view, and a shortest run to it."""

    def emitted(self, admission: Admission, index: int, record: Record, run: Lazy) -> Counterexample | None:
        """A request emits its record number `index`. What contradicts it, if anything does."""
        known = self.records.get((admission, index))
        if known is None:
            self.records[admission, index] = (record, run())
            end = self.ends.get(admission)
            return None if end is None or index < end[0] else _carried_further(*end, run())
        if known[0] == record:
            return None
        where, expected = f"record {index} of a request with prompt {admission.prompt}", f"{shown(known[0])}, as before"
        return Counterexample(DETERMINISM, "prefix_comparable", where, expected, shown(record), run(), known[1])

    def failed(self, admission: Admission, length: int, run: Lazy) -> Counterexample | None:
        """A request fails after `length` records. What contradicts it, if anything does."""
        if admission not in self.ends:
            self.ends[admission] = (length, run())
        further = self.records.get((admission, length))
        return None if further is None else _carried_further(length, run(), further[1])

    def merge(self, other: Views) -> Counterexample | None:
        """The other's views join these. The first contradiction, if there is one."""
        for (admission, index), (record, run) in other.records.items():
            found = self.emitted(admission, index, record, _known(run))
            if found is not None:
                return found
        for admission, (length, run) in other.ends.items():
            found = self.failed(admission, length, _known(run))
            if found is not None:
                return found
        return None


def _known(run: Run) -> Lazy:
    return lambda: run


def _carried_further(length: int, ended: Run, further: Run) -> Counterexample:
    expected, actual = f"{length} records and no more: an error ended the other run's view", f"a record {length}"
    return Counterexample(DETERMINISM, "ends_alike", "a request that failed", expected, actual, further, ended)


class Watch:
    """Looks at each action that shows something, and remembers what requests came with."""

    def __init__(self) -> None:
        self.views = Views()
        self._admissions: dict[Admission, int] = {}
        self._numbered: list[Admission] = []

    def look(self, s: State, origins: Origins, action: Action, run: Lazy) -> Counterexample | None:
        """What is wrong with what the action shows, if it happens in s."""
        match action:
            case Emit(request=r, record=record):
                admission, index = self._origin(origins, r)
                return _look_at_logits(history(s.requests[r]), record.logits, action, run) or self.views.emitted(
                    admission, index, record, run
                )
            case Observe(request=r, position=position, logits=logits):
                return _look_at_logits(history(s.requests[r])[: position + 1], logits, action, run)
            case Fail(request=r):
                return self.views.failed(*self._origin(origins, r), run)
            case _:
                return None

    def after(self, origins: Origins, action: Action) -> Origins:
        """The requests' origins after an action."""
        match action:
            case Admit(request=r, prompt=prompt, sampler=sampler):
                return {**origins, r: (self._number(Admission(prompt, sampler)), 0)}
            case Emit(request=r):
                number, index = origins[r]
                return {**origins, r: (number, index + 1)}
            case _:
                return origins

    def _origin(self, origins: Origins, r: RequestId) -> tuple[Admission, int]:
        number, index = origins[r]
        return self._numbered[number], index

    def _number(self, admission: Admission) -> int:
        if admission not in self._admissions:
            self._admissions[admission] = len(self._numbered)
            self._numbered.append(admission)
        return self._admissions[admission]


def _look_at_logits(tokens: tuple[Token, ...], logits: Logits, action: Action, run: Lazy) -> Counterexample | None:
    """Theorem 4.1: they are those of a cold forward on the tokens up to their position."""
    if logits == forward(tokens):
        return None
    expected = f"Forward(W, {tokens})"
    return Counterexample(OUTPUT, "logits_are_canonical", described(action), expected, shown(logits), run())
