"""What of a kernel an operation can change, and whether a finding names a place there."""

from __future__ import annotations

import re
from enum import Enum

from kernel_mutants.edits import placed
from vosti.kernels.verifier.errors import place_of
from vosti.kernels.verifier.ir import Kernel, Op, Value

_PLACE = re.compile(r" at (?:line )?(\S+:\d+(?:, called at \S+:\d+)*|(?:line )?\d+ of the typed IR)")


class Place(Enum):
    """Which operations a finding names."""

    ITSELF = "the mutated line"
    """As the one that deviates."""

    WAY = "the mutated line, among those that use what deviates"
    USER = "only lines that use the mutated one"
    ELSEWHERE = "other lines"
    NONE = "no line"


def named(finding: str, op: Op, kernel: Kernel) -> Place:
    """Which operations of a kernel the finding of a mutant of `op` names."""
    places = [place.removeprefix("line ") for place in _PLACE.findall(finding)]
    if not places:
        return Place.NONE
    own = (place_of(op), f"{op.line} of the typed IR")
    if not any(place in own for place in places):
        users = {place_of(one) for one in changed(op, kernel)}
        return Place.USER if users & set(places) else Place.ELSEWHERE
    return Place.ITSELF if places[0] in own else Place.WAY


def changed(op: Op, kernel: Kernel) -> set[Op]:
    """The operations that a change of one can change: those that it holds, that hold it or use it, and so on."""
    uses: dict[Value, list[Op]] = {}
    holders: dict[Op, Op] = {}
    for one, _ in placed(kernel):
        for value in one.operands:
            uses.setdefault(value, []).append(one)
        holders.update((inner, one) for block in one.regions for inner in block.ops)
    found: set[Op] = set()
    pending = [op]
    while pending:
        one = pending.pop()
        if one in found:
            continue
        found.add(one)
        pending += [user for value in one.results for user in uses.get(value, ())]
        pending += [inner for block in one.regions for inner in block.ops]
        if one in holders:
            pending.append(holders[one])
    return found
