"""The entries of a trace, as they stand on its lines: what JSON says, and nothing else (docs/trace-format.md).

Decoding is total and strict: a line is one of these structures, field by field and type by type, or it is refused.
Structures that occur often are arrays, in the order of their fields.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from vosti.spec.events import DIGEST_ALGORITHM
from vosti.spec.state import Domain, PageId, RequestId, Token

FORMAT = "vosti-trace"
VERSION = 1

FIRST_PREVIOUS = "0" * 64
"""What the first entry has in place of the digest of a line before it."""

Tokens = tuple[Token, ...]
Pages = tuple[PageId, ...]
Element = TypeVar("Element", Token, PageId)


def line_digest(line: bytes) -> str:
    """What the next entry calls `prev`: SHA-256 of a line's bytes, its newline left out, as 64 hexadecimal digits."""
    return hashlib.sha256(line).hexdigest()


def fingerprint_of(configuration: Mapping[str, object]) -> str:
    """The fingerprint of W: SHA-256 of its fields as JSON, keys sorted, without spaces, in ASCII."""
    return hashlib.sha256(json.dumps(configuration, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Header(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run was: the configuration W, which views may depend on, and everything else, which they may not."""

    configuration: dict[str, Any]
    """The fields of W."""

    fingerprint: str
    """`fingerprint_of` the configuration."""

    page_size: int
    pages: int
    max_seqs: int
    token_budget: int

    options: dict[str, Any] = {}
    """Options of the engine outside W."""

    mode: Literal["digest", "full"] = "digest"
    digest: str = DIGEST_ALGORITHM
    """Which function of bits a digest is."""

    reread: bool = False
    """Whether every initialised page is read again after each step."""

    context: dict[str, Any] = {}
    """Anything that helps to find out where the trace comes from. Nothing depends on it."""


def header(
    configuration: Mapping[str, object],
    *,
    page_size: int,
    pages: int,
    max_seqs: int,
    token_budget: int,
    options: Mapping[str, object] | None = None,
    mode: Literal["digest", "full"] = "digest",
    reread: bool = False,
    context: Mapping[str, object] | None = None,
) -> Header:
    """A header with the fingerprint of its configuration. Values are JSON's types."""
    return Header(
        configuration=dict(configuration),
        fingerprint=fingerprint_of(configuration),
        page_size=page_size,
        pages=pages,
        max_seqs=max_seqs,
        token_budget=token_budget,
        options=dict(options or {}),
        mode=mode,
        reread=reread,
        context=dict(context or {}),
    )


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
    """`vosti.spec.step.Row`, its table by its place among the forward's distinct tables."""

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


# ---------------------------------------------------------------- entries


class Entry(Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """One line of a trace. Its `kind` says which; `prev` is the `line_digest` of the line before it."""

    prev: str


class HeaderEntry(Entry, frozen=True, tag="header"):
    """The first entry."""

    format: str
    version: int
    header: Header


class PlanEntry(Entry, frozen=True, tag="plan"):
    """`vosti.spec.events.PlanEvent`."""

    step: int
    actions: tuple[AnyAction, ...]
    readings: tuple[Reading, ...]


class ForwardEntry(Entry, frozen=True, tag="forward"):
    """`vosti.spec.events.ForwardEvent`. `tables` are the rows' distinct tables, in the order of their first row."""

    step: int
    tables: tuple[Pages, ...]
    rows: tuple[Row, ...]
    written: tuple[RowValue, ...]
    logits: tuple[RowValue, ...]


class SettleEntry(Entry, frozen=True, tag="settle"):
    """`vosti.spec.events.SettleEvent`, its snapshot as a difference."""

    step: int
    actions: tuple[AnyAction, ...]
    after: Difference
    rereadings: tuple[Reading, ...]


class OutputEntry(Entry, frozen=True, tag="output"):
    """`vosti.spec.events.OutputEvent`."""

    step: int
    request: RequestId
    tokens: Tokens
    logits: tuple[str, ...]
    ended: str | None


class EndEntry(Entry, frozen=True, tag="end"):
    """The last entry: how many steps and how many entries (itself included) there are, and files of values."""

    steps: int
    entries: int
    files: int


AnyEntry = HeaderEntry | PlanEntry | ForwardEntry | SettleEntry | OutputEntry | EndEntry


class Preamble(Struct, frozen=True):
    """As much of a first line as every version has."""

    kind: str
    format: str
    version: int


_ENCODER = msgspec.json.Encoder()
_HEADER_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(AnyEntry)
_PREAMBLE_DECODER = msgspec.json.Decoder(Preamble)


def encode(entry: AnyEntry) -> bytes:
    """The one text of an entry, without a newline. The keys of a header's free-form parts are sorted."""
    return (_HEADER_ENCODER if isinstance(entry, HeaderEntry) else _ENCODER).encode(entry)


def decode(line: bytes) -> AnyEntry:
    """The entry on a line. Raises `msgspec.DecodeError` or `UnicodeDecodeError` if it is none."""
    return _DECODER.decode(line)


def decode_preamble(line: bytes) -> Preamble:
    """The version of a trace, from its first line. Raises like `decode`."""
    return _PREAMBLE_DECODER.decode(line)
