"""Settling as a pure function: drafts are judged, tokens emitted, pages published, requests ended."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from vosti.impl import pool as pools
from vosti.impl.options import SamplingParams
from vosti.impl.pool_state import Pool, empty
from vosti.impl.sampling import Logprobs
from vosti.impl.settling import LiveRecord, Settled, YieldedRow, publish_full, settle, stop_reason
from vosti.spec.determinism import Record
from vosti.spec.state import Domain, Logits, PageId, RequestId, Sampler, Token
from vosti.spec.step import Emit, Fail, Finish, Publish, Retract

R = RequestId("r")
PAGE_SIZE = 2


def some(*tokens: int) -> tuple[Token, ...]:
    """Tokens."""
    return tuple(map(Token, tokens))


PARAMS = SamplingParams(max_tokens=9, seed=1)


def record(
    prompt: Sequence[int], output: Sequence[int] = (), draft: Sequence[int] = (), params: SamplingParams = PARAMS
) -> LiveRecord:
    """A live request that has emitted `output`."""
    sampler = params.sampler(1)
    for _ in output:
        sampler = sampler.advanced()
    return LiveRecord(
        prompt=some(*prompt),
        output=some(*output),
        draft=some(*draft),
        sampler=sampler,
        domain=Domain(""),
        arrival=0,
        params=params,
        stop_tokens=frozenset(map(Token, params.stop_token_ids)),
    )


def cached(n: int, pages: int = 8) -> Pool:
    """A pool in which the request has computed n positions, in private pages."""
    pool = pools.admit(empty(frozenset(map(PageId, range(pages))), PAGE_SIZE), R, Domain(""))
    for page in range(-(-n // PAGE_SIZE)):
        pool = pools.allocate(pool, R, PageId(page))
    return pools.advance(pool, R, n, n)


def rows(
    tokens: Mapping[int, int], non_finite: Sequence[int] = (), asked: list[LiveRecord] | None = None
) -> dict[int, YieldedRow]:
    """A row at each position, from which this token is sampled. `asked` notes the records it was sampled with."""

    def yielded(position: int, token: int) -> YieldedRow:
        def sample(one: LiveRecord) -> Token:
            if asked is not None:
                asked.append(one)
            return Token(token)

        return YieldedRow(
            row=100 + position,
            logits=Logits(f"logits {position}"),
            finite=position not in non_finite,
            sample=sample,
            logprobs=lambda chosen, k: Logprobs(chosen, -1.0, ()),
        )

    return {position: yielded(position, token) for position, token in tokens.items()}


def emit(one: LiveRecord, position: int, token: int, index: int) -> Emit:
    """The action of an emit."""
    sampler = one.params.sampler(1)
    for _ in range(index):
        sampler = sampler.advanced()
    return Emit(R, Record(Logits(f"logits {position}"), Token(token)), Sampler(sampler))


def settled(
    one: LiveRecord,
    pool: Pool,
    yielded: Mapping[int, YieldedRow],
    non_finite: Sequence[int] = (),
    *,
    publishing: bool = True,
) -> Settled:
    """Settle the request."""
    return settle(pool, R, one, yielded, non_finite, publishing=publishing)


def test_a_prompt_that_is_not_done_emits_nothing() -> None:
    """After a chunk that ends before the history does, only full pages are published."""
    one = record((1, 2, 3, 4, 5, 6, 7))
    found = settled(one, cached(5), {})
    assert (Publish(R, 0), Publish(R, 1)) == found.actions
    assert (one, (), None) == (found.record, found.rows, found.ended)
    assert [True, True, False] == [found.pool.pages[page].registered for page in map(PageId, range(3))]


def test_a_token_is_emitted() -> None:
    """The last position's row is sampled with the record as it is; output and sampler state advance by one."""
    one, asked = record((1, 2, 3)), list[LiveRecord]()
    found = settled(one, cached(3), rows({2: 8}, asked=asked))
    assert (emit(one, 2, 8, 1), Publish(R, 0)) == found.actions
    assert [one] == asked
    assert (some(8), 1, (102,), None) == (
        found.record.output,
        found.record.sampler.index,
        found.rows,
        found.ended,
    )


def test_a_right_draft_is_emitted_token_by_token() -> None:
    """Each drafted token that is sampled is emitted, and then one more; each draw has its own sampler index."""
    one, asked = record((1, 2, 3), draft=(5, 6)), list[LiveRecord]()
    found = settled(one, cached(5), rows({2: 5, 3: 6, 4: 7}, asked=asked))
    assert (emit(one, 2, 5, 1), emit(one, 3, 6, 2), emit(one, 4, 7, 3), Publish(R, 0), Publish(R, 1)) == found.actions
    assert [(0, some(5, 6)), (1, some(6)), (2, ())] == [(seen.sampler.index, seen.draft) for seen in asked]
    assert (some(5, 6, 7), (), (102, 103, 104)) == (found.record.output, found.record.draft, found.rows)
    assert 5 == found.pool.requests[R].cached


def test_a_wrong_draft_is_retracted_before_the_token_is_emitted() -> None:
    """At the first token that differs the draft and its slots are dropped; its pages stay private, for the same
    positions come again.
    """
    one = record((1, 2, 3), draft=(5, 6, 7))
    found = settled(one, cached(6), rows({2: 5, 3: 9, 4: 8, 5: 8}))
    assert (emit(one, 2, 5, 1), Retract(R), emit(one, 3, 9, 2), Publish(R, 0), Publish(R, 1)) == found.actions
    assert (some(5, 9), (), (102, 103)) == (found.record.output, found.record.draft, found.rows)
    holding = found.pool.requests[R]
    assert (4, 3) == (holding.cached, len(holding.table))
    assert not found.pool.pages[holding.table[2]].registered


def test_no_page_with_a_draft_is_published() -> None:
    """A page that is full, but reaches into a draft that was wrong, stays private."""
    found = settled(record((1, 2, 3), draft=(5,)), cached(4), rows({2: 6, 3: 0}))
    assert [Publish(R, 0)] == [action for action in found.actions if isinstance(action, Publish)]


@pytest.mark.parametrize(("max_tokens", "stops", "reason"), [(2, (), "length"), (9, (6,), "stop"), (2, (6,), "stop")])
def test_a_request_ends_inside_a_right_draft(max_tokens: int, stops: tuple[int, ...], reason: str) -> None:
    """A limit or a stop token inside a draft ends the request there; what it computed of its history is published."""
    one = record((1, 2, 3), draft=(5, 6, 7), params=replace(PARAMS, max_tokens=max_tokens, stop_token_ids=stops))
    found = settled(one, cached(6), rows({2: 5, 3: 6, 4: 7, 5: 8}))
    assert (emit(one, 2, 5, 1), emit(one, 3, 6, 2), Publish(R, 0), Publish(R, 1), Finish(R)) == found.actions
    assert (some(5, 6), reason) == (found.record.output, found.ended)
    assert R not in found.pool.requests
    assert {0, 1} == set(found.pool.idle)
    assert PageId(2) in found.pool.free


def test_a_value_that_is_not_finite_fails_the_request() -> None:
    """A position of the history whose value is not finite ends the request at once, published is nothing."""
    for position in range(3):
        found = settled(record((1, 2, 3, 4)), cached(3), {}, (position,))
        assert ((Fail(R),), "error", ()) == (found.actions, found.ended, found.rows)
        assert 8 == len(found.pool.free)


def test_logits_that_are_not_finite_fail_the_request() -> None:
    """No token is drawn from them."""
    found = settled(record((1, 2, 3)), cached(3), rows({2: 5}, non_finite=(2,)))
    assert ((Fail(R),), "error") == (found.actions, found.ended)


@pytest.mark.parametrize("sick", [3, 4])
def test_a_draft_that_is_not_finite_matters_once_it_is_history(sick: int) -> None:
    """The tokens before it are emitted; the one whose own value is sick is, too, since its logits were good; then the
    request fails. A draft that was wrong before that point harms nobody.
    """
    one = record((1, 2, 3), draft=(5, 6))
    good = settled(one, cached(5), rows({2: 5, 3: 6, 4: 7}), (sick,))
    emits = [action for action in good.actions if isinstance(action, Emit)]
    assert (sick - 2, "error") == (len(emits), good.ended)
    assert Fail(R) == good.actions[-1]
    wrong = settled(one, cached(5), rows({2: 9, 3: 6, 4: 7}), (sick,))
    assert (Retract(R), emit(one, 2, 9, 1), Publish(R, 0)) == wrong.actions


def test_sick_logits_of_a_draft_matter_once_it_is_history() -> None:
    """A row of a draft's position is looked at only if the draft is right up to there."""
    one = record((1, 2, 3), draft=(5, 6))
    good = settled(one, cached(5), rows({2: 5, 3: 6, 4: 7}, non_finite=(3,)))
    assert (emit(one, 2, 5, 1), Fail(R)) == good.actions
    wrong = settled(one, cached(5), rows({2: 9, 3: 6, 4: 7}, non_finite=(3,)))
    assert None is wrong.ended


def test_without_publishing_everything_stays_private() -> None:
    """With the prefix cache off, nothing is published, and a request that ends frees all its pages."""
    one = record((1, 2, 3), params=replace(PARAMS, max_tokens=1))
    found = settled(one, cached(3), rows({2: 8}), publishing=False)
    assert (emit(one, 2, 8, 1), Finish(R)) == found.actions
    assert 8 == len(found.pool.free)


def test_pages_are_published_in_order_from_the_first_private_one() -> None:
    """Blocks that are registered already are not published again, and only full pages of history are."""
    pool, history = cached(7), some(1, 2, 3, 4, 5, 6, 7)
    pool, first = publish_full(pool, R, history[:5])
    assert [Publish(R, 0), Publish(R, 1)] == first
    pool, second = publish_full(pool, R, history)
    assert [Publish(R, 2)] == second
    assert (pool, []) == publish_full(pool, R, history)
    assert [None, 0, 1] == [pool.pages[page].parent for page in map(PageId, range(3))]


def test_logprobs_are_kept_if_asked_for() -> None:
    """One for each emitted token, or none at all."""
    one = record((1, 2, 3), draft=(5,), params=replace(PARAMS, logprobs=2))
    assert [5, 6] == [found.token for found in settled(one, cached(4), rows({2: 5, 3: 6})).record.logprobs]
    assert () == settled(record((1, 2, 3), draft=(5,)), cached(4), rows({2: 5, 3: 6})).record.logprobs


def test_a_stop_token_comes_before_the_limit() -> None:
    """A last token that is also a stop token says "stop"."""
    params = replace(PARAMS, max_tokens=2, stop_token_ids=(3,))
    assert "stop" == stop_reason(record((1,), (2, 3), params=params))
    assert "length" == stop_reason(record((1,), (3, 2), params=params))
    assert None is stop_reason(record((1,), (2,), params=params))
