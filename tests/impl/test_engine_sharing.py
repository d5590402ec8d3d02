"""What is found in the prefix cache, and what is given up: the hazards of keys, hits and evictions."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from company import Arrival, Run, Workload, assert_at_rest, assert_same, serve, serve_alone
from hashing_backend import HashingBackend
from vosti.impl import pool as pools
from vosti.impl.engine import Engine
from vosti.impl.errors import CapacityError
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.impl.pool_state import KEY_SPACE, empty
from vosti.spec.events import SettleEvent
from vosti.spec.state import Domain, PageId, RequestId, Token
from vosti.spec.step import Allocate, Attach, Evict, Preempt, Publish

ONE = SamplingParams(max_tokens=1, temperature=0)
FEW = SamplingParams(max_tokens=5, temperature=0.9, seed=2)


def hits(run: Run) -> dict[str, int]:
    """Hit tokens of every request."""
    return {name: output.hit_tokens for name, output in run.outputs.items()}


def one_by_one(prompts: Sequence[tuple[int, ...]], params: SamplingParams = ONE, gap: int = 20) -> Workload:
    """Requests a, b, c, ... each of which comes when the one before has gone."""
    return Workload(tuple(Arrival("abcdefgh"[i], prompt, params, step=gap * i) for i, prompt in enumerate(prompts)))


# ---------------------------------------------------------------- keys


@pytest.mark.parametrize("page_size", [1, 2, 4, 16])
@pytest.mark.parametrize("key_space", [1, 2, 16, KEY_SPACE])
def test_a_weak_hash_shares_nothing_wrong(page_size: int, key_space: int) -> None:
    """Hazard: two prompts whose page hashes are equal share a page. With a constant hash, one of two values or of
    sixteen, prompts of three pages that differ in every page, in the first only, or in the second only, reuse at most
    what they truly have in common.
    """
    first = tuple(Random(1).randrange(5) for _ in range(3 * page_size)) + (0,)
    everywhere = tuple(token + 5 for token in first)
    in_first = (first[0] + 5, *first[1:])
    in_second = (*first[:page_size], first[page_size] + 5, *first[page_size + 1 :])
    for other, common in ((everywhere, 0), (in_first, 0), (in_second, 1)):
        workload = one_by_one((first, other))
        run = serve(workload, EngineOptions(page_size=page_size, pages=20), key_space=key_space)
        assert hits(run)["b"] in ((0, common * page_size) if key_space < KEY_SPACE else (common * page_size,))
        assert_same(run, serve_alone(workload))


def test_equal_tokens_after_different_parents_are_not_shared() -> None:
    """Hazard: a page is matched on its own tokens alone. The same page of tokens after two different first pages is two
    pages, with any hash.
    """
    workload = one_by_one(((1, 1, 7, 7, 0), (2, 2, 7, 7, 0), (2, 2, 7, 7, 1)))
    for key_space in (1, KEY_SPACE):
        run = serve(workload, EngineOptions(page_size=2, pages=20), key_space=key_space)
        assert_same(run, serve_alone(workload))
        assert 0 == hits(run)["b"]
    assert 4 == hits(run)["c"]


@pytest.mark.parametrize(
    ("mine", "yours"), [("s", ""), ("", "s"), ("a,b", "a"), ("plumless", "buckeroo"), ("0", "\0"), ("\ud800", "?")]
)
def test_domains_never_share(mine: str, yours: str) -> None:
    """Hazard: a tenant's salt is hashed without a tag, so that different fields collide. Equal tokens of two domains
    share nothing, not even where the domains' own hashes collide (the fourth pair has one CRC-32); within a domain
    they do, on the first page and on all that follow.
    """
    prompt = (1, 2, 3, 4, 5, 6, 7)
    arrivals = (
        Arrival("a", prompt, ONE, 0, mine),
        Arrival("b", prompt, ONE, 10, yours),
        Arrival("c", prompt, ONE, 20, mine),
        Arrival("d", prompt, ONE, 30, yours),
    )
    for key_space in (1, KEY_SPACE):
        run = serve(Workload(arrivals), EngineOptions(page_size=2, pages=30), key_space=key_space)
        assert 0 == hits(run)["b"]
        assert_same(run, serve_alone(Workload(arrivals)))
    assert {"a": 0, "b": 0, "c": 6, "d": 0 if mine in ("plumless",) else 6} == hits(run)


# ---------------------------------------------------------------- chains


def test_a_missing_ancestor_ends_the_match() -> None:
    """Hazard: cached pages behind a missing ancestor are counted as hits. Of a chain of three pages whose first is not
    found, nothing is usable, though the other two are still known.
    """
    pool = empty(frozenset(map(PageId, range(5))), 1)
    r, tokens = RequestId("r"), (Token(1), Token(2), Token(3))
    pool = pools.admit(pool, r, Domain(""))
    for block in range(3):
        pool = pools.allocate(pool, r, PageId(block))
    pool = pools.advance(pool, r, 3, 3)
    for block in range(3):
        pool = pools.publish(pool, r, block, tokens[block : block + 1], 3)
    assert (0, 1, 2) == pools.match_prefix(pool, Domain(""), tokens, 3)
    (first,) = [key for key, page in pool.index.items() if page == 0]
    assert () == pools.match_prefix(replace(pool, index=pool.index.delete(first)), Domain(""), tokens, 3)


def test_an_ancestor_outlives_its_descendants() -> None:
    """Hazard: an ancestor is evicted before what continues it. Whatever is evicted has no retained child, and of a
    chain the last page goes first, so that what is left of it is found.
    """
    chain = (1, 2, 3, 4, 5, 6, 0)
    for other_length in range(1, 13):
        other = tuple(7 + i % 2 for i in range(other_length))
        workload = one_by_one((chain, other, chain))
        run = serve(workload, EngineOptions(page_size=2, pages=6))
        assert_same(run, serve_alone(workload))
        evicted = sum(isinstance(action, Evict) for action in run.actions()[: _admission(run, "c")])
        assert evicted == max(0, 3 - (6 - -(-other_length // 2)))
        assert 6 - 2 * evicted == hits(run)["c"]
    for before, after in _snapshots(run):
        for page in before.after.pages.keys() - after.after.pages.keys():
            assert all(view.parent != page for view in after.after.pages.values())


def _admission(run: Run, name: str) -> int:
    return next(i for i, action in enumerate(run.actions()) if getattr(action, "request", None) == name)


def _snapshots(run: Run) -> list[tuple[SettleEvent, SettleEvent]]:
    return list(pairwise(run.settled()))


@pytest.mark.parametrize("key_space", [1, KEY_SPACE])
def test_a_recycled_page_is_found_no_longer(key_space: int) -> None:
    """Hazard: a page is handed out while the index still maps its old contents. In a pool of two pages, b takes the
    pages of a; c, which has the prompt of a, hits nothing of b's.
    """
    workload = one_by_one(((1, 2, 3), (4, 5, 6), (1, 2, 3), (1, 2, 4)))
    run = serve(workload, EngineOptions(page_size=2, pages=2), key_space=key_space)
    assert {"a": 0, "b": 0, "c": 0, "d": 2} == hits(run)
    recycled = {action.page for action in run.actions() if isinstance(action, Evict)}
    assert recycled & {action.page for action in run.actions()[-12:] if isinstance(action, Allocate)}
    assert_same(run, serve_alone(workload))


# ---------------------------------------------------------------- hits and capacity


def test_a_refused_request_leaves_nothing_behind() -> None:
    """Hazard: references are taken before the capacity check. A request that can never fit is refused three times, some
    of its pages known, and the pool is the same value afterwards: counts, free list, index and clock.
    """
    engine = Engine(HashingBackend(), EngineOptions(page_size=2, pages=5))
    engine.add_request((1, 2, 3, 4, 5), ONE)
    engine.step()
    before = engine._pool
    assert 2 == len(before.idle)
    for _ in range(3):
        with pytest.raises(CapacityError, match="may need 6 pages of 2 slots, and the pool has 5"):
            engine.add_request((1, 2, 3, 4, 5, 6), replace(ONE, max_tokens=7))
        assert before is engine._pool
        assert not engine.unfinished
    engine.add_request((1, 2, 3, 4, 5), ONE)
    assert [4] == [output.hit_tokens for output in engine.step()]


def test_a_request_that_must_wait_takes_its_hits_once() -> None:
    """Hazard: a waiting request takes references at every attempt. While no page can be had for it, a request holds
    each page of its hits once, and says later how many tokens it found.
    """
    workload = Workload(
        (
            Arrival("warm", (1, 2, 3, 4, 5, 6, 7, 8, 0), ONE),
            Arrival("first", (7,) * 13, replace(FEW, max_tokens=4), step=1),
            Arrival("waits", (1, 2, 3, 4, 5, 6, 7, 8, 9), ONE, step=2),
        )
    )
    run = serve(workload, EngineOptions(page_size=4, pages=6, token_budget=32))
    assert ((8, 1, 1),) == run.schedule("waits")
    assert 8 == hits(run)["waits"]
    waiting = [e for e in run.events if isinstance(e, SettleEvent) and "waits" in e.after.requests]
    assert len(waiting) > 1
    for event in waiting:
        table = event.after.requests[RequestId("waits")].table
        assert [1, 1] == [event.after.pages[page].refcount for page in table[:2]]
    assert_same(run, serve_alone(workload))
    assert_at_rest(run)


@pytest.mark.parametrize("pages_shared", [1, 2])
@pytest.mark.parametrize("budget", [64, 6])
def test_nothing_is_hit_before_it_is_published(pages_shared: int, budget: int) -> None:
    """Hazard: a hit on pages that the same step still computes. Two requests that come together and begin alike both
    compute their beginning; with a budget that cuts the first one after a page, the second still finds only what an
    earlier step published.
    """
    common = tuple(range(4 * pages_shared))
    workload = Workload((Arrival("a", (*common, 9, 9), FEW), Arrival("b", (*common, 8), FEW)))
    run = serve(workload, EngineOptions(page_size=4, pages=30, token_budget=budget))
    published: set[int] = set()
    for event in run.events:
        for action in getattr(event, "actions", ()):
            if isinstance(action, Attach):
                assert action.page in published
        if isinstance(event, SettleEvent):
            published = {page for page, view in event.after.pages.items() if view.registered}
    assert_same(run, serve_alone(workload))
    assert (0 if budget == 64 else 4) == hits(run)["b"]


@pytest.mark.parametrize("page_size", [1, 2, 4, 16])
@pytest.mark.parametrize("pages", [1, 2, 4])
def test_one_token_is_always_recomputed(page_size: int, pages: int) -> None:
    """Hazard: a prompt that fills its pages exactly and is known entirely leaves no row to take logits from. Its last
    page is computed again, in a page of its own, and the shared ones stay as they are.
    """
    prompt = tuple(i % 11 for i in range(page_size * pages))
    workload = one_by_one((prompt, prompt, prompt), FEW)
    run = serve(workload, EngineOptions(page_size=page_size, pages=200, reread=True))
    assert page_size * (pages - 1) == hits(run)["b"] == hits(run)["c"]
    assert_same(run, serve_alone(workload))
    for name in "bc":
        first, count, _ = run.schedule(name)[0]
        assert page_size * (pages - 1) == first
        assert page_size == count


def test_generated_tokens_are_reused() -> None:
    """What a request generated is found by the next one that goes on from there."""
    first = one_by_one(((1, 2, 3),), replace(FEW, max_tokens=10))
    tokens = serve(first, EngineOptions(page_size=2, pages=30)).outputs["a"].token_ids
    workload = Workload((*first.arrivals, Arrival("next", (1, 2, 3, *tokens, 4), ONE, step=20)))
    run = serve(workload, EngineOptions(page_size=2, pages=30))
    assert 12 == hits(run)["next"]
    assert_same(run, serve_alone(workload))


def test_a_prefix_cache_that_is_off_finds_nothing() -> None:
    """Without prefix caching nothing is published, attached, retained or evicted."""
    workload = one_by_one(((1, 2, 3, 4), (1, 2, 3, 4)), FEW)
    run = serve(workload, EngineOptions(page_size=1, pages=8, prefix_caching=False))
    assert {"a": 0, "b": 0} == hits(run)
    assert not any(isinstance(action, Attach | Publish | Evict) for action in run.actions())
    assert_same(run, serve_alone(workload))


# ---------------------------------------------------------------- who resumes, and what was left half done


def test_a_resumed_request_finds_its_own_pages_before_its_work_is_sized() -> None:
    """Hazard: work is sized as if nothing were cached, then the request's own pages are found, and it runs past its
    end. Of 64 requests of 10 to 100 tokens in a pool nearly full, every resumed chunk begins where the hits end.
    """
    random = Random(9)
    arrivals = tuple(
        Arrival(
            f"r{i}",
            tuple(random.randrange(3) for _ in range(random.randrange(10, 100))),
            SamplingParams(max_tokens=random.randrange(2, 30), temperature=0, seed=i),
            step=i // 8,
        )
        for i in range(64)
    )
    workload = Workload(arrivals)
    options = EngineOptions(page_size=4, pages=workload.pages(4) + 30, token_budget=128, max_seqs=32)
    run = serve(workload, options)
    resumed_with_hits = 0
    lost: set[str] = set()
    for event in run.events:
        for action in getattr(event, "actions", ()):
            if isinstance(action, Preempt):
                lost.add(action.request)
            elif isinstance(action, Attach) and action.request in lost:
                resumed_with_hits += 1
                lost.discard(action.request)
    assert resumed_with_hits >= 5
    assert_same(run, serve_alone(workload))
    assert_at_rest(run)


@pytest.mark.parametrize("preempted", [False, True])
def test_chunks_of_a_request_that_left_half_way(preempted: bool) -> None:
    """Hazard: chunks are published while a prompt is being computed, then the request is called off or preempted and
    its pages are freed under the index. Others take the pages, the prompt comes again: all the same, all accounted for.
    """
    prompt = tuple(i % 11 for i in range(16))
    first = Arrival("first", (9, 9), replace(FEW, max_tokens=12))
    begun = Arrival("begun", prompt, FEW, step=1)
    others = (Arrival("other", (8,) * 14, FEW, step=3), Arrival("again", prompt, FEW, step=8))
    if preempted:
        workload = Workload((first, begun, *others))
        options = EngineOptions(page_size=2, pages=11, token_budget=5)
    else:
        workload = Workload((begun, *others), cancels=((2, "begun"),))
        options = EngineOptions(page_size=2, pages=10, token_budget=5)
    run = serve(workload, options)
    assert preempted == any(isinstance(action, Preempt) for action in run.actions())
    assert ("cancelled" == run.outputs["begun"].finish_reason) == (not preempted)
    assert any(isinstance(action, Publish) and action.request == "begun" for action in run.actions())
    assert_same(run, serve_alone(workload))
    assert_at_rest(run)
