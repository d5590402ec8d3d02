"""What results come to: cells as in the paper's Table 1, what differed, and the first divergence of each axis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from vosti.impl.determinism.results import Compared, Done, Header
from vosti.impl.determinism.suites import axis_names

Verdict = Literal["pass", "mismatch", "invalid", "incomplete"]


@dataclass(frozen=True)
class Cell:
    """One axis of one engine with one model."""

    axis: str
    matched: int
    mismatched: int
    invalid: int
    missing: int
    """Pairs of cases that were not run."""

    differed: int
    """Pairs whose schedules differed."""

    differs: Mapping[str, int]
    """By what differed, in how many pairs."""

    requests: int
    """Different requests among the pairs."""

    distinct: int
    """Different rows among the references: one and the same for all requests would prove nothing."""

    first: Compared | None
    """The first mismatch: the one at the lowest position, of these the first in order."""

    first_invalid: Compared | None
    mismatches: tuple[Compared, ...]

    @property
    def total(self) -> int:
        """All pairs of the axis."""
        return self.matched + self.mismatched + self.invalid + self.missing

    @property
    def verdict(self) -> Verdict:
        """What became of the axis: a pass is all of it."""
        if self.mismatched:
            return "mismatch"
        if self.invalid or (self.requests > 1 and self.distinct == 1):
            return "invalid"
        return "incomplete" if self.missing else "pass"


@dataclass(frozen=True)
class Summary:
    """A run of a suite."""

    header: Header
    cells: tuple[Cell, ...]
    seconds: float

    @property
    def verdict(self) -> Verdict:
        """The worst of the cells'."""
        worst: Sequence[Verdict] = ("mismatch", "invalid", "incomplete")
        found = {cell.verdict for cell in self.cells}
        return next((verdict for verdict in worst if verdict in found), "pass")

    @property
    def matched(self) -> int:
        """Pairs that match."""
        return sum(cell.matched for cell in self.cells)

    @property
    def total(self) -> int:
        """All pairs."""
        return sum(cell.total for cell in self.cells)


def summarize(header: Header, done: Iterable[Done]) -> Summary:
    """The summary of a file of results."""
    cases = list(done)
    by_axis: dict[str, list[Compared]] = {axis: [] for axis in header.axes.values()}
    expected: Counter[str] = Counter()
    for name, axis in header.axes.items():
        expected[axis] += header.counts[name]
    for case in cases:
        by_axis[header.axes[case.case]] += case.pairs
    shown = axis_names(header.suite)  # as the paper has them; they are run in order of their cost
    cells = tuple(
        _cell(axis, by_axis[axis], expected[axis] - len(by_axis[axis])) for axis in sorted(by_axis, key=shown.index)
    )
    return Summary(header, cells, sum(case.seconds for case in cases))


def _cell(axis: str, pairs: list[Compared], missing: int) -> Cell:
    states = Counter(pair.state for pair in pairs)
    mismatches = tuple(pair for pair in pairs if pair.state == "mismatch")
    return Cell(
        axis=axis,
        matched=states["match"],
        mismatched=states["mismatch"],
        invalid=states["invalid"],
        missing=missing,
        differed=sum(bool(pair.differs) for pair in pairs),
        differs=Counter(what for pair in pairs for what in pair.differs),
        requests=len({pair.request for pair in pairs}),
        distinct=len({pair.right for pair in pairs}),
        first=min(mismatches, key=lambda pair: pair.position, default=None),
        first_invalid=next((pair for pair in pairs if pair.state == "invalid"), None),
        mismatches=mismatches,
    )


def as_json(summary: Summary) -> dict[str, object]:
    """The summary as JSON types, without the single pairs."""
    header = summary.header
    return {
        "suite": header.suite,
        "engine": header.engine,
        "model": header.model,
        "fingerprint": header.fingerprint,
        "scale": header.scale,
        "environment": dict(header.environment),
        "skipped": dict(header.skipped),
        "verdict": summary.verdict,
        "matched": summary.matched,
        "total": summary.total,
        "seconds": round(summary.seconds, 1),
        "axes": {cell.axis: _cell_json(cell) for cell in summary.cells},
    }


def _cell_json(cell: Cell) -> dict[str, object]:
    return {
        "verdict": cell.verdict,
        "matched": cell.matched,
        "mismatched": cell.mismatched,
        "invalid": cell.invalid,
        "missing": cell.missing,
        "total": cell.total,
        "schedules_differed": cell.differed,
        "what_differed": dict(cell.differs),
        "distinct_rows": cell.distinct,
        "first_divergence": None if cell.first is None else _pair_json(cell.first),
        "first_invalid": None if cell.first_invalid is None else _pair_json(cell.first_invalid),
    }


def _pair_json(pair: Compared) -> dict[str, object]:
    return {
        "pair": pair.name,
        "request": pair.request,
        "position": pair.position,
        "why": pair.why,
        "divergence": None if pair.divergence is None else asdict(pair.divergence),
    }


def described(pair: Compared) -> str:
    """A mismatch or an invalid pair in a sentence."""
    where = f"{pair.name}: request {pair.request}, position {pair.position}"
    found = pair.divergence
    if found is None:
        return f"{where}: {pair.why or 'the bytes differ'}"
    argmax = "the same token is largest" if found.same_argmax else "another token is largest"
    rank = "no rank differs" if found.rank is None else f"ranks differ from {found.rank} on"
    return (
        f"{where}: logit of token {found.token} is {found.left_bits} ({found.left!r}) and in the reference "
        f"{found.right_bits} ({found.right!r}), {found.ulps} ulps apart; {found.differing} tokens differ, by "
        f"{found.largest:.6g} at most; top-2 margin {found.margin:.6g}, {argmax}, {rank}"
    )
