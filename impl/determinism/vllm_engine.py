"""vLLM under the suite: its default mode or its batch-invariant one, compiled or eager, through its offline interface.

vLLM brings a torch of its own, so it is no extra of this package: install it beside (written against 0.26). Batch
invariance is a switch of the process, so each mode needs its own. The engine runs in this process, where a logits
processor that changes nothing keeps the rows, and the scheduler's decisions are read off: its pieces are seen, not
taken on trust. vLLM's own dummy weights are within ±0.001, norms too, so small that no layer changes a bfloat16
residual: they are drawn anew.
"""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from vosti.impl.bundled import find_checkpoint
from vosti.impl.determinism.environment import environment, process
from vosti.impl.determinism.errors import MissingEngineError
from vosti.impl.determinism.outside import OutsideModel
from vosti.impl.determinism.prompts import POSITIONS
from vosti.impl.determinism.protocol import Answer, Ask, Settings
from vosti.impl.determinism.vllm_record import KEY, Record, read_schedules, recorder

if TYPE_CHECKING:
    from vosti.impl.determinism.subjects import Choice

SWITCH = "VLLM_BATCH_INVARIANT"
"""The environment variable that turns batch invariance on; read when vLLM is imported."""

IN_PROCESS = "VLLM_ENABLE_V1_MULTIPROCESSING"
"""The environment variable that is 0 for an engine in this process."""

FLASHINFER = "VLLM_USE_FLASHINFER_SAMPLER"
"""The environment variable that is 0 where vLLM samples without FlashInfer, which greedy requests do not need."""

SMALLEST_PAGE = 16
"""Slots of a page, at least: a suite that is scaled below has vLLM's pages hold more than it asks for."""

POOL = 16 << 30
"""Bytes that the pool may take, so that vLLM need not measure what is left; it takes what its pages need."""


class VllmSubject(OutsideModel):
    """A model in vLLM; see `vosti.impl.determinism.protocol.Subject`."""

    def __init__(self, choice: Choice) -> None:
        """Find vLLM and the model's vocabulary; the model is loaded by `open`.

        Raises `MissingEngineError` if vLLM is not installed, or was imported in the other mode.
        """
        wanted = "1" if "batch-invariant" in choice.engine else "0"
        if os.environ.setdefault(SWITCH, wanted) != wanted:
            raise MissingEngineError(
                f"{SWITCH} is {os.environ[SWITCH]}, and the engine {choice.engine} needs {wanted}: change or unset it."
            )
        os.environ[IN_PROCESS] = "0"
        os.environ.setdefault(FLASHINFER, "0")
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
        self._record = Record()

    @property
    def name(self) -> str:
        """vLLM and its mode."""
        return self._choice.engine.replace("vllm", "vLLM", 1).replace("-", ", ", 1)

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
            llm = self._vllm.LLM(**self._arguments(settings))
            self._loaded = (settings, llm)
            if self._choice.dummy_weights is not None:
                llm.apply_model(partial(draw_weights, seed=self._choice.dummy_weights))
            read_schedules(llm.llm_engine.engine_core.engine_core.scheduler, self._record)
        llm = self._loaded[1]
        llm.reset_prefix_cache()
        return VllmArm(self._vllm, llm, settings, self._record)

    def release(self) -> None:
        """Let the engine go, so that two engines never share the GPU."""
        if self._loaded is not None:
            self._loaded[1].llm_engine.engine_core.shutdown()
        self._loaded = None
        gc.collect()

    def _arguments(self, settings: Settings) -> dict[str, object]:
        page_size = max(SMALLEST_PAGE, settings.page_size)
        processors = import_module("vllm.v1.sample.logits_processor")
        return {
            "model": self._folder,
            "skip_tokenizer_init": True,
            "max_model_len": min(self.context, POSITIONS),
            "max_num_batched_tokens": settings.token_budget,
            "max_num_seqs": min(settings.max_seqs, settings.token_budget),
            "enable_chunked_prefill": True,
            "enable_prefix_caching": settings.prefix_caching,
            "async_scheduling": False,
            "block_size": page_size,
            "num_gpu_blocks_override": settings.pages + 1,  # one of them vLLM keeps for itself
            "kv_cache_memory_bytes": POOL,
            "gpu_memory_utilization": 0.05,  # no limit beside POOL: what must be free before loading
            "logits_processors": [recorder(processors, self._record)],
            "enforce_eager": self._choice.engine.endswith("-eager"),
            "load_format": "auto" if self._choice.dummy_weights is None else "dummy",
        }

    def fresh(self) -> Sequence[str]:
        """How another process makes the same subject."""
        return self._choice.words()


def draw_weights(model: Any, seed: int) -> None:
    """Fill a model in place: norms with ones, biases with zeros, matrices with normal draws of deviation 0.02."""
    import torch

    with torch.inference_mode():
        for i, (name, weight) in enumerate(model.named_parameters()):
            if weight.dim() > 1:
                draws = torch.Generator(device=weight.device).manual_seed(seed * 100_003 + i)
                weight.normal_(0.0, 0.02, generator=draws)
            else:
                weight.fill_(0.0 if name.endswith("bias") else 1.0)


class VllmArm:
    """An engine of vLLM; see `vosti.impl.determinism.protocol.Arm`."""

    def __init__(self, vllm: Any, llm: Any, settings: Settings, record: Record) -> None:
        self._vllm = vllm
        self._llm = llm
        self._settings = settings
        self._record = record

    def __enter__(self) -> VllmArm:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """The subject keeps the engine for the next arm."""

    def serve(self, asks: Sequence[Ask]) -> list[Answer]:
        """Generate greedily, all requests at once."""
        self._record.begin(len(asks))
        params = [
            self._vllm.SamplingParams(
                max_tokens=ask.max_tokens, temperature=0.0, ignore_eos=True, detokenize=False, extra_args={KEY: i}
            )
            for i, ask in enumerate(asks)
        ]
        prompts = [{"prompt_token_ids": list(ask.prompt)} for ask in asks]
        outputs = self._llm.generate(prompts, params, use_tqdm=False)
        names = tuple(ask.name for ask in asks)
        answers = []
        for i, output in enumerate(outputs):
            tokens = tuple(output.outputs[0].token_ids)
            answers.append(
                Answer(
                    tokens=tokens,
                    rows=self._record.rows(i, tokens),
                    hit_tokens=output.num_cached_tokens,
                    ended=str(output.outputs[0].finish_reason),
                    schedule=self._record.schedule(i, self._settings, process(), names),
                )
            )
        return answers
