"""What the next step does: pure functions over the pool and plain data about requests.

Requests are served in the order of arrival. The earliest one gets the whole token budget if it can use it, and every
page that later arrivals hold if it needs them, so it emits within ⌈remaining / token budget⌉ + 2 steps. A request
that needs no page runs although an earlier one waits for some.

A plan is a tuple of the specification's own actions, with the pool that they lead to and the chunks that the forward
computes. The pool's guards are asserted on the way: a plan that broke one would be a fault of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from vosti.impl import pool as pools
from vosti.impl.history import Tokens
from vosti.impl.pool_state import Pool
from vosti.spec.state import PageId, RequestId, Token
from vosti.spec.step import Action, Allocate, Attach, Evict, Preempt, Propose

FREE_CHOICES = 64
"""From how many free pages one is chosen: enough to permute a small pool, and a bounded cost in a large one."""


@dataclass(frozen=True)
class Limits:
    """The engine's limits, as far as planning needs them."""

    max_seqs: int
    token_budget: int
    prefix_caching: bool
    page_seed: int


@dataclass(frozen=True)
class Candidate:
    """What planning knows of a live request, beside what the pool knows."""

    request: RequestId
    history: Tokens
    proposal: tuple[Token, ...]
    """A draft to verify if there is room for it; it must not reach beyond the request's last token."""

    asked: int | None = None
    """The first position whose logits are asked for, which has to be computed: None for the history's last."""


@dataclass(frozen=True)
class Chunk:
    """The rows of one request in a forward: positions start .. start + count - 1."""

    request: RequestId
    start: int
    count: int
    draft: tuple[Token, ...]
    """The draft that is verified, the chunk's last len(draft) positions; () for none."""


@dataclass(frozen=True)
class Plan:
    """What a step does before and in its forward."""

    actions: tuple[Action, ...]
    chunks: tuple[Chunk, ...]
    pool: Pool
    """The pool after the actions."""


class Victims:
    """The retained pages that nobody holds, in the order in which they are given up, sorted once for many steps.

    Whatever becomes idle later stands behind all that was idle before, so what is left of an order stays right; a page
    that was attached since is passed over. Kept for one pool and those that come of it, it changes no plan.
    """

    def __init__(self) -> None:
        self._order: Iterator[tuple[PageId, int]] = iter(())

    def next(self, pool: Pool) -> PageId | None:
        """The page to give up next, and no other time; None if no page is idle."""
        if not pool.idle:
            return None
        found = self._next(pool)
        if found is None:
            self._order = iter([(page, pool.idle[page]) for page in eviction_order(pool)])
            found = self._next(pool)
        assert found is not None, "of the pages that nobody holds one is a leaf"
        return found

    def _next(self, pool: Pool) -> PageId | None:
        idle = (page for page, since in self._order if pool.idle.get(page) == since)
        return next((page for page in idle if pools.evict_guard(pool, page)), None)


def plan_step(pool: Pool, candidates: Sequence[Candidate], limits: Limits, victims: Victims | None = None) -> Plan:
    """Plan one step.

    Args:
        pool: the pool, in which every candidate is live.
        candidates: the live requests, in order of arrival.
        limits: the engine's limits.
        victims: what was kept of the pools before this one; by default the order is worked out anew.
    """
    order = [candidate.request for candidate in candidates]
    planner = _Planner(pool, limits, order, Victims() if victims is None else victims)
    for rank, candidate in enumerate(candidates):
        if planner.budget == 0 or len(planner.chunks) == limits.max_seqs:
            break
        planner.schedule(candidate, rank)
    return Plan(actions=tuple(planner.actions), chunks=tuple(planner.chunks), pool=planner.pool)


@dataclass
class _Planner:
    """A plan in the making."""

    pool: Pool
    limits: Limits
    order: Sequence[RequestId]
    victims: Victims
    actions: list[Action] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    rows: int = 0
    """Of all chunks."""

    @property
    def budget(self) -> int:
        """Rows that are still to be had."""
        return self.limits.token_budget - self.rows

    def schedule(self, candidate: Candidate, rank: int) -> None:
        """Give the request what it can use of the budget, as far as pages can be had."""
        r, history = candidate.request, candidate.history
        if self.limits.prefix_caching:
            self.attach_known(r, history, len(history) - 1 if candidate.asked is None else candidate.asked)
        cached = self.pool.requests[r].cached
        wanted = min(self.budget, len(history) - cached)
        draft = candidate.proposal[: self.budget - wanted] if cached + wanted == len(history) else ()
        self.extend_table(r, cached + wanted, self.order[rank + 1 :])
        if draft:
            self.extend_table(r, cached + wanted + len(draft), ())  # nobody is preempted for a guess
        room = len(self.pool.requests[r].table) * self.pool.page_size - cached
        draft = draft[: max(0, room - wanted)]
        count = min(wanted, room) + len(draft)
        if count == 0:
            return
        if draft:
            self.actions.append(Propose(r, draft))
        self.chunks.append(Chunk(request=r, start=cached, count=count, draft=draft))
        self.rows += count

    def attach_known(self, r: RequestId, known: Tokens, limit: int) -> None:
        """Reuse registered pages for as much of the history as they hold; position `limit` stays to be computed."""
        holding = self.pool.requests[r]
        if holding.cached != len(holding.table) * self.pool.page_size:
            return
        history = known[:]
        chain = pools.match_prefix(self.pool, holding.domain, history, limit, holding.table)
        if chain:
            assert pools.attach_prefix_guard(self.pool, r, chain, history)
            self.pool = pools.attach_prefix(self.pool, r, chain, history)
            self.actions += [Attach(r, page_id) for page_id in chain]

    def extend_table(self, r: RequestId, length: int, later: Sequence[RequestId]) -> None:
        """Allocate pages until the table covers `length` positions, or none can be had.

        Those in `later` may be preempted for it.
        """
        while len(self.pool.requests[r].table) * self.pool.page_size < length:
            if not self.pool.free and not self.reclaim(r, later):
                return
            page_id = min(islice(self.pool.free, FREE_CHOICES), key=page_order(self.limits.page_seed))
            assert pools.allocate_guard(self.pool, r, page_id)
            self.pool = pools.allocate(self.pool, r, page_id)
            self.actions.append(Allocate(r, page_id))

    def reclaim(self, r: RequestId, later: Sequence[RequestId]) -> bool:
        """Make a page free: evict a retained one, or else preempt the last of `later` that holds pages."""
        while not self.pool.free:
            victim = self.victims.next(self.pool)
            if victim is not None:
                self.pool = pools.evict(self.pool, victim)
                self.actions.append(Evict(victim))
                continue
            loser = next((q for q in reversed(later) if self.pool.requests[q].table), None)
            if loser is None:
                return False
            self.pool = pools.preempt(self.pool, loser)
            self.actions.append(Preempt(loser, in_favour_of=r))
        return True


def eviction_order(pool: Pool) -> list[PageId]:
    """The retained pages that nobody holds, least recently used first, children before their parents.

    Whoever holds a page holds its parent too, so a parent never became idle before its child; of those that became
    idle together the deepest goes first. Each page is therefore a leaf when its turn comes.
    """
    return sorted(pool.idle, key=lambda page: (pool.idle[page], -pool.pages[page].depth, page))


def page_order(seed: int) -> Callable[[PageId], int]:
    """The order in which free pages are taken: page numbers, scattered by a seed."""
    multiplier = 2 * seed + 1  # odd, and therefore a permutation of the residues
    return lambda page: (page * multiplier * 0x9E3779B97F4A7C15) % 2**64 if seed else page


def pages_needed(length: int, page_size: int) -> int:
    """How many pages hold `length` positions."""
    return -(-length // page_size)


def chunk_counts(chunks: Sequence[Chunk]) -> Mapping[RequestId, int]:
    """How many slots a forward writes, by request."""
    return {chunk.request: chunk.count for chunk in chunks}
