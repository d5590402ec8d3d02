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


def write_json(path: Path | None, content: object) -> None:
    """Write JSON, by way of a temporary file beside it: whoever looks sees the old file or the new one, whole."""
    if path is None:
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2, ensure_ascii=False)
            file.write("\n")
        Path(name).chmod(0o666 & ~_umask())  # what an ordinary file would have
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
