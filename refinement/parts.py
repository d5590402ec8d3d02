"""The parts that entries of a trace are made of: actions, rows, values, and differences of snapshots.

What JSON says, and nothing else (docs/trace-format.md). Structures that occur often are arrays, in the order of their
fields.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import UNSET, Struct, UnsetType

from vosti.spec.state import Domain, PageId, RequestId, Token

Tokens = tuple[Token, ...]
Pages = tuple[PageId, ...]
Element = TypeVar("Element", Token, PageId)

# ---------------------------------------------------------------- actions and samplers


class SamplerFields(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`vosti.spec.sampling.SamplerState`."""

    temperature: float
    top_k: int
    top_p: int
    min_p: int
    seed: int
    index: int


class Action(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An action: its name, then its arguments. The subclasses are those of `vosti.spec.step`, under the same names."""


class Admit(Action, frozen=True, tag="admit"):
    """A request arrives."""

    request: RequestId
    prompt: Tokens
    sampler: SamplerFields
    domain: Domain
    arrival: int


class Propose(Action, frozen=True, tag="propose"):
    """A draft is set."""

    request: RequestId
    draft: Tokens


class Attach(Action, frozen=True, tag="attach"):
    """A prefix hit."""

    request: RequestId
    page: PageId


class Allocate(Action, frozen=True, tag="allocate"):
    """A free page joins a table."""

    request: RequestId
    page: PageId


class Evict(Action, frozen=True, tag="evict"):
    """A retained page becomes free."""

    page: PageId


class Compute(Action, frozen=True, tag="compute"):
    """A position is computed. Live rows stand for it: in a list of actions it is out of its phase."""

    request: RequestId


class Emit(Action, frozen=True, tag="emit"):
    """A record, and the sampler state after it."""

    request: RequestId
    logits: str
    token: Token
    sampler: SamplerFields


class Observe(Action, frozen=True, tag="observe"):
    """Logits of a position that is not the last."""

    request: RequestId
    position: int
    logits: str


class Retract(Action, frozen=True, tag="retract"):
    """A draft is dropped."""

    request: RequestId


class Publish(Action, frozen=True, tag="publish"):
    """A page becomes shareable."""

    request: RequestId
    block: int


class Preempt(Action, frozen=True, tag="preempt"):
    """A request gives its pages back."""

    request: RequestId
    in_favour_of: RequestId


class Finish(Action, frozen=True, tag="finish"):
    """A request is done."""

    request: RequestId


class Cancel(Action, frozen=True, tag="cancel"):
    """A request is called off."""

    request: RequestId


class Fail(Action, frozen=True, tag="fail"):
    """A request fails."""

    request: RequestId


AnyAction = (
    Admit
    | Propose
    | Attach
    | Allocate
    | Evict
    | Compute
    | Emit
    | Observe
    | Retract
    | Publish
    | Preempt
    | Finish
    | Cancel
    | Fail
)

# ---------------------------------------------------------------- rows and values


class Reading(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`vosti.spec.events.Reading`."""

    page: PageId
    slots: tuple[str, ...]


class Row(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`vosti.spec.rows.Row`, its table by its place among the forward's distinct tables."""

    request: RequestId | None
    token: Token
    position: int
    write: tuple[PageId, int] | None
    table: int
    readable: int
    logits: bool


class RowValue(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A value that a row yielded: `vosti.spec.events.SlotBits` or `RowBits`."""

    row: int
    digest: str
    finite: bool


class Candidates(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`vosti.spec.candidates.Candidates`."""

    kept: tuple[tuple[Token, int], ...]
    runner_up: tuple[Token, int] | None


# ---------------------------------------------------------------- differences of snapshots


class Tail(Struct, Generic[Element], frozen=True, array_like=True, forbid_unknown_fields=True):
    """A tuple by what it shares with the one before: the first `kept` elements stay, `rest` follows."""

    kept: int
    rest: tuple[Element, ...]


class RequestFields(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`vosti.spec.state.Request`, whole."""

    prompt: Tokens
    output: Tokens
    draft: Tokens
    sampler: SamplerFields
    cached: int
    table: Pages
    domain: Domain
    arrival: int


class RequestChange(Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a request that differ."""

    prompt: Tail[Token] | UnsetType = UNSET
    output: Tail[Token] | UnsetType = UNSET
    draft: Tail[Token] | UnsetType = UNSET
    sampler: SamplerFields | UnsetType = UNSET
    cached: int | UnsetType = UNSET
    table: Tail[PageId] | UnsetType = UNSET
    domain: Domain | UnsetType = UNSET
    arrival: int | UnsetType = UNSET


class PageFields(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`vosti.spec.events.PageView`, whole."""

    registered: bool
    parent: PageId | None
    domain: Domain
    refcount: int
    tokens: Tokens
    indexed: bool


class PageChange(Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a page that differ."""

    registered: bool | UnsetType = UNSET
    parent: PageId | UnsetType | None = UNSET
    domain: Domain | UnsetType = UNSET
    refcount: int | UnsetType = UNSET
    tokens: Tail[Token] | UnsetType = UNSET
    indexed: bool | UnsetType = UNSET


class RequestsDifference(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Requests that went, came, and changed; each part sorted by identifier, an empty part left out."""

    removed: tuple[RequestId, ...] = ()
    added: tuple[tuple[RequestId, RequestFields], ...] = ()
    changed: tuple[tuple[RequestId, RequestChange], ...] = ()


class PagesDifference(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Pages that went out of use, came into use, and changed; sorted by number, an empty part left out."""

    removed: Pages = ()
    added: tuple[tuple[PageId, PageFields], ...] = ()
    changed: tuple[tuple[PageId, PageChange], ...] = ()


class FreeDifference(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Pages that left and joined the free list; sorted, an empty part left out."""

    removed: Pages = ()
    added: Pages = ()


class Difference(Struct, frozen=True, forbid_unknown_fields=True):
    """What turns the snapshot after the step before into the one after this step. Before the first step: nothing."""

    requests: RequestsDifference
    pages: PagesDifference
    free: FreeDifference
