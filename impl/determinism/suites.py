"""Which axes a suite has."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from vosti.impl.determinism import extended_scheduling, extended_values, paper
from vosti.impl.determinism.axes import Axis, Stage
from vosti.impl.determinism.cases import Case
from vosti.impl.determinism.errors import AxisError
from vosti.impl.determinism.prompts import Geometry
from vosti.impl.determinism.protocol import Subject

SUITES = ("paper", "extended", "quick")
"""The names of the suites."""

EXTENDED: tuple[Axis, ...] = extended_scheduling.AXES + extended_values.AXES

QUICK = (
    "preempt",
    "evict",
    "cancel",
    "non-finite",
    "arrivals",
    "cuts",
    "limits",
    "padding",
    "page-order",
    "page-size",
    "hits",
    "kv",
    "drafts",
    "sampling",
    "prompt-logprobs",
)
"""The extended axes of which the quick suite has a small part, beside the paper's axes in small."""


@dataclass(frozen=True)
class Plan:
    """What is to be run."""

    cases: tuple[Case, ...]
    skipped: Mapping[str, str]
    """Axes that the engine has no means to run, and why."""


def axis_names(suite: str) -> tuple[str, ...]:
    """The axes of a suite."""
    extended = tuple(axis.name for axis in EXTENDED)
    return {"paper": paper.AXES, "extended": extended, "quick": paper.AXES + QUICK}[suite]


def plan(suite: str, subject: Subject, geometry: Geometry, axes: Sequence[str] = ()) -> Plan:
    """The cases of a suite for an engine, in the order in which they are run.

    Args:
        suite: one of `SUITES`.
        subject: the engine.
        geometry: its sizes.
        axes: some of the suite's axes, or some of their cases, by how their names begin: "batch/2-"; all if empty.

    Raises:
        AxisError: for an axis or a case that the suite does not have, or if the engine can run none.
    """
    known = axis_names(suite)
    named = {beginning: beginning.partition("/")[0] for beginning in axes}
    unknown = [axis for axis in named.values() if axis not in known]
    if unknown:
        raise AxisError(f"The suite {suite} has no axis {unknown[0]!r}: its axes are {', '.join(known)}.")
    wanted = [name for name in known if not axes or name in named.values()]
    cases: list[Case] = []
    if suite != "extended":
        sizes = paper.PAPER if suite == "paper" else paper.QUICK
        cases += [case for case in paper.cases(subject, geometry, sizes) if case.axis in wanted]
    extended, skipped = _extended(Stage(subject, geometry, quick=suite == "quick"), wanted)
    cases += extended
    if not cases:
        raise AxisError(f"{subject.name} has no means to run any of these axes: {'; '.join(skipped.values())}.")
    for beginning, axis in named.items():
        if axis not in skipped and not any(case.belongs_to(beginning) for case in cases):
            raise AxisError(f"The suite {suite} has no case here whose name begins with {beginning!r}.")
    chosen = [case for case in cases if not axes or any(map(case.belongs_to, axes))]
    return Plan(tuple(chosen), skipped)


def _extended(stage: Stage, wanted: Collection[str]) -> tuple[list[Case], dict[str, str]]:
    cases: list[Case] = []
    skipped: dict[str, str] = {}
    for axis in EXTENDED:
        if axis.name in wanted:
            missing = axis.missing(stage.subject)
            if missing is None:
                cases += axis.build(stage)
            else:
                skipped[axis.name] = missing
    return cases, skipped
