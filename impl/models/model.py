"""A model: a checkpoint's description, launch plan and weights, loaded once and shared by any number of pools."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from vosti.impl.errors import CheckpointError
from vosti.impl.models.config import Family, ModelConfig, load_config
from vosti.impl.models.gemma3 import GEMMA3
from vosti.impl.models.layers import Style, build_plan, table_names
from vosti.impl.models.llama3 import LLAMA3
from vosti.impl.models.plan import Plan
from vosti.impl.models.rope import rope_tables
from vosti.impl.models.weights import load_parameters

if TYPE_CHECKING:
    from tokenizers import Tokenizer

STYLES: dict[Family, Style] = {"llama3": LLAMA3, "gemma3": GEMMA3}
"""The families."""

VALUELESS = ("max_positions", "eos_ids", "text_half")
"""Fields of a description that no value depends on: limits, stop conditions, names in files."""


@dataclass(frozen=True, eq=False)
class Model:
    """A loaded checkpoint. Nothing in it changes after loading."""

    folder: Path
    config: ModelConfig
    plan: Plan
    parameters: Mapping[str, torch.Tensor]
    """float32: the plan's parameters, its tables, and its tied aliases."""

    weights_digest: str
    """SHA-256 of the tensors as stored."""

    @staticmethod
    def load(path: str | Path) -> Model:
        """Load the checkpoint in a folder, in the format of Hugging Face.

        Raises `CheckpointError` and `UnsupportedModelError`, each naming file and field or tensor.
        """
        folder = Path(path)
        config = load_config(folder)
        plan = build_plan(config, STYLES[config.family])
        loaded = load_parameters(folder, plan, config.text_half)
        parameters = dict(loaded.parameters)
        for kind, attention in config.attention.items():
            tables = rope_tables(attention.rope, attention.head_dim, config.max_positions)
            parameters.update(zip(table_names(kind), tables, strict=True))
        return Model(folder, config, plan, parameters, loaded.digest)

    @property
    def config_digest(self) -> str:
        """SHA-256 of the description's fields that a value may depend on, however config.json spells them."""
        fields = {name: value for name, value in asdict(self.config).items() if name not in VALUELESS}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of the folder's tokenizer.json. Raises `CheckpointError` if it is missing or malformed."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(f"{folder} has no tokenizer.json; give token ids, or add the file.")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise CheckpointError(f"{path} is no tokenizer that can be read: {error}.") from error
