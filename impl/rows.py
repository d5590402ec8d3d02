"""The rows of the specification that a batch stands for: from the very arrays that are passed to the model.

What a tracer is shown and what the engine asserts of itself before a forward is this one reading of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from vosti.impl.backend import NO_PAGE, NO_SEQUENCE, NO_SLOT, Batch
from vosti.spec.rows import Row, Rows
from vosti.spec.state import PageId, RequestId, Token


def rows_of(batch: Batch, requests: Sequence[RequestId], page_size: int) -> Rows:
    """The rows of a batch, padding included.

    Args:
        batch: as it is passed to the model.
        requests: whose each of its sequences is.
        page_size: slots per page.
    """
    tables = [tuple(PageId(page) for page in table if page != NO_PAGE) for table in batch.tables.tolist()]
    taken = set(batch.logit_rows.tolist())
    columns = (batch.tokens, batch.positions, batch.write_slots, batch.sequences)
    return tuple(
        Row(
            request=None if sequence == NO_SEQUENCE else requests[sequence],
            token=Token(token),
            position=position,
            write=None if slot == NO_SLOT else (PageId(slot // page_size), slot % page_size),
            table=() if sequence == NO_SEQUENCE else tables[sequence],
            readable=0 if sequence == NO_SEQUENCE else position + 1,
            logits=i in taken,
        )
        for i, (token, position, slot, sequence) in enumerate(zip(*(c.tolist() for c in columns), strict=True))
    )
