"""The packed rows of a forward, and when they are those that the plan asks for (sections 4.2 and 4.3 of the paper).

The predicates are in the subset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vosti.spec.state import PageId, RequestId, State, Token, sequence


@dataclass(frozen=True)
class Row:
    """One packed row of a forward: what the kernels are told, not what was meant."""

    request: RequestId | None
    """Whose row it is; None for padding."""

    token: Token
    position: int

    write: tuple[PageId, int] | None
    """The slot that the row's KV pairs go to, as (page, offset); None writes nothing."""

    table: tuple[PageId, ...]
    """The pages that the row reads through, by block."""

    readable: int
    """The row reads the slots of positions 0 .. readable - 1, its own among them."""

    logits: bool
    """Whether a row of logits is taken."""


Rows = tuple[Row, ...]


def padding_is_inert(s: State, rows: Rows, i: int) -> bool:
    """A padding row writes nothing, reads nothing, and yields nothing."""
    row = rows[i]
    return row.request is not None or (row.write is None and row.readable == 0 and not row.logits)


def row_is_live(s: State, rows: Rows, i: int) -> bool:
    """A row that is not padding belongs to a live request."""
    request = rows[i].request
    return request is None or request in s.requests


def row_is_next(s: State, rows: Rows, i: int) -> bool:
    """A request's rows stand side by side, in the order of positions, from its first position that is not cached."""
    row = rows[i]
    if row.request is None:
        return True
    follows = i > 0 and rows[i - 1].request == row.request
    return row.position == (rows[i - 1].position + 1 if follows else s.requests[row.request].cached)


def row_has_its_token(s: State, rows: Rows, i: int) -> bool:
    """The token is the one at that position of history + draft: the row mapping of section 4.2."""
    row = rows[i]
    if row.request is None:
        return True
    tokens = sequence(s.requests[row.request])
    return 0 <= row.position < len(tokens) and row.token == tokens[row.position]


def row_writes_its_slot(s: State, rows: Rows, i: int) -> bool:
    """The write slot is the one that the page table names for that position."""
    row = rows[i]
    if row.request is None:
        return True
    table = s.requests[row.request].table
    return 0 <= row.position < len(table) * s.page_size and row.write == (
        table[row.position // s.page_size],
        row.position % s.page_size,
    )


def row_reads_its_prefix(s: State, rows: Rows, i: int) -> bool:
    """The row reads its own causal prefix, through its own pages, and nothing else."""
    row = rows[i]
    if row.request is None:
        return True
    blocks = row.position // s.page_size + 1
    return (
        row.readable == row.position + 1
        and blocks <= len(row.table)
        and blocks <= len(s.requests[row.request].table)
        and row.table[:blocks] == s.requests[row.request].table[:blocks]
    )


def row_writes_private(s: State, rows: Rows, i: int) -> bool:
    """A registered page is never written."""
    row = rows[i]
    return row.write is None or (row.write[0] in s.pages and not s.pages[row.write[0]].registered)


def pages_read(s: State, row: Row) -> tuple[PageId, ...]:
    """The pages that a row reads some slot of. Needs its table to cover `readable` slots."""
    return row.table[: (row.readable + s.page_size - 1) // s.page_size]


def row_writes_alone(s: State, rows: Rows, i: int) -> bool:
    """No other row writes the same slot, and no row of another request reads its page."""
    row = rows[i]
    return row.write is None or all(
        j == i
        or (other.write != row.write and (other.request == row.request or row.write[0] not in pages_read(s, other)))
        for j, other in enumerate(rows)
    )


ROW_CONJUNCTS: tuple[Callable[[State, Rows, int], bool], ...] = (
    padding_is_inert,
    row_is_live,
    row_is_next,
    row_has_its_token,
    row_writes_its_slot,
    row_reads_its_prefix,
    row_writes_private,
    row_writes_alone,
)
"""What a forward's rows must satisfy, each for every row; each may rely on those before it."""


def forward_ok(s: State, rows: Rows) -> bool:
    """The premises of the kernel contracts, established by planning (section 4.3).

    Write slots are pairwise disjoint, disjoint from what other requests read and from registered pages; so the order
    in which the rows are evaluated does not matter, as long as each position follows those before it.
    """
    return (
        all(padding_is_inert(s, rows, i) for i in range(len(rows)))
        and all(row_is_live(s, rows, i) for i in range(len(rows)))
        and all(row_is_next(s, rows, i) for i in range(len(rows)))
        and all(row_has_its_token(s, rows, i) for i in range(len(rows)))
        and all(row_writes_its_slot(s, rows, i) for i in range(len(rows)))
        and all(row_reads_its_prefix(s, rows, i) for i in range(len(rows)))
        and all(row_writes_private(s, rows, i) for i in range(len(rows)))
        and all(row_writes_alone(s, rows, i) for i in range(len(rows)))
    )


def row_yields(rows: Rows, r: RequestId, position: int) -> bool:
    """Some row of the forward took the logits of this position of this request."""
    return any(row.request == r and row.position == position and row.logits for row in rows)
