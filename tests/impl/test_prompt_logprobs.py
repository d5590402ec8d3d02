"""Log-probabilities of a prompt: what is asked for is computed, observed and returned, whatever the schedule; and it is
what decoding the same tokens reports.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from checked import CheckingTracer
from company import Arrival, Run, Workload, assert_same, random_options, random_workload, serve, serve_alone
from hashing_backend import HashingBackend
from vosti.impl import pool as pools
from vosti.impl.backends.cpu import CpuBackend
from vosti.impl.bundled import find_checkpoint
from vosti.impl.engine import Engine
from vosti.impl.errors import InvalidOptionError
from vosti.impl.models.model import Model
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.impl.packing import pack
from vosti.impl.planning import Candidate, Chunk, Limits, plan_step
from vosti.impl.pool_state import empty
from vosti.impl.settling import observed
from vosti.spec.state import Domain, PageId, RequestId, Token
from vosti.spec.step import Attach, Observe

PROMPT = tuple(Random(5).randrange(11) for _ in range(30))
ALL = SamplingParams(max_tokens=2, temperature=0, prompt_logprobs=2)


def observations(run: Run) -> list[Observe]:
    """Every observe of a run, in order."""
    return [action for event in run.settled() for action in event.actions if isinstance(action, Observe)]


def lonely(params: SamplingParams = ALL, prompt: tuple[int, ...] = PROMPT) -> Workload:
    """One request."""
    return Workload((Arrival("r", prompt, params),))


def test_each_token_but_the_first_is_reported() -> None:
    """One entry for each token of the prompt: None, and then that token's log-probability and the likeliest ones."""
    run = serve(lonely(), EngineOptions(page_size=4, pages=10))
    found = run.outputs["r"].prompt_logprobs
    assert None is found[0]
    assert list(PROMPT[1:]) == [entry.token for entry in found if entry is not None]
    assert {2} == {len(entry.top) for entry in found if entry is not None}
    assert list(range(len(PROMPT) - 1)) == [observe.position for observe in observations(run)]


def test_nothing_is_reported_unasked() -> None:
    """Without `prompt_logprobs` there are no observes, and no more rows of logits than tokens."""
    run = serve(lonely(replace(ALL, prompt_logprobs=None)), EngineOptions(page_size=4, pages=10))
    assert () == run.outputs["r"].prompt_logprobs
    assert [] == observations(run)
    assert 2 == sum(row.logits for rows in run.forwards() for row in rows)


@pytest.mark.parametrize("start", [0, 1, 2, 9, 29, 30, 99])
def test_reports_begin_where_they_are_asked_for(start: int) -> None:
    """Tokens before `prompt_logprobs_start` have none; those from there on have what they have without it."""
    everything = serve(lonely(), EngineOptions(page_size=4, pages=10)).outputs["r"].prompt_logprobs
    asked = serve(lonely(replace(ALL, prompt_logprobs_start=start)), EngineOptions(page_size=4, pages=10))
    skipped = min(start, len(PROMPT))
    assert (None,) * skipped + everything[skipped:] == asked.outputs["r"].prompt_logprobs
    assert list(range(max(start, 1) - 1, 29)) == [observe.position for observe in observations(asked)]


@pytest.mark.parametrize("budget", [1, 3, 7, 64])
@pytest.mark.parametrize("page_size", [1, 4, 5])
def test_chunks_change_nothing(budget: int, page_size: int) -> None:
    """However a prompt is cut into chunks, each position is observed once, in order, with the same bits."""
    whole = serve(lonely(), EngineOptions(page_size=7, pages=10))
    cut = serve(lonely(), EngineOptions(page_size=page_size, pages=40, token_budget=budget))
    assert whole.outputs["r"].prompt_logprobs == cut.outputs["r"].prompt_logprobs
    assert [(o.position, o.logits) for o in observations(whole)] == [(o.position, o.logits) for o in observations(cut)]


@pytest.mark.parametrize(("start", "hit"), [(0, 0), (4, 0), (5, 4), (9, 8), (16, 12), (30, 28), (99, 28)])
def test_what_is_asked_for_is_never_a_hit(start: int, hit: int) -> None:
    """Pages are attached as far as the first asked position is still computed, and no farther."""
    before = Arrival("before", PROMPT, replace(ALL, prompt_logprobs=None))
    after = Arrival("after", PROMPT, replace(ALL, prompt_logprobs_start=start), step=5)
    workload = Workload((before, after))
    company = serve(workload, EngineOptions(page_size=4, pages=30))
    assert hit == company.outputs["after"].hit_tokens
    assert_same(company, serve_alone(workload))


def test_a_planner_leaves_what_is_asked_for() -> None:
    """Of known pages those before the first asked position are attached."""
    a, b, history = RequestId("a"), RequestId("b"), tuple(map(Token, range(9)))
    pool = pools.admit(empty(frozenset(map(PageId, range(12))), 2), a, Domain(""))
    limits = Limits(max_seqs=8, token_budget=64, prefix_caching=True, page_seed=0)
    pool = plan_step(pool, [Candidate(a, history, ())], limits).pool
    pool = pools.advance(pool, a, 9, 9)
    for block in range(4):
        pool = pools.publish(pool, a, block, history[2 * block : 2 * block + 2], 9)
    pool = pools.admit(pool, b, Domain(""))
    for asked, attached in ((None, 4), (8, 4), (7, 3), (6, 3), (1, 0), (0, 0)):
        plan = plan_step(pool, [Candidate(b, history, (), asked)], limits)
        assert attached == sum(isinstance(action, Attach) for action in plan.actions)
        assert (Chunk(b, 2 * attached, 9 - 2 * attached, ()),) == plan.chunks


def test_rows_yield_from_the_first_asked_position_on() -> None:
    """Logits are taken at each position from there, the last one and a draft's included."""
    a, history = RequestId("a"), tuple(map(Token, range(6)))
    pool = pools.admit(empty(frozenset(map(PageId, range(9))), 2), a, Domain(""))
    for page in range(4):
        pool = pools.allocate(pool, a, PageId(page))
    draft = (Token(9),)
    assert [2, 3, 4, 5] == pack((Chunk(a, 1, 6, draft),), pool, {a: history}, 1, {a: 3}).logit_rows.tolist()
    assert [0, 1] == pack((Chunk(a, 1, 2, ()),), pool, {a: history}, 1, {a: 0}).logit_rows.tolist()
    assert [] == pack((Chunk(a, 1, 2, ()),), pool, {a: history}, 1, {a: 3}).logit_rows.tolist()


def test_preemption_observes_nothing_twice() -> None:
    """A request that is preempted in its prefill, or after it, goes on where it was; positions that were observed are
    recomputed without logits.
    """
    params = SamplingParams(max_tokens=14, temperature=0, ignore_eos=True)
    arrivals = (
        Arrival("early", (1, 2, 3), params),
        Arrival("late", PROMPT[:9], replace(params, max_tokens=6, prompt_logprobs=1, prompt_logprobs_start=2)),
    )
    workload = Workload(arrivals)
    for budget in (2, 4, 16):
        company = serve(workload, EngineOptions(page_size=2, pages=9, token_budget=budget))
        assert company.counts()["Preempt"] > 0
        assert_same(company, serve_alone(workload))
        assert list(range(1, 8)) == [o.position for o in observations(company)]


def test_company_changes_nothing() -> None:
    """In random company, on tight pools, with hits and preemptions, everybody gets what they get alone; and a checker
    finds every observe to be one of the specification's.
    """
    seen = 0
    for seed in range(3):
        random = Random(seed)
        workload = random_workload(random)
        arrivals = tuple(
            replace(one, params=replace(one.params, prompt_logprobs=i % 3, prompt_logprobs_start=5 * (i % 4)))
            for i, one in enumerate(workload.arrivals)
        )
        workload = replace(workload, arrivals=arrivals)
        options = random_options(random, workload, 4)
        company = serve(workload, options)
        assert_same(company, serve_alone(workload))
        checker = CheckingTracer(HashingBackend(), company.engine.options).checker
        for event in company.events:
            checker.feed(event)
        checker.finish()
        seen += checker.run.witnesses.counts["observations"]
    assert seen > 100


def test_a_row_that_is_not_finite_has_no_logprob() -> None:
    """Logits that are not finite in the middle of a prompt are observed and reported as None; the request goes on."""
    backend = HashingBackend(sick_endings=frozenset({9}))
    run = serve(lonely(prompt=(1, 2, 9, 3, 4)), EngineOptions(page_size=4, pages=10), backend)
    assert [True, False, False, True, False] == [e is None for e in run.outputs["r"].prompt_logprobs]
    assert [0, 1, 2, 3] == [o.position for o in observations(run)]
    assert run.outputs["r"].finish_reason != "error"


@pytest.mark.parametrize("budget", [1, 2, 4, 5, 64])
def test_a_request_that_fails_is_reported_as_far_as_it_came(budget: int) -> None:
    """Of a prompt with a value that is not finite everything before it is reported, however the prompt is cut."""
    backend = HashingBackend(sick_tokens=frozenset({10}))
    options = EngineOptions(page_size=2, pages=10, token_budget=budget)
    run = serve(lonely(prompt=(1, 2, 3, 4, 10, 5)), options, backend)
    assert "error" == run.outputs["r"].finish_reason
    assert [None, 2, 3, 4, 10] == [None if e is None else e.token for e in run.outputs["r"].prompt_logprobs]


@pytest.mark.parametrize("checkpoint", ["tiny-gemma3", "tiny-llama3"])
def test_a_prompt_is_reported_as_its_decoding(checkpoint: str) -> None:
    """What was decoded, given as a prompt, has the log-probabilities that decoding reported, to the last bit: in one
    chunk, in many, and behind a hit.
    """
    backend = CpuBackend(Model.load(find_checkpoint(checkpoint)))
    prompt = tuple(Random(2).randrange(backend.vocab_size) for _ in range(19))
    decoding = SamplingParams(max_tokens=14, temperature=0.8, seed=4, logprobs=3, ignore_eos=True)
    decoded = serve(Workload((Arrival("r", prompt, decoding),)), EngineOptions(page_size=4, pages=20), backend)
    tokens, expected = decoded.outputs["r"].token_ids, decoded.outputs["r"].logprobs
    asking = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=3, prompt_logprobs_start=19)
    for budget, asked in ((64, asking), (5, asking), (1, replace(asking, prompt_logprobs_start=0))):
        first = Arrival("first", prompt, decoding)
        again = Arrival("again", prompt + tokens, asked, step=2)
        options = EngineOptions(page_size=4, pages=40, token_budget=budget)
        found = serve(Workload((first, again)), options, backend).outputs["again"]
        assert expected == found.prompt_logprobs[19:]
        assert (found.hit_tokens > 0) == (asked is asking)


@pytest.mark.parametrize("name", ["prompt_logprobs", "prompt_logprobs_start"])
def test_bad_parameters_are_refused(name: str) -> None:
    """Neither is negative, nor anything but an integer."""
    for value in (-1, 1.5, True, "2"):
        with pytest.raises(InvalidOptionError, match=name):
            SamplingParams(**{name: value})  # type: ignore[arg-type]


def test_a_wrong_observe_is_noticed() -> None:
    """The assertion of this file is false of an engine that reports the row before."""
    engine = Engine(HashingBackend(), EngineOptions(page_size=4, pages=10))
    engine.add_request(PROMPT, ALL, request_id="r")
    with pytest.MonkeyPatch.context() as patch:

        def shifted(r, record, yielded, non_finite):  # type: ignore[no-untyped-def]
            return observed(r, record, {p: yielded[max(0, p - 1)] for p in yielded}, non_finite)

        patch.setattr("vosti.impl.settling.observed", shifted)
        outputs = engine.step()
    right = serve(lonely(), EngineOptions(page_size=4, pages=10)).outputs["r"].prompt_logprobs
    assert right != outputs[0].prompt_logprobs
