"""Functions of the specification, or words about it, with a fault: for what compiles them to logic."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any


def replaced(function: Callable[..., Any], old: str, new: str) -> dict[str, ast.FunctionDef]:
    """The function with one part of its text replaced."""
    text = inspect.getsource(function)
    assert 1 == text.count(old), f"{old!r} occurs {text.count(old)} times"
    node = ast.parse(text.replace(old, new)).body[0]
    assert isinstance(node, ast.FunctionDef)
    return {f"{function.__module__}.{function.__name__}": node}
