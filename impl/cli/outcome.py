"""What a part of a command came to, and how it is written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vosti.impl.cli.junit import Suite


@dataclass(frozen=True)
class Outcome:
    """What came of a part of the command."""

    good: bool
    json: Mapping[str, Any]
    suites: tuple[Suite, ...]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows with a heading, in columns: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        first, *others = row
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number of things, in words."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
