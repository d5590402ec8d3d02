"""Planning as a pure function: hits, pages, evictions, preemptions, drafts and budgets of one step."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from company import random_options, random_workload, serve
from engine_faults.edits import applied, fault
from plan_rules import BrokenRule, check_plan
from vosti.impl import pool as pools
from vosti.impl.planning import (
    Candidate,
    Chunk,
    Limits,
    Plan,
    Victims,
    chunk_counts,
    eviction_order,
    page_order,
    pages_needed,
    plan_step,
)
from vosti.impl.pool_state import Pool, empty
from vosti.spec.state import Domain, PageId, RequestId, Token
from vosti.spec.step import Action, Allocate, Attach, Cancel, Evict, Preempt, Propose

A, B, C = map(RequestId, "abc")
ROOMY = Limits(max_seqs=8, token_budget=64, prefix_caching=True, page_seed=0)


def some(*tokens: int) -> tuple[Token, ...]:
    """Tokens."""
    return tuple(map(Token, tokens))


def candidate(r: RequestId, history: Sequence[int], proposal: Sequence[int] = ()) -> Candidate:
    """A live request."""
    return Candidate(r, some(*history), some(*proposal))


def fresh(pages: int, page_size: int, live: Iterable[RequestId]) -> Pool:
    """An empty pool with live requests."""
    pool = empty(frozenset(map(PageId, range(pages))), page_size)
    for r in live:
        pool = pools.admit(pool, r, Domain(""))
    return pool


def computed(pool: Pool, candidates: Sequence[Candidate], limits: Limits = ROOMY, *, publish: bool = True) -> Pool:
    """The pool after a step of these candidates, with what is full published."""
    plan = plan_step(pool, candidates, limits)
    check_plan(pool, candidates, limits, plan)
    histories = {one.request: one.history for one in candidates}
    pool = plan.pool
    for chunk in plan.chunks:
        history = histories[chunk.request]
        pool = pools.advance(pool, chunk.request, chunk.count, len(history) + len(chunk.draft))
        for block in range(pool.requests[chunk.request].cached // pool.page_size if publish else 0):
            tokens = history[block * pool.page_size : (block + 1) * pool.page_size]
            if pools.publish_guard(pool, chunk.request, block, tokens, len(history)):
                pool = pools.publish(pool, chunk.request, block, tokens, len(history))
    return pool


def planned(pool: Pool, candidates: Sequence[Candidate], limits: Limits = ROOMY) -> Plan:
    """A plan that keeps the rules."""
    plan = plan_step(pool, candidates, limits)
    check_plan(pool, candidates, limits, plan)
    return plan


# ---------------------------------------------------------------- rows


def test_nobody_to_serve() -> None:
    """Without candidates a plan is empty, and the pool the same."""
    pool = fresh(3, 4, ())
    assert Plan((), (), pool) == plan_step(pool, (), ROOMY)


def test_a_prompt_gets_pages_and_rows() -> None:
    """A prompt gets the pages that it needs, no more, and a row for each token."""
    plan = planned(fresh(5, 4, (A,)), (candidate(A, range(9)),))
    assert (Allocate(A, PageId(0)), Allocate(A, PageId(1)), Allocate(A, PageId(2))) == plan.actions
    assert (Chunk(A, 0, 9, ()),) == plan.chunks


@pytest.mark.parametrize(("budget", "expected"), [(3, [3]), (9, [9]), (11, [9, 2]), (15, [9, 5, 1]), (64, [9, 5, 6])])
def test_the_budget_is_spent_in_order_of_arrival(budget: int, expected: list[int]) -> None:
    """Whoever came first gets all that it can use, the next one what is left."""
    candidates = (candidate(A, range(9)), candidate(B, range(20, 25)), candidate(C, range(30, 36)))
    plan = planned(fresh(9, 4, (A, B, C)), candidates, replace(ROOMY, token_budget=budget))
    assert expected == [chunk.count for chunk in plan.chunks]


def test_max_seqs_counts_requests_with_rows() -> None:
    """No more requests than max_seqs have rows; the earliest do."""
    candidates = (candidate(A, (1,)), candidate(B, (2,)), candidate(C, (3,)))
    plan = planned(fresh(9, 4, (A, B, C)), candidates, replace(ROOMY, max_seqs=2))
    assert [A, B] == [chunk.request for chunk in plan.chunks]


def test_a_chunk_takes_what_pages_can_be_had() -> None:
    """With fewer pages than it needs, a request computes as far as its table goes; with none it waits."""
    candidates = (candidate(A, range(9)), candidate(B, range(20, 26)), candidate(C, (1,)))
    plan = planned(fresh(4, 4, (A, B, C)), candidates)
    assert (Chunk(A, 0, 9, ()), Chunk(B, 0, 4, ())) == plan.chunks


# ---------------------------------------------------------------- hits


def test_known_pages_are_attached_and_the_last_token_is_not() -> None:
    """A prefix that is known is attached page by page; at least one token is computed."""
    pool = computed(fresh(9, 2, (A,)), (candidate(A, (1, 2, 3, 4, 5)),))
    pool = pools.admit(pool, B, Domain(""))
    for history, attached in (((1, 2, 3, 4), 1), ((1, 2, 3, 4, 9), 2), ((1, 2, 9, 4, 5), 1), ((9, 2, 3, 4), 0)):
        plan = planned(pool, (candidate(A, (1, 2, 3, 4, 5, 6)), candidate(B, history)))
        assert [Attach(B, PageId(i)) for i in range(attached)] == [a for a in plan.actions if isinstance(a, Attach)]
        assert Chunk(B, 2 * attached, len(history) - 2 * attached, ()) == plan.chunks[-1]


def test_hits_stay_within_the_domain() -> None:
    """The same tokens in another domain are not attached."""
    pool = computed(fresh(9, 2, (A,)), (candidate(A, (1, 2, 3)),))
    pool = pools.admit(pool, B, Domain("other"))
    plan = planned(pool, (candidate(A, (1, 2, 3, 4)), candidate(B, (1, 2, 3))))
    assert not any(isinstance(action, Attach) for action in plan.actions)


def test_without_caching_nothing_is_attached() -> None:
    """With the prefix cache off, a known prefix is computed anew."""
    pool = computed(fresh(9, 2, (A,)), (candidate(A, (1, 2, 3)),))
    pool = pools.admit(pool, B, Domain(""))
    both = (candidate(A, (1, 2, 3, 4)), candidate(B, (1, 2, 3)))
    assert Chunk(B, 0, 3, ()) == planned(pool, both, replace(ROOMY, prefix_caching=False)).chunks[-1]


# ---------------------------------------------------------------- pages


def test_a_free_page_before_a_retained_one_before_a_preemption() -> None:
    """A page is taken from the free ones, then by eviction of the least recently used leaf, and only then from the
    request that came last.
    """
    pool = computed(fresh(6, 2, (A,)), (candidate(A, (1, 2, 3, 4, 5)),))
    pool = pools.remove(pool, A)  # pages 0 and 1 are retained, 0 the parent of 1
    pool = pools.admit(pools.admit(pool, B, Domain("")), C, Domain(""))
    pool = computed(pool, (candidate(B, (7, 7, 7)), candidate(C, (8,))), publish=False)
    assert 1 == len(pool.free)
    plan = planned(pool, (candidate(B, (7,) * 10), candidate(C, (8, 8))))
    assert [Evict(PageId(1)), Evict(PageId(0))] == [a for a in plan.actions if not isinstance(a, Allocate)]
    assert [B, C] == [chunk.request for chunk in plan.chunks]
    plan = planned(pool, (candidate(B, (7,) * 11), candidate(C, (8, 8))))
    assert [Evict(PageId(1)), Evict(PageId(0)), Preempt(C, B)] == [
        action for action in plan.actions if not isinstance(action, Allocate)
    ]
    assert [B] == [chunk.request for chunk in plan.chunks]


def test_a_later_request_never_takes_from_an_earlier_one() -> None:
    """The last of the queue waits, although an earlier request holds pages that it does not need yet."""
    pool = computed(fresh(2, 2, (A, B)), (candidate(A, (1, 2, 3)),), publish=False)
    plan = planned(pool, (candidate(A, (1, 2, 3, 4)), candidate(B, (9,))))
    assert () == plan.actions
    assert (Chunk(A, 3, 1, ()),) == plan.chunks


def test_the_last_arrival_gives_way_first() -> None:
    """Of several later requests, the one that came last is preempted, and no more of them than needed."""
    three = (candidate(A, (1, 1)), candidate(B, (2,)), candidate(C, (3,)))
    pool = computed(fresh(3, 2, (A, B, C)), three, publish=False)
    plan = planned(pool, (candidate(A, (1, 1, 1)), candidate(B, (2, 2)), candidate(C, (3, 3))))
    assert (Preempt(C, in_favour_of=A), Allocate(A, PageId(2))) == plan.actions
    assert [A, B] == [chunk.request for chunk in plan.chunks]


def test_retained_pages_are_given_up_oldest_first_and_children_before_parents() -> None:
    """Chains that became idle one after the other go in that order, each from its end."""
    pool = fresh(9, 1, (A, B))
    pool = computed(pool, (candidate(A, (1, 2, 3)), candidate(B, (1, 5, 6))))
    pool = pools.remove(pools.remove(pool, B), A)
    order = eviction_order(pool)
    assert [(3, 2), (3, 1), (3, 0)] == [(pool.idle[p] + 3, pool.pages[p].depth) for p in order][:3]
    for page in order:
        assert pools.evict_guard(pool, page)
        pool = pools.evict(pool, page)
    assert 9 == len(pool.free)


def test_an_order_of_victims_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """In company each plan of an engine, which keeps the order, is the plan of an order that is worked out anew."""
    evicted = 0

    def compared(pool: Pool, candidates: Sequence[Candidate], limits: Limits, victims: Victims) -> Plan:
        nonlocal evicted
        plan = plan_step(pool, candidates, limits, victims)
        assert plan_step(pool, candidates, limits) == plan
        evicted += sum(isinstance(action, Evict) for action in plan.actions)
        return plan

    monkeypatch.setattr("vosti.impl.engine.plan_step", compared)
    for seed in range(4):
        random = Random(seed)
        workload = random_workload(random, vocab_size=3)
        options = random_options(random, workload, 4)
        serve(workload, replace(options, page_size=1, pages=workload.pages(1) + 2, max_seqs=2))
    assert evicted > 100


def after_use() -> PageId | None:
    """What is given up second, of two chains of which the older one was used again after it had lost its last page."""
    pool = computed(fresh(9, 1, (A, B)), (candidate(A, (1, 2, 3)), candidate(B, (4, 5, 6))))
    pool, victims = pools.remove(pools.remove(pool, A), B), Victims()
    first = victims.next(pool)
    assert first is not None
    pool = pools.admit(pools.evict(pool, first), C, Domain(""))
    pool = pools.remove(computed(pool, (candidate(C, (1, 2, 9)),), publish=False), C)
    assert 5 == len(pool.idle)
    return victims.next(pool)


def test_what_was_used_again_is_passed_over() -> None:
    """The order that was kept knows of a page that it is idle since another time; one that forgets gives it up."""
    assert PageId(5) == after_use()
    with applied(fault("forgets", ("planning:Victims._next", "pool.idle.get(page) == since", "page in pool.idle"))):
        assert PageId(1) == after_use()


# ---------------------------------------------------------------- drafts


def test_a_draft_takes_what_is_left_of_budget_and_table() -> None:
    """A draft follows the whole history, and is cut to the rows that are left."""
    pool = fresh(9, 4, (A,))
    whole = candidate(A, (1, 2, 3), (4, 5, 6))
    assert (Chunk(A, 0, 6, some(4, 5, 6)),) == planned(pool, (whole,)).chunks
    assert Propose(A, some(4, 5)) in planned(pool, (whole,), replace(ROOMY, token_budget=5)).actions
    assert (Chunk(A, 0, 3, ()),) == planned(pool, (whole,), replace(ROOMY, token_budget=3)).chunks
    assert (Chunk(A, 0, 2, ()),) == planned(pool, (whole,), replace(ROOMY, token_budget=2)).chunks


def test_nobody_is_preempted_for_a_guess() -> None:
    """A draft takes free and retained pages; where there are none, it is cut to the table."""
    pool = computed(fresh(2, 2, (A, B)), (candidate(A, (1,)), candidate(B, (9,))), publish=False)
    plan = planned(pool, (candidate(A, (1, 2), (3, 4)), candidate(B, (9, 8))))
    assert () == plan.actions
    assert (Chunk(A, 1, 1, ()), Chunk(B, 1, 1, ())) == plan.chunks
    pool = computed(fresh(3, 2, (A, B)), (candidate(A, (1,)), candidate(B, (9,))), publish=False)
    plan = planned(pool, (candidate(A, (1, 2), (3, 4, 5)), candidate(B, (9, 8))))
    assert (Allocate(A, PageId(2)), Propose(A, some(3, 4))) == plan.actions


# ---------------------------------------------------------------- small parts


@given(seed=st.integers(0, 2**70), pages=st.sets(st.integers(0, 10**6), max_size=50))
def test_page_order_is_an_order(seed: int, pages: set[int]) -> None:
    """Different pages have different places, whatever the seed; seed 0 is the order of numbers."""
    order = page_order(seed)
    assert len(pages) == len({order(PageId(page)) for page in pages})
    assert sorted(pages) == sorted(pages, key=lambda page: page_order(0)(PageId(page)))


def test_page_orders_differ() -> None:
    """Seeds permute the pages of a small pool."""
    orders = {tuple(sorted(range(12), key=lambda page: page_order(seed)(PageId(page)))) for seed in range(20)}
    assert len(orders) >= 15


@given(length=st.integers(0, 300), page_size=st.integers(1, 70))
def test_pages_needed_is_the_least_number(length: int, page_size: int) -> None:
    """That many pages hold the positions, and one less does not."""
    pages = pages_needed(length, page_size)
    assert length <= pages * page_size
    assert pages == 0 or (pages - 1) * page_size < length


def test_counts_by_request() -> None:
    """How many slots a forward writes."""
    assert {A: 3, B: 1} == chunk_counts((Chunk(A, 0, 3, ()), Chunk(B, 7, 1, ())))


# ---------------------------------------------------------------- the rules themselves


def _with_actions(plan: Plan, *actions: Action) -> Plan:
    return replace(plan, actions=actions)


def test_broken_plans_are_noticed() -> None:
    """Each rule of plans is false for a plan that breaks it."""
    pool = pools.remove(computed(fresh(6, 2, (A,)), (candidate(A, (1, 2, 3, 4, 5)),)), A)
    pool = pools.admit(pools.admit(pool, B, Domain("")), C, Domain(""))
    pool = computed(pool, (candidate(B, (7,)), candidate(C, (8,))), publish=False)
    two = (candidate(B, (7, 7)), candidate(C, (8, 8)))
    plan = planned(pool, two)
    chunk = plan.chunks[0]
    full = replace(pool, free=pool.free.delete(PageId(4)).delete(PageId(5)))
    broken: list[tuple[str, Pool, Plan]] = [
        ("only an exact match is attached", pool, _with_actions(plan, Attach(B, PageId(0)))),
        ("only a free page is allocated", pool, _with_actions(plan, Allocate(B, PageId(0)))),
        ("nothing is evicted while a page is free", pool, _with_actions(plan, Evict(PageId(1)))),
        ("the least recently used leaf is evicted", full, _with_actions(plan, Evict(PageId(0)))),
        ("an earlier arrival is favoured", pool, _with_actions(plan, Preempt(B, C))),
        ("nobody is preempted while a page can be had otherwise", full, _with_actions(plan, Preempt(C, B))),
        ("is not planned here", pool, _with_actions(plan, Cancel(B))),
        ("the actions lead to the plan's pool", pool, _with_actions(plan, Allocate(B, PageId(4)))),
        ("in order of arrival", pool, replace(plan, chunks=plan.chunks[::-1])),
        ("a draft is proposed and verified", pool, _with_actions(plan, Propose(B, some(1)))),
        ("a chunk has rows", pool, replace(plan, chunks=(replace(chunk, count=0),))),
        ("a chunk begins where the cache ends", pool, replace(plan, chunks=(replace(chunk, start=0),))),
        ("a chunk stays in its table", pool, replace(plan, chunks=(replace(chunk, count=2),))),
        ("whoever needs no page runs", pool, replace(plan, chunks=plan.chunks[:1])),
    ]
    for rule, before, wrong in broken:
        with pytest.raises(BrokenRule, match=rule):
            check_plan(before, two, ROOMY, wrong)
    with pytest.raises(BrokenRule, match="the token budget is kept"):
        check_plan(pool, two, replace(ROOMY, token_budget=1), plan)
    with pytest.raises(BrokenRule, match="max_seqs is kept"):
        check_plan(pool, two, replace(ROOMY, max_seqs=1), plan)
    with pytest.raises(BrokenRule, match="the earliest request gets all that it can use"):
        check_plan(pool, two, replace(ROOMY, max_seqs=1), replace(plan, chunks=plan.chunks[1:]))
