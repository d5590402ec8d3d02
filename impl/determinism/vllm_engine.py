"""vLLM under the suite, in its default mode or its batch-invariant one, through its offline interface.

vLLM brings a torch of its own, so it is no extra of this package: install it beside. Its schedules are not shown; what
was asked for stands in their place. Batch invariance is a switch of the process, so each mode needs its own.
"""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from vosti.impl.bundled import find_checkpoint
from vosti.impl.determinism.environment import environment, process
from vosti.impl.determinism.errors import MissingEngineError
from vosti.impl.determinism.outside import OutsideModel
from vosti.impl.determinism.prompts import POSITIONS
from vosti.impl.determinism.protocol import Answer, Ask, Schedule, Settings

if TYPE_CHECKING:
    from vosti.impl.determinism.subjects import Choice

SWITCH = "VLLM_BATCH_INVARIANT"
"""The environment variable that turns batch invariance on; read when vLLM is imported."""


class VllmSubject(OutsideModel):
    """A model in vLLM; see `vosti.impl.determinism.protocol.Subject`."""

    def __init__(self, choice: Choice) -> None:
        """Find vLLM and the model's vocabulary; the model is loaded by `open`.

        Raises `MissingEngineError` if vLLM is not installed, or was imported in the other mode.
        """
        wanted = "1" if choice.engine == "vllm-batch-invariant" else "0"
        if os.environ.setdefault(SWITCH, wanted) != wanted:
            raise MissingEngineError(
                f"{SWITCH} is {os.environ[SWITCH]}, and the engine {choice.engine} needs {wanted}: change or unset it."
            )
        try:
            self._vllm: Any = import_module("vllm")
        except ModuleNotFoundError as error:
            raise MissingEngineError("vLLM is not installed: pip install vllm, on a machine with a GPU.") from error
        self._choice = choice
        path = find_checkpoint(choice.model)
        self._own = TemporaryDirectory(prefix="vosti-shape-")
        if path.is_file():  # a shape, which stands alone: vLLM wants a folder
            shutil.copy(path, Path(self._own.name) / "config.json")
        self._folder = str(path) if path.is_dir() else self._own.name
        transformers = import_module("transformers")
        super().__init__(path, transformers.AutoConfig.from_pretrained(path).get_text_config())
        self._loaded: tuple[Settings, Any] | None = None

    @property
    def name(self) -> str:
        """vLLM and its mode."""
        return "vLLM, batch-invariant" if self._choice.engine == "vllm-batch-invariant" else "vLLM"

    def configuration(self) -> Mapping[str, object]:
        """Versions, model and mode: as much as is visible from outside."""
        return {
            "engine": self._choice.engine,
            "config": self.config.to_json_string(),
            "dummy_weights": self._choice.dummy_weights,
            "model": self._choice.model,
            "vllm": str(self._vllm.__version__),
        }

    def environment(self) -> Mapping[str, str]:
        """Versions and hardware."""
        return environment()

    def open(self, settings: Settings) -> VllmArm:
        """An engine with an empty prefix cache: the one before, if its settings were the same."""
        if self._loaded is None or self._loaded[0] != settings:
            self.release()
            self._loaded = (settings, self._vllm.LLM(**self._arguments(settings)))
        llm = self._loaded[1]
        llm.reset_prefix_cache()
        return VllmArm(self._vllm, llm, settings, self._vocabulary.size)

    def release(self) -> None:
        """Let the engine go, so that two engines never share the GPU."""
        self._loaded = None
        gc.collect()

    def _arguments(self, settings: Settings) -> dict[str, object]:
        return {
            "model": self._folder,
            "skip_tokenizer_init": True,
            "max_model_len": min(self.context, POSITIONS),
            "max_num_batched_tokens": settings.token_budget,
            "max_num_seqs": min(settings.max_seqs, settings.token_budget),
            "enable_chunked_prefill": True,
            "enable_prefix_caching": settings.prefix_caching,
            "logprobs_mode": "raw_logits",
            "max_logprobs": -1,
            "load_format": "auto" if self._choice.dummy_weights is None else "dummy",
            "seed": self._choice.dummy_weights or 0,
        }

    def fresh(self) -> Sequence[str]:
        """How another process makes the same subject."""
        return self._choice.words()


class VllmArm:
    """An engine of vLLM; see `vosti.impl.determinism.protocol.Arm`."""

    def __init__(self, vllm: Any, llm: Any, settings: Settings, vocabulary: int) -> None:
        self._vllm = vllm
        self._llm = llm
        self._settings = settings
        self._size = vocabulary

    def __enter__(self) -> VllmArm:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """The subject keeps the engine for the next arm."""

    def serve(self, asks: Sequence[Ask]) -> list[Answer]:
        """Generate greedily, all requests at once, with the logits of the whole vocabulary."""
        params = [
            self._vllm.SamplingParams(
                max_tokens=ask.max_tokens, temperature=0.0, ignore_eos=True, logprobs=-1, detokenize=False
            )
            for ask in asks
        ]
        prompts = [{"prompt_token_ids": list(ask.prompt)} for ask in asks]
        outputs = self._llm.generate(prompts, params, use_tqdm=False)
        names = tuple(ask.name for ask in asks)
        return [
            Answer(
                tokens=tuple(output.outputs[0].token_ids),
                rows=tuple(self._row(logits) for logits in output.outputs[0].logprobs),
                hit_tokens=output.num_cached_tokens,
                ended=str(output.outputs[0].finish_reason),
                schedule=Schedule(settings=self._settings, process=process(), asked_with=names),
            )
            for output in outputs
        ]

    def _row(self, logits: Mapping[int, Any]) -> bytes:
        """One number for each token, from what is called log-probabilities and holds logits."""
        row = np.full(self._size, np.nan, "<f4")  # a token that is missing would show as not finite
        for token, entry in logits.items():
            if 0 <= token < self._size:
                row[token] = entry.logprob
        return row.tobytes()
