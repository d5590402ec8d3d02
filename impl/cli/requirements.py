"""What a run must exercise: `--require NAME>=N`, and what the default workload promises."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vosti.impl.cli.ending import CannotRun
from vosti.refinement.witnesses import WITNESSES

HITS = "hits"
"""Prefix matches, partial and full: a name for the sum of two witness counts."""

PROMISED = {name: 1 for name in WITNESSES if name != "failures"} | {"domains": 2}
"""What the default workload exercises with default options, at least. (No value of a sound model is not finite, and
logits of earlier positions are not asked for.)
"""


@dataclass(frozen=True)
class Requirement:
    """A witness count and its least value."""

    name: str
    least: int

    def __str__(self) -> str:
        return f"{self.name}>={self.least}"


def parse_requirements(texts: Sequence[str]) -> tuple[Requirement, ...]:
    """The requirements of `--require`. Raises `CannotRun` for one that is malformed, or names no witness count."""
    found = []
    for text in texts:
        match = re.fullmatch(r"\s*(\w+)\s*>=\s*([0-9]+)\s*", text)
        if match is None:
            raise CannotRun(f"A requirement reads NAME>=N, such as evictions>=1, and not {text!r}.")
        if match[1] not in WITNESSES and match[1] != HITS:
            raise CannotRun(
                f"There is no count {match[1]!r} to require: the counts are {', '.join((*WITNESSES, HITS))}."
            )
        found.append(Requirement(match[1], int(match[2])))
    return tuple(found)


def unmet(requirements: Sequence[Requirement], witnesses: Mapping[str, int]) -> list[str]:
    """Each requirement that the counts do not meet, with the count."""
    counts = {**witnesses, HITS: witnesses["partial_hits"] + witnesses["full_hits"]}
    return [f"{one} (there are {counts[one.name]})" for one in requirements if counts[one.name] < one.least]
