"""The shapes of known models: what transformers builds from the same files, tensor by tensor."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.gemma4_unified import Gemma4UnifiedForCausalLM, Gemma4UnifiedTextConfig
from transformers.utils import logging

from forwards import CHECKPOINTS
from vosti.impl.bundled import SHAPES, find_checkpoint, shape_names
from vosti.impl.models.families import ARCHITECTURES, STYLES, load_config
from vosti.impl.models.layers import build_plan
from vosti.impl.models.plan import Plan, Source, plan_problems

logging.set_verbosity_error()

PARAMETERS = {
    "gemma-3-12b": 11_766_034_176,
    "gemma-3-1b": 999_885_952,
    "gemma-3-27b": 27_009_346_304,
    "gemma-3-4b": 3_880_263_168,
    "gemma-4-12b": 11_907_350_320,
    "gemma-4-31b": 30_697_345_340,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.3-70b": 70_553_706_496,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
}
"""Numbers in the text half of each model, a tied head counted once."""

THEIRS: dict[str, tuple[Any, Any]] = {
    "gemma3_text": (Gemma3TextConfig, Gemma3ForCausalLM),
    "gemma4_text": (Gemma4TextConfig, Gemma4ForCausalLM),
    "gemma4_unified_text": (Gemma4UnifiedTextConfig, Gemma4UnifiedForCausalLM),
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
"""By model_type, the reference's classes."""


def _plan(name: str) -> Plan:
    config = load_config(find_checkpoint(name))
    return build_plan(config, STYLES[config.family])


def _sources(plan: Plan) -> dict[str, Source]:
    return {source.name: source for parameter in plan.parameters for source in parameter.sources}


def _reference(name: str) -> tuple[dict[str, tuple[int, ...]], int]:
    """The shape of each tensor of the reference's model, a tied head left out; and how many numbers they hold."""
    fields = json.loads((SHAPES / f"{name}.json").read_text())
    config_class, model_class = THEIRS[fields.pop("model_type")]
    del fields["architectures"]
    with torch.device("meta"):
        model = model_class(config_class(**fields))
    state = dict(model.state_dict())
    if fields["tie_word_embeddings"]:
        del state["lm_head.weight"]
    return {key: tuple(value.shape) for key, value in state.items()}, sum(value.numel() for value in state.values())


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_shape_has_the_tensors_of_the_known_model(name: str) -> None:
    """Names, shapes and the total number of parameters; and its plan is sound."""
    plan = _plan(name)

    shapes, total = _reference(name)

    assert shapes == {source.name: source.shape for source in _sources(plan).values()}
    assert PARAMETERS[name] == total
    assert [] == plan_problems(plan)


def test_all_shapes_are_known() -> None:
    """The files are those counted here, and a name finds its file, unless a folder has that name."""
    assert sorted(PARAMETERS) == shape_names()
    assert SHAPES / "qwen3-8b.json" == find_checkpoint("qwen3-8b")
    assert CHECKPOINTS / "tiny-llama3" == find_checkpoint("tiny-llama3")
    assert "../shapes/qwen3-8b" == str(find_checkpoint("../shapes/qwen3-8b"))


def test_the_documentation_lists_families_and_shapes() -> None:
    """docs/models.md names each architecture and each shape that there is, with its number of parameters."""
    text = (Path(__file__).parents[2] / "docs" / "models.md").read_text()

    listed = dict(re.findall(r"`([a-z0-9.-]+)` \| ([0-9.]+) B", text))

    assert {name: f"{number / 1e9:.2f}" for name, number in PARAMETERS.items()} == listed
    assert set(ARCHITECTURES) == set(re.findall(r"`(\w+For\w+)`", text))


def test_gemma_4_has_two_kinds_of_keys_and_values() -> None:
    """In five of six layers many heads of 256, in every sixth a few of 512, whose values are the keys' projection."""
    plan = _plan("gemma-4-31b")
    qkv = {parameter.name: parameter.sources for parameter in plan.parameters if parameter.name.endswith("qkv")}

    assert ([(16, 256)] * 5 + [(4, 512)]) * 10 == [(kv.heads, kv.head_dim) for kv in plan.kv_shapes]
    assert ([3] * 5 + [2]) * 10 == [len(set(sources)) for sources in qkv.values()]
    assert {3} == {len(sources) for sources in qkv.values()}
