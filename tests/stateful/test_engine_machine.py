"""A state machine that drives the engine: arrivals, cancellations, drafts, sick requests in any order, on tiny pools.

Every step is checked by the refinement checker as it happens, and the pool by its own invariants. What each request got
is compared with a run of its own, whose values join the same observations. The examples are fixed.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from checked import CheckingTracer
from hashing_backend import HashingBackend
from vosti.impl import pool as pools
from vosti.impl.drafting import Script, ScriptedDrafter
from vosti.impl.engine import Engine
from vosti.impl.errors import CapacityError
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.impl.outputs import RequestOutput
from vosti.impl.planning import pages_needed
from vosti.impl.pool_invariants import violated
from vosti.impl.pool_state import KEY_SPACE
from vosti.refinement.observations import Observations
from vosti.refinement.violation import Refuted
from vosti.spec.events import SettleEvent
from vosti.spec.state import RequestId, Token

VOCABULARY = 5
SICK, ENDING = 4, 3
"""With these tokens, a sick machine's KV or logits are not finite."""

prompts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=14)
params = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 8),
    temperature=st.sampled_from((0.0, 0.9)),
    seed=st.integers(0, 3),
    stop_token_ids=st.sampled_from(((), (2,))),
    prompt_logprobs=st.sampled_from((None, None, 1)),
    prompt_logprobs_start=st.integers(0, 8),
)


class EngineMachine(RuleBasedStateMachine):
    """An engine, the checker that watches it, and what each request should get."""

    exercised: ClassVar[Counter[str]] = Counter()
    """What all examples together have done, by the checker's count."""

    whole = False
    """Whether there is an engine, and no step of it has failed."""

    @initialize(
        page_size=st.sampled_from((1, 2, 4, 16)),
        spare=st.integers(0, 5),
        token_budget=st.sampled_from((1, 2, 3, 5, 8, 16)),
        max_seqs=st.sampled_from((1, 2, 3, 8)),
        caching=st.sampled_from((True, True, True, False)),
        page_seed=st.integers(0, 3),
        reread=st.booleans(),
        key_space=st.sampled_from((1, 2, KEY_SPACE)),
        sick=st.booleans(),
    )
    def begin(
        self,
        page_size: int,
        spare: int,
        token_budget: int,
        max_seqs: int,
        caching: bool,
        page_seed: int,
        reread: bool,
        key_space: int,
        sick: bool,
    ) -> None:
        """A fresh engine, with a pool that holds the longest request and a little more."""
        self.sick = sick
        backend = self.backend()
        options = EngineOptions(
            page_size=page_size,
            pages=pages_needed(21, page_size) + spare,
            max_seqs=max_seqs,
            token_budget=token_budget,
            prefix_caching=caching,
            page_seed=page_seed,
            reread=reread,
            check_steps=True,
        )
        self.observations = Observations()
        self.tracer = CheckingTracer(backend, options, observations=self.observations)
        self.scripts: dict[RequestId, Script] = {}
        self.engine = Engine(
            backend,
            options,
            drafter=ScriptedDrafter(self.scripts, VOCABULARY),
            tracer=self.tracer,
            key_space=key_space,
        )
        self.alone: dict[str, RequestOutput] = {}
        self.last: dict[str, RequestOutput] = {}
        self.base: list[int] = []
        self.whole = True

    def backend(self) -> HashingBackend:
        """A model."""
        sick = (frozenset({SICK}), frozenset({ENDING})) if self.sick else (frozenset(), frozenset())
        return HashingBackend(VOCABULARY, sick_tokens=sick[0], sick_endings=sick[1])

    def serve_alone(self, name: str, prompt: list[int], chosen: SamplingParams, domain: str) -> RequestOutput:
        """What the request gets on an engine of its own. Its values are observed, too."""
        backend = self.backend()
        options = EngineOptions(page_size=5, pages=9, max_seqs=1, token_budget=64, prefix_caching=False)
        tracer = CheckingTracer(backend, options, observations=self.observations, name=f"{name} alone")
        engine = Engine(backend, options, tracer=tracer)
        engine.add_request(prompt, chosen, request_id=name, domain=domain)
        outputs: list[RequestOutput] = []
        while engine.unfinished:
            outputs += engine.step()
        tracer.checker.finish()
        return outputs[-1]

    @rule(
        tail=prompts,
        kept=st.integers(0, 14),
        chosen=params,
        domain=st.sampled_from(("", "", "other")),
        draft=st.none() | st.tuples(st.integers(1, 6), st.integers(0, 6)),
    )
    def arrive(
        self, tail: list[int], kept: int, chosen: SamplingParams, domain: str, draft: tuple[int, int] | None
    ) -> None:
        """A request whose prompt begins like the one before, perhaps with drafts that are right for a while."""
        self.send((self.base[:kept] + tail)[:14], chosen, domain, draft)

    @precondition(lambda self: self.base)
    @rule(chosen=params)
    def repeat(self, chosen: SamplingParams) -> None:
        """The prompt before, once more."""
        self.send(self.base, chosen, "", None)

    def send(self, prompt: list[int], chosen: SamplingParams, domain: str, draft: tuple[int, int] | None) -> None:
        """A request comes."""
        self.base = prompt
        name = f"r{len(self.alone)}"
        self.alone[name] = self.serve_alone(name, prompt, chosen, domain)
        if draft is not None:
            expected = tuple(map(Token, self.alone[name].token_ids))
            self.scripts[RequestId(name)] = Script(expected, draft[0], draft[1])
        assert name == self.engine.add_request(prompt, chosen, request_id=name, domain=domain)

    @rule(length=st.integers(21, 60))
    def arrive_too_large(self, length: int) -> None:
        """A request that can never fit is refused, and changes nothing."""
        before = self.engine._pool
        slots = self.engine.options.pages * self.engine.options.page_size
        with pytest.raises(CapacityError):
            self.engine.add_request([0] * (slots + length), SamplingParams(max_tokens=1))
        assert before is self.engine._pool

    @precondition(lambda self: self.alone)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Any request is called off, whether it lives or not."""
        self.engine.cancel(data.draw(st.sampled_from(sorted(self.alone))))

    @rule(times=st.integers(1, 4))
    def step(self, times: int) -> None:
        """Some steps, each of them checked."""
        for _ in range(times):
            self.whole = False
            for output in self.engine.step():
                self.last[output.request_id] = output
            broken = violated(self.engine._pool)
            assert broken is None, broken
            self.whole = True

    @invariant()
    def records_are_those_alone(self) -> None:
        """What each request got so far is the beginning of what it gets alone; at its end, all of it."""
        for name, output in getattr(self, "last", {}).items():
            expected = self.alone[name].token_ids
            assert expected[: len(output.token_ids)] == output.token_ids
            of_prompt = self.alone[name].prompt_logprobs
            assert of_prompt[: len(output.prompt_logprobs)] == output.prompt_logprobs
            if output.finish_reason not in (None, "cancelled"):
                assert (expected, self.alone[name].finish_reason) == (output.token_ids, output.finish_reason)

    def teardown(self) -> None:
        """Everybody comes to an end in a bounded number of steps, and then no page is held."""
        if not self.whole:
            return  # it has failed already, or not begun
        limit = self.engine.steps + 30 * (len(self.alone) + 1)
        while self.engine.unfinished:
            self.step(times=1)
            assert self.engine.steps <= limit, "no progress"
        self.records_are_those_alone()
        self.tracer.checker.finish()
        EngineMachine.exercised.update(self.tracer.checker.run.witnesses.counts)
        settled = [event for event in self.tracer.events if isinstance(event, SettleEvent)]
        if settled:
            after = settled[-1].after
            assert {} == after.requests
            assert all(page.registered and page.refcount == 0 for page in after.pages.values())
            assert self.engine.options.pages == len(after.free) + len(after.pages)


def test_every_step_of_every_example_refines() -> None:
    """Whatever comes and goes, each step is a step of the specification and each request gets what it gets alone; the
    examples together have exercised everything that could go wrong.
    """
    EngineMachine.exercised.clear()
    run_machine(EngineMachine, settings=settings(max_examples=150, stateful_step_count=40))
    expected = {
        "mixed_batches",
        "chunked_prefills",
        "partial_hits",
        "full_hits",
        "shared_attaches",
        "evictions",
        "reuses_after_eviction",
        "preemptions",
        "recomputations",
        "cancellations",
        "failures",
        "finished",
        "drafts_accepted",
        "drafts_rejected",
        "seeded_samples",
        "observations",
    }
    assert set() == {name for name in expected if EngineMachine.exercised[name] == 0}


def test_the_machine_finds_a_seeded_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that forgets to drop the slots of a wrong draft is found out."""
    monkeypatch.setattr(pools, "retract", lambda pool, r, length: pool)
    with pytest.raises(Refuted, match="emit_ready"):
        run_machine(
            EngineMachine,
            settings=settings(
                max_examples=40, stateful_step_count=20, phases=[Phase.generate], report_multiple_bugs=False
            ),
        )
