"""The families: which architecture belongs to which, how its layers look, and how its config.json is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vosti.impl.errors import CheckpointError, UnsupportedModelError
from vosti.impl.models.config import ModelConfig, refuse_features
from vosti.impl.models.fields import Fields, read_json_object
from vosti.impl.models.gemma3 import GEMMA3, read_gemma3
from vosti.impl.models.gemma4 import GEMMA4, read_gemma4, read_gemma4_unified
from vosti.impl.models.layers import Style
from vosti.impl.models.llama3 import LLAMA3, read_llama3
from vosti.impl.models.mistral import read_mistral
from vosti.impl.models.qwen3 import QWEN3, read_qwen3

STYLES: dict[str, Style] = {
    "gemma3": GEMMA3,
    "gemma4": GEMMA4,
    "llama3": LLAMA3,
    "mistral": LLAMA3,
    "qwen3": QWEN3,
}
"""The families' layers."""


@dataclass(frozen=True)
class Architecture:
    """An architecture that is read."""

    model_type: str
    read: Callable[[Fields], ModelConfig]
    text_half: bool = False
    """Whether it is a larger model, of which the text half is used."""


ARCHITECTURES: dict[str, Architecture] = {
    "Gemma3ForCausalLM": Architecture("gemma3_text", read_gemma3),
    "Gemma3ForConditionalGeneration": Architecture("gemma3", read_gemma3, text_half=True),
    "Gemma4ForCausalLM": Architecture("gemma4_text", read_gemma4),
    "Gemma4ForConditionalGeneration": Architecture("gemma4", read_gemma4, text_half=True),
    "Gemma4UnifiedForCausalLM": Architecture("gemma4_unified_text", read_gemma4_unified),
    "Gemma4UnifiedForConditionalGeneration": Architecture("gemma4_unified", read_gemma4_unified, text_half=True),
    "LlamaForCausalLM": Architecture("llama", read_llama3),
    "MistralForCausalLM": Architecture("mistral", read_mistral),
    "Qwen3ForCausalLM": Architecture("qwen3", read_qwen3),
}
"""By the names in config.json."""


def load_config(path: Path) -> ModelConfig:
    """The description in a checkpoint's folder, or in a config.json.

    Raises `CheckpointError` if files are missing, malformed or contradict themselves, and `UnsupportedModelError` for
    what is not computed here.
    """
    if not path.exists():
        raise CheckpointError(f"{path} does not exist; give a folder in the format of Hugging Face.")
    file, generation = (path / "config.json", path / "generation_config.json") if path.is_dir() else (path, None)
    if not file.is_file():
        raise CheckpointError(f"{path} has no config.json; give a folder in the format of Hugging Face.")
    outer = Fields(read_json_object(file), str(file))
    architecture = _architecture(outer)
    fields = _text_fields(outer) if architecture.text_half else outer
    refuse_features(outer)
    refuse_features(fields)
    config = replace(architecture.read(fields), text_half=architecture.text_half)
    return _with_eos(config, generation, [fields, outer])


def _architecture(fields: Fields) -> Architecture:
    names = fields.values.get("architectures")
    model_type = fields.text("model_type")
    if names is None:
        names = [name for name, architecture in ARCHITECTURES.items() if architecture.model_type == model_type]
    if not isinstance(names, list) or len(names) != 1 or names[0] not in list(ARCHITECTURES):
        named = names or model_type
        raise UnsupportedModelError(
            f"{fields.where}: architecture {named!r} is not supported; supported are {', '.join(ARCHITECTURES)}."
        )
    architecture = ARCHITECTURES[names[0]]
    if model_type != architecture.model_type:
        raise CheckpointError(
            f"{fields.where}: {names[0]} needs model_type {architecture.model_type!r}, not {model_type!r}."
        )
    return architecture


def _text_fields(outer: Fields) -> Fields:
    """The fields of the text half; whether the head is tied may be said there, outside, or in both places alike."""
    fields = outer.object("text_config")
    tie = "tie_word_embeddings"
    if outer.has(tie) and fields.has(tie) and outer.values[tie] != fields.values[tie]:
        raise CheckpointError(f"{outer.where} contradicts itself: {tie} differs between the file and its text_config.")
    return Fields({**fields.values, tie: outer.values[tie]}, fields.where) if outer.has(tie) else fields


def _with_eos(config: ModelConfig, generation: Path | None, fallbacks: list[Fields]) -> ModelConfig:
    """The description with the ids that end a sequence: of generation_config.json, or else of config.json."""
    sources = fallbacks
    if generation is not None and generation.is_file():
        sources = [Fields(read_json_object(generation), str(generation)), *fallbacks]
    source = next((fields for fields in sources if fields.has("eos_token_id")), sources[0])
    ids = source.token_ids("eos_token_id")
    if any(i >= config.vocab_size for i in ids):
        raise source.wrong("eos_token_id", f"below the vocabulary's size {config.vocab_size}")
    return replace(config, eos_ids=ids)
