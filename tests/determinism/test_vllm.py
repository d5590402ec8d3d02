"""The adapter for vLLM, driven against a stand-in with vLLM's interface: what is passed, and what is read."""

import os
import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from vosti.impl.determinism.cases import Bench
from vosti.impl.determinism.errors import MissingEngineError
from vosti.impl.determinism.paper import cases
from vosti.impl.determinism.prompts import geometry_for
from vosti.impl.determinism.protocol import Ask, Settings
from vosti.impl.determinism.results import compare
from vosti.impl.determinism.subjects import Choice, open_subject
from vosti.impl.determinism.vllm_engine import SWITCH


@dataclass
class Params:
    """vLLM's sampling parameters, as far as they are used."""

    max_tokens: int
    temperature: float
    ignore_eos: bool
    logprobs: int
    detokenize: bool


class StandIn:
    """vLLM's `LLM`: logits are a function of the history, and of the batch if it is not batch-invariant."""

    made: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self.known: list[tuple[int, ...]] = []
        StandIn.made.append(arguments)

    def reset_prefix_cache(self) -> bool:
        """Forget."""
        self.known = []
        return True

    def generate(self, prompts: list[dict[str, Any]], params: list[Params], use_tqdm: bool) -> list[Any]:
        """Serve a batch."""
        batch = 0 if os.environ[SWITCH] == "1" else len(prompts)
        return [self._one(tuple(p["prompt_token_ids"]), q, batch) for p, q in zip(prompts, params, strict=True)]

    def _one(self, prompt: tuple[int, ...], params: Params, batch: int) -> Any:
        assert (0.0, True, -1, False) == (params.temperature, params.ignore_eos, params.logprobs, params.detokenize)
        hit = max((_shared(prompt[:-1], known) for known in self.known), default=0) // 4 * 4
        history, logprobs, tokens = list(prompt), [], []
        for _ in range(params.max_tokens):
            row = np.random.default_rng([*history[-8:], len(history), batch]).normal(size=4096).astype(np.float32)
            tokens.append(int(row.argmax()))
            logprobs.append({i: SimpleNamespace(logprob=float(x)) for i, x in enumerate(row)})
            history.append(tokens[-1])
        if self.arguments["enable_prefix_caching"]:
            self.known.append(tuple(history[:-1]))
        output = SimpleNamespace(token_ids=tokens, logprobs=logprobs, finish_reason="length")
        return SimpleNamespace(outputs=[output], num_cached_tokens=hit)


def _shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM is installed, in no mode yet."""
    module = ModuleType("vllm")
    module.LLM, module.SamplingParams, module.__version__ = StandIn, Params, "0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setenv(SWITCH, "")
    monkeypatch.delenv(SWITCH)
    StandIn.made.clear()


@pytest.mark.usefixtures("vllm")
@pytest.mark.parametrize(("engine", "state"), [("vllm", "mismatch"), ("vllm-batch-invariant", "match")])
def test_both_modes_are_measured(engine: str, state: str) -> None:
    """The default mode's stand-in depends on the batch, and the suite sees it; the other one's does not."""
    subject = open_subject(Choice(engine, "tiny-llama3", "cuda"))
    bench = Bench(subject, geometry_for(subject.context))
    (case,) = (case for case in cases(subject, bench.geometry) if case.name == "batch/8-descending")
    found = [compare(pair) for pair in list(case.run(bench))[:4]]

    assert [state] * 4 == [one.state for one in found]
    assert all("company, as asked" in one.differs for one in found)


@pytest.mark.usefixtures("vllm")
def test_engines_are_made_as_the_settings_say() -> None:
    """Raw logits of the whole vocabulary, a budget for chunks, a cache where it is wanted, one engine at a time."""
    subject = open_subject(Choice("vllm", "tiny-llama3", "cuda", 7))
    settings = Settings(token_budget=8, max_seqs=16, page_size=4, pages=768, prefix_caching=True)
    ask = Ask("a", tuple(range(2, 20)))
    with subject.open(settings) as arm:
        (cold,), (warm,) = arm.serve([ask]), arm.serve([ask])
    with subject.open(settings) as arm:
        (again,) = arm.serve([ask])
    (made,) = StandIn.made

    assert (8, 8, True, True) == (
        made["max_num_batched_tokens"],
        made["max_num_seqs"],
        made["enable_chunked_prefill"],
        made["enable_prefix_caching"],
    )
    assert ("raw_logits", -1, "dummy", 7) == (
        made["logprobs_mode"],
        made["max_logprobs"],
        made["load_format"],
        made["seed"],
    )
    assert (0, 16, 0) == (cold.hit_tokens, warm.hit_tokens, again.hit_tokens)
    assert [4 * 4096] * 2 == [len(row) for row in cold.rows]


@pytest.mark.usefixtures("vllm")
def test_one_process_has_one_mode() -> None:
    """vLLM reads its switch when it is imported: the other mode needs another process."""
    open_subject(Choice("vllm", "tiny-llama3", "cuda"))

    with pytest.raises(MissingEngineError, match="is 0, and the engine vllm-batch-invariant needs 1"):
        open_subject(Choice("vllm-batch-invariant", "tiny-llama3", "cuda"))
