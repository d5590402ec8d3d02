"""What the caller got, compared with the records that the step emitted (the view of Definition 2.1)."""

from __future__ import annotations

from dataclasses import dataclass, field

from vosti.refinement.violation import Place
from vosti.spec.determinism import Record
from vosti.spec.events import OutputEvent
from vosti.spec.state import RequestId
from vosti.spec.step import Action, Cancel, Emit, Fail, Finish

REASONS: dict[type, tuple[str | None, ...]] = {
    Finish: ("stop", "length"),
    Cancel: ("cancelled",),
    Fail: ("error",),
}
"""How a request ended → what its caller may be told."""

GOES_ON: tuple[str | None, ...] = (None,)


@dataclass
class Due:
    """What the caller has to hear of one request."""

    records: list[Record] = field(default_factory=list)
    reasons: tuple[str | None, ...] = GOES_ON


class Outputs:
    """What is due to callers at the end of a step."""

    def __init__(self) -> None:
        self._due: dict[RequestId, Due] = {}

    def note(self, action: Action) -> None:
        """Take an action of the step: a record, or an end, is due to its caller."""
        match action:
            case Emit(request=r, record=record):
                self._due.setdefault(r, Due()).records.append(record)
            case Finish(request=r) | Cancel(request=r) | Fail(request=r):
                self._due.setdefault(r, Due()).reasons = REASONS[type(action)]
            case _:
                pass

    def take(self, event: OutputEvent, place: Place) -> None:
        """Compare what a caller got with what is due, which is then settled."""
        r = event.request
        due = self._due.pop(r, None)
        if due is None:
            place.refute(
                "outputs_are_explained",
                expected="no output, or no second one, for this request in this step",
                actual=f"tokens {list(event.tokens)}, ended: {event.ended}",
                request=r,
            )
        tokens = tuple(record.token for record in due.records)
        if event.tokens != tokens:
            place.refute("output_tokens_agree", expected=tokens, actual=event.tokens, request=r)
        logits = tuple(record.logits for record in due.records)
        if event.logits != logits:
            place.refute("output_logits_agree", expected=logits, actual=event.logits, request=r)
        if event.ended not in due.reasons:
            expected = " or ".join(map(repr, due.reasons))
            place.refute("output_end_agrees", expected=expected, actual=repr(event.ended), request=r)

    def close(self, place: Place) -> None:
        """The step is over: nothing may be left that is due."""
        for r, due in self._due.items():
            place.refute(
                "outputs_are_complete",
                expected=f"tokens {[record.token for record in due.records]}, ended: {due.reasons[0]}",
                actual="no output for this request in this step",
                request=r,
            )
