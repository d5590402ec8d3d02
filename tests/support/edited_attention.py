"""Attention with one edit of its source."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import vosti.kernels.attention
import vosti.kernels.attention_tiles
from ttir_samples import sample
from vosti.kernels.catalogue import TARGETS
from vosti.kernels.tile import Tile
from vosti.kernels.verifier.front import located
from vosti.kernels.verifier.prove import Proof, prove

CONSTANTS = {"HEADS": 4, "KV_HEADS": 2, "HEAD_DIM": 32, "PAGE": 16, "WINDOW": 100}
"""A tile of keys spans pages, and rows see a window that is no multiple of a tile."""


def _load(name: str, path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def proof_of(folder: Path, old: str = "", new: str = "") -> Proof:
    """Prove attention as it is with `old` replaced by `new`, wherever it stands, in files in an empty folder.

    Raises what the verifier raises.
    """
    tiles, attention = (
        Path(str(module.__file__)).read_text() for module in (vosti.kernels.attention_tiles, vosti.kernels.attention)
    )
    assert old in tiles + attention
    if old:
        tiles, attention = tiles.replace(old, new), attention.replace(old, new)
    (folder / "edited_tiles.py").write_text(tiles)
    (folder / "edited.py").write_text(attention.replace("from vosti.kernels.attention_tiles", "from edited_tiles"))
    try:
        _load("edited_tiles", folder / "edited_tiles.py")
        kernel = _load("edited", folder / "edited.py").ATTENTION
    finally:
        sys.modules.pop("edited", None)
        sys.modules.pop("edited_tiles", None)
    like = sample("attention")
    constants = {**like.constants, **CONSTANTS}
    tile = Tile((("BLOCK_R", 16), ("BLOCK_D", 32)), 4, 1)
    ir = located(kernel, constants, tile, TARGETS["sm_90"])
    return prove(ir, kernel.contract, {**constants, **dict(tile.blocks)})
