"""The audit of traces: every step checked, and every value and view compared, within a trace and across traces."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from vosti.refinement.checker import EVERY, Checker
from vosti.refinement.entries import Header
from vosti.refinement.errors import DigestsDiffer, HeadMissing, IncompleteTrace, TraceNotFound
from vosti.refinement.observations import Observations
from vosti.refinement.reader import TraceReader
from vosti.refinement.recorded import RecordedStep, searched
from vosti.refinement.search import Limits, Outcome, require_solver
from vosti.refinement.views import Served, disagreement
from vosti.refinement.violation import Refuted, Violation
from vosti.refinement.witnesses import WITNESSES
from vosti.spec.digests import ALGORITHMS

Progress = Callable[[int, int], None]
"""Called now and then with the bytes that were read, and the bytes that there are in all traces together."""


@dataclass(frozen=True)
class TraceSummary:
    """What one trace holds, as far as it was checked."""

    trace: str
    fingerprint: str
    mode: str
    head: str | None
    """The digest of its last line, if its end was reached."""

    steps: int
    rows: int
    """Live rows of forwards."""

    records: int
    witnesses: Mapping[str, int]
    """What this trace exercised."""

    violation: Violation | None
    cut_off: str | None
    """That the trace is incomplete, and where it ends: with a violation, or where incomplete ones are taken."""

    search: Outcome | None = None
    """With a violation, what a search for actions that explain the step found, if there was one."""


@dataclass(frozen=True)
class Keys:
    """At how many arguments a function was observed."""

    once: int
    """Only once: that the value would be the same again is not known from these traces."""

    twice: int
    """At least twice, each time computed anew, and with the same value."""


@dataclass(frozen=True)
class Verdict:
    """What an audit found."""

    traces: tuple[TraceSummary, ...]
    views: Violation | None
    """A contradiction to Definition 2.1 between two requests."""

    keys: Mapping[str, Keys]
    """"kv", "logits", "tokens" and "records": how far each function was observed."""

    witnesses: Mapping[str, int]
    """What was exercised, over all traces; the names are those of `WITNESSES`."""

    assumed: tuple[str, ...]
    """What the verdict rests on beside the checks."""

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The first violation of each trace that has one, and that of Definition 2.1 across them."""
        found = [summary.violation for summary in self.traces] + [self.views]
        return tuple(violation for violation in found if violation is not None)

    @property
    def refines(self) -> bool:
        """Whether every step of every trace is a step of the specification, no trace is cut off, and views agree."""
        return not self.violations and all(summary.cut_off is None for summary in self.traces)

    @property
    def gave_up(self) -> bool:
        """Whether a search for an explanation came to no end."""
        return any(summary.search is not None and summary.search.gave_up for summary in self.traces)

    @property
    def steps(self) -> int:
        """Steps checked, over all traces."""
        return sum(summary.steps for summary in self.traces)

    @property
    def rows(self) -> int:
        """Live rows checked, over all traces."""
        return sum(summary.rows for summary in self.traces)

    @property
    def records(self) -> int:
        """Output records checked, over all traces."""
        return sum(summary.records for summary in self.traces)

    def to_json(self) -> str:
        """Everything, as one JSON object."""
        return json.dumps(
            {
                "refines": self.refines,
                "steps": self.steps,
                "rows": self.rows,
                "records": self.records,
                "violations": [violation.to_dict() for violation in self.violations],
                "traces": [_without_verdicts(summary) for summary in self.traces],
                "keys": {name: asdict(keys) for name, keys in self.keys.items()},
                "witnesses": dict(self.witnesses),
                "assumed": list(self.assumed),
            }
        )

    def __str__(self) -> str:
        """The verdict as text."""
        return "\n".join(_lines(self))


def audit(
    paths: Sequence[str | Path],
    head: str | Sequence[str] | None = None,
    every: int = EVERY,
    progress: Progress | None = None,
    explain: Limits | None = None,
    incomplete: bool = False,
) -> Verdict:
    """Audit traces together. Each is checked up to its first violation.

    Args:
        paths: the traces.
        head: the digest of each trace's last line, in the same order; for one trace, the digest itself.
        every: after how many steps Inv is evaluated on all objects, and not only on those that were touched.
        progress: see `Progress`.
        explain: how far to search for other actions, where recorded ones do not explain a step; None for no search.
        incomplete: whether a trace that is cut off is judged as far as it goes, instead of being refused.

    Raises:
        SolverMissing: if there is to be a search, and there is no solver.
        TraceNotFound: if a file cannot be read.
        HeadMissing: if there are heads, and not one for each trace.
        DigestsDiffer: if traces of one configuration were digested in different ways.
        IncompleteTrace: if a trace is cut off, refines the specification as far as it goes, and is to be complete.
        BadTrace: if a file is not a trace, or not the one that its head belongs to.
    """
    heads: Sequence[str | None] = [head] if isinstance(head, str) else [None] * len(paths) if head is None else head
    if len(heads) != len(paths):
        raise HeadMissing(len(heads), len(paths))
    if explain is not None:
        require_solver()
    total = sum(map(_size, paths))
    _require_one_algorithm(paths)
    observations: dict[str, Observations] = {}
    summaries: list[TraceSummary] = []
    served: list[Served] = []
    counts: Counter[str] = Counter(dict.fromkeys(WITNESSES, 0))
    headers: list[Header] = []
    done = 0
    for path, one_head in zip(paths, heads, strict=True):
        with TraceReader(path, one_head) as reader:
            headers.append(reader.header)
            seen = observations.setdefault(reader.header.fingerprint, Observations())
            checker = Checker(reader.header, every=every, observations=seen, trace=str(path))
            report = None if progress is None else _reporter(progress, done, total, reader)
            summaries.append(_check(reader, checker, report, explain, incomplete))
        served += _served(checker, summaries[-1])
        domains = max(counts["domains"], checker.run.witnesses.counts["domains"])
        counts.update(checker.run.witnesses.counts)
        counts["domains"] = domains  # a replay brings no domain of its own
        done += reader.size
    if progress is not None:
        progress(total, total)
    return Verdict(
        traces=tuple(summaries),
        views=disagreement(served),
        keys={
            name: Keys(
                sum(getattr(seen, name).once for seen in observations.values()),
                sum(getattr(seen, name).twice for seen in observations.values()),
            )
            for name in ("kv", "logits", "tokens", "records")
        },
        witnesses=dict(counts),
        assumed=tuple(_assumed(headers, heads)),
    )


def _require_one_algorithm(paths: Sequence[str | Path]) -> None:
    """Of the traces of each configuration, whose values are compared."""
    first: dict[str, tuple[Path, str]] = {}
    for path in paths if len(paths) > 1 else ():
        with TraceReader(path) as reader:
            before, algorithm = first.setdefault(reader.header.fingerprint, (reader.path, reader.header.digest))
            if reader.header.digest != algorithm:
                raise DigestsDiffer(before, algorithm, reader.path, reader.header.digest)


def _size(path: str | Path) -> int:
    try:
        return Path(path).stat().st_size
    except OSError as error:
        raise TraceNotFound(Path(path), error.strerror or str(error)) from error


def _reporter(progress: Progress, done: int, total: int, reader: TraceReader) -> Callable[[], None]:
    return lambda: progress(done + reader.position, total)


def _check(
    reader: TraceReader,
    checker: Checker,
    report: Callable[[], None] | None,
    explain: Limits | None,
    incomplete: bool,
) -> TraceSummary:
    violation: Violation | None = None
    outcome: Outcome | None = None
    cut_off: str | None = None
    events = iter(reader)
    step = RecordedStep()
    try:
        for event in events:
            step.take(event, checker.state)
            checker.feed(event)
            if report is not None:
                report()
        checker.finish()
    except IncompleteTrace as end:
        if not incomplete:
            raise
        cut_off = str(end)
    except Refuted as refuted:
        violation = refuted.violation
        try:
            # Whether the rest is a trace at all decides whether the violation is one of this run.
            for event in events:
                step.follow(event)
        except IncompleteTrace as end:
            cut_off = str(end)
        if explain is not None:
            text, outcome = searched(step, violation, checker.run.observations, explain)
            violation = replace(violation, search=text)
    return TraceSummary(
        trace=str(reader.path),
        fingerprint=reader.header.fingerprint,
        mode=reader.header.mode,
        head=None if cut_off else reader.head,
        steps=checker.steps,
        rows=checker.run.rows,
        records=checker.run.witnesses.counts["records"],
        witnesses=dict(checker.run.witnesses.counts),
        violation=violation,
        cut_off=cut_off,
        search=outcome,
    )


def _without_verdicts(summary: TraceSummary) -> dict[str, object]:
    """A summary as JSON's types; its violation and what was found of it stand elsewhere."""
    return asdict(replace(summary, violation=None, search=None))


def _served(checker: Checker, summary: TraceSummary) -> Iterator[Served]:
    for r, admission in checker.run.admitted.items():
        yield Served(
            trace=summary.trace,
            configuration=summary.fingerprint,
            request=r,
            admission=admission,
            view=tuple(checker.run.records[r]),
            failed=r in checker.run.failed,
        )


def _assumed(headers: Sequence[Header], heads: Sequence[str | None]) -> Iterator[str]:
    yield "The engine recorded the arrays that it passed to the model, the bits that came out, and its own structures."
    yield "The configuration W names everything that may change a value."
    for description in sorted({ALGORITHMS[header.digest].description for header in headers}):
        yield f"Different bits have different digests ({description})."
    yield "A value that was observed once would be the same if it were computed again."
    if any(header.mode == "digest" for header in headers):
        yield "In mode digest, tokens follow from logits and sampler state in the way the sampler prescribes."
    if any(header.mode == "candidates" for header in headers):
        yield "In mode candidates, the candidates follow from the logits in the way the sampler prescribes."
    kinds = "KV values" if all(header.mode == "full" for header in headers) else "Values"
    yield f"{kinds} that are recorded as finite are finite."
    if any(not header.reread for header in headers):
        yield "Between a page's reading and the next one, nobody but the recorded rows wrote to it."
    if None in heads:
        yield "The trace is the one that the engine wrote: without a head it could have been replaced as a whole."


def _lines(verdict: Verdict) -> Iterator[str]:
    for summary in verdict.traces:
        yield f"{summary.trace}: {summary.steps} steps, {summary.rows} rows, {summary.records} records"
        if summary.cut_off:
            yield f"incomplete: {summary.cut_off}"
    for violation in verdict.violations:
        yield "Not a run of the specification:"
        yield str(violation)
    for name, keys in verdict.keys.items():
        yield f"{name}: {keys.twice} keys observed at least twice, {keys.once} once"
    for name, count in verdict.witnesses.items():
        yield f"{name}: {count or 'not exercised'} ({WITNESSES[name]})"
    yield "Assumed:"
    yield from (f"- {sentence}" for sentence in verdict.assumed)
    if verdict.refines:
        yield "Every recorded step is a step of the specification, and views agree."
