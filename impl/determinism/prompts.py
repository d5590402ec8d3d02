"""Random prompts, and the rule that scales the suite to a short context.

The paper's suite needs 33,024 positions. Where the model has fewer, everything is divided by the *scale*, the smallest
power of two that makes it fit: page size, budgets and pool; and each length, which is a boundary b (a multiple of 16)
or one token more or less, becomes b divided by the scale, or one more or less. Numbers of requests, of generated tokens
and of comparisons stay, and so do the model's own boundaries: its window and the tiles of its kernels.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vosti.impl.determinism.errors import ContextError
from vosti.impl.determinism.protocol import Settings, Vocabulary

SEED = 0x5EED2026

POSITIONS = 33_024
"""The longest sequence of the paper's suite."""

LARGEST_SCALE = 16
"""At most; then a page has four slots, the fewest that have an inside."""

BOUNDARY = 16
"""Every length of the suite is a multiple of this, or one more or less."""


def random_prompt(vocabulary: Vocabulary, length: int, offset: int) -> tuple[int, ...]:
    """A beginning-of-sequence token and random tokens: `length` in all. One offset gives beginnings of one sequence."""
    bos = () if vocabulary.bos is None else (vocabulary.bos,)
    return (bos + random_tail(vocabulary, length, offset))[:length]


def random_tail(vocabulary: Vocabulary, length: int, offset: int) -> tuple[int, ...]:
    """Random tokens, each of the vocabulary but for the special ones."""
    stream = random.Random(SEED + offset)
    tokens: list[int] = []
    while len(tokens) < length:
        token = stream.randrange(vocabulary.size)
        if token not in vocabulary.special:
            tokens.append(token)
    return tuple(tokens)


def shuffled(count: int, offset: int) -> list[int]:
    """The numbers below `count` in a random order."""
    order = list(range(count))
    random.Random(SEED + offset).shuffle(order)
    return order


@dataclass(frozen=True)
class Geometry:
    """The sizes of a suite: the paper's, divided by the scale."""

    scale: int = 1

    def boundary(self, size: int) -> int:
        """A size that stands for a boundary."""
        return max(1, size // self.scale)

    def length(self, length: int) -> int:
        """A length, which stands at a boundary or one token beside it."""
        nearest = round(length / BOUNDARY) * BOUNDARY
        beside = length - nearest
        return max(1, self.boundary(length - beside) + beside)

    @property
    def page_size(self) -> int:
        """Slots of a page: 64 in the paper."""
        return self.boundary(64)

    @property
    def token_budget(self) -> int:
        """Rows of a forward where nothing else is said: 4,096 in the paper."""
        return self.boundary(4096)

    @property
    def unchunked(self) -> int:
        """A budget that holds every prompt: 32,768 in the paper."""
        return self.boundary(32_768)

    def settings(self, *, token_budget: int | None = None, prefix_caching: bool = False) -> Settings:
        """The paper's settings: 768 pages, and as many requests at once as a batch has."""
        return Settings(
            token_budget=token_budget or self.token_budget,
            max_seqs=16,
            page_size=self.page_size,
            pages=768,
            prefix_caching=prefix_caching,
        )


def geometry_for(context: int) -> Geometry:
    """The smallest power of two as the scale with which the suite fits into the context. Raises `ContextError`."""
    scale = 1
    while POSITIONS // scale > context:
        scale *= 2
    if scale > LARGEST_SCALE:
        raise ContextError(
            f"The model takes {context} positions, and the suite needs at least {POSITIONS // LARGEST_SCALE}."
        )
    return Geometry(scale)


def read_vocabulary(path: Path, size: int) -> Vocabulary:
    """The vocabulary of a checkpoint: its special tokens are whatever any of its files names.

    Args:
        path: a folder with config.json, and tokenizer.json if there is one; or a config alone.
        size: how many logits the model has.
    """
    folder = path if path.is_dir() else path.parent
    config = _object(folder / "config.json" if path.is_dir() else path)
    inner = config.get("text_config")
    configs = [config, *([inner] if isinstance(inner, dict) else []), _object(folder / "generation_config.json")]
    special: set[int] = set()
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        for content in configs:
            special |= _ids(content.get(name))
    for token in _object(folder / "tokenizer.json").get("added_tokens") or []:
        special |= _ids(token.get("id"))
    bos = next((min(ids) for content in configs if (ids := _ids(content.get("bos_token_id")))), None)
    return Vocabulary(size, bos, frozenset(special))


def _object(path: Path) -> dict[str, Any]:
    """A file's JSON object; empty if there is no such file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _ids(value: object) -> set[int]:
    """The token ids of a field that holds none, one or several."""
    found = value if isinstance(value, list) else [value]
    return {token for token in found if isinstance(token, int) and not isinstance(token, bool)}
