"""The step in which a run leaves the specification, as it was recorded, and whether other actions would explain it."""

from __future__ import annotations

from dataclasses import dataclass, field

from vosti.refinement.candidates import Question
from vosti.refinement.observations import Observations
from vosti.refinement.search import Answer, ExplanationRefused, Limits, Outcome, replays, search
from vosti.refinement.violation import Violation
from vosti.spec.events import Event, ForwardEvent, PlanEvent, SettleEvent
from vosti.spec.state import State
from vosti.spec.step import Observe


@dataclass
class RecordedStep:
    """The events of one step, and the state of the specification before it."""

    before: State | None = None
    events: list[Event] = field(default_factory=list)

    def take(self, event: Event, state: State) -> None:
        """Take the next event of a run, before a checker does. A plan begins a new step."""
        if isinstance(event, PlanEvent):
            self.before, self.events = state, []
        self.events.append(event)

    def follow(self, event: Event) -> None:
        """Take an event that no checker takes any more: it may belong to the step, too."""
        if self.events and event.step == self.events[0].step and not isinstance(event, PlanEvent):
            self.events.append(event)

    def question(self, trace: str, observations: Observations) -> Question | None:
        """What is to be explained, or None if the step was not recorded as a whole."""
        match self.before, self.events:
            case State(), [PlanEvent() as plan, ForwardEvent() as forward, SettleEvent() as settle, *_]:
                return Question(
                    before=self.before,
                    after=settle.after,
                    forward=forward,
                    rereadings=settle.rereadings,
                    recorded=(*plan.actions, *settle.actions),
                    observations=observations,
                    place=(trace, plan.step),
                )
        return None


def searched(
    step: RecordedStep, violation: Violation, observations: Observations, limits: Limits
) -> tuple[str, Outcome | None]:
    """Search for other actions that explain the step of a violation.

    Args:
        step: the step in which it was found, with all its events.
        violation: what the recorded actions violate.
        observations: what was observed up to there.
        limits: how far to search.

    Returns:
        What a report says, and the search's outcome; None if there was nothing to search for.

    Raises:
        SolverMissing: if Z3 is not installed.
    """
    question = step.question(violation.trace, observations)
    if question is None:
        return "none: the trace does not hold the whole step", None
    if replays(question, (action for action in question.recorded if not isinstance(action, Observe))):
        return "none: the recorded actions lead to the recorded state, and something else is wrong", None
    try:
        outcome = search(question, limits)
    except ExplanationRefused as refused:
        outcome = Outcome(Answer.GAVE_UP, limits.actions, why=str(refused))
    return f"the recorded actions do not explain the step; {outcome}", outcome
