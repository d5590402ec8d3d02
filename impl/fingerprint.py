"""The fingerprint of a configuration W (section 2.3 of the paper), and digests of the text that values come from."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import vosti.spec.numerics


def fingerprint_of(configuration: Mapping[str, object]) -> str:
    """SHA-256 of a configuration, as hexadecimal digits; the order of its keys does not matter."""
    return hashlib.sha256(json.dumps(configuration, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def row_programs() -> list[Path]:
    """The files of the row programs. (`floats` is the plain instance, which no backend runs.)"""
    folder = Path(vosti.spec.numerics.__path__[0])
    return sorted(path for path in folder.glob("*.py") if path.stem not in ("__init__", "floats"))


def source_digest(files: Iterable[Path]) -> str:
    """SHA-256 of the syntax trees of Python files, in order; docstrings and comments are no part of it."""
    digest = hashlib.sha256()
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        digest.update(ast.dump(_without_docstrings(tree)).encode())
    return digest.hexdigest()


def _without_docstrings(tree: ast.Module) -> ast.Module:
    """The tree less every statement that is only a string; comments never were in it."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [statement for statement in body if not _is_text(statement)]
    return tree


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
