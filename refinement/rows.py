"""The packed rows of a forward against the conditions of the specification (`vosti.spec.step.ROW_CONJUNCTS`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vosti.spec.state import PageId, RequestId, State
from vosti.spec.step import ROW_CONJUNCTS, Rows, pages_read, row_writes_alone


def false_row(s: State, rows: Rows) -> tuple[Callable[[State, Rows, int], bool], int] | None:
    """The first condition that fails, with the first row that it fails on; None if `forward_ok(s, rows)`."""
    for condition in ROW_CONJUNCTS:
        suspects: Iterable[int] = range(len(rows))
        if condition is row_writes_alone and writes_are_apart(s, rows):
            suspects = ()
        for i in suspects:
            if not condition(s, rows, i):
                return condition, i
    return None


def writes_are_apart(s: State, rows: Rows) -> bool:
    """Whether each row writes alone, in time linear in rows and tables. Needs the conditions before that one.

    `row_writes_alone` compares each row with each other one. Here, if no slot is written twice, if each page has one
    writing request, and if no other request's row reads a written page, then it holds of every row. The converse
    holds except for two requests that write different slots of one page, which the condition itself then decides.
    """
    writes = [row.write for row in rows if row.write is not None]
    if len(set(writes)) != len(writes):
        return False
    writers: dict[PageId, RequestId | None] = {}
    deepest: dict[tuple[RequestId | None, int], int] = {}
    for i, row in enumerate(rows):
        if row.write is not None and writers.setdefault(row.write[0], row.request) != row.request:
            return False
        # Rows with one table read beginnings of one another's pages: the longest stands for all.
        known = deepest.setdefault((row.request, id(row.table)), i)
        if rows[known].readable < row.readable:
            deepest[row.request, id(row.table)] = i
    return all(
        writers[page_id] == rows[i].request
        for i in deepest.values()
        for page_id in writers.keys() & pages_read(s, rows[i])
    )
