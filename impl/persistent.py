"""What the page pool needs beside `immutables.Map`: two helpers whose meaning proofs take on trust.

Both give what plain Python gives, in time proportional to what changes; tests compare them with `dict` and with
`dataclasses.replace` on random inputs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from immutables import Map

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


def without(mapping: Map[K, V], keys: Collection[K]) -> Map[K, V]:
    """`Map({k: v for k, v in mapping.items() if k not in keys})`, in time proportional to `keys`."""
    if not keys:
        return mapping
    smaller = mapping.mutate()
    for key in keys:
        smaller.pop(key, None)
    return smaller.finish()


def replace(instance: T, /, **changes: object) -> T:
    """`dataclasses.replace`, two to four times as fast, for frozen dataclasses of plain fields.

    `__init__` and `__post_init__` do not run, and there must be no `__slots__`.

    Raises:
        TypeError: for a name that is not a field.
    """
    fields = instance.__dict__
    copy = object.__new__(type(instance))
    copy.__dict__.update(fields)
    copy.__dict__.update(changes)
    if len(copy.__dict__) != len(fields):
        unknown = ", ".join(sorted(changes.keys() - fields.keys()))
        raise TypeError(
            f"{type(instance).__name__} has no field {unknown}: replace only fields that its class declares"
        )
    return copy
