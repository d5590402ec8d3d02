"""Typed access to the fields of a JSON file, with errors that name file, field and value."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vosti.impl.errors import CheckpointError

LARGEST = sys.float_info.max
"""The largest finite number."""


class DuplicateKey(ValueError):
    """An object of a JSON text names one key twice."""


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs of a JSON object as a dictionary. Raises `DuplicateKey`."""
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise DuplicateKey(f"the key {key!r} stands twice")
        result[key] = value
    return result


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises `CheckpointError` if it cannot be read, or holds anything else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique_keys)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must hold a JSON object, not a {type(value).__name__}.")
    return value


@dataclass(frozen=True)
class Fields:
    """The fields of one JSON object. A field that is null counts as absent."""

    values: Mapping[str, Any]

    where: str
    """What errors call the object, such as the path of its file."""

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(name) is not None

    def wrong(self, name: str, wanted: str) -> CheckpointError:
        """The error of a field that is not what it must be."""
        found = f"not {self.values[name]!r}" if name in self.values else "and is missing"
        return CheckpointError(f"{self.where}: {name} must be {wanted}, {found}.")

    def agreeing(self, *names: str) -> Any:
        """The one value that the present ones of several spellings have; None if none is present.

        Raises `CheckpointError` if they differ.
        """
        present = {name: self.values[name] for name in names if self.has(name)}
        values = list(present.values())
        if any(value != values[0] for value in values):
            found = " but ".join(f"{name} = {value!r}" for name, value in present.items())
            raise CheckpointError(f"{self.where} contradicts itself: {found}.")
        return values[0] if values else None

    def integer(self, name: str, default: int | None = None, *, most: int = 2**40) -> int:
        """An integer from 1 to `most`; `default` if absent, and without one the field is required."""
        value = self.values.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self.wrong(name, f"an integer from 1 to {most}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number above 0; `default` if absent, and without one the field is required."""
        value = self.values.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST:
            raise self.wrong(name, "a finite number above 0")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        """A finite number above 0; None if absent."""
        return self.number(name) if self.has(name) else None

    def flag(self, name: str, default: bool) -> bool:
        """True or false; `default` if absent."""
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A string; `default` if absent, and without one the field is required."""
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, str):
            raise self.wrong(name, "a string")
        return value

    def object(self, name: str) -> Fields:
        """An object; empty if absent."""
        value = self.values.get(name)
        if not isinstance(value, dict | None):
            raise self.wrong(name, "an object")
        return Fields(value or {}, f"{self.where}: {name}")

    def required(self, name: str) -> Fields:
        """An object that must be there."""
        if not self.has(name):
            raise self.wrong(name, "an object")
        return self.object(name)

    def token_ids(self, name: str) -> tuple[int, ...]:
        """A token id or a list of them, ascending and each once; empty if absent."""
        value = self.values.get(name)
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in ids):
            raise self.wrong(name, "a token id or a list of token ids")
        return tuple(sorted(set(ids)))
