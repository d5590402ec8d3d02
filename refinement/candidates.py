"""What may have happened in a step: the ids that occur in it, and the actions over these ids that are worth a try.

An action is left out only if no sequence that leads to the recorded state can contain it, or if whatever it
contributes to is also reached without it:

- A request that is live afterwards was not ended: no identifier is admitted twice. One that is not, was.
- A page that was registered and is registered was not evicted, unless a row wrote to it: a page that comes back from
  the free list is registered only after each of its slots was written.
- Preempting asks for some earlier arrival; one that is there throughout serves as well as any other.
- A page is attached only to a history that spells its tokens at a page's boundary.
- `observe` changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from vosti.refinement.evidence import Evidence
from vosti.refinement.observations import Observations
from vosti.spec.determinism import Record
from vosti.spec.events import ForwardEvent, PageView, Reading, Snapshot
from vosti.spec.reference import next_sampler
from vosti.spec.rows import Row
from vosti.spec.sampling import SamplerState
from vosti.spec.state import Logits, Page, PageId, Request, RequestId, Sampler, State, Token, Value, history
from vosti.spec.step import (
    Action,
    Admit,
    Allocate,
    Attach,
    Cancel,
    Emit,
    Evict,
    Fail,
    Finish,
    Phase,
    Preempt,
    Propose,
    Publish,
    Retract,
)


@dataclass(frozen=True)
class Question:
    """A step to be explained: which actions lead from one state to the other?"""

    before: State
    """The state in which the search begins. Values are digests."""

    after: Snapshot
    """What was recorded of the state that the step left behind."""

    forward: ForwardEvent | None = None
    """The forward between plan and settle; it is taken as recorded."""

    rereadings: tuple[Reading, ...] = ()
    """Pages that were read again after the step."""

    recorded: tuple[Action, ...] = ()
    """The actions that were recorded: their ids and arguments occur in the step too."""

    observations: Observations = field(default_factory=Observations)
    place: tuple[str, int] | None = None
    """The trace and the step's number: what was first observed in this very step is not held against it."""

    phase: Phase = Phase.PLAN
    """The phase in which the search begins: the plan, or the settle if `before` is the state after the forward."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of the forward."""
        return () if self.forward is None else self.forward.rows

    @property
    def written(self) -> tuple[tuple[RequestId, Value], ...]:
        """What the live rows computed, in order."""
        if self.forward is None:
            return ()
        kv = {bits.row: bits.kv for bits in self.forward.written}
        live = ((i, row.request) for i, row in enumerate(self.rows))
        return tuple((r, Value(kv.get(i, ""))) for i, r in live if r is not None)

    # ---------------------------------------------------------------- requests

    @cached_property
    def requests(self) -> tuple[RequestId, ...]:
        """The requests of the step."""
        named = [r for action in self.recorded if (r := getattr(action, "request", None)) is not None]
        rows = [row.request for row in self.rows if row.request is not None]
        return tuple(dict.fromkeys([*self.before.requests, *self.after.requests, *rows, *named]))

    @cached_property
    def begins(self) -> Mapping[RequestId, Request]:
        """Each request as it was before the step, or as it was admitted in it."""
        return {
            **{a.request: Request(a.prompt, (), (), a.sampler, 0, (), a.domain, a.arrival) for a in self.admissions},
            **self.before.requests,
        }

    @cached_property
    def admissions(self) -> tuple[Admit, ...]:
        """The requests that may have arrived."""
        found = {a.request: a for a in self.recorded if isinstance(a, Admit) and a.request not in self.after.requests}
        for r, request in self.after.requests.items():
            sampler = request.sampler
            if isinstance(sampler, SamplerState):
                sampler = Sampler(replace(sampler, index=max(0, sampler.index - len(request.output))))
            found[r] = Admit(r, request.prompt, sampler, request.domain, request.arrival)
        return tuple(admit for r, admit in found.items() if r not in self.before.seen)

    @cached_property
    def blocks(self) -> Mapping[RequestId, int]:
        """How many blocks of each request's table occur in the step."""
        count = dict.fromkeys(self.requests, 0)
        for r, request in (*self.before.requests.items(), *self.after.requests.items()):
            count[r] = max(count[r], len(request.table))
        for row in self.rows:
            if row.request is not None:
                blocks = min(row.position // self.before.page_size + 1, len(row.table))
                count[row.request] = max(count[row.request], blocks)
        return count

    @cached_property
    def drafts(self) -> Mapping[RequestId, frozenset[tuple[Token, ...]]]:
        """The drafts of each request: as recorded, and as the rows after its history spell them."""
        found: dict[RequestId, set[tuple[Token, ...]]] = defaultdict(set)
        spelt: dict[RequestId, list[Token]] = defaultdict(list)
        for row in self.rows:
            request = None if row.request is None else self.begins.get(row.request)
            if row.request is not None and request is not None and row.position >= len(history(request)):
                spelt[row.request].append(row.token)
        for r, request in self.after.requests.items():
            found[r] |= {request.draft, (*spelt[r][: len(spelt[r]) - len(request.draft)], *request.draft)}
        for r, tokens in spelt.items():
            found[r].add(tuple(tokens))
        for action in self.recorded:
            if isinstance(action, Propose):
                found[action.request].add(action.draft)
        return {r: frozenset(drafts - {()}) for r, drafts in found.items()}

    # ---------------------------------------------------------------- pages

    @cached_property
    def named_pages(self) -> frozenset[PageId]:
        """The pages that rows and recorded actions name."""
        recorded = {p for action in self.recorded if (p := getattr(action, "page", None)) is not None}
        rows = {p for row in self.rows for p in (*row.table, *((row.write[0],) if row.write else ()))}
        return frozenset(recorded | rows)

    @cached_property
    def evictable(self) -> frozenset[PageId]:
        """The registered pages that may have become free."""
        rewritten = {row.write[0] for row in self.rows if row.write}
        return frozenset(
            p
            for p, page in self.before.pages.items()
            if page.registered and (p in rewritten or p not in self.after.pages or not self.after.pages[p].registered)
        )

    @cached_property
    def pages(self) -> tuple[PageId, ...]:
        """The pages of the step; those that nothing can have happened to, and nothing depends on, are left out."""
        occurring = self.before.pages.keys() | self.after.pages.keys() | self.named_pages
        return tuple(sorted(p for p in occurring if not self._is_inert(p)))

    def _is_inert(self, p: PageId) -> bool:
        page, view = self.before.pages.get(p), self.after.pages.get(p)
        return (
            page is not None
            and view is not None
            and page.registered
            and not page.holders
            and _looks_like(view, page)
            and p not in self.named_pages
            and page.parent not in self.evictable
            and not any(True for _ in self._attaching(p))
        )

    def _attaching(self, p: PageId) -> Iterator[RequestId]:
        """The requests that a page may have been attached to."""
        page, size = self.before.pages[p], self.before.page_size
        for r, request in self.begins.items():
            if page.registered and page.domain == request.domain and len(page.prefix) % size == 0:
                start = len(page.prefix)
                if history(request)[start : start + size] == page.tokens and start // size < self.blocks.get(r, 0):
                    yield r

    # ---------------------------------------------------------------- actions

    def plan(self) -> Iterator[Action]:
        """The actions that may have been planned."""
        gone = [r for r in self.requests if r not in self.after.requests]
        yield from map(Cancel, gone)
        for r, request in self.begins.items():
            earlier = [f for f, other in self.begins.items() if other.arrival < request.arrival]
            lasting = [f for f in earlier if f in self.before.requests and f in self.after.requests]
            yield from (Preempt(r, f) for f in lasting[:1] or earlier)
        yield from self.admissions
        for r in self.begins:
            yield from (Propose(r, draft) for draft in sorted(self.drafts.get(r, ())))
        yield from (Attach(r, p) for p in self.pages if p in self.before.pages for r in self._attaching(p))
        yield from map(Evict, sorted(self.evictable))
        kept = {p for p, page in self.before.pages.items() if page.registered} - self.evictable
        yield from (Allocate(r, p) for r in self.begins for p in self.pages if p not in kept)

    def settle(self) -> Iterator[Action]:
        """The actions that may have been the settle."""
        gone = [r for r in self.begins if r not in self.after.requests]
        yield from (Retract(r) for r, request in self.begins.items() if request.draft or self.drafts.get(r))
        yield from self.emits
        yield from map(Fail, gone)
        yield from (Publish(r, block) for r in self.begins for block in range(self.blocks.get(r, 0)))
        yield from map(Finish, gone)

    @cached_property
    def emits(self) -> tuple[Emit, ...]:
        """The records that may have been emitted: one for each row of logits, in order, with the tokens that occur."""
        return tuple(emit for r, request in self.begins.items() for emit in self._emits(r, request))

    def _emits(self, r: RequestId, request: Request) -> Iterator[Emit]:
        sampler, last = request.sampler, len(history(request)) - 1
        yielded = self.yielded.get(r, {})
        k = 0
        while last + k in yielded:
            try:
                following = next_sampler(sampler)
            except ValueError:  # the last index there is
                return
            for token in self._tokens(r, request, k, yielded[last + k], sampler):
                yield Emit(r, Record(yielded[last + k], token), following)
            sampler, k = following, k + 1

    def _tokens(self, r: RequestId, request: Request, k: int, logits: Logits, sampler: Sampler) -> tuple[Token, ...]:
        """The tokens that may have been the k-th of this step."""
        if r in self.after.requests:
            return self.after.requests[r].output[len(request.output) :][k : k + 1]
        recorded = [a.record.token for a in self.recorded if isinstance(a, Emit) and a.request == r]
        drafted = [d[k] for d in (request.draft, *sorted(self.drafts.get(r, ()))) if k < len(d)]
        seen = self._seen(logits, sampler)
        known = dict.fromkeys([*recorded[k : k + 1], *drafted, *(() if seen is None else (seen,))])
        # If none is known, nothing is left that depends on which token it was: any one stands for all.
        return tuple(known) or request.prompt[-1:]

    # ---------------------------------------------------------------- values

    @cached_property
    def yielded(self) -> Mapping[RequestId, Mapping[int, Logits]]:
        """What the forward yielded, by request and position."""
        found: dict[RequestId, dict[int, Logits]] = defaultdict(dict)
        for bits in () if self.forward is None else self.forward.logits:
            row = self.rows[bits.row] if 0 <= bits.row < len(self.rows) else None
            if row is not None and row.request is not None:
                found[row.request][row.position] = bits.logits
        return dict(found)

    @cached_property
    def evidence(self) -> Evidence:
        """What is known of values."""
        tokens: dict[Logits, dict[Sampler, Token]] = defaultdict(dict)
        advanced: dict[Sampler, Sampler] = {}
        for r, request in self.begins.items():
            sampler = request.sampler
            for emit in dict.fromkeys(e.sampler for e in self.emits if e.request == r):
                advanced[sampler] = emit
                for logits in self.yielded.get(r, {}).values():
                    seen = self._seen(logits, sampler)
                    if seen is not None:
                        tokens[logits][sampler] = seen
                sampler = emit
        written = () if self.forward is None else self.forward.written
        held = {value for page in self.before.pages.values() for value in page.kv}
        return Evidence(
            logits=self.yielded,
            tokens=dict(tokens),
            advanced=advanced,
            sick_values=frozenset({v for v in held if not self.observations.finite(v)})
            | {Value(bits.kv) for bits in written if not bits.finite},
            sick_logits=frozenset(
                bits.logits for bits in (() if self.forward is None else self.forward.logits) if not bits.finite
            ),
        )

    def _seen(self, logits: Logits, sampler: Sampler) -> Token | None:
        first = self.observations.tokens.first((str(logits), sampler))
        if first is None or (first.trace, first.step) == self.place or not isinstance(first.answer, int):
            return None
        return Token(first.answer)


def _looks_like(view: PageView, page: Page) -> bool:
    """Whether a page was recorded as it was before."""
    return (view.registered, view.parent, view.domain, view.tokens, view.refcount) == (
        page.registered,
        page.parent,
        page.domain,
        page.tokens,
        len(page.holders),
    )
