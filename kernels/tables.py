"""Which tiles an operation may run with: tables in data files, one per architecture.

An entry belongs to an operation and its dimensions and holds a set of tiles, each up to a number of rows. All tiles of
an entry compute the same row program, and an entry is accepted into a table only after their bits were compared
(`vosti.kernels.tuning`), so that the choice by number of rows changes no value. There is no fallback: an operation
without an entry is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from vosti.kernels.errors import ConfigurationError
from vosti.kernels.shapes import Dimensions
from vosti.kernels.tile import Tile

FOLDER = Path(__file__).parent / "tiles"


@dataclass(frozen=True)
class Choice:
    """A tile, and when it is chosen."""

    up_to_rows: int | None
    """The highest number of rows that it serves; None for any."""

    kernel: str
    """Name of the kernel that it is a tile of: that of the operation, or its `_stream` form."""

    tile: Tile


@dataclass(frozen=True)
class Entry:
    """The tiles of one operation, in ascending order of rows."""

    operation: str
    dimensions: Dimensions
    choices: tuple[Choice, ...]

    def choice(self, rows: int) -> Choice:
        """The tile for a number of rows. Raises `ConfigurationError` if none serves so many."""
        for choice in self.choices:
            if choice.up_to_rows is None or rows <= choice.up_to_rows:
                return choice
        raise ConfigurationError(
            f"No tile of {self.operation} {describe(self.dimensions)} serves {rows} rows; the entry's last one ends at "
            f"{self.choices[-1].up_to_rows}."
        )


@dataclass(frozen=True)
class Table:
    """The entries of one architecture."""

    architecture: str
    entries: Mapping[tuple[str, Dimensions], Entry]

    def entry(self, operation: str, **dimensions: int) -> Entry:
        """The entry of an operation. Raises `ConfigurationError`, naming the command that makes one."""
        key = tuple(sorted(dimensions.items()))
        if (operation, key) not in self.entries:
            raise ConfigurationError(
                f"No tile is known for {operation} {describe(key)} on {self.architecture}; make an entry with: "
                f"python -m vosti.kernels.tuning --architecture {self.architecture} {operation} {describe(key)}"
            )
        return self.entries[operation, key]


def describe(dimensions: Dimensions) -> str:
    """As the tuning tool takes them: n=4096 k=4096."""
    return " ".join(f"{name}={size}" for name, size in dimensions)


@cache
def load(architecture: str) -> Table:
    """The table of an architecture such as sm_90. Raises `ConfigurationError` if there is none."""
    path = FOLDER / f"{architecture}.json"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in FOLDER.glob("*.json")))
        raise ConfigurationError(f"There is no table for {architecture}; there are tables for {known}.")
    return decode(json.loads(path.read_text()))


def decode(data: Any) -> Table:
    """A table from its JSON form."""
    entries = [
        Entry(
            entry["operation"],
            tuple(sorted(entry["dimensions"].items())),
            tuple(
                Choice(
                    choice["up_to_rows"],
                    choice["kernel"],
                    Tile(tuple(choice["blocks"].items()), choice["warps"], choice["stages"]),
                )
                for choice in entry["tiles"]
            ),
        )
        for entry in data["entries"]
    ]
    return Table(data["architecture"], {(entry.operation, entry.dimensions): entry for entry in entries})


def encode(architecture: str, entries: Iterable[Entry]) -> str:
    """The JSON form of a table: one line per tile, entries in order."""
    blocks = []
    for entry in sorted(entries, key=lambda entry: (entry.operation, entry.dimensions)):
        tiles = ",\n".join("      " + json.dumps(_choice_data(choice)) for choice in entry.choices)
        head = f'"operation": {json.dumps(entry.operation)}, "dimensions": {json.dumps(dict(entry.dimensions))}'
        blocks.append(f'    {{{head}, "tiles": [\n{tiles}\n    ]}}')
    body = ",\n".join(blocks)
    return f'{{\n  "architecture": {json.dumps(architecture)},\n  "entries": [\n{body}\n  ]\n}}\n'


def _choice_data(choice: Choice) -> dict[str, object]:
    return {
        "up_to_rows": choice.up_to_rows,
        "kernel": choice.kernel,
        "blocks": dict(choice.tile.blocks),
        "warps": choice.tile.warps,
        "stages": choice.tile.stages,
    }
