"""The state of the page pool: which request holds which page, and which pages may be shared (section 4.1 of the paper).

A value, made of persistent maps. What may happen to it is in `vosti.impl.pool`, what always holds of it in
`vosti.impl.pool_invariants`.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import NewType

from immutables import Map

from vosti.spec.reference import opaque
from vosti.spec.state import Domain, PageId, RequestId, Token

Key = NewType("Key", int)
"""A hash of what a page is found by."""

KEY_SPACE = 2**64
"""How many different keys there are in service."""


@dataclass(frozen=True)
class Holding:
    """What the pool knows of a live request."""

    table: tuple[PageId, ...]
    """Position p lies in table[p // page_size]."""

    cached: int
    """How many slots of the table hold KV."""

    domain: Domain
    """Whose pages it may share."""


@dataclass(frozen=True)
class PageMeta:
    """A page in use: held by a request, or registered, or both."""

    refcount: int
    """How many tables contain it."""

    children: int
    """How many registered pages have it as their parent. A leaf has none."""

    registered: bool
    """Whether other requests may attach it. A registered page is full and never changes."""

    tokens: tuple[Token, ...]
    """Of a registered page: its tokens. Of a private page: (), they are its owner's."""

    parent: PageId | None
    """Of a registered page: the registered page that holds the tokens before it; None at the start of a sequence."""

    domain: Domain
    """Whose page it is."""

    depth: int
    """Its place in every table that contains it: as many pages come before it."""


@dataclass(frozen=True)
class Pool:
    """The whole pool; a value, never changed in place."""

    requests: Map[RequestId, Holding]
    """The live requests."""

    pages: Map[PageId, PageMeta]
    """The pages in use."""

    free: Map[PageId, int]
    """The pages not in use, each with the clock at which it became free."""

    idle: Map[PageId, int]
    """The registered pages that nobody holds, each with the clock at which it became so.

    The leaf (`children` = 0) of the least clock, of these the deepest, is the least recently used: a page that has a
    child in use is in use itself.
    """

    index: Map[Key, PageId]
    """Candidates for a match. A page whose key was taken when it was published is not in it."""

    capacity: frozenset[PageId]
    """All pages, in use or not."""

    page_size: int
    """Slots per page, at least 1."""

    key_space: int
    """How many different keys there are, at least 1. `KEY_SPACE` in service; 1 makes all pages collide."""

    clock: int
    """How many releases there were."""


@opaque
def page_key(key_space: int, domain: Domain, parent: PageId | None, tokens: tuple[Token, ...]) -> Key:
    """Where a page with these tokens after this parent is looked up.

    No more than that: whatever function it is, no page is attached that does not match exactly. `key_space` is an
    argument so that a test can make it a bad one, with collisions at every turn, while the text stays the same. It is
    the same function in every process, which `hash` of a string or of None is not.
    """
    tenant = zlib.crc32(domain.encode(errors="surrogatepass"))
    return Key(hash((tenant, -1 if parent is None else parent, tokens)) % key_space)


def empty(capacity: frozenset[PageId], page_size: int, key_space: int = KEY_SPACE) -> Pool:
    """The pool before any request: every page is free. Needs page_size ≥ 1 and key_space ≥ 1."""
    return Pool(
        requests=Map(),
        pages=Map(),
        free=Map({page_id: 0 for page_id in capacity}),  # noqa: C420 - proofs know comprehensions, not dict.fromkeys
        idle=Map(),
        index=Map(),
        capacity=capacity,
        page_size=page_size,
        key_space=key_space,
        clock=0,
    )
