"""Files of results: written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from vosti.impl.cli.ending import CannotRun


def check_writable(path: Path | None) -> None:
    """Raise `CannotRun` if no file can be made at the path. Called before any work is done."""
    if path is None:
        return
    if path.is_dir():
        raise CannotRun(f"{path} is a folder: give the path of a file.")
    if not path.parent.is_dir():
        raise CannotRun(f"{path} cannot be written: there is no folder {path.parent}.")
    if not os.access(path.parent, os.W_OK):
        raise CannotRun(f"{path} cannot be written: the folder {path.parent} is read-only.")


def check_empty(path: Path | None) -> None:
    """Raise `CannotRun` unless the path is an empty folder, or does not exist. Called before any work is done."""
    if path is not None and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise CannotRun(f"{path} is not an empty folder: give one that is, or that does not exist.")


def write_json(path: Path | None, content: object) -> None:
    """Write JSON, whole or not at all."""
    if path is not None:
        write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file by way of a temporary one beside it: whoever looks sees the old file or the new one, whole."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o666 & ~_umask())  # what an ordinary file would have
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
