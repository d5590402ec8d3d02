"""Hugging Face transformers under the suite, used as people use it: the control that must fail.

Requests of one call form one batch, padded to the left; a prompt above the budget is fed in slices to a growing cache;
with prefix caching, the cache of the request before is cropped to what is shared and continued. Greedy only.
"""

from __future__ import annotations

import copy
import gc
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from vosti.impl.bundled import find_checkpoint
from vosti.impl.determinism.environment import environment, process
from vosti.impl.determinism.errors import MissingEngineError
from vosti.impl.determinism.outside import OutsideModel
from vosti.impl.determinism.protocol import Answer, Ask, Piece, Schedule, Settings

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from vosti.impl.determinism.subjects import Choice


@dataclass(frozen=True)
class _Known:
    """What is left of a request: the tokens whose keys and values a cache holds."""

    tokens: tuple[int, ...]
    cache: Any


class TransformersSubject(OutsideModel):
    """A causal language model of transformers; see `vosti.impl.determinism.protocol.Subject`."""

    def __init__(self, choice: Choice) -> None:
        """Load the model in the checkpoint's own dtype, or make one with random weights in bf16.

        Raises `MissingEngineError` if transformers is not installed.
        """
        try:
            import_module("transformers")
        except ModuleNotFoundError as error:
            raise MissingEngineError("transformers is not installed: pip install 'vosti[peers]'.") from error
        import torch

        device = choice.backend if choice.backend != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cpu":
            torch.set_num_threads(1)  # or the order of sums would depend on the machine, too
        self._choice = choice
        self.device = torch.device(device)
        self._path = find_checkpoint(choice.model)
        self._model: Any = None
        super().__init__(self._path, self.model.config.get_text_config())

    @property
    def model(self) -> Any:
        """The model, which is loaded unless it is."""
        if self._model is None:
            self._model = self._load().to(self.device).eval()
        return self._model

    def _load(self) -> Any:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        if self._choice.dummy_weights is None:
            return AutoModelForCausalLM.from_pretrained(self._path, dtype="auto")
        torch.manual_seed(self._choice.dummy_weights)
        config = AutoConfig.from_pretrained(self._path)
        with self.device:
            return AutoModelForCausalLM.from_config(config.get_text_config(), dtype=torch.bfloat16)

    @property
    def name(self) -> str:
        """Transformers."""
        return "transformers"

    def configuration(self) -> Mapping[str, object]:
        """Versions, model, dtype, device and threads: as much as is visible from outside."""
        import torch
        import transformers

        return {
            "engine": "transformers",
            "attention": str(self.config._attn_implementation),
            "config": self.config.to_json_string(),
            "device": str(self.device),
            "dtype": str(self.model.dtype),
            "dummy_weights": self._choice.dummy_weights,
            "model": self._choice.model,
            "threads": torch.get_num_threads(),
            "torch": str(torch.__version__),
            "transformers": str(transformers.__version__),
        }

    def environment(self) -> Mapping[str, str]:
        """Versions and hardware."""
        return environment()

    def open(self, settings: Settings) -> TransformersArm:
        """A model without any cache."""
        return TransformersArm(self.model, self.device, settings)

    def release(self) -> None:
        """Let the model go."""
        import torch

        self._model = None
        gc.collect()
        torch.cuda.empty_cache()

    def fresh(self) -> Sequence[str]:
        """How another process makes the same subject."""
        return self._choice.words()


class TransformersArm:
    """The model with a growing cache; see `vosti.impl.determinism.protocol.Arm`."""

    def __init__(self, model: Any, device: torch.device, settings: Settings) -> None:
        self._model = model
        self._device = device
        self._settings = settings
        self._known: _Known | None = None
        names = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"

    def __enter__(self) -> TransformersArm:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Drop the cache."""
        self._known = None

    def serve(self, asks: Sequence[Ask]) -> list[Answer]:
        """Generate in one batch, as long as the longest answer takes."""
        import torch
        from transformers import DynamicCache

        with torch.inference_mode():
            width = max(len(ask.prompt) for ask in asks)
            cache, hit = self._shared(asks[0].prompt) if len(asks) == 1 else (None, 0)
            cache = DynamicCache() if cache is None else cache
            padded = [[0] * (width - len(ask.prompt)) + list(ask.prompt) for ask in asks]
            mask = torch.tensor([[int(i >= width - len(ask.prompt)) for i in range(width)] for ask in asks])
            tokens, mask = torch.tensor(padded, device=self._device), mask.to(self._device)
            step = max(1, self._settings.token_budget // len(asks))
            starts = list(range(hit, width, step))
            for start in starts:
                logits = self._forward(tokens[:, start : start + step], mask[:, : start + step], cache)
            rows: list[list[bytes]] = [[] for _ in asks]
            outputs: list[list[int]] = [[] for _ in asks]
            longest = max(ask.max_tokens for ask in asks)
            for index in range(longest):
                chosen = logits.argmax(-1)
                for kept, output, row, token in zip(rows, outputs, logits, chosen.tolist(), strict=True):
                    kept.append(row.cpu().numpy().astype("<f4", copy=False).tobytes())
                    output.append(token)
                if index + 1 < longest:
                    mask = torch.cat((mask, mask.new_ones(len(asks), 1)), 1)
                    logits = self._forward(chosen[:, None], mask, cache)
        if self._settings.prefix_caching and len(asks) == 1:
            self._known = _Known(asks[0].prompt + tuple(outputs[0][:-1]), cache)
        return [
            Answer(
                tokens=tuple(output[: ask.max_tokens]),
                rows=tuple(kept[: ask.max_tokens]),
                hit_tokens=hit,
                ended="length",
                schedule=self._schedule(asks, ask, starts, step, width),
            )
            for ask, kept, output in zip(asks, rows, outputs, strict=True)
        ]

    def _forward(self, tokens: Tensor, mask: Tensor, cache: Any) -> Tensor:
        """[batch, vocabulary] float32: the logits after the last column."""
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        out = self._model(
            input_ids=tokens, attention_mask=mask, position_ids=positions, logits_to_keep=1, **{self._cache_name: cache}
        )
        logits: Tensor = out.logits[:, -1].float()
        return logits

    def _shared(self, prompt: tuple[int, ...]) -> tuple[Any, int]:
        """The cache of the request before, cropped to what it shares with a prompt; at least one token is left over."""
        if self._known is None:
            return None, 0
        same = [a == b for a, b in zip(prompt[:-1], self._known.tokens, strict=False)]
        shared = same.index(False) if False in same else len(same)
        if shared == 0:
            return None, 0
        cache = copy.deepcopy(self._known.cache)
        surplus = len(self._known.tokens) - shared
        if surplus:
            cache.crop(-surplus)
        return cache, shared

    def _schedule(self, asks: Sequence[Ask], ask: Ask, starts: Sequence[int], step: int, width: int) -> Schedule:
        """Where the columns of this request were cut; padding is columns before its first token."""
        padding = width - len(ask.prompt)
        pieces = [
            Piece(
                start=max(start - padding, 0),
                stop=min(start + step, width) - padding,
                company=len(asks) - 1,
                live=len(asks) * (min(start + step, width) - start),
                rows=len(asks) * (min(start + step, width) - start),
            )
            for start in starts
            if start + step > padding
        ]
        count = len(pieces)
        pieces += [
            Piece(len(ask.prompt) + i, len(ask.prompt) + i + 1, len(asks) - 1, len(asks), len(asks))
            for i in range(ask.max_tokens - 1)
        ]
        return Schedule(
            settings=self._settings,
            process=process(),
            asked_with=tuple(other.name for other in asks),
            pieces=tuple(pieces),
            taken=tuple(range(count, count + ask.max_tokens)),
        )
