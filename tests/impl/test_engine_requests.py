"""A request at the engine's door: what is refused, what an output says, what a seed is."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import pytest

from company import REFERENCE, Arrival, Workload, assert_same, drive, serve, serve_alone
from hashing_backend import HashingBackend
from vosti.impl.backend import Batch, ForwardResult
from vosti.impl.engine import Engine
from vosti.impl.errors import EngineStoppedError, InvalidOptionError, UncertifiedKernelError, UnknownRequestError
from vosti.impl.fingerprint import fingerprint_of
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.spec.state import RequestId, Token

GREEDY = SamplingParams(max_tokens=4, temperature=0)


def outputs(engine: Engine) -> dict[str, tuple[int, ...]]:
    """Serve to the end; all tokens of each request."""
    return {name: output.token_ids for name, output in drive(engine, Workload(())).items()}


@pytest.mark.parametrize(
    ("prompt", "name", "message"),
    [
        ((), "new", "The prompt of 'new' is empty"),
        ((1, 11), "new", "holds token 11: token ids go from 0 to 10"),
        ((1, -1), "new", "holds token -1: token ids go from 0 to 10"),
        ((1,), "old", "The request identifier 'old' was used before"),
    ],
)
def test_bad_requests_are_refused(prompt: Sequence[int], name: str, message: str) -> None:
    """An empty prompt, a token outside the vocabulary and an identifier that was ever used are refused with one clear
    sentence, and change nothing.
    """
    engine = Engine(HashingBackend(), REFERENCE)
    engine.add_request((1, 2), GREEDY, request_id="old")
    outputs(engine)
    with pytest.raises(InvalidOptionError, match=message):
        engine.add_request(prompt, GREEDY, request_id=name)
    assert not engine.unfinished
    assert "new" == engine.add_request((1,), GREEDY, request_id="new")


def test_an_identifier_is_never_used_twice() -> None:
    """Not while its request waits, nor while it lives, nor after it has finished or was called off."""
    engine = Engine(HashingBackend(), REFERENCE)

    def refused(name: str) -> None:
        with pytest.raises(InvalidOptionError, match="was used before"):
            engine.add_request((1,), GREEDY, request_id=name)

    engine.add_request((1,), GREEDY, request_id="finished")
    refused("finished")
    engine.step()
    refused("finished")
    engine.add_request((1,), GREEDY, request_id="cancelled")
    engine.cancel("cancelled")
    outputs(engine)
    refused("finished")
    refused("cancelled")


def test_unnamed_requests_get_unused_names() -> None:
    """A name that is made is none that a caller has used, whatever names callers choose."""
    engine = Engine(HashingBackend(), REFERENCE)
    taken = [engine.add_request((1,), GREEDY, request_id=f"request-{number}") for number in (1, 2, 3, 5)]
    made = [engine.add_request((1,), GREEDY) for _ in range(4)]
    assert 8 == len({*taken, *made})


def test_only_known_requests_can_be_cancelled() -> None:
    """A name that was never given is an error; one that has ended is not."""
    engine = Engine(HashingBackend(), REFERENCE)
    with pytest.raises(UnknownRequestError, match="There is no request 'nobody' to cancel"):
        engine.cancel("nobody")
    engine.add_request((1,), GREEDY, request_id="r")
    outputs(engine)
    engine.cancel("r")
    assert [] == engine.step()


def test_an_output_says_what_there_is_to_say() -> None:
    """Each step's output has the new tokens and all tokens so far, the prompt, the seed, the fingerprint of W, and
    log-probabilities if they were asked for.
    """
    backend = HashingBackend()
    engine = Engine(backend, REFERENCE)
    name = engine.add_request((1, 2, 3), SamplingParams(max_tokens=3, seed=2**64 - 1, logprobs=2))
    seen: tuple[int, ...] = ()
    for i in range(3):
        (output,) = engine.step()
        seen += output.new_token_ids
        assert (name, (1, 2, 3), seen, 2**64 - 1) == (
            output.request_id,
            output.prompt_token_ids,
            output.token_ids,
            output.seed,
        )
        assert ("length" if i == 2 else None) == output.finish_reason
        assert fingerprint_of(backend.fingerprint()) == output.fingerprint
        assert i + 1 == len(output.logprobs)
        assert (seen[-1], 2) == (output.logprobs[-1].token, len(output.logprobs[-1].top))
    assert not engine.unfinished


def test_a_missing_seed_is_drawn_and_can_be_used_again() -> None:
    """Without a seed two requests draw different ones; what is reported reproduces the tokens. Greedy needs none."""
    engine = Engine(HashingBackend(), REFERENCE)
    params = SamplingParams(max_tokens=12)
    names = [engine.add_request((1, 2, 3), params) for _ in range(2)]
    last = drive(engine, Workload(()))
    first, second = (last[name] for name in names)
    assert first.seed != second.seed
    assert first.token_ids != second.token_ids
    again = Engine(HashingBackend(), EngineOptions(page_size=4, pages=20))
    again.add_request((1, 2, 3), replace(params, seed=first.seed), request_id="again")
    assert first.token_ids == drive(again, Workload(()))["again"].token_ids
    engine.add_request((1,), GREEDY, request_id="greedy")
    assert 0 == drive(engine, Workload(()))["greedy"].seed


def test_one_seed_gives_one_output() -> None:
    """Eight copies of one prompt with one seed give one output, by definition; other seeds give others."""
    copies = tuple(Arrival(f"copy{i}", (1, 2, 3), SamplingParams(max_tokens=9, seed=5)) for i in range(8))
    others = tuple(
        Arrival(f"seed{seed}", (1, 2, 3), SamplingParams(max_tokens=9, seed=seed)) for seed in (0, 1, 2**31, 2**63)
    )
    run = serve(Workload((*copies, *others)), EngineOptions(page_size=4, pages=60))
    assert 1 == len({run.views()[copy.name] for copy in copies})
    assert 5 == len({output.token_ids for output in run.outputs.values()})


def test_temperature_zero_is_greedy_whatever_else_is_asked() -> None:
    """Hazard: greedy rows are sampled at a tiny temperature, or not at all greedily with top-p. With temperature 0,
    every cut gives the best token, also beside rows that are sampled.
    """
    params = {
        "plain": GREEDY,
        "cut": replace(GREEDY, top_p=0.9, top_k=3, min_p=0.1, seed=9),
        "sampled": SamplingParams(max_tokens=4, seed=1),
    }
    run = serve(
        Workload(tuple(Arrival(name, (1, 2), one) for name, one in params.items())),
        EngineOptions(page_size=4, pages=20),
    )
    assert run.outputs["plain"].token_ids == run.outputs["cut"].token_ids != run.outputs["sampled"].token_ids


def test_stop_tokens() -> None:
    """The model's end-of-sequence tokens and the request's own stop it, with the token that stopped it; ignore_eos
    makes the model's ordinary tokens, and not the request's.
    """
    free = serve_alone(Workload((Arrival("r", (1, 2), SamplingParams(max_tokens=30, seed=4)),)))["r"].outputs["r"]
    in_order = list(dict.fromkeys(free.token_ids))
    own, eos = in_order[2], in_order[4]
    backend = HashingBackend(eos_ids=(eos,))

    def tokens(params: SamplingParams) -> tuple[tuple[int, ...], str | None]:
        run = serve(Workload((Arrival("r", (1, 2), params),)), EngineOptions(page_size=4, pages=20), backend)
        return run.outputs["r"].token_ids, run.outputs["r"].finish_reason

    plain = SamplingParams(max_tokens=30, seed=4)
    until_own, until_eos = (free.token_ids[: free.token_ids.index(token) + 1] for token in (own, eos))
    assert (until_eos, "stop") == tokens(plain)
    assert (free.token_ids, "length") == tokens(replace(plain, ignore_eos=True))
    assert (until_own, "stop") == tokens(replace(plain, stop_token_ids=(own,)))
    assert (until_own, "stop") == tokens(replace(plain, stop_token_ids=(own,), ignore_eos=True))


def test_a_stop_token_in_the_prompt_stops_nothing() -> None:
    """Only emitted tokens are compared with stop tokens."""
    workload = Workload((Arrival("r", (3, 3), SamplingParams(max_tokens=3, temperature=0, stop_token_ids=(3,))),))
    run = serve(workload, EngineOptions(page_size=4, pages=9))
    assert run.outputs["r"].token_ids
    assert_same(run, serve_alone(workload))


def test_an_idle_engine_does_nothing() -> None:
    """A step without requests returns nothing, counts no step and runs no forward."""
    backend = HashingBackend()
    engine = Engine(backend, REFERENCE)
    assert [] == engine.step()
    assert (0, 0) == (engine.steps, backend.forwards)


class Interrupted(HashingBackend):
    """A backend that is interrupted once."""

    def forward(self, batch: Batch) -> ForwardResult:
        """Raise in the third forward."""
        if self.forwards == 2:
            raise KeyboardInterrupt
        return super().forward(batch)


def test_an_interrupted_engine_takes_no_further_step() -> None:
    """What interrupts a step is raised as it is; the engine's state is lost then, and it says so."""
    engine = Engine(Interrupted(), REFERENCE)
    engine.add_request((1, 2), GREEDY)
    engine.step()
    engine.step()
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    with pytest.raises(EngineStoppedError, match="in the middle of step 2"):
        engine.step()


class Peeking:
    """A drafter that notes what it is asked."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.asked: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = []

    def propose(self, request: RequestId, prompt: Sequence[Token], output: Sequence[Token]) -> tuple[Token, ...]:
        """No draft."""
        self.asked.append((request, tuple(prompt), tuple(output)))
        return ()


def test_a_drafter_sees_prompt_and_output() -> None:
    """A drafter is asked once per step for each live request, with its prompt and its output so far."""
    drafter = Peeking()
    engine = Engine(HashingBackend(), REFERENCE, drafter=drafter)
    engine.add_request((1, 2), replace(GREEDY, max_tokens=2), request_id="r")
    tokens = outputs(engine)["r"]
    assert [("r", (1, 2), ()), ("r", (1, 2), tokens[:1])] == drafter.asked


class Watching(HashingBackend):
    """Says where tokens may be drawn, and counts it."""

    entered = 0
    refused = False

    def forward(self, batch: Batch) -> ForwardResult:
        """With a place for what is launched on the logits."""
        return replace(super().forward(batch), launching=self._launching)

    def _launching(self) -> nullcontext[None]:
        self.entered += 1
        if self.refused:
            raise UncertifiedKernelError("refused")
        return nullcontext()


@pytest.mark.parametrize("finds_largest", [False, True])
def test_tokens_are_drawn_where_the_backend_watches(finds_largest: bool) -> None:
    """So a backend can refuse what samples, and then there is no token, though it computed the logits."""
    backend = Watching(finds_largest=finds_largest)
    engine = Engine(backend, REFERENCE)
    engine.add_request((1, 2), replace(GREEDY, temperature=1, seed=0, max_tokens=3), request_id="one")

    (first,) = engine.step()
    assert (1, 2) == (len(first.new_token_ids), backend.entered)
    backend.refused = True
    with pytest.raises(UncertifiedKernelError, match="refused"):
        engine.step()
