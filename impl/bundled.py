"""The checkpoints that ship with the package, by name."""

from __future__ import annotations

from pathlib import Path

BUNDLED = ("tiny-gemma3", "tiny-llama3")
"""The names of the bundled checkpoints."""


def find_checkpoint(path: str | Path) -> Path:
    """The folder of a checkpoint: a bundled one if `path` is its bare name and no folder here has that name."""
    folder = Path(path)
    if str(path) in BUNDLED and not folder.exists():
        return Path(__file__).parent / "checkpoints" / str(path)
    return folder
