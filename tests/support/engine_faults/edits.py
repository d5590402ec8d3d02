"""A fault as a patch: in the source of a function, one text is replaced by another while a test lasts."""

from __future__ import annotations
import __future__

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest


@dataclass(frozen=True)
class Edit:
    """A replacement in the source of a function."""

    function: str
    """The module below `vosti.impl`, a colon, and the function's qualified name: "pool:evict", "engine:Engine.step"."""

    old: str
    """What stands there, exactly once."""

    new: str


@dataclass(frozen=True)
class Fault:
    """Something that is wrong with an engine."""

    name: str
    edits: tuple[Edit, ...]

    scenario: str = "busy"
    """What the faulty engine serves: a name of `engine_faults.scenarios.SCENARIOS`."""


class StaleEdit(Exception):
    """The text that an edit replaces does not stand in its function exactly once: the engine has changed."""


def fault(name: str, *edits: tuple[str, str, str], scenario: str = "busy") -> Fault:
    """A fault, its edits as (function, old text, new text)."""
    return Fault(name, tuple(Edit(*edit) for edit in edits), scenario)


@contextmanager
def applied(seeded: Fault) -> Iterator[None]:
    """The engine has the fault inside, and is whole again afterwards.

    Raises:
        StaleEdit: if an edit does not fit the engine any more.
    """
    by_function: dict[str, list[Edit]] = {}
    for edit in seeded.edits:
        by_function.setdefault(edit.function, []).append(edit)
    with pytest.MonkeyPatch.context() as patch:
        for path, edits in by_function.items():
            _replace(patch, path, edits)
        yield


def _replace(patch: pytest.MonkeyPatch, path: str, edits: Sequence[Edit]) -> None:
    module_name, _, qualified = path.partition(":")
    module = import_module(f"vosti.impl.{module_name}")
    *owners, name = qualified.split(".")
    owner: Any = module
    for step in owners:
        owner = getattr(owner, step)
    original = inspect.getattr_static(owner, name)
    function: Any = original.fget if isinstance(original, property) else original
    source = inspect.getsource(function)
    for edit in edits:
        if source.count(edit.old) != 1:
            raise StaleEdit(
                f"{path} has {source.count(edit.old)} times the text {edit.old!r}: it should be there once."
            )
        source = source.replace(edit.old, edit.new)
    faulty = _compiled(textwrap.dedent(source), name, vars(module), f"<{path}, faulty>")
    patch.setattr(owner, name, faulty)
    if not owners:
        # Other modules hold the function under a name of their own.
        for other in [m for n, m in sys.modules.items() if n.startswith("vosti.impl.") and m is not module]:
            for attribute, value in list(vars(other).items()):
                if value is original:
                    patch.setattr(other, attribute, faulty)


def _compiled(source: str, name: str, names: dict[str, Any], filename: str) -> Callable[..., Any]:
    code = compile(source, filename, "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)
    made: dict[str, Any] = {}
    exec(code, names, made)
    result: Callable[..., Any] = made[name]
    return result
