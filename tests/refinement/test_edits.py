"""Every kind of field of a trace is edited, and the chain made whole again: what is said must be found to be wrong.

An edit may survive only where nothing else in the same trace speaks of what was edited. Those places are listed, with
the reason.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from event_streams import stream
from event_walk import Habits
from vosti.refinement.audit import audit
from vosti.refinement.entries import line_digest
from vosti.refinement.errors import BadTrace

Path_ = tuple[str | int, ...]

LIMITS = {("header", "header", "token_budget"), ("header", "header", "max_seqs")}
"""A larger limit is kept as well."""

OBSERVED_ONCE = {("forward", "written", "*", "*"), ("forward", "logits", "*", "*")}
"""A value that nothing else speaks of: it was computed once, not read back, and no token was sampled from it."""

PADDING = ("forward", "rows", "*", "*")
"""Token and position of a row that is inert."""

INDEXED = ("settle", "after", "pages", "added", "*", "*", "*")
"""The prefix index need not lead to every registered page."""

LEAVES_OF_A_KIND = 3


def leaves(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Everything in a JSON value that is neither an object nor an array."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, (*path, key))
    else:
        yield path, value


def replaced(value: Any, path: Path_, new: Any) -> Any:
    """The JSON value with a leaf replaced."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def edits(leaf: Any) -> list[Any]:
    """Other values for a leaf."""
    match leaf:
        case bool():
            return [not leaf]
        case int():
            return [leaf + 1, leaf - 1, 10**6, None]
        case float():
            return [leaf + 0.5]
        case str():
            return [leaf + "x", "0" * 32]
        case _:
            return [0, "x"]


def write(path: Path, entries: list[Any]) -> None:
    """Write a trace with a fitting chain."""
    previous = "0" * 64
    with path.open("wb") as file:
        for entry in entries:
            line = json.dumps({**entry, "prev": previous}, separators=(",", ":"), ensure_ascii=False).encode()
            file.write(line + b"\n")
            previous = line_digest(line)


def may_survive(kind: Path_, entry: Any, path: Path_, together: list[Path]) -> bool:
    """Whether an edit that one trace does not reveal is one of those listed above."""
    if kind in OBSERVED_ONCE:
        return not audit(together).refines
    is_padding = kind == PADDING and entry["rows"][path[1]][0] is None
    return is_padding or kind in LIMITS or kind == INDEXED


@pytest.mark.parametrize("seed", [3, 5])
def test_edits_of_every_kind_of_field(seed: int, tmp_path: Path) -> None:
    """An edited field makes the trace a bad one, or a run that is not one of the specification; nothing else is raised.

    What survives is of the kinds listed above, and an edited value is found when the trace is audited with another run
    of the same requests.
    """
    original, edited = tmp_path / "original", tmp_path / "edited"
    stream(seed, 8, Habits(pages=9, sick=0.1, prompt=(1, 8), observe=0.3)).write(original)
    entries = [json.loads(line) for line in original.read_bytes().splitlines()]
    tried: Counter[Path_] = Counter()
    unexpected = []
    for n, entry in enumerate(entries):
        for path, leaf in leaves(entry):
            kind = (entry["kind"], *("*" if isinstance(key, int) else key for key in path))
            tried[kind] += 1
            if path == ("prev",) or tried[kind] > LEAVES_OF_A_KIND:
                continue
            for new in edits(leaf):
                write(edited, [*entries[:n], replaced(entry, path, new), *entries[n + 1 :]])
                try:
                    survives = audit([edited]).refines
                except BadTrace:
                    survives = False
                if survives and not may_survive(kind, entry, path, [original, edited]):
                    unexpected.append((n, path, leaf, new))

    assert [] == unexpected
    assert len(tried) > 40
