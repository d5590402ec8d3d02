"""What a failure report says: where a run leaves the specification, and what was expected there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import NoReturn

from vosti.refinement.checks import CHECKS
from vosti.refinement.explain import shown
from vosti.spec.step import Action

REPORTED = ("trace", "step", "phase", "action", "request", "page", "position", "row", "expected", "actual", "search")
"""The facts of a report, in order."""


@dataclass(frozen=True)
class Violation:
    """The first place at which a run is not a run of the specification."""

    check: str
    """The name of the check that failed, one of `vosti.refinement.checks.CHECKS`."""

    trace: str
    """Where the trace was read from."""

    step: int | None
    phase: str
    """"plan", "forward", "settle", "output", "end" (of a trace), or "views" (across requests and traces)."""

    expected: str
    actual: str
    action: str | None = None
    request: str | None = None
    page: int | None = None
    position: int | None = None
    row: int | None = None
    """The packed row, in a forward."""

    search: str | None = None
    """What a search for other actions found, if there was one."""

    def __str__(self) -> str:
        """The report as text, one fact a line."""
        lines = [f"{'check':<10}{self.check}: {CHECKS[self.check]}"]
        for name in REPORTED:
            value = getattr(self, name)
            if value is not None:
                lines.append(f"{name:<10}{value}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, object]:
        """The report as JSON's types: the fields above, and the sentence that the check stands for."""
        return {**asdict(self), "asks": CHECKS[self.check]}

    def to_json(self) -> str:
        """The report as one JSON object."""
        return json.dumps(self.to_dict())


class Refuted(Exception):
    """Raised by a checker at the first violation. It is a verdict, not an error of this program."""

    def __init__(self, violation: Violation) -> None:
        self.violation = violation
        super().__init__(str(violation))


@dataclass
class Place:
    """Where in a run a checker is; a violation is reported there."""

    trace: str
    step: int | None = None
    phase: str = "plan"
    action: Action | None = None

    def refute(
        self,
        check: str,
        *,
        expected: object,
        actual: object,
        request: str | None = None,
        page: int | None = None,
        position: int | None = None,
        row: int | None = None,
    ) -> NoReturn:
        """End the check of this run.

        Raises:
            Refuted: always.
        """
        raise Refuted(
            Violation(
                check=check,
                trace=self.trace,
                step=self.step,
                phase=self.phase,
                expected=expected if isinstance(expected, str) else shown(expected),
                actual=actual if isinstance(actual, str) else shown(actual),
                action=None if self.action is None else shown(self.action),
                request=request if request is not None else getattr(self.action, "request", None),
                page=page if page is not None else getattr(self.action, "page", None),
                position=position if position is not None else getattr(self.action, "position", None),
                row=row,
            )
        )
