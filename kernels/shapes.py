"""The sizes of known models, and the operations that each of them launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Dimensions = tuple[tuple[str, int], ...]
"""Sizes of an operation, by name."""


@dataclass(frozen=True)
class Attention:
    """The attention layers of one kind."""

    heads: int
    kv_heads: int
    head_dim: int
    window: int = 0
    """Positions that a row sees, its own included; 0 for all."""

    norm: int = 0
    """Norm of each head of queries and keys: 0 none, 1 plain, 2 with the unit offset."""

    value_norm: int = 0
    shared: int = 0
    """Whether values are the keys' projection."""


@dataclass(frozen=True)
class Shape:
    """A model's sizes, as far as kernels depend on them."""

    hidden: int
    intermediate: int
    vocabulary: int
    attention: tuple[Attention, ...]
    activation: int = 0
    """0 SiLU, 1 GELU with tanh."""

    gemma: bool = False
    """Norms with the unit offset and embeddings with a scale."""

    cap: bool = False
    """Whether logits have a soft cap."""


def _qwen3(hidden: int, intermediate: int, heads: int) -> Shape:
    return Shape(hidden, intermediate, 151936, (Attention(heads, 8, 128, norm=1),))


def _gemma3(
    hidden: int, intermediate: int, vocabulary: int, heads: int, kv_heads: int, head_dim: int, window: int
) -> Shape:
    layers = tuple(Attention(heads, kv_heads, head_dim, w, norm=2) for w in (window, 0))
    return Shape(hidden, intermediate, vocabulary, layers, activation=1, gemma=True)


def _gemma4(hidden: int, intermediate: int, heads: int, kv_heads: int, global_kv_heads: int) -> Shape:
    local = Attention(heads, kv_heads, 256, 1024, norm=1, value_norm=1)
    whole = Attention(heads, global_kv_heads, 512, norm=1, value_norm=1, shared=1)
    return Shape(hidden, intermediate, 262144, (local, whole), activation=1, gemma=True, cap=True)


SHAPES: dict[str, Shape] = {
    "tiny-llama3": Shape(256, 704, 4096, (Attention(8, 2, 32),)),
    "tiny-gemma3": _gemma3(256, 640, 4096, 4, 2, 64, 64),
    "llama-3.1-8b": Shape(4096, 14336, 128256, (Attention(32, 8, 128),)),
    "llama-3.2-1b": Shape(2048, 8192, 128256, (Attention(32, 8, 64),)),
    "llama-3.2-3b": Shape(3072, 8192, 128256, (Attention(24, 8, 128),)),
    "llama-3.3-70b": Shape(8192, 28672, 128256, (Attention(64, 8, 128),)),
    "qwen3-0.6b": _qwen3(1024, 3072, 16),
    "qwen3-1.7b": _qwen3(2048, 6144, 16),
    "qwen3-4b": _qwen3(2560, 9728, 32),
    "qwen3-8b": _qwen3(4096, 12288, 32),
    "qwen3-14b": _qwen3(5120, 17408, 40),
    "qwen3-32b": _qwen3(5120, 25600, 64),
    "gemma-3-1b": _gemma3(1152, 6912, 262144, 4, 1, 256, 512),
    "gemma-3-4b": _gemma3(2560, 10240, 262208, 8, 4, 256, 1024),
    "gemma-3-12b": _gemma3(3840, 15360, 262208, 16, 8, 256, 1024),
    "gemma-3-27b": _gemma3(5376, 21504, 262208, 32, 16, 128, 1024),
    "gemma-4-12b": _gemma4(3840, 15360, 16, 8, 1),
    "gemma-4-31b": _gemma4(5376, 21504, 32, 16, 4),
    "mistral-7b-v0.3": Shape(4096, 14336, 32768, (Attention(32, 8, 128),)),
    "mistral-7b-v0.1": Shape(4096, 14336, 32000, (Attention(32, 8, 128, 4096),)),
}
"""By name."""


def operations(shape: Shape) -> Iterator[tuple[str, Dimensions]]:
    """Each operation that a model of this shape launches, with its dimensions; and those of what is read back."""
    yield "digest", ()
    yield "digest_merge", ()
    yield "embedding", (("width", shape.hidden), ("scaled", int(shape.gemma)))
    yield "rms_norm", (("width", shape.hidden), ("unit_offset", int(shape.gemma and not shape.cap)))
    yield "gate_up", (("n", shape.intermediate), ("k", shape.hidden), ("activation", shape.activation))
    yield "linear", (("n", shape.hidden), ("k", shape.intermediate))
    yield "head", (("n", shape.vocabulary), ("k", shape.hidden))
    yield "logits", (("width", shape.vocabulary), ("capped", int(shape.cap)))
    for layer in shape.attention:
        width = (layer.heads + layer.kv_heads * (1 if layer.shared else 2)) * layer.head_dim
        heads = (("heads", layer.heads), ("kv_heads", layer.kv_heads), ("head_dim", layer.head_dim))
        options = (("norm", layer.norm), ("value_norm", layer.value_norm), ("shared", layer.shared))
        yield "linear", (("n", width), ("k", shape.hidden))
        yield "linear", (("n", shape.hidden), ("k", layer.heads * layer.head_dim))
        yield "rotary_store", (*heads, *options)
        yield "kv_store", heads[1:]
        yield "attention", (*heads, ("window", layer.window))
        yield "attention_split", (*heads, ("window", layer.window))
        yield "attention_merge", (*heads, ("window", layer.window))


def known_operations() -> list[tuple[str, Dimensions]]:
    """Of all known shapes, each once, sorted."""
    return sorted({operation for shape in SHAPES.values() for operation in operations(shape)})
