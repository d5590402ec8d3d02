"""From a plan's chunks to the arrays of a forward. The arrays are plain numpy: what is packed here is what the model
is passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vosti.impl.backend import NO_PAGE, NO_SEQUENCE, NO_SLOT, Batch
from vosti.impl.history import Tokens
from vosti.impl.planning import Chunk
from vosti.impl.pool_state import Pool
from vosti.spec.state import RequestId, Token


def pack(
    chunks: Sequence[Chunk],
    pool: Pool,
    histories: Mapping[RequestId, Tokens],
    row_tile: int,
    asked: Mapping[RequestId, int] | None = None,
) -> Batch:
    """The rows of some chunks, one sequence for each chunk, in order, padded to a multiple of `row_tile` rows.

    Logits are taken at the last position of a history, at each position of its draft, and from the first position on
    that somebody asks for.

    Args:
        chunks: at least one.
        pool: gives the page tables.
        histories: of each chunk's request, its history.
        row_tile: what the number of rows must be a multiple of.
        asked: of some requests the first position whose logits are asked for, before the last of the history.
    """
    first_asked = {} if asked is None else asked
    counts = np.array([chunk.count for chunk in chunks])
    live = int(counts.sum())
    rows = -(-live // row_tile) * row_tile
    tokens = np.zeros(rows, np.int64)
    positions = np.zeros(rows, np.int64)
    write_slots = np.full(rows, NO_SLOT, np.int64)
    sequences = np.full(rows, NO_SEQUENCE, np.int64)
    width = max(len(pool.requests[chunk.request].table) for chunk in chunks)
    tables = np.full((len(chunks), width), NO_PAGE, np.int64)
    packed: list[Token] = []
    logit_rows: list[int] = []
    for sequence, chunk in enumerate(chunks):
        history, table = histories[chunk.request], pool.requests[chunk.request].table
        tables[sequence, : len(table)] = table
        before, stop = chunk.start - len(packed), chunk.start + chunk.count
        packed += (history[chunk.start : stop] + chunk.draft)[: chunk.count]
        yielding = max(chunk.start, first_asked.get(chunk.request, len(history) - 1))
        logit_rows += range(yielding - before, stop - before)
    begins = np.cumsum(counts) - counts
    starts = np.array([chunk.start for chunk in chunks])
    tokens[:live] = packed
    sequences[:live] = np.repeat(np.arange(len(chunks)), counts)
    positions[:live] = np.arange(live) + np.repeat(starts - begins, counts)
    blocks, offsets = np.divmod(positions[:live], pool.page_size)
    write_slots[:live] = tables[sequences[:live], blocks] * pool.page_size + offsets
    return Batch(
        tokens=tokens,
        positions=positions,
        write_slots=write_slots,
        sequences=sequences,
        tables=tables,
        logit_rows=np.array(logit_rows, np.int64),
    )
