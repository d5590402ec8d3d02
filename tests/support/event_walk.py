"""Valid event streams, made from the specification alone: a random walk over its actions, with an engine's habits.

There is no engine and no model. The walk keeps a state of the specification, picks actions whose guards hold, and
shows the events that an engine with this state would show. Values are digests of the prefix that they are a function
of, as a `World` says.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from event_worlds import SICK, HashWorld, Tokens, World
from vosti.refinement.entries import Header, header
from vosti.spec import actions
from vosti.spec.candidates import Candidates, candidates
from vosti.spec.determinism import Record
from vosti.spec.digests import sha256
from vosti.spec.events import (
    Event,
    ForwardEvent,
    OutputEvent,
    PageView,
    PlanEvent,
    Reading,
    RowBits,
    SettleEvent,
    SlotBits,
    Snapshot,
)
from vosti.spec.rows import Row
from vosti.spec.sampling import P_UNIT, SamplerState
from vosti.spec.state import (
    Domain,
    Logits,
    PageId,
    Request,
    RequestId,
    Sampler,
    State,
    Token,
    Value,
    history,
    initial,
    sequence,
)
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
    Observe,
    Preempt,
    Propose,
    Publish,
    Retract,
    effect,
)

Known = dict[tuple[PageId | None, Tokens, Domain], PageId]
"""The registered pages, by what a request has to match."""


@dataclass(frozen=True)
class Habits:
    """What the walk likes to do. Probabilities are per request and step unless said otherwise."""

    page_size: int = 4
    pages: int = 16
    max_seqs: int = 3
    token_budget: int = 12
    live: int = 4
    """At most so many live requests."""

    arrive: float = 0.6
    """A new request arrives in a step, if there is room."""

    prompt: tuple[int, int] = (1, 14)
    output: tuple[int, int] = (1, 10)
    alphabet: int = 3
    """Prompts are made of so many tokens, so that they often begin alike."""

    stems: int = 0
    """If any: half of the prompts begin with one of so many long texts, in part."""

    domains: int = 2
    seeds: int = 3
    sick: float = 0.0
    """A prompt ends with `SICK`."""

    rest: float = 0.15
    """A request gets no rows in a step."""

    chunk: float = 0.3
    """A prefill gets fewer rows than it could."""

    draft: float = 0.3
    cancel: float = 0.04
    observe: float = 0.1
    """Per row: its logits are taken and observed."""

    padding: float = 0.5
    """Per step: there is a padding row."""

    shy: float = 0.1
    """A full page is not published, a known page not attached."""

    preempt: float = 0.03
    """A request is preempted without need."""

    reread: bool = False
    full: bool = False
    candidates: bool = False
    """Emits say what their token was drawn from. The world is a `FloatWorld`."""


@dataclass
class Wish:
    """What a request was to be, from the start."""

    length: int
    """After so many outputs it is done."""


@dataclass
class Share:
    """A request's part of a forward."""

    request: RequestId
    rows: int


@dataclass
class EventWalk:
    """A walk, step by step."""

    seed: int
    habits: Habits = field(default_factory=Habits)
    world: World = field(default_factory=HashWorld)
    configuration: str = "made from the specification"

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.state: State = initial(frozenset(map(PageId, range(self.habits.pages))), self.habits.page_size)
        self.number = 0
        self.steps = 0
        self.wishes: dict[RequestId, Wish] = {}
        self.used: dict[PageId, int] = {}
        self.actions: list[Action] = []
        self.drawn_from: list[Candidates] = []
        self.readings: list[Reading] = []
        self.outputs: dict[RequestId, OutputEvent] = {}

    @property
    def header(self) -> Header:
        """The header of this run."""
        habits = self.habits
        return header(
            {"model": self.configuration},
            page_size=habits.page_size,
            pages=habits.pages,
            max_seqs=habits.max_seqs,
            token_budget=habits.token_budget,
            mode="full" if habits.full else "candidates" if habits.candidates else "digest",
            reread=habits.reread,
        )

    def events(self, steps: int) -> Iterator[Event]:
        """The events of so many steps."""
        for _ in range(steps):
            yield from self.step()

    # ------------------------------------------------------------ a step

    def step(self) -> list[Event]:
        """One step."""
        self.outputs = {}
        shares = self.plan()
        plan = PlanEvent(self.steps, tuple(self.actions), tuple(self.readings))
        forward_event, bits = self.forward(shares)
        settled = self.settle(shares, bits)
        events: list[Event] = [plan, forward_event, settled, *self.outputs.values()]
        self.steps += 1
        return events

    def do(self, action: Action) -> None:
        """Let an action happen."""
        if isinstance(action, Attach | Evict):
            self.readings.append(self.reading(action.page))
        self.actions.append(action)
        self.state = effect(self.state, action)

    def reading(self, page_id: PageId) -> Reading:
        """What a page holds."""
        return Reading(page_id, tuple(str(value) for value in self.state.pages[page_id].kv))

    def chance(self, probability: float) -> bool:
        """Whether something happens."""
        return self.random.random() < probability

    def heard(self, r: RequestId, record: Record | None = None, ended: str | None = None) -> None:
        """The caller hears of a request."""
        old = self.outputs.get(r, OutputEvent(self.steps, r, (), (), None))
        tokens = old.tokens if record is None else (*old.tokens, record.token)
        logits = old.logits if record is None else (*old.logits, record.logits)
        self.outputs[r] = OutputEvent(self.steps, r, tokens, logits, ended)

    # ------------------------------------------------------------ plan

    def plan(self) -> list[Share]:
        """Choose the plan's actions, and each request's rows."""
        self.actions, self.readings = [], []
        random, habits = self.random, self.habits
        for r in list(self.state.requests):
            if self.chance(habits.cancel):
                self.do(Cancel(r))
                self.heard(r, ended="cancelled")
        if len(self.state.requests) < habits.live and self.chance(habits.arrive):
            self.admit()
        shares: list[Share] = []
        budget = habits.token_budget
        known: Known = {
            (page.parent, page.tokens, page.domain): page_id
            for page_id, page in self.state.pages.items()
            if page.registered
        }
        planned: set[RequestId] = set()
        for r in sorted(self.state.requests, key=lambda r: self.state.requests[r].arrival):
            if budget == 0 or len(shares) == habits.max_seqs:
                break
            if self.chance(habits.rest):
                continue
            planned.add(r)
            self.attach(r, known)
            if self.chance(habits.preempt):
                self.preempt_for(r, planned)
            rows = self.rows_for(r, budget, planned, known)
            if rows:
                shares.append(Share(r, rows))
                budget -= rows
        random.shuffle(shares)
        return shares

    def admit(self) -> None:
        """A request arrives."""
        random, habits = self.random, self.habits
        length = random.randint(*habits.prompt)
        tokens = [Token(random.randrange(habits.alphabet)) for _ in range(length)]
        if habits.stems and self.chance(0.5):
            stem = Random(random.randrange(habits.stems))
            shared = random.randint(1, length)
            tokens[:shared] = [Token(stem.randrange(habits.alphabet)) for _ in range(shared)]
        if self.chance(habits.sick):
            tokens[-1] = SICK
        r = RequestId(f"r{self.number}")
        sampler = SamplerState(
            temperature=random.choice((0.0, 0.5, 1.0)),
            top_k=0,
            top_p=P_UNIT,
            min_p=0,
            seed=random.randrange(habits.seeds),
            index=0,
        )
        domain = Domain(f"tenant {random.randrange(habits.domains)}")
        longest = min(habits.output[1], habits.pages * habits.page_size - length)
        self.wishes[r] = Wish(random.randint(min(habits.output[0], longest), longest))
        self.do(Admit(r, tuple(tokens), Sampler(sampler), domain, self.number))
        self.number += 1

    def attach(self, r: RequestId, known: Known) -> None:
        """Reuse pages."""
        size = self.habits.page_size
        while not self.chance(self.habits.shy):
            request = self.state.requests[r]
            tokens = history(request)[request.cached : request.cached + size]
            page_id = known.get((request.table[-1] if request.table else None, tokens, request.domain))
            if page_id is None or not actions.attach_guard(self.state, r, page_id):
                return
            self.do(Attach(r, page_id))
            self.used[page_id] = self.steps

    def preempt_for(self, r: RequestId, planned: set[RequestId]) -> bool:
        """The last later arrival that holds pages, and for which nothing was planned, gives them back."""
        later = [
            (request.arrival, other)
            for other, request in self.state.requests.items()
            if request.table and other not in planned and request.arrival > self.state.requests[r].arrival
        ]
        if later:
            self.do(Preempt(max(later)[1], r))
        return bool(later)

    def take_page(self, r: RequestId, planned: set[RequestId], known: Known) -> bool:
        """A free page joins the table, if one can be had."""
        while True:
            free = self.state.capacity - self.state.pages.keys()
            if free:
                self.do(Allocate(r, self.random.choice(sorted(free)) if len(free) < 64 else min(free)))
                return True
            parents = {page.parent for page in self.state.pages.values()}
            idle = [p for p, page in self.state.pages.items() if page.registered and not page.holders]
            leaves = [p for p in idle if p not in parents]
            if leaves:
                victim = min(leaves, key=lambda p: (self.used.get(p, 0), p))
                for key in [key for key, page_id in known.items() if page_id == victim]:
                    del known[key]
                self.do(Evict(victim))
            elif not self.preempt_for(r, planned):
                return False

    def rows_for(self, r: RequestId, budget: int, planned: set[RequestId], known: Known) -> int:
        """Decide on a draft, find pages, and count the rows."""
        request = self.state.requests[r]
        wanted = min(budget, len(sequence(request)) - request.cached)
        if wanted > 1 and self.chance(self.habits.chunk):
            wanted = self.random.randint(1, wanted)
        draft: Tokens = ()
        ready = request.draft == () and request.cached + wanted == len(history(request))
        if ready and SICK not in history(request) and self.chance(self.habits.draft):
            draft = self.guess(request)[: budget - wanted]
        end = request.cached + wanted + len(draft)
        while len(self.state.requests[r].table) * self.habits.page_size < end:
            if not self.take_page(r, planned, known):
                break
        room = len(self.state.requests[r].table) * self.habits.page_size - request.cached
        if draft and room >= wanted + len(draft):
            self.do(Propose(r, draft))
            return wanted + len(draft)
        return min(wanted, room)

    def guess(self, request: Request) -> Tokens:
        """A draft: right for a while, and then perhaps wrong."""
        tokens, sampler, length = history(request), request.sampler, self.random.randint(1, 4)
        right = self.random.randint(0, length)
        for k in range(length):
            token = self.world.token(tokens, sampler, len(request.prompt))
            if k >= right:
                token = Token(token + 1)
            tokens = (*tokens, token)
            assert isinstance(sampler, SamplerState)
            sampler = Sampler(sampler.advanced())
        return tokens[-length:]

    # ------------------------------------------------------------ forward

    def forward(self, shares: list[Share]) -> tuple[ForwardEvent, dict[tuple[RequestId, int], RowBits]]:
        """Compute the rows."""
        rows: list[Row] = []
        written: list[SlotBits] = []
        logits: list[RowBits] = []
        taken: dict[tuple[RequestId, int], RowBits] = {}
        values: dict[str, bytes] = {}
        for share in shares:
            if self.chance(self.habits.padding):
                rows.append(Row(None, Token(0), 0, None, (), 0, False))
            request = self.state.requests[share.request]
            tokens, last = sequence(request), len(history(request)) - 1
            for position in range(request.cached, request.cached + share.rows):
                i, prefix = len(rows), tokens[: position + 1]
                finite = SICK not in prefix
                block, offset = divmod(position, self.habits.page_size)
                observed = position < last and self.chance(self.habits.observe)
                wanted = position >= last or observed
                write = (request.table[block], offset)
                rows.append(Row(share.request, tokens[position], position, write, request.table, position + 1, wanted))
                data = self.world.kv(prefix)
                written.append(SlotBits(i, sha256(data), finite))
                values[sha256(data)] = data
                self.state = actions.written(self.state, share.request, Value(sha256(data)))
                if wanted:
                    data = self.world.logits(prefix)
                    logits.append(RowBits(i, Logits(sha256(data)), finite))
                    taken[share.request, position] = logits[-1]
                    values[sha256(data)] = data
        shown = values if self.habits.full else {}
        return ForwardEvent(self.steps, tuple(rows), tuple(written), tuple(logits), shown), taken

    # ------------------------------------------------------------ settle

    def settle(self, shares: list[Share], taken: dict[tuple[RequestId, int], RowBits]) -> SettleEvent:
        """Judge drafts, emit, publish, end."""
        self.actions, self.drawn_from = [], []
        for share in shares:
            r = share.request
            last = len(history(self.state.requests[r])) - 1
            for (owner, position), bits in taken.items():
                if owner == r and position < last:
                    self.do(Observe(r, position, bits.logits))
            self.emit(r, taken)
        drawn_from = tuple(self.drawn_from) if self.habits.candidates else ()
        return SettleEvent(self.steps, tuple(self.actions), snapshot(self.state), self.rereadings(), drawn_from)

    def emit(self, r: RequestId, taken: dict[tuple[RequestId, int], RowBits]) -> None:
        """What becomes of one request."""
        while True:
            request = self.state.requests[r]
            tokens = history(request)
            if any(token == SICK for token in tokens[: request.cached]):
                self.do(Fail(r))
                self.heard(r, ended="error")
                return
            row = taken.get((r, len(tokens) - 1))
            if request.cached < len(tokens) or row is None:
                break
            token = self.world.token(tokens, request.sampler, len(request.prompt))
            if request.draft and request.draft[0] != token:
                self.do(Retract(r))
            assert isinstance(request.sampler, SamplerState)
            record = Record(row.logits, token)
            if self.habits.candidates:
                self.drawn_from.append(candidates(array("f", self.world.logits(tokens)), request.sampler))
            self.do(Emit(r, record, Sampler(request.sampler.advanced())))
            self.heard(r, record)
            if len(self.state.requests[r].output) == self.wishes[r].length:
                break
        request = self.state.requests[r]
        for block in range(min(request.cached, len(history(request))) // self.habits.page_size):
            if not self.state.pages[request.table[block]].registered:
                if self.chance(self.habits.shy):
                    break
                self.do(Publish(r, block))
        if len(request.output) == self.wishes[r].length:
            self.do(Finish(r))
            self.heard(r, ended=self.random.choice(("stop", "length")))

    def rereadings(self) -> tuple[Reading, ...]:
        """Every page in use, if they are all read again."""
        return tuple(map(self.reading, sorted(self.state.pages))) if self.habits.reread else ()


def snapshot(s: State) -> Snapshot:
    """The state as an engine's own structures would show it."""
    return Snapshot(
        requests=dict(s.requests),
        pages={
            page_id: PageView(
                registered=page.registered,
                parent=page.parent,
                domain=page.domain,
                refcount=len(page.holders),
                tokens=page.tokens,
                indexed=page.registered,
            )
            for page_id, page in s.pages.items()
        },
        free=s.capacity - s.pages.keys(),
    )
