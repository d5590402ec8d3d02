"""How long the earliest request may wait, measured on a recorded run."""

from __future__ import annotations

from company import Run
from vosti.spec.state import RequestId, history
from vosti.spec.step import Cancel, Emit, Fail, Finish


class NoProgress(AssertionError):
    """The earliest request waited longer than it may."""


def assert_progress(run: Run) -> None:
    """The earliest live request gets a token, or its end, within ⌈remaining / token budget⌉ + 2 steps.

    Raises:
        NoProgress: if it does not.
    """
    served: dict[RequestId, list[int]] = {}
    for event in run.events:
        for action in getattr(event, "actions", ()):
            if isinstance(action, Emit | Finish | Fail | Cancel):
                served.setdefault(action.request, []).append(event.step)
    for event in run.settled():
        live = event.after.requests
        if live:
            r = min(live, key=lambda name: live[name].arrival)
            remaining = len(history(live[r])) - live[r].cached
            latest = event.step + -(-remaining // run.engine.options.token_budget) + 2
            if not any(event.step < step <= latest for step in served.get(r, [])):
                raise NoProgress(f"{r} gets nothing from step {event.step} to step {latest}")
