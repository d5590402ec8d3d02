"""What an engine shows of itself: ghost events, and the tracer that takes them (section 4.2 of the paper: "ghost
state").

The engine hands a tracer, for each step, what it planned, what it passed to the kernels, what came out, and what its
own structures look like afterwards. Nothing here influences the engine. How events are written down and read back is
`vosti.refinement`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from vosti.spec.candidates import Candidates
from vosti.spec.rows import Rows
from vosti.spec.state import Domain, Logits, Page, PageId, Request, RequestId, Token
from vosti.spec.step import Action


@dataclass(frozen=True)
class Reading:
    """The bits of some slots of one page, read back from the pool."""

    page: PageId
    slots: tuple[str, ...]
    """One digest for each slot from offset 0 on."""


@dataclass(frozen=True)
class RowBits:
    """The bits of one row of logits."""

    row: int
    """Which packed row yielded it."""

    logits: Logits
    """The digest of its float32 bits, little-endian."""

    finite: bool


@dataclass(frozen=True)
class SlotBits:
    """The bits of the slot that one row wrote, read back through the page table after the forward."""

    row: int
    kv: str
    finite: bool


@dataclass(frozen=True)
class PageView:
    """What the engine's own structures say about a page in use."""

    registered: bool
    parent: PageId | None
    domain: Domain
    refcount: int
    """How many tables contain it, as the engine counts."""

    tokens: tuple[Token, ...]
    """Of a registered page, the tokens that the pool stores; of a private one, its owner's tokens at the initialised
    slots.
    """

    indexed: bool
    """Whether the prefix index leads to it."""


PAGE_FIELDS: Mapping[str, Callable[[Page], object]] = {
    "registered": lambda page: page.registered,
    "parent": lambda page: page.parent,
    "domain": lambda page: page.domain,
    "tokens": lambda page: page.tokens,
    "refcount": lambda page: len(page.holders),
}
"""Field of a `PageView` → what it says of a page of the specification. (Which pages are found is the engine's matter.)
"""


@dataclass(frozen=True)
class Snapshot:
    """The engine's state by abstraction from its own structures: page tables, reference counts, free list, index.

    It is never derived from recorded actions. What it cannot show is ghost: the prefix of a page, and the identifiers
    ever seen. Values are shown by readings.
    """

    requests: Mapping[RequestId, Request]
    pages: Mapping[PageId, PageView]
    free: frozenset[PageId]


@dataclass(frozen=True)
class PlanEvent:
    """The plan phase of a step."""

    step: int
    actions: tuple[Action, ...]
    readings: tuple[Reading, ...]
    """One for each attach and each evict, in order, taken just before the action."""


@dataclass(frozen=True)
class ForwardEvent:
    """The forward phase of a step, from the very arrays that were passed to the model, padding included."""

    step: int
    rows: Rows
    written: tuple[SlotBits, ...]
    """One for each row with a write slot, in order."""

    logits: tuple[RowBits, ...]
    """One for each row of which logits were taken, in order."""

    values: Mapping[str, bytes]
    """In mode "full", the bits behind each digest of `written` and `logits`; otherwise empty."""


@dataclass(frozen=True)
class SettleEvent:
    """The settle phase of a step, and the state that the step leaves behind."""

    step: int
    actions: tuple[Action, ...]
    after: Snapshot
    rereadings: tuple[Reading, ...]
    """Every initialised page, if the engine was asked to read all of them again after each step; otherwise none."""

    candidates: tuple[Candidates, ...] = ()
    """In mode "candidates", what each emit's token was drawn from, in order; otherwise empty."""


@dataclass(frozen=True)
class OutputEvent:
    """What the engine returned to its caller about one request at the end of a step."""

    step: int
    request: RequestId
    tokens: tuple[Token, ...]
    """The tokens of this step, in order."""

    logits: tuple[Logits, ...]
    """The digests of the rows they were sampled from."""

    ended: str | None
    """Why the request ended ("stop", "length", "cancelled", "error"), or None while it goes on."""


Event = PlanEvent | ForwardEvent | SettleEvent | OutputEvent


class Tracer(Protocol):
    """Takes events, in order."""

    def record(self, event: Event) -> None:
        """Take one event."""
