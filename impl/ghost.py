"""Ghost state: what the engine shows to a tracer (section 4.2 of the paper), and its twin that shows nothing.

The engine calls the same five methods on either; which one it holds is decided once, when it is made. The methods
take what the engine has at hand anyway, so that without a tracer a step allocates nothing, reads nothing back and
digests nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from torch import Tensor

from vosti.impl.abstraction import LiveRequest, snapshot
from vosti.impl.backend import Backend, Batch, Digests, ForwardResult
from vosti.impl.backends.host_digests import row_bytes
from vosti.impl.planning import Chunk
from vosti.impl.pool_state import Pool
from vosti.impl.rows import rows_of
from vosti.impl.sampling import candidates_of
from vosti.spec.candidates import Candidates
from vosti.spec.events import (
    ForwardEvent,
    OutputEvent,
    PlanEvent,
    Reading,
    RowBits,
    SettleEvent,
    SlotBits,
    Tracer,
)
from vosti.spec.rows import Row, Rows
from vosti.spec.sampling import SamplerState
from vosti.spec.state import Logits, PageId, RequestId, Token
from vosti.spec.step import Action, Attach, Emit, Evict


class Ghost(Protocol):
    """What the engine shows of a step."""

    def planned(self, step: int, actions: Sequence[Action]) -> None:
        """The plan's actions, before the forward touches the pool of values."""

    def computed(
        self, step: int, chunks: Sequence[Chunk], pool: Pool, batch: Batch | None, result: ForwardResult | None
    ) -> None:
        """What was passed to the model, and what came out; None for a step without a forward."""

    def logits_of(self, batch_row: int) -> Logits:
        """The digest of the logits that a row of the last forward yielded."""

    def settled(self, step: int, actions: Sequence[Action], pool: Pool, live: Mapping[RequestId, LiveRequest]) -> None:
        """What became of it, and the state afterwards."""

    def returned(
        self, step: int, request: RequestId, tokens: tuple[Token, ...], rows: Sequence[int], ended: str | None
    ) -> None:
        """What the caller gets: the tokens of this step, and the rows that they were sampled from."""


class NoGhost:
    """Shows nothing."""

    def planned(self, step: int, actions: Sequence[Action]) -> None:
        """Do nothing."""

    def computed(
        self, step: int, chunks: Sequence[Chunk], pool: Pool, batch: Batch | None, result: ForwardResult | None
    ) -> None:
        """Do nothing."""

    def logits_of(self, batch_row: int) -> Logits:
        """No digest: there is none."""
        return NO_LOGITS

    def settled(self, step: int, actions: Sequence[Action], pool: Pool, live: Mapping[RequestId, LiveRequest]) -> None:
        """Do nothing."""

    def returned(
        self, step: int, request: RequestId, tokens: tuple[Token, ...], rows: Sequence[int], ended: str | None
    ) -> None:
        """Do nothing."""


NO_LOGITS = Logits(None)
"""What stands for a digest of logits when nobody looks."""


@dataclass(frozen=True, eq=False)
class _Begun:
    """A forward whose digests are being computed."""

    step: int
    rows: Rows
    live: tuple[int, ...]
    """The rows that wrote a slot."""

    logit_rows: tuple[int, ...]
    result: ForwardResult
    slots: Digests
    """Of the slots of `live`."""

    logits: Digests
    bits: tuple[bytes, ...]
    """In mode "full", what is digested: slots, then logits."""


class TracedGhost:
    """Shows everything to a tracer."""

    def __init__(
        self, tracer: Tracer, backend: Backend, page_size: int, *, full: bool, reread: bool, candidates: bool = False
    ) -> None:
        """Show to `tracer`.

        Args:
            tracer: takes the events.
            backend: whose pool of values is read back.
            page_size: slots per page.
            full: whether the bits themselves are shown, and not only their digests.
            reread: whether every initialised slot is read again after each step.
            candidates: whether it is shown what each token was drawn from.
        """
        self._tracer = tracer
        self._backend = backend
        self._page_size = page_size
        self._full = full
        self._candidates = candidates
        self._reread = reread
        self._logits: dict[int, Logits] = {}
        self._begun: _Begun | None = None
        self._yielded: dict[Logits, Tensor] = {}

    def planned(self, step: int, actions: Sequence[Action]) -> None:
        """Read back the pages that are attached or evicted: nothing has touched their values since they were chosen."""
        pages = [(action.page, self._page_size) for action in actions if isinstance(action, Attach | Evict)]
        self._tracer.record(PlanEvent(step=step, actions=tuple(actions), readings=self._read(pages)))

    def _read(self, pages: Iterable[tuple[PageId, int]]) -> tuple[Reading, ...]:
        """The first slots of each page, as many as is said: all of them in one go."""
        wanted = [(page, range(page * self._page_size, page * self._page_size + slots)) for page, slots in pages]
        digests = iter(self._backend.slot_digests([slot for _, slots in wanted for slot in slots])() if wanted else ())
        return tuple(Reading(page, tuple(islice(digests, len(slots)))) for page, slots in wanted)

    def computed(
        self, step: int, chunks: Sequence[Chunk], pool: Pool, batch: Batch | None, result: ForwardResult | None
    ) -> None:
        """Rows from the arrays that were passed; values through the page tables that the pool holds.

        Digests are begun here, behind the forward and before anything else touches the pool, and waited for when they
        are asked for or the step is settled.
        """
        self._logits = {}
        if batch is None or result is None:
            self._tracer.record(ForwardEvent(step=step, rows=(), written=(), logits=(), values={}))
            return
        rows = rows_of(batch, [chunk.request for chunk in chunks], self._page_size)
        live = tuple(i for i, row in enumerate(rows) if row.write is not None)
        slots = [self._slot(pool, rows[i]) for i in live]
        self._begun = _Begun(
            step=step,
            rows=rows,
            live=live,
            logit_rows=tuple(batch.logit_rows.tolist()),
            result=result,
            slots=self._backend.slot_digests(slots),
            logits=self._backend.row_digests(result.logits),
            bits=(*self._backend.slot_bytes(slots), *row_bytes(result.logits)) if self._full else (),
        )

    def _show_forward(self) -> None:
        """Show the forward that was begun, if it was not shown yet."""
        if self._begun is None:
            return
        begun, self._begun = self._begun, None
        kv, logits = begun.slots(), begun.logits()
        self._logits = {row: Logits(name) for row, name in zip(begun.logit_rows, logits, strict=True)}
        if self._candidates:
            self._yielded = dict(zip(self._logits.values(), begun.result.logits, strict=True))
        finite = begun.result.logits_finite().tolist()
        self._tracer.record(
            ForwardEvent(
                step=begun.step,
                rows=begun.rows,
                written=tuple(
                    SlotBits(row=i, kv=name, finite=bool(begun.result.kv_finite[i]))
                    for i, name in zip(begun.live, kv, strict=True)
                ),
                logits=tuple(
                    RowBits(row=i, logits=self._logits[i], finite=is_finite)
                    for i, is_finite in zip(begun.logit_rows, finite, strict=True)
                ),
                values=dict(zip((*kv, *logits), begun.bits, strict=True)) if self._full else {},
            )
        )

    def _slot(self, pool: Pool, row: Row) -> int:
        """The slot that the page table names for the row's position, wherever the row was told to write.

        Where no table names one, the slot that it was told: such a row is wrong, and is to show all the same.
        """
        assert row.write is not None
        table = () if row.request is None else pool.requests[row.request].table
        block, offset = divmod(row.position, self._page_size)
        page, offset = (table[block], offset) if 0 <= block < len(table) else row.write
        return page * self._page_size + offset

    def logits_of(self, batch_row: int) -> Logits:
        """The digest of the logits that a row of the last forward yielded."""
        self._show_forward()
        return self._logits[batch_row]

    def settled(self, step: int, actions: Sequence[Action], pool: Pool, live: Mapping[RequestId, LiveRequest]) -> None:
        """The state by abstraction, and every initialised slot if asked."""
        self._show_forward()
        after = snapshot(pool, live)
        initialised = [(page, len(view.tokens)) for page, view in sorted(after.pages.items())]
        rereadings = self._read(initialised) if self._reread else ()
        emits = [action for action in actions if isinstance(action, Emit)] if self._candidates else []
        self._tracer.record(
            SettleEvent(
                step=step,
                actions=tuple(actions),
                after=after,
                rereadings=rereadings,
                candidates=tuple(map(self._drawn_from, emits)),
            )
        )

    def _drawn_from(self, emit: Emit) -> Candidates:
        """What the token was drawn from; the parameters that it depends on are the same after the draw."""
        assert isinstance(emit.sampler, SamplerState)
        return candidates_of(self._yielded[emit.record.logits], emit.sampler)

    def returned(
        self, step: int, request: RequestId, tokens: tuple[Token, ...], rows: Sequence[int], ended: str | None
    ) -> None:
        """Taken where the caller takes it."""
        logits = tuple(self._logits[row] for row in rows)
        self._tracer.record(OutputEvent(step=step, request=request, tokens=tokens, logits=logits, ended=ended))
