"""A model: its description, launch plan and weights, loaded once and shared by any number of pools."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from vosti.impl.errors import CheckpointError
from vosti.impl.models.config import ModelConfig
from vosti.impl.models.dummy import DummyTensors
from vosti.impl.models.families import STYLES, load_config
from vosti.impl.models.layers import build_plan, table_names
from vosti.impl.models.plan import Parameter, Plan
from vosti.impl.models.rope import rope_tables
from vosti.impl.models.tensors import CheckpointTensors, Tensors
from vosti.impl.models.weights import load_parameters

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Layout = Callable[[Plan], Sequence[Parameter]]
"""How a backend keeps the parameters of a plan: stacked, transposed or interleaved in its own way."""

VALUELESS = ("max_positions", "eos_ids", "text_half")
"""Fields of a description that no value depends on: limits, stop conditions, names in files."""


@dataclass(frozen=True, eq=False)
class Model:
    """A loaded model. Nothing in it changes after loading."""

    path: Path
    """The checkpoint's folder, or the config that the model was made from."""

    config: ModelConfig
    plan: Plan
    """The family's."""

    parameters: Mapping[str, torch.Tensor]
    """Those of the layout, or else of the plan with its tied aliases; and the plan's tables, float32."""

    weights_identity: str
    """What W says of the weights: SHA-256 of the tensors as stored, or how dummy ones are made."""

    @staticmethod
    def load(
        path: str | Path,
        *,
        layout: Layout | None = None,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        dummy_weights: int | None = None,
    ) -> Model:
        """Load a model for a backend.

        Args:
            path: a checkpoint's folder in the format of Hugging Face, or, for dummy weights, a config.json.
            layout: how the backend keeps the parameters; None for the plan as it is (the CPU backend).
            dtype: of the parameters, except for the tables.
            device: where parameters and tables are kept.
            dummy_weights: a seed for pseudo-random weights; None to read those of the checkpoint.

        Raises `CheckpointError` and `UnsupportedModelError`, each naming file and field or tensor, before the first
        parameter is allocated.
        """
        path, device = Path(path), torch.device(device)
        if dummy_weights is None and not path.is_dir():
            raise CheckpointError(
                f"{path} is not a folder; give one with config.json and model.safetensors, or a seed of dummy weights."
            )
        config = load_config(path)
        plan = build_plan(config, STYLES[config.family])
        tensors: Tensors = (
            CheckpointTensors(path, config.text_half) if dummy_weights is None else DummyTensors(dummy_weights)
        )
        kept = plan.parameters if layout is None else layout(plan)
        parameters = load_parameters(kept, tensors, dtype, device, tied=config.tied_head)
        for alias, name in plan.tied if layout is None else ():
            parameters[alias] = parameters[name].t()
        parameters.update((name, table.to(device)) for name, table in tables_of(config).items())
        return Model(path, config, plan, parameters, tensors.identity())

    @property
    def config_digest(self) -> str:
        """SHA-256 of the description's fields that a value may depend on, however config.json spells them."""
        fields = {name: value for name, value in asdict(self.config).items() if name not in VALUELESS}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def tables_of(config: ModelConfig) -> dict[str, torch.Tensor]:
    """The tables of rotary embedding, float32, always made on the host: another device has other cosines."""
    tables: dict[str, torch.Tensor] = {}
    for kind, attention in config.attention.items():
        both = rope_tables(attention.rope, attention.head_dim, config.max_positions)
        tables.update(zip(table_names(kind), both, strict=True))
    return tables


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
