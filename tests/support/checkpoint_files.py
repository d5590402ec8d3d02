"""Writing checkpoint folders, sound and malformed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forwards import CHECKPOINTS

Header = dict[str, Any]
"""A safetensors header as a JSON object."""

TINY_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 8,
    "hidden_size": 4,
    "intermediate_size": 6,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 32,
    "tie_word_embeddings": True,
    "eos_token_id": 1,
}
"""The smallest checkpoint that has all parts."""

TINY_SHAPES: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (8, 4),
    "model.layers.0.input_layernorm.weight": (4,),
    "model.layers.0.mlp.down_proj.weight": (4, 6),
    "model.layers.0.mlp.gate_proj.weight": (6, 4),
    "model.layers.0.mlp.up_proj.weight": (6, 4),
    "model.layers.0.post_attention_layernorm.weight": (4,),
    "model.layers.0.self_attn.k_proj.weight": (2, 4),
    "model.layers.0.self_attn.o_proj.weight": (4, 4),
    "model.layers.0.self_attn.q_proj.weight": (4, 4),
    "model.layers.0.self_attn.v_proj.weight": (2, 4),
    "model.norm.weight": (4,),
}
"""Its tensors."""

Tensors = dict[str, tuple[str, tuple[int, ...], bytes]]
"""Name to dtype, shape and data."""


def tiny_tensors() -> Tensors:
    """Tensors of `TINY_SHAPES`, in bf16, each filled with a pattern of its own."""
    tensors: Tensors = {}
    for number, (name, shape) in enumerate(TINY_SHAPES.items()):
        size = 1
        for length in shape:
            size *= length
        # 0x3c00 to 0x3cff as bf16 are numbers between 0.0078 and 0.0312.
        tensors[name] = ("BF16", shape, bytes(byte for i in range(size) for byte in ((7 * i + 31 * number) % 251, 60)))
    return tensors


def layout(tensors: Tensors) -> tuple[Header, bytes]:
    """Header and data of a safetensors file that holds the tensors in order."""
    header: Header = {}
    data = b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    return header, data


def file_bytes(header: Header | str, data: bytes, length: int | None = None) -> bytes:
    """A safetensors file; `length` replaces the true length of the header."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def write_folder(
    folder: Path, config: Mapping[str, Any] = TINY_CONFIG, files: Mapping[str, bytes] | None = None
) -> Path:
    """A checkpoint folder of a config and files; by default the tiny checkpoint's."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name, content in (files or {"model.safetensors": file_bytes(*layout(tiny_tensors()))}).items():
        (folder / name).write_bytes(content)
    return folder


def index_bytes(weight_map: Mapping[str, str]) -> bytes:
    """An index of shards."""
    return json.dumps({"metadata": {}, "weight_map": weight_map}).encode()


def bundled_config(name: str) -> dict[str, Any]:
    """The config.json of a bundled checkpoint."""
    config = json.loads((CHECKPOINTS / name / "config.json").read_text())
    assert isinstance(config, dict)
    return config


def copy_bundled(name: str, folder: Path, **changed: Any) -> Path:
    """A copy of a bundled checkpoint with fields of its config.json changed; None removes a field."""
    shutil.copytree(CHECKPOINTS / name, folder)
    config = {key: value for key, value in {**bundled_config(name), **changed}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
