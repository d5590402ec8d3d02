"""The state of an engine (sections 4.1 and 4.2 of the paper): requests, pages, and who holds which.

A *slot* holds the KV pairs of one position, over all layers; a *page* is `page_size` consecutive slots. A request
reads its cached positions through its *page table*. A page that is absent from the state is free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

RequestId = NewType("RequestId", str)
"""Names one request, for ever: an identifier is never used twice."""

PageId = NewType("PageId", int)
"""Names one physical page of the KV pool."""

Token = NewType("Token", int)
"""An index into the model's vocabulary."""

Domain = NewType("Domain", str)
"""An opaque tenant key. Pages are shared within a domain, never across domains."""

Value = NewType("Value", object)
"""The KV pairs of one position, over all layers: bit patterns. In a trace, their digest."""

Logits = NewType("Logits", object)
"""A row of raw logits: bit patterns. In a trace, its digest."""

Sampler = NewType("Sampler", object)
"""The state of a request's sampler: its parameters, its seed, and the index of its next output."""


@dataclass(frozen=True)
class Request:
    """A live request. (One that has finished, was cancelled or has failed is absent.)"""

    prompt: tuple[Token, ...]
    """What it came with; never empty."""

    output: tuple[Token, ...]
    """What it has emitted so far."""

    draft: tuple[Token, ...]
    """Proposed continuation of the history, to be verified; empty most of the time."""

    sampler: Sampler
    """The sampler state for its next output."""

    cached: int
    """The KV of the first `cached` positions of history + draft can be read through the table."""

    table: tuple[PageId, ...]
    """Position p lies in the page table[p // page_size], at offset p % page_size."""

    domain: Domain
    """Whose pages it may share."""

    arrival: int
    """Its rank: of two live requests the one with the lower arrival came first."""


@dataclass(frozen=True)
class Page:
    """A page in use: held by a request, or registered, or both."""

    prefix: tuple[Token, ...]
    """Ghost: the tokens before the page's first slot."""

    tokens: tuple[Token, ...]
    """The tokens of its initialised slots, in order. Slots beyond them are uninitialised and carry no obligation."""

    kv: tuple[Value, ...]
    """The values of its initialised slots."""

    holders: frozenset[RequestId]
    """The requests whose table contains it."""

    registered: bool
    """Whether other requests may attach it. A registered page is full and never changes."""

    parent: PageId | None
    """Of a registered page: the registered page that holds the tokens before it; None at the start of a sequence."""

    domain: Domain
    """Whose page it is."""


@dataclass(frozen=True)
class State:
    """The state E of an engine (section 4)."""

    requests: Mapping[RequestId, Request]
    """The live requests."""

    pages: Mapping[PageId, Page]
    """The pages in use; every other page of `capacity` is free."""

    capacity: frozenset[PageId]
    """All pages of the pool."""

    seen: frozenset[RequestId]
    """Ghost: every identifier ever admitted."""

    page_size: int
    """Slots per page, at least 1."""


def initial(capacity: frozenset[PageId], page_size: int) -> State:
    """The state before any request: an empty pool."""
    return State(requests={}, pages={}, capacity=capacity, seen=frozenset(), page_size=page_size)


def history(request: Request) -> tuple[Token, ...]:
    """Prompt and output: the tokens that the next logits are a function of."""
    return request.prompt + request.output


def sequence(request: Request) -> tuple[Token, ...]:
    """History and draft: the tokens that positions are counted in."""
    return request.prompt + request.output + request.draft


def cached_value(s: State, r: RequestId, p: int) -> Value:
    """E.kv[r.slot(p)]: the value of position p, read through the page table. Needs 0 ≤ p < cached."""
    return s.pages[s.requests[r].table[p // s.page_size]].kv[p % s.page_size]


def cached_values(s: State, r: RequestId, n: int) -> tuple[Value, ...]:
    """The values of the first n positions. Needs n ≤ cached."""
    return tuple(cached_value(s, r, p) for p in range(n))
