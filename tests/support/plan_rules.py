"""What every plan must keep to, checked by replaying its actions on the pool it was made for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from vosti.impl import engine as engine_module
from vosti.impl import pool as pools
from vosti.impl.planning import Candidate, Limits, Plan, Victims, plan_step
from vosti.impl.pool_state import Pool
from vosti.spec.state import PageId, RequestId
from vosti.spec.step import Allocate, Attach, Evict, Preempt, Propose


class BrokenRule(AssertionError):
    """A plan that breaks a rule; says which."""


def require(condition: bool, rule: str) -> None:
    """Raise `BrokenRule` if the condition is false."""
    if not condition:
        raise BrokenRule(rule)


def next_victim(pool: Pool) -> PageId | None:
    """The retained leaf that became idle first, the deepest of those that became so together; by looking at all."""
    parents = {page.parent for page in pool.pages.values()}
    leaves = [page for page in pool.idle if page not in parents]
    return min(leaves, key=lambda page: (pool.idle[page], -pool.pages[page].depth, page), default=None)


def check_plan(pool: Pool, candidates: Sequence[Candidate], limits: Limits, plan: Plan) -> None:
    """Replay a plan.

    Raises:
        BrokenRule: naming the first rule that it breaks.
    """
    histories = {candidate.request: candidate.history for candidate in candidates}
    asked = {candidate.request: candidate.asked for candidate in candidates}
    rank = {candidate.request: i for i, candidate in enumerate(candidates)}
    drafts: dict[RequestId, int] = {}
    for action in plan.actions:
        match action:
            case Attach(request=r, page=page):
                start, first = pool.requests[r].cached, asked[r]
                require(first is None or start + pool.page_size <= first, "what is asked for is computed")
                tokens = histories[r][start : start + pool.page_size]
                require(pools.attach_guard(pool, r, page, tokens, len(histories[r])), "only an exact match is attached")
                pool = pools.attach(pool, r, page, tokens, len(histories[r]))
            case Allocate(request=r, page=page):
                require(pools.allocate_guard(pool, r, page), "only a free page is allocated")
                pool = pools.allocate(pool, r, page)
            case Evict(page=page):
                require(not pool.free, "nothing is evicted while a page is free")
                require(page == next_victim(pool), "the least recently used leaf is evicted")
                pool = pools.evict(pool, page)
            case Preempt(request=loser, in_favour_of=winner):
                require(rank[winner] < rank[loser], "an earlier arrival is favoured")
                require(not pool.free and not pool.idle, "nobody is preempted while a page can be had otherwise")
                holding = [r for r in rank if pool.requests[r].table and rank[r] > rank[winner]]
                require(loser == max(holding, key=rank.__getitem__), "the latest arrival that holds pages is preempted")
                pool = pools.preempt(pool, loser)
            case Propose(request=r, draft=draft):
                drafts[r] = len(draft)
            case _:
                raise BrokenRule(f"{action} is not planned here")
    require(pool == plan.pool, "the actions lead to the plan's pool")
    check_chunks(pool, candidates, limits, plan, drafts)


def check_chunks(
    pool: Pool, candidates: Sequence[Candidate], limits: Limits, plan: Plan, drafts: dict[RequestId, int]
) -> None:
    """The rules about rows, in the pool that the actions led to."""
    rank = {candidate.request: i for i, candidate in enumerate(candidates)}
    rows = sum(chunk.count for chunk in plan.chunks)
    require(rows <= limits.token_budget, "the token budget is kept")
    require(len(plan.chunks) <= limits.max_seqs, "max_seqs is kept")
    ranks = [rank[chunk.request] for chunk in plan.chunks]
    require(ranks == sorted(set(ranks)), "one chunk for a request, in order of arrival")
    require({c.request: len(c.draft) for c in plan.chunks if c.draft} == drafts, "a draft is proposed and verified")
    for chunk in plan.chunks:
        candidate, holding = candidates[rank[chunk.request]], pool.requests[chunk.request]
        end = chunk.start + chunk.count
        require(chunk.count >= 1, "a chunk has rows")
        require(chunk.start == holding.cached, "a chunk begins where the cache ends")
        require(end <= len(holding.table) * pool.page_size, "a chunk stays in its table")
        require(chunk.draft == candidate.proposal[: len(chunk.draft)], "a draft is the beginning of what was proposed")
        whole = end == len(candidate.history) + len(chunk.draft)
        require(whole or (not chunk.draft and end < len(candidate.history)), "a draft follows the whole history")
    served = {chunk.request for chunk in plan.chunks}
    if rows < limits.token_budget and len(plan.chunks) < limits.max_seqs:
        for candidate in candidates:
            holding = pool.requests[candidate.request]
            needs_page = holding.cached == len(holding.table) * pool.page_size
            require(needs_page or candidate.request in served, "whoever needs no page runs, whoever else waits")
    if candidates:
        first = candidates[0]
        remaining = len(first.history) - pool.requests[first.request].cached
        count = next((chunk.count for chunk in plan.chunks if chunk.request == first.request), 0)
        require(count >= min(remaining, limits.token_budget), "the earliest request gets all that it can use")


@contextmanager
def checked_plans() -> Iterator[list[Plan]]:
    """Every plan that an engine makes inside is checked, and kept in the list."""
    plans: list[Plan] = []

    def checked(pool: Pool, candidates: Sequence[Candidate], limits: Limits, victims: Victims) -> Plan:
        plan = plan_step(pool, candidates, limits, victims)
        check_plan(pool, candidates, limits, plan)
        plans.append(plan)
        return plan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "plan_step", checked)
        yield plans
