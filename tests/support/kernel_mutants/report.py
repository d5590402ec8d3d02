"""What came of many mutants, as tables: a section of `docs/measurements/ttir-mutants.md`."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from kernel_mutants.forms import SUPPORT
from kernel_mutants.inputs import Inputs
from kernel_mutants.outcomes import OBLIGATIONS, Outcome
from kernel_mutants.places import Place
from vosti.impl.cli.statistics import hardware

SECTION = "## What came of them"


@dataclass(frozen=True)
class Report:
    """What came of some mutants."""

    outcomes: tuple[Outcome, ...]

    def of(self, *kinds: str) -> list[Outcome]:
        """The mutants of some kinds."""
        return [outcome for outcome in self.outcomes if outcome.kind in kinds]

    @property
    def faults(self) -> list[Outcome]:
        """Those that are not as they should be."""
        return [outcome for outcome in self.outcomes if outcome.is_fault]

    def lines(self) -> Iterator[str]:
        """The tables."""
        yield from self._kinds()
        yield "### Which obligation refuses"
        yield ""
        yield from self._counts("form", _groups((one.form, one) for one in self.outcomes))
        changes = _groups((one.mutant.kind, one) for one in self.outcomes)
        yield from self._counts("change", dict(sorted(changes.items())))
        yield "### Which line is named"
        yield ""
        yield from self._places()
        yield "### Why a mutant is the same kernel"
        yield ""
        yield "| why it changes nothing | mutants |"
        yield "| --- | ---: |"
        why = Counter(one.reasons[0].words for one in self.of("equivalent"))
        yield from (f"| {words} | {count} |" for words, count in sorted(why.items(), key=lambda item: (-item[1], item)))
        yield ""

    def _kinds(self) -> Iterator[str]:
        runs = Counter(one.runs for one in self.of("refused"))
        refused, equivalent, unexplained, wrong, error = (
            f"{len(self.of(kind)):,}" for kind in ("refused", "equivalent", "unexplained", "wrong", "error")
        )
        yield "| what came of it | mutants |"
        yield "| --- | ---: |"
        yield f"| **refused** | **{refused}** |"
        yield f"| of these: a launch leaves other bits | {runs['differs']:,} |"
        yield f"| of these: a launch does what is undefined (mostly: an access out of bounds) | {runs['undefined']:,} |"
        yield f"| of these: refused by the parser, and not run | {runs[None]:,} |"
        yield f"| of these: the launches leave the same bits | {runs['same']:,} |"
        yield f"| **proved, and the launches leave the same bits**, each for one reason | **{equivalent}** |"
        yield f"| proved, for no reason that is written or for several | {unexplained} |"
        yield f"| proved, and a launch leaves other bits or does what is undefined | {wrong} |"
        yield f"| anything else than a finding raised | {error} |"
        yield ""

    def _counts(self, head: str, groups: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
        """How many mutants came to what, for each group and together."""
        columns = [*OBLIGATIONS, "equivalent", "unexplained", "wrong", "error"]
        yield f"| {head} | mutants | {' | '.join(columns)} | s |"
        yield f"| --- |{' ---: |' * (len(columns) + 2)}"
        for name, own in {**groups, "**all**": self.outcomes}.items():
            counted = Counter(one.obligation if one.kind == "refused" else one.kind for one in own)
            cells = [str(counted[column] or "") for column in columns]
            yield f"| {name} | {len(own)} | {' | '.join(cells)} | {sum(one.seconds for one in own):.0f} |"
        yield ""

    def _places(self) -> Iterator[str]:
        yield "| obligation | " + " | ".join(place.value for place in Place) + " |"
        yield f"| --- |{' ---: |' * len(Place)}"
        for obligation in OBLIGATIONS:
            own = [one for one in self.of("refused") if one.obligation == obligation]
            places = Counter(one.place for one in own)
            yield f"| {obligation} | {' | '.join(str(places[place] or '') for place in Place)} |"
        yield ""


def _groups(named: Iterable[tuple[str, Outcome]]) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {}
    for name, one in named:
        found.setdefault(name, []).append(one)
    return found


def section(report: Report, inputs: Inputs, tried: int, jobs: int, seconds: float) -> list[str]:
    """The section about outcomes, of which so many were not kept from before, and took so many processes so long."""
    forms = len({one.form for one in report.outcomes})
    proofs, launches = (sum(getattr(one, name) for one in report.outcomes) for name in ("seconds", "launches"))
    how = "all in one go," if tried == len(report.outcomes) else f"the last {tried:,} of them"
    where = f"{hardware()}; compiled by Triton {inputs.triton}"
    return [
        SECTION,
        "",
        f"{date.today()}, at {_commit()} (code {inputs.digest[:12]}). {where}.",
        "",
        f"{len(report.outcomes):,} mutants of {forms} forms, {how} in {seconds / 60:.0f} min by {jobs} processes. The "
        f"processor took {proofs:.0f} s for proofs (the last column below) and {launches:.0f} s for launches.",
        "",
        *report.lines(),
    ]


def replaced(page: str, lines: Sequence[str]) -> str:
    """A page with this section instead of its own. Raises ValueError if it has none."""
    before, own, rest = page.partition(f"{SECTION}\n")
    if not own:
        raise ValueError(f"The page has no section {SECTION!r}.")
    _, next_heading, after = rest.partition("\n## ")
    return before + "\n".join(lines) + (f"{next_heading}{after}" if next_heading else "")


def _commit() -> str:
    """Of the source; "changed" if it is not as it was committed."""
    git = ("git", "-C", str(SUPPORT), "describe", "--always", "--dirty=, changed", "--exclude", "*")
    found = subprocess.run(git, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "no commit"
