"""Drafts from the history itself: what is proposed, that it changes no bit, and that it saves steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from company import Arrival, Workload, assert_same, random_options, random_workload, serve, serve_alone
from engine_faults.edits import applied
from engine_faults.in_settle import FAULTS
from hashing_backend import HashingBackend
from vosti.impl.drafting import NoDrafter, PromptLookup, Script, ScriptedDrafter, drafter_of
from vosti.impl.errors import InvalidOptionError
from vosti.impl.llm import LLM
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.spec.state import RequestId, Token

R = RequestId("r")


def some(*tokens: int) -> tuple[Token, ...]:
    """Tokens."""
    return tuple(map(Token, tokens))


@pytest.mark.parametrize(
    ("prompt", "output", "draft"),
    [
        ((1, 2, 3, 4, 5, 1, 2), (), (3, 4, 5)),
        ((1, 2, 3, 4, 5), (1, 2), (3, 4, 5)),
        ((1, 2, 3, 4, 5, 1), (), ()),
        ((1, 2, 7, 7, 7, 3, 1, 2, 8, 8, 8, 3, 1, 2), (), (8, 8, 8)),
        ((9, 1, 2, 5, 5, 5, 8, 1, 2, 6, 6, 6, 9, 1), (2,), (5, 5, 5)),
        ((4, 4, 4, 4, 4, 4, 4, 4), (), (4, 4, 4)),
        ((4, 4, 4, 4), (), (4,)),
        ((1, 2, 1, 2), (), (1, 2)),
        ((1,), (), ()),
        ((1, 1), (), ()),
        ((1, 1, 1), (), (1,)),
    ],
)
def test_what_followed_is_proposed(prompt: Sequence[int], output: Sequence[int], draft: Sequence[int]) -> None:
    """What followed the most of the last tokens, the last time that a whole draft did; or else, the first time."""
    assert some(*draft) == PromptLookup(3, 3, 2).propose(R, some(*prompt), some(*output))


@given(tokens=st.lists(st.integers(0, 2), min_size=1, max_size=30), cut=st.integers(0, 30), length=st.integers(1, 5))
def test_drafts_are_looked_up(tokens: list[int], cut: int, length: int) -> None:
    """A draft stands in the history after its last tokens; how prompt and output divide it does not matter. There is
    none only if the last two tokens are new.
    """
    lookup, history = PromptLookup(length, 4, 2), some(*tokens)
    draft = lookup.propose(R, history[:cut], history[cut:])
    found = {
        history[i + n : i + n + length]
        for n in (2, 3, 4)
        if n < len(history)
        for i in range(len(history) - n)
        if history[i : i + n] == history[-n:]
    }
    assert draft == lookup.propose(R, history, ())
    assert draft in found if found else draft == ()
    assert len(draft) <= length


@given(steps=st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 2), max_size=3)), max_size=12))
def test_what_is_remembered_changes_no_draft(steps: list[tuple[str, list[int]]]) -> None:
    """Asked about histories that grow, about others in between, or about another one under the same name, a drafter
    proposes what one proposes that is asked for the first time.
    """
    lookup, outputs = PromptLookup(3, 3, 1), {"a": some(), "b": some()}
    for name, new in steps:
        outputs[name] = some(*outputs[name], *new) if len(outputs[name]) < 9 else some()
        prompt = some(1, 0, 2) if len(outputs[name]) % 4 else some(0, 1, 0)
        assert PromptLookup(3, 3, 1).propose(RequestId(name), prompt, outputs[name]) == lookup.propose(
            RequestId(name), prompt, outputs[name]
        )


def test_requests_that_have_gone_are_forgotten() -> None:
    """What is kept of a request goes when an engine has asked about all others and not about it."""
    lookup = PromptLookup(3, 3, 1)
    for step in range(4):
        for name in ("a", "b", "c") if step < 2 else ("b",):
            lookup.propose(RequestId(name), some(1, 2, 1), some(*range(step)))

    kept = lookup._histories._asked | lookup._histories._before
    assert {RequestId("b")} == kept.keys()


def test_the_options_choose() -> None:
    """There are no drafts by default; requests without a script get what is looked up."""
    assert isinstance(drafter_of(EngineOptions()), NoDrafter)
    options = EngineOptions(speculative_tokens=5, prompt_lookup_max=3, prompt_lookup_min=1)
    assert PromptLookup(5, 3, 1) == drafter_of(options)
    drafter = ScriptedDrafter({RequestId("scripted"): Script(some(7, 8), 2, 2)}, 11, otherwise=drafter_of(options))
    assert some(7, 8) == drafter.propose(RequestId("scripted"), some(1, 2, 1), ())
    assert some(2, 1) == drafter.propose(R, some(1, 2, 1), ())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("speculative_tokens", {"speculative_tokens": -1}),
        ("prompt_lookup_min", {"prompt_lookup_min": 0}),
        ("prompt_lookup_max", {"prompt_lookup_min": 3, "prompt_lookup_max": 2}),
        ("prompt_lookup_max", {"prompt_lookup_max": True}),
    ],
)
def test_bad_options_are_refused(name: str, options: dict[str, object]) -> None:
    """The error names the option."""
    with pytest.raises(InvalidOptionError, match=f"^{name} is"):
        EngineOptions.from_keywords(**options)


@pytest.mark.parametrize("length", [1, 3, 15])
def test_lookup_changes_nothing_in_company(length: int) -> None:
    """Greedy and seeded, in tight pools and random company, with drafts accepted and rejected: everybody gets the
    records of one-token decoding.
    """
    accepted = rejected = 0
    for seed in range(4):
        random = Random(seed)
        workload = random_workload(random, vocab_size=3)
        options = replace(random_options(random, workload, 4), speculative_tokens=length, prompt_lookup_min=1)
        options = replace(options, token_budget=max(8, options.token_budget))
        backend = HashingBackend(vocab_size=3)
        company = serve(replace(workload, scripts={}), options, backend)
        assert_same(company, serve_alone(workload, backend))
        counts = company.counts()
        rejected += counts["Retract"]
        accepted += counts["Propose"] - counts["Retract"]
    assert accepted > 0
    assert rejected > 0


REPETITIVE = """def read(self, n=-1):
    return self.file.read(n)

def write(self, s):
    return self.file.write(s)

def re"""


@pytest.mark.parametrize("params", [SamplingParams(40, 0, ignore_eos=True), SamplingParams(40, 0.5, seed=3)])
@pytest.mark.parametrize("checkpoint", ["tiny-gemma3", "tiny-llama3"])
def test_lookup_saves_steps(checkpoint: str, params: SamplingParams) -> None:
    """On a repetitive text the tokens and log-probabilities are those without drafts; a greedy run takes at most two
    thirds of the steps.
    """
    params = replace(params, logprobs=1)
    plain, drafted = LLM(checkpoint, backend="cpu"), LLM(checkpoint, backend="cpu", speculative_tokens=4)
    (expected,), (found,) = plain.generate(REPETITIVE, params), drafted.generate(REPETITIVE, params)
    assert expected == found
    assert drafted.engine.steps <= plain.engine.steps
    assert params.temperature > 0 or 3 * drafted.engine.steps <= 2 * plain.engine.steps


def test_accepting_unverified_drafts_is_noticed() -> None:
    """The comparison of this file is false of an engine that emits what was proposed."""
    seeded = next(one for one in FAULTS if one.name == "draft accepted that differs")
    workload = Workload((Arrival("r", (1, 2, 1, 2, 1), SamplingParams(12, 0.9, seed=1)),))
    alone = serve_alone(workload)
    with applied(seeded):
        company = serve(workload, EngineOptions(page_size=4, pages=20, speculative_tokens=3), HashingBackend())
    with pytest.raises(AssertionError):
        assert_same(company, alone)
