"""Drafts are verified in one extend and change nothing: bits and tokens are those of one-token decoding."""

from dataclasses import replace

import pytest

from company import Arrival, Workload, assert_same, serve, serve_alone
from hashing_backend import HashingBackend
from vosti.impl.drafting import Script
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.spec.state import Token


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 15])
@pytest.mark.parametrize("right", [0, 1, 2, 100])
def test_drafts_change_nothing(length: int, right: int) -> None:
    """Verifying k drafted tokens in one extend, right or wrong, gives the records of one-token decoding; a rejected
    draft leaves no trace in any page.
    """
    arrivals = tuple(
        Arrival(
            f"r{i}", (5,) * 48 if i == 0 else (i,), SamplingParams(max_tokens=32, temperature=0.7 * (i % 2), seed=i)
        )
        for i in range(3)
    )
    workload = Workload(arrivals)
    alone = serve_alone(workload)
    scripts = {
        name: Script(tuple(map(Token, run.outputs[name].token_ids)), length, right) for name, run in alone.items()
    }
    drafted = replace(workload, scripts=scripts)
    company = serve(drafted, EngineOptions(page_size=4, pages=80, reread=True), HashingBackend())
    assert_same(company, alone)
    counts = company.counts()
    assert counts["Propose"] > 0
    assert (counts["Retract"] > 0) == (right < length)
    assert company.engine.steps < alone["r0"].engine.steps or right == 0


def test_a_draft_never_reaches_beyond_the_last_token() -> None:
    """However long a draft is, a request emits max_tokens tokens, within the positions that it was admitted for."""
    for max_tokens in range(1, 7):
        params = SamplingParams(max_tokens=max_tokens, temperature=0)
        workload = Workload((Arrival("r", (1, 2, 3), params),))
        alone = serve_alone(workload)
        expected = tuple(map(Token, alone["r"].outputs["r"].token_ids))
        drafted = replace(workload, scripts={"r": Script(expected + (Token(1),) * 9, 9, 9)})
        company = serve(drafted, EngineOptions(page_size=1, pages=workload.pages(1)))
        assert_same(company, alone)
        assert max(row.position for rows in company.forwards() for row in rows) <= 3 + max_tokens - 2


def test_an_accepted_draft_stops_where_the_request_stops() -> None:
    """A stop token inside an accepted draft ends the request there: nothing after it is returned."""
    workload = Workload((Arrival("r", (1, 2, 3), SamplingParams(max_tokens=20, seed=3)),))
    tokens = serve_alone(workload)["r"].outputs["r"].token_ids
    stop = tokens[4]
    params = SamplingParams(max_tokens=20, seed=3, stop_token_ids=(stop,))
    stopping = Workload((Arrival("r", (1, 2, 3), params),), scripts={"r": Script(tuple(map(Token, tokens)), 19, 19)})
    company = serve(stopping, EngineOptions(page_size=2, pages=40))
    assert tokens[: tokens.index(stop) + 1] == company.outputs["r"].token_ids
    assert "stop" == company.outputs["r"].finish_reason
    assert_same(company, serve_alone(stopping))


def test_a_sick_draft_harms_nobody() -> None:
    """A draft position whose value is not finite matters only if the draft is right there."""
    backend = HashingBackend(sick_tokens=frozenset({10}), sick_endings=frozenset({9}))
    workload = Workload((Arrival("r", (1, 2, 3), SamplingParams(max_tokens=12, seed=3, stop_token_ids=(9,))),))
    alone = serve_alone(workload, backend)
    expected = tuple(map(Token, alone["r"].outputs["r"].token_ids))
    for at in range(len(expected)):
        wrong = (*expected[:at], Token(10), *expected[at + 1 :])
        drafted = replace(workload, scripts={"r": Script(wrong, 5, 5)})
        assert_same(serve(drafted, EngineOptions(page_size=2, pages=40), backend), alone)
