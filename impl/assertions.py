"""The engine's own assertions: before a forward touches the pool of values, the plan and the rows that the backend is
about to get are judged by the specification's functions, and after it what was settled.

The functions are those that an audit evaluates and that the proofs are about (`vosti.spec.step`, reduced to what can
be judged without values by `vosti.spec.control`). A copy of the specification's state follows the engine's actions,
and twice a step the engine's structures, by abstraction, have to be what that copy says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

from vosti.impl.abstraction import LiveRequest, snapshot
from vosti.impl.backend import Batch
from vosti.impl.errors import BrokenStepError
from vosti.impl.pool_state import Pool
from vosti.impl.rows import rows_of
from vosti.spec.control import Objection, computed, false_row, planned, settled
from vosti.spec.events import PAGE_FIELDS, Snapshot
from vosti.spec.rows import Rows
from vosti.spec.state import PageId, Request, RequestId, State, initial
from vosti.spec.step import Action


class StepAssertions:
    """Follows an engine from its beginning, and raises at the first step that is none of the specification."""

    def __init__(self, capacity: frozenset[PageId], page_size: int) -> None:
        """An engine with an empty pool."""
        self._state = initial(capacity, page_size)
        self._rows: Rows = ()
        self._step = 0

    def planned(
        self,
        actions: Sequence[Action],
        requests: Sequence[RequestId],
        batch: Batch | None,
        pool: Pool,
        live: Mapping[RequestId, LiveRequest],
    ) -> None:
        """Assert a plan, before its forward.

        Args:
            actions: of the plan.
            requests: whose each sequence of the batch is.
            batch: what the backend will get; None for no forward.
            pool: as the plan leaves it.
            live: what the engine keeps of live requests then.

        Raises:
            BrokenStepError: naming the predicate that does not hold, and of what.
        """
        s = self._allowed(planned(self._state, actions))
        self._rows = () if batch is None else rows_of(batch, requests, s.page_size)
        false = false_row(s, self._rows)
        if false is not None:
            conjunct, i = false
            self._allowed(Objection(conjunct.__name__, self._rows[i].request, i))
        self._require_agreement(s, snapshot(pool, live))
        self._state = self._allowed(computed(s, self._rows))

    def settled(self, actions: Sequence[Action], pool: Pool, live: Mapping[RequestId, LiveRequest]) -> None:
        """Assert what was settled, and the structures that it leaves behind. Raises like `planned`."""
        self._state = self._allowed(settled(self._state, self._rows, actions))
        self._require_agreement(self._state, snapshot(pool, live))
        self._step += 1

    def _allowed(self, outcome: State | Objection) -> State:
        if isinstance(outcome, State):
            return outcome
        where = f"row {outcome.subject}" if isinstance(outcome.subject, int) else f"{outcome.subject!r:.200}"
        raise BrokenStepError(self._step, outcome.conjunct, outcome.request, where)

    def _require_agreement(self, s: State, shown: Snapshot) -> None:
        for conjunct, request, where in disagreements(s, shown):
            raise BrokenStepError(self._step, conjunct, request, where)


def disagreements(s: State, shown: Snapshot) -> Iterator[tuple[str, RequestId | None, str]]:
    """Where the engine's structures are not what its actions lead to: the check that an audit names, whose, and what.

    Args:
        s: the state that the actions lead to.
        shown: the structures, by abstraction.
    """
    for page in sorted(shown.pages.keys() ^ s.pages.keys()):
        yield "pages_agree", None, f"page {page}"
    for page in sorted(shown.free ^ (s.capacity - s.pages.keys())):
        yield "free_list_agrees", None, f"page {page}"
    for r in sorted(shown.requests.keys() ^ s.requests.keys()):
        yield "requests_agree", r, "its presence"
    for r, request in shown.requests.items():
        if request != s.requests[r]:
            for field in fields(Request):
                actual, expected = getattr(request, field.name), getattr(s.requests[r], field.name)
                if actual != expected:
                    yield f"request_{field.name}_agrees", r, f"{actual!r:.60} where {expected!r:.60} is expected"
    for page, view in shown.pages.items():
        for name, of in PAGE_FIELDS.items():
            actual, expected = getattr(view, name), of(s.pages[page])
            if actual != expected:
                yield f"page_{name}_agrees", None, f"page {page}: {actual!r:.60} where {expected!r:.60} is expected"
        if view.indexed and not view.registered:
            yield "indexed_only_if_registered", None, f"page {page}"
