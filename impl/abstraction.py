"""The abstraction: from the engine's own structures to what the specification can compare (section 4.2 of the paper).

It reads the page pool and the engine's records of live requests. It takes nothing from recorded actions, so that a
structure that changed without an action, or an action that changed nothing, shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from vosti.impl.pool_state import Pool
from vosti.spec.events import PageView, Snapshot
from vosti.spec.sampling import SamplerState
from vosti.spec.state import PageId, Request, RequestId, Sampler, Token, sequence


class LiveRequest(Protocol):
    """What the engine keeps of a live request, beside what the pool keeps."""

    @property
    def prompt(self) -> tuple[Token, ...]:
        """What it came with."""

    @property
    def output(self) -> tuple[Token, ...]:
        """What it has emitted."""

    @property
    def draft(self) -> tuple[Token, ...]:
        """What is being verified."""

    @property
    def sampler(self) -> SamplerState:
        """The sampler state for its next output."""

    @property
    def arrival(self) -> int:
        """Its rank."""


def snapshot(pool: Pool, live: Mapping[RequestId, LiveRequest]) -> Snapshot:
    """The engine's state, abstracted.

    The two structures know of the same requests, or they are corrupt: a request that only one of them has is left
    out, and is missed where the specification has it.
    """
    requests = {
        r: Request(
            prompt=record.prompt,
            output=record.output,
            draft=record.draft,
            sampler=Sampler(record.sampler),
            cached=pool.requests[r].cached,
            table=pool.requests[r].table,
            domain=pool.requests[r].domain,
            arrival=record.arrival,
        )
        for r, record in live.items()
        if r in pool.requests
    }
    owners = {
        page_id: (r, block)
        for r, holding in pool.requests.items()
        for block, page_id in enumerate(holding.table)
        if page_id in pool.pages and not pool.pages[page_id].registered
    }
    indexed = frozenset(pool.index.values())
    pages = {
        page_id: PageView(
            registered=page.registered,
            parent=page.parent,
            domain=page.domain,
            refcount=page.refcount,
            tokens=page.tokens if page.registered else _private_tokens(requests, owners, page_id, pool.page_size),
            indexed=page_id in indexed,
        )
        for page_id, page in pool.pages.items()
    }
    return Snapshot(requests=requests, pages=pages, free=frozenset(pool.free))


def _private_tokens(
    requests: Mapping[RequestId, Request],
    owners: Mapping[PageId, tuple[RequestId, int]],
    page_id: PageId,
    page_size: int,
) -> tuple[Token, ...]:
    if page_id not in owners or owners[page_id][0] not in requests:
        return ()
    r, block = owners[page_id]
    request = requests[r]
    return sequence(request)[block * page_size : min((block + 1) * page_size, request.cached)]
