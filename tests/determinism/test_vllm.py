"""The adapter for vLLM, driven against a stand-in with vLLM 0.26's interface: what is passed, and what is read."""

import os
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from vosti.impl.determinism.cases import Bench
from vosti.impl.determinism.errors import MissingEngineError, SuiteError
from vosti.impl.determinism.paper import cases
from vosti.impl.determinism.prompts import geometry_for
from vosti.impl.determinism.protocol import Ask, Piece, Settings
from vosti.impl.determinism.results import compare
from vosti.impl.determinism.subjects import Choice, open_subject
from vosti.impl.determinism.vllm_engine import FLASHINFER, IN_PROCESS, SWITCH, draw_weights

SIZE = 4096
"""Of the vocabulary."""


@dataclass
class Params:
    """vLLM's sampling parameters, as far as they are used."""

    max_tokens: int
    temperature: float
    ignore_eos: bool
    detokenize: bool
    extra_args: dict[str, Any] | None


class LogitsProcessor:
    """vLLM's base class."""


def process_dict_updates(entries: dict[int, Any], update: Any, state: Any) -> bool:
    """vLLM's helper: what is kept for each row of the batch follows its requests."""
    if update is None:
        return False
    for index, *request in update.added:
        entries[index] = state(*request)
    for index in update.removed:
        entries.pop(index, None)
    for source, target in update.moved:
        entries[target] = entries.pop(source)
    return True


@dataclass
class Request:
    """A request inside."""

    req_id: str
    prompt: list[int]
    sampling_params: Params
    num_computed_tokens: int
    cached: int
    new: bool = True
    output: list[int] = field(default_factory=list)

    @property
    def history(self) -> list[int]:
        """Prompt and output."""
        return self.prompt + self.output

    @property
    def done(self) -> bool:
        """Whether it has all its tokens."""
        return len(self.output) == self.sampling_params.max_tokens


class Scheduler:
    """vLLM's scheduler: requests in order, as many tokens of each as the budget has left."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.requests: list[Request] = []

    def schedule(self, throttle_prefills: bool = False) -> Any:
        """Decide on a step."""
        left, counts = self.budget, {}
        for request in self.requests:
            if count := min(left, len(request.history) - request.num_computed_tokens):
                counts[request.req_id] = count
                left -= count
        scheduled = [request for request in self.requests if request.req_id in counts]
        new = [SimpleNamespace(**vars(request)) for request in scheduled if request.new]
        old = [request for request in scheduled if not request.new]
        for request in scheduled:
            request.new = False
        return SimpleNamespace(
            scheduled_new_reqs=new,
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=[request.req_id for request in old],
                num_computed_tokens=[request.num_computed_tokens for request in old],
            ),
            num_scheduled_tokens=counts,
            total_num_scheduled_tokens=sum(counts.values()),
        )


class StandIn:
    """vLLM's `LLM`: logits are a function of the history, and of the batch if it is not batch-invariant."""

    made: ClassVar[list[dict[str, Any]]] = []
    shut: ClassVar[int] = 0
    faulty: ClassVar[bool] = False
    """Whether processors see the rows of another request."""

    def __init__(self, **arguments: Any) -> None:
        assert os.environ[IN_PROCESS] == os.environ[FLASHINFER] == "0"
        self.arguments = arguments
        self.known: list[tuple[int, ...]] = []
        self.scheduler = Scheduler(arguments["max_num_batched_tokens"])
        (kind,) = arguments["logits_processors"]
        assert issubclass(kind, LogitsProcessor)
        self.processor = kind(SimpleNamespace(), torch.device("cpu"), False)
        assert not self.processor.is_argmax_invariant()
        core = SimpleNamespace(engine_core=SimpleNamespace(scheduler=self.scheduler), shutdown=self._shut)
        self.llm_engine = SimpleNamespace(engine_core=core)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))
        self.served = 0
        StandIn.made.append(arguments)

    @staticmethod
    def _shut() -> None:
        StandIn.shut += 1

    def apply_model(self, function: Any) -> list[Any]:
        """Run a function on the model."""
        return [function(self.model)]

    def reset_prefix_cache(self) -> bool:
        """Forget."""
        self.known = []
        return True

    def generate(self, prompts: list[dict[str, Any]], params: list[Params], use_tqdm: bool) -> list[Any]:
        """Serve a batch."""
        requests = [self._request(list(p["prompt_token_ids"]), q) for p, q in zip(prompts, params, strict=True)]
        self.scheduler.requests, rows = list(requests), list[Request]()
        while self.scheduler.requests:
            decided = self.scheduler.schedule(False)
            rows = self._step(decided.num_scheduled_tokens, rows)
            self.scheduler.requests = [request for request in self.scheduler.requests if not request.done]
        return [
            SimpleNamespace(
                outputs=[SimpleNamespace(token_ids=request.output, finish_reason="length")],
                num_cached_tokens=request.cached,
            )
            for request in requests
        ]

    def _request(self, prompt: list[int], params: Params) -> Request:
        assert (0.0, True, False) == (params.temperature, params.ignore_eos, params.detokenize)
        page = self.arguments["block_size"]
        hit = max((_shared(prompt[:-1], known) for known in self.known), default=0) // page * page
        self.served += 1
        return Request(str(self.served), prompt, params, hit, hit)

    def _step(self, counts: dict[str, int], before: list[Request]) -> list[Request]:
        """One forward: the batch's rows are condensed where requests ended, as vLLM does."""
        rows = [request for request in before if request.req_id in counts]
        added = [r for r in self.scheduler.requests if r.req_id in counts and r not in before]
        moved = [(before.index(r), i) for i, r in enumerate(rows) if before.index(r) != i]
        gone = [i for i, r in enumerate(before) if r.req_id not in counts and i not in [target for _, target in moved]]
        fresh = [(len(rows) + i, r.sampling_params, r.prompt, r.output) for i, r in enumerate(added)]
        if moved or gone:
            self.processor.update_state(SimpleNamespace(added=[], removed=gone, moved=moved))
        self.processor.update_state(SimpleNamespace(added=fresh, removed=[], moved=[]) if fresh else None)
        rows += added
        for request in rows:
            request.num_computed_tokens += counts[request.req_id]
        logits = torch.stack([self._logits(request, len(rows)) for request in rows])
        self.processor.apply(logits.roll(1, 0) if StandIn.faulty else logits)
        for request, row in zip(rows, logits, strict=True):
            if request.num_computed_tokens == len(request.history):
                request.output.append(int(row.argmax()))
                if self.arguments["enable_prefix_caching"]:
                    self.known.append(tuple(request.history[:-1]))
        return rows

    def _logits(self, request: Request, company: int) -> torch.Tensor:
        seen = request.history[: request.num_computed_tokens]
        seed = [*seen[-8:], len(seen), 0 if os.environ[SWITCH] == "1" else company]
        return torch.from_numpy(np.random.default_rng(seed).normal(size=SIZE).astype(np.float32))


def _shared(a: list[int], b: tuple[int, ...]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM is installed, in no mode yet."""
    module, processors = ModuleType("vllm"), ModuleType("vllm.v1.sample.logits_processor")
    module.LLM, module.SamplingParams, module.__version__ = StandIn, Params, "0"  # type: ignore[attr-defined]
    processors.LogitsProcessor = LogitsProcessor  # type: ignore[attr-defined]
    processors.process_dict_updates = process_dict_updates  # type: ignore[attr-defined]
    for name, known in (("vllm", module), ("vllm.v1.sample.logits_processor", processors)):
        monkeypatch.setitem(sys.modules, name, known)
    for name in (SWITCH, IN_PROCESS, FLASHINFER):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(StandIn, "faulty", False)
    monkeypatch.setattr(StandIn, "shut", 0)
    StandIn.made.clear()


@pytest.mark.usefixtures("vllm")
@pytest.mark.parametrize(("engine", "state"), [("vllm-eager", "mismatch"), ("vllm-batch-invariant", "match")])
def test_both_modes_are_measured(engine: str, state: str) -> None:
    """The default mode's stand-in depends on the batch, and the suite sees it; the other one's does not."""
    subject = open_subject(Choice(engine, "tiny-llama3", "cuda"))
    bench = Bench(subject, geometry_for(subject.context))
    (case,) = (case for case in cases(subject, bench.geometry) if case.name == "batch/8-descending")
    found = [compare(pair) for pair in list(case.run(bench))[:4]]

    assert [state] * 4 == [one.state for one in found]
    assert all("company" in one.differs for one in found)


@pytest.mark.usefixtures("vllm")
def test_engines_are_made_as_the_settings_say() -> None:
    """A budget for chunks, a cache where it is wanted, pages, eager or not; weights drawn; one engine at a time."""
    subject = open_subject(Choice("vllm", "tiny-llama3", "cuda", 7))
    settings = Settings(token_budget=8, max_seqs=16, page_size=4, pages=768, prefix_caching=True)
    ask = Ask("a", tuple(range(2, 40)))
    with subject.open(settings) as arm:
        (cold,), (warm,) = arm.serve([ask]), arm.serve([ask])
    with subject.open(settings) as arm:
        (again,) = arm.serve([ask])
    (made,) = StandIn.made
    subject.release()

    assert (8, 8, True, True, 16, 769, False, "dummy") == (
        made["max_num_batched_tokens"],
        made["max_num_seqs"],
        made["enable_chunked_prefill"],
        made["enable_prefix_caching"],
        made["block_size"],
        made["num_gpu_blocks_override"],
        made["enforce_eager"],
        made["load_format"],
    )
    assert (0, 32, 0, 1) == (cold.hit_tokens, warm.hit_tokens, again.hit_tokens, StandIn.shut)
    assert [4 * SIZE] * 2 == [len(row) for row in cold.rows]


@pytest.mark.usefixtures("vllm")
def test_pieces_and_the_rows_they_end_with_are_read_off() -> None:
    """Two prompts in a budget of eight: what each step computed of them, and after which step a token was taken."""
    subject = open_subject(Choice("vllm", "tiny-llama3", "cuda"))
    with subject.open(Settings(token_budget=8, max_seqs=16, page_size=16, pages=768)) as arm:
        long, short = arm.serve([Ask("long", tuple(range(2, 13)), max_tokens=3), Ask("short", (3, 4, 5))])

    assert (Piece(0, 8, 0, 8, 8), Piece(8, 11, 1, 6, 6), Piece(11, 12, 1, 2, 2)) == long.schedule.pieces[:3]  # type: ignore[index]
    assert ((2, 3, 4), (1, 2)) == (long.schedule.taken, short.schedule.taken)
    assert all(np.frombuffer(row, "<f4").argmax() == token for row, token in zip(long.rows, long.tokens, strict=True))


@pytest.mark.usefixtures("vllm")
def test_rows_of_another_request_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row whose largest number is not at the token was not what the token was taken from."""
    monkeypatch.setattr(StandIn, "faulty", True)
    subject = open_subject(Choice("vllm", "tiny-llama3", "cuda"))

    with subject.open(Settings(64, 16, 16, 768)) as arm, pytest.raises(SuiteError, match="not the largest"):
        arm.serve([Ask("a", (2, 3)), Ask("b", (4, 5))])


def test_drawn_weights_depend_on_the_seed_alone() -> None:
    """Matrices are drawn, norms are ones, biases zeros."""
    models = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        draw_weights(model, seed)
    drawn = [{name: weight.detach() for name, weight in model.named_parameters()} for model in models]
    first, again, other = (weights["0.weight"] for weights in drawn)

    assert (True, False) == (torch.equal(first, again), torch.equal(first, other))
    assert 0.019 < float(first.std()) < 0.021
    assert (64.0, 0.0) == (float(drawn[0]["1.weight"].sum()), float(drawn[0]["0.bias"].abs().sum()))


@pytest.mark.usefixtures("vllm")
def test_one_process_has_one_mode() -> None:
    """vLLM reads its switch when it is imported: the other mode needs another process."""
    open_subject(Choice("vllm", "tiny-llama3", "cuda"))

    with pytest.raises(MissingEngineError, match="is 0, and the engine vllm-batch-invariant needs 1"):
        open_subject(Choice("vllm-batch-invariant", "tiny-llama3", "cuda"))
