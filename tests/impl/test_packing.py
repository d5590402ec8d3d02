"""From chunks to arrays: every row has its token, position, slot and table, and padding has nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vosti.impl import pool as pools
from vosti.impl.backend import NO_PAGE, NO_SEQUENCE, NO_SLOT
from vosti.impl.packing import pack
from vosti.impl.planning import Chunk
from vosti.impl.pool_state import Pool, empty
from vosti.spec.state import Domain, PageId, RequestId, Token

A, B = RequestId("a"), RequestId("b")


def pool_with(tables: dict[RequestId, tuple[int, ...]], page_size: int = 4, pages: int = 10) -> Pool:
    """A pool in which these requests hold these private pages."""
    pool = empty(frozenset(map(PageId, range(pages))), page_size)
    for r, table in tables.items():
        pool = pools.admit(pool, r, Domain(""))
        for page in table:
            assert pools.allocate_guard(pool, r, PageId(page))
            pool = pools.allocate(pool, r, PageId(page))
    return pool


def history(*tokens: int) -> tuple[Token, ...]:
    """Tokens."""
    return tuple(map(Token, tokens))


def test_a_prefill_and_a_decode() -> None:
    """Two chunks, written out: slots come from the tables, logits are taken at the last position of each history."""
    pool = pool_with({A: (7, 2), B: (0, 9, 5)})
    chunks = (Chunk(A, start=1, count=4, draft=()), Chunk(B, start=8, count=1, draft=()))
    batch = pack(chunks, pool, {A: history(5, 6, 7, 8, 9), B: history(*range(9))}, row_tile=4)
    assert [6, 7, 8, 9, 8, 0, 0, 0] == batch.tokens.tolist()
    assert [1, 2, 3, 4, 8, 0, 0, 0] == batch.positions.tolist()
    assert [29, 30, 31, 8, 20, *[NO_SLOT] * 3] == batch.write_slots.tolist()
    assert [0, 0, 0, 0, 1, *[NO_SEQUENCE] * 3] == batch.sequences.tolist()
    assert [[7, 2, NO_PAGE], [0, 9, 5]] == batch.tables.tolist()
    assert [3, 4] == batch.logit_rows.tolist()


def test_a_chunk_that_ends_early_takes_no_logits() -> None:
    """A chunk that does not reach the end of the history yields nothing to sample from."""
    batch = pack((Chunk(A, 0, 3, ()),), pool_with({A: (3,)}), {A: history(1, 2, 3, 4)}, row_tile=16)
    assert [] == batch.logit_rows.tolist()
    assert np.int64 == batch.logit_rows.dtype
    assert 16 == len(batch.tokens)


def test_a_draft_takes_logits_at_each_of_its_positions() -> None:
    """The rows of a draft hold its tokens, and logits are taken at the history's last position and at each of them."""
    chunk = Chunk(A, start=2, count=4, draft=history(8, 9))
    batch = pack((chunk,), pool_with({A: (1, 0)}), {A: history(4, 5, 6, 7)}, row_tile=1)
    assert [6, 7, 8, 9] == batch.tokens.tolist()
    assert [2, 3, 4, 5] == batch.positions.tolist()
    assert [6, 7, 0, 1] == batch.write_slots.tolist()
    assert [1, 2, 3] == batch.logit_rows.tolist()


@pytest.mark.parametrize("row_tile", [1, 2, 7, 16])
@given(data=st.data())
def test_rows_are_those_of_the_chunks(row_tile: int, data: st.DataObject) -> None:
    """For any chunks: rows in order, each position's token, the slot that the table names, and inert padding up to a
    multiple of the tile, less than one tile of it.
    """
    page_size = data.draw(st.integers(1, 4))
    pages = data.draw(st.permutations(range(40)))
    tables, histories, chunks, taken = {}, {}, [], 0
    for i in range(data.draw(st.integers(1, 4))):
        r = RequestId(f"r{i}")
        tokens = tuple(map(Token, data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=9))))
        start = data.draw(st.integers(0, len(tokens) - 1))
        whole = data.draw(st.booleans())
        draft = tuple(map(Token, data.draw(st.lists(st.integers(1, 9), max_size=3)))) if whole else ()
        count = len(tokens) - start + len(draft) if whole else data.draw(st.integers(1, len(tokens) - start))
        blocks = -(-(start + count) // page_size)
        tables[r], histories[r] = tuple(pages[taken : taken + blocks]), tokens
        taken += blocks
        chunks.append(Chunk(r, start, count, draft))
    batch = pack(chunks, pool_with(tables, page_size, 40), histories, row_tile)
    expected = [
        (
            (histories[chunk.request] + chunk.draft)[p],
            p,
            tables[chunk.request][p // page_size] * page_size + p % page_size,
            sequence,
            p >= len(histories[chunk.request]) - 1,
        )
        for sequence, chunk in enumerate(chunks)
        for p in range(chunk.start, chunk.start + chunk.count)
    ]
    taking = set(batch.logit_rows.tolist())
    columns = (batch.tokens, batch.positions, batch.write_slots, batch.sequences)
    rows = [(*row, i in taking) for i, row in enumerate(zip(*(column.tolist() for column in columns), strict=True))]
    padding = len(rows) - len(expected)
    assert expected == rows[: len(expected)]
    assert [(0, 0, NO_SLOT, NO_SEQUENCE, False)] * padding == rows[len(expected) :]
    assert 0 <= padding < row_tile
    assert 0 == len(rows) % row_tile
