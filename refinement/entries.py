"""The entries of a trace, as they stand on its lines: what JSON says, and nothing else (docs/trace-format.md).

Decoding is total and strict: a line is one of these structures, field by field and type by type, or it is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from vosti.refinement.parts import AnyAction, Candidates, Difference, Pages, Reading, Row, RowValue, Tokens
from vosti.spec.digests import SHA256
from vosti.spec.state import RequestId

FORMAT = "vosti-trace"
VERSION = 1

Mode = Literal["digest", "candidates", "full"]
"""What a trace holds of logits and KV: digests; what each token was drawn from, too; or the bits, too."""

FIRST_PREVIOUS = "0" * 64
"""What the first entry has in place of the digest of a line before it."""


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

    mode: Mode = "digest"
    digest: str = SHA256.name
    """Which of `vosti.spec.digests.ALGORITHMS` digests are made with."""

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
    mode: Mode = "digest",
    digest: str = SHA256.name,
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
        digest=digest,
        reread=reread,
        context=dict(context or {}),
    )


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


class SettleEntry(Entry, frozen=True, tag="settle", omit_defaults=True):
    """`vosti.spec.events.SettleEvent`, its snapshot as a difference."""

    step: int
    actions: tuple[AnyAction, ...]
    after: Difference
    rereadings: tuple[Reading, ...]
    candidates: tuple[Candidates, ...] = ()


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
