"""What the suite sees of a model in somebody else's engine: its configuration file, and no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vosti.impl.determinism.prompts import read_vocabulary
from vosti.impl.determinism.protocol import Ability, Vocabulary


class OutsideModel:
    """The part of `vosti.impl.determinism.protocol.Subject` that a model's configuration answers."""

    def __init__(self, path: Path, config: Any) -> None:
        """Of the checkpoint at `path`, whose text half transformers describes by `config`."""
        self.config = config
        self._vocabulary = read_vocabulary(path, config.vocab_size)

    @property
    def abilities(self) -> frozenset[Ability]:
        """Greedy batches, and nothing beyond."""
        return frozenset()

    @property
    def variants(self) -> Mapping[str, Sequence[str]]:
        """None."""
        return {}

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's."""
        return self._vocabulary

    @property
    def context(self) -> int:
        """The longest sequence that the model was made for."""
        return int(self.config.max_position_embeddings)

    @property
    def window(self) -> int | None:
        """Of its sliding layers."""
        kinds = getattr(self.config, "layer_types", None) or ()
        return int(self.config.sliding_window) if "sliding_attention" in kinds else None
