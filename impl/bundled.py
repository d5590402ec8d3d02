"""What ships with the package, by name: small checkpoints, and the shapes of known models."""

from __future__ import annotations

from pathlib import Path

BUNDLED = ("tiny-gemma3", "tiny-llama3")
"""The names of the bundled checkpoints."""

SHAPES = Path(__file__).parent / "models" / "shapes"
"""A config.json for each known model, without weights: of use with dummy ones."""


def shape_names() -> list[str]:
    """The names of the shapes, sorted."""
    return sorted(path.stem for path in SHAPES.glob("*.json"))


def find_checkpoint(path: str | Path) -> Path:
    """The folder of a checkpoint, or the file of a shape: a bundled one for a bare name that no folder here has."""
    folder = Path(path)
    if folder.exists():
        return folder
    if str(path) in BUNDLED:
        return Path(__file__).parent / "checkpoints" / str(path)
    return SHAPES / f"{path}.json" if str(path) in shape_names() else folder
