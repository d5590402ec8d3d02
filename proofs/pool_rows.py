"""The rows that are packed from a plan satisfy the specification's `forward_ok`.

`packed_rows` is `vosti.impl.packing.pack` with the recorded form of its arrays, as a function of the pool, the plan's
chunks and the layout (`Layout`): which rows are whose. A test compares the two on the engine's own batches. For every
pool and state that agree, for chunks that the planner may ask for (`chunks_owed`) and any layout that keeps each
chunk's rows together (`layout_ok`):

    forward_ok(s, packed_rows(pool, chunks, ...))

conjunct by conjunct, each for an arbitrary row i: it has its request's next token and position, writes the slot that
the page table names, in a page that is private, reads its own prefix and nothing else, and is alone in writing its
slot. `forward_ok` is the function that checkers of runs evaluate on the recorded rows, and that an engine which checks
its steps asserts of the rows that it is about to compute; that it is defined, whatever the rows, is
`vosti.proofs.definedness`. How many pages a row reads is the lemma `ceiling` again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vosti.impl.planning import Chunk
from vosti.impl.pool_state import Pool
from vosti.proofs.book import Replaced
from vosti.proofs.definedness import ceilings
from vosti.proofs.pool_refinement import PoolBook
from vosti.refinement.smt.obligation import Obligation
from vosti.spec.rows import ROW_CONJUNCTS, Row, Rows
from vosti.spec.state import RequestId, State, Token, sequence

Chunks = tuple[Chunk, ...]
Histories = Mapping[RequestId, tuple[Token, ...]]


@dataclass(frozen=True)
class Layout:
    """Which rows of a forward are whose."""

    chunk: tuple[int | None, ...]
    """Of each row, the number of its chunk; None for padding."""

    first: tuple[int, ...]
    """Of each chunk, its first row."""

    padding: Token
    """What stands in the place of a token where there is none."""

    logits: frozenset[int]
    """The rows that logits are taken from."""


def chunk_owed(pool: Pool, s: State, chunk: Chunk, histories: Histories) -> bool:
    """The chunk of a live request begins at its first position that is not cached, and ends within its tokens and its
    table. (A draft is proposed before it is computed, so it is the state's.)
    """
    r = chunk.request
    return (
        r in pool.requests
        and r in s.requests
        and r in histories
        and histories[r] + chunk.draft == sequence(s.requests[r])
        and chunk.start == pool.requests[r].cached
        and chunk.count >= 1
        and chunk.start + chunk.count <= len(sequence(s.requests[r]))
        and chunk.start + chunk.count <= len(pool.requests[r].table) * pool.page_size
    )


def chunks_owed(pool: Pool, s: State, chunks: Chunks, histories: Histories) -> bool:
    """What the planner owes: chunks of different requests, each as it should be."""
    return all(chunk_owed(pool, s, chunk, histories) for chunk in chunks) and all(
        a == b or chunks[a].request != chunks[b].request for a in range(len(chunks)) for b in range(len(chunks))
    )


def row_is_owned(chunks: Chunks, layout: Layout, i: int) -> bool:
    """The row is one of its chunk's, or padding, from which no logits are taken."""
    number = layout.chunk[i]
    if number is None:
        return i not in layout.logits
    return 0 <= number < len(chunks) and layout.first[number] <= i < layout.first[number] + chunks[number].count


def layout_ok(chunks: Chunks, layout: Layout) -> bool:
    """Each chunk has its rows, side by side, and every other row is padding."""
    return (
        len(layout.first) == len(chunks)
        and all(
            0 <= layout.first[c] and layout.first[c] + chunks[c].count <= len(layout.chunk) for c in range(len(chunks))
        )
        and all(
            layout.chunk[i] == c
            for c in range(len(chunks))
            for i in range(layout.first[c], layout.first[c] + chunks[c].count)
        )
        and all(row_is_owned(chunks, layout, i) for i in range(len(layout.chunk)))
    )


def packed_row(pool: Pool, chunks: Chunks, histories: Histories, layout: Layout, i: int) -> Row:
    """Row i of the forward. Needs it to be owned, and its chunk's table and tokens to reach as far as it does."""
    number = layout.chunk[i]
    if number is None:
        return Row(
            request=None, token=layout.padding, position=0, write=None, table=(), readable=0, logits=i in layout.logits
        )
    chunk = chunks[number]
    position = chunk.start + (i - layout.first[number])
    table = pool.requests[chunk.request].table
    return Row(
        request=chunk.request,
        token=(histories[chunk.request] + chunk.draft)[position],
        position=position,
        write=(table[position // pool.page_size], position % pool.page_size),
        table=table,
        readable=position + 1,
        logits=i in layout.logits,
    )


def packed_rows(pool: Pool, chunks: Chunks, histories: Histories, layout: Layout) -> Rows:
    """The rows of the forward."""
    return tuple(packed_row(pool, chunks, histories, layout, i) for i in range(len(layout.chunk)))


def is_row(layout: Layout, i: int) -> bool:
    """Whether there is a row i."""
    return 0 <= i < len(layout.chunk)


def obligations(replaced: Replaced | None = None) -> list[Obligation]:
    """What is owed and packed is defined; then every row satisfies each conjunct."""
    book = PoolBook("pool_rows", replaced)
    pool, s, i = book.pool, book.s, book.symbol("i", int)
    chunks, histories = book.symbol("chunks", Chunks), book.symbol("histories", Histories)
    layout = book.symbol("layout", Layout)
    have = book.related(pool, s)
    for part, compiled in (
        ("chunks_owed", book.run(chunks_owed, pool, s, chunks, histories)),
        ("layout_ok", book.run(layout_ok, chunks, layout)),
    ):
        book.defined(part, have, compiled.needs)
        have.append(compiled.term)
    packed = book.run(packed_rows, pool, chunks, histories, layout)
    book.defined("packed_rows", have, packed.needs)
    have.append(book.term(is_row, layout, i))
    have.append(book.term(ceilings, s, packed.value))
    for conjunct in ROW_CONJUNCTS:
        book.prove(conjunct.__name__, have, book.term(conjunct, s, packed.value, i))
    return book.obligations
