"""Definition 2.1 itself, over all requests of all traces that are given together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from vosti.refinement.violation import Violation
from vosti.spec.determinism import Admission, Execution, View, deterministic, is_prefix, prefix_comparable
from vosti.spec.state import RequestId


@dataclass(frozen=True)
class Served:
    """One request of one trace, as an observer sees it."""

    trace: str
    configuration: str
    request: RequestId
    admission: Admission
    view: View
    failed: bool

    @property
    def execution(self) -> Execution:
        """The execution's part that Definition 2.1 looks at for this request: its view does not depend on the rest."""
        return Execution(
            configuration=self.configuration,
            admitted={self.request: self.admission},
            outputs=({self.request: self.view},) if self.view else (),
            failed=frozenset({self.request}) if self.failed else frozenset(),
        )


def disagreement(served: Iterable[Served]) -> Violation | None:
    """The first pair of requests that contradicts `deterministic`, or None.

    Requests of one configuration and admission are compared with the one among them that got furthest. That is
    enough: beginnings of one sequence are comparable with one another, and a view that an error ended is at least as
    long as every other one if it is as long as the longest.
    """
    groups: defaultdict[tuple[str, Admission], list[Served]] = defaultdict(list)
    for one in served:
        groups[one.configuration, one.admission].append(one)
    for group in groups.values():
        longest = max(group, key=lambda one: len(one.view))
        for one in group:
            if not deterministic((longest.execution, one.execution)):
                return _violation(longest, one)
    return None


def _violation(longest: Served, one: Served) -> Violation:
    if prefix_comparable(longest.view, one.view):
        check, k = "ends_alike", len(one.view)
        expected = f"no record after {k}: an error ended the view of {one.request} in {one.trace}"
        actual = f"{len(longest.view)} records of {longest.request} in {longest.trace}"
    else:
        check = "prefix_comparable"
        k = next(k for k in range(len(one.view)) if not is_prefix(one.view[: k + 1], longest.view))
        expected = f"record {k} is {longest.view[k]}, as of {longest.request} in {longest.trace}"
        actual = f"{one.view[k]}"
    return Violation(
        check=check, trace=one.trace, step=None, phase="views", expected=expected, actual=actual, request=one.request
    )
