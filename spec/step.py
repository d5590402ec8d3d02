"""An engine step E →O E′, in three phases (section 4.3 of the paper).

- **plan**: who leaves, who arrives, which pages are reused, taken, or given up. All prefix hits of a step are decided
  here, before the step publishes anything (section 4.1: "separate cache reuse from generation").
- **forward**: one launch sequence over packed rows. Each live row computes one position of one request.
- **settle**: drafts are judged, records emitted, pages published, requests ended.

`step_ok` says whether a step is one: every action happens in its phase, with its guard true in the state that it
finds, and the packed rows are those that the plan asks for. The predicates over rows are in the subset; the fold over
a phase's actions is a loop, and is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from enum import Enum
from operator import attrgetter

from vosti.spec import actions
from vosti.spec.determinism import Output, Record
from vosti.spec.state import Domain, Logits, PageId, Request, RequestId, Sampler, State, Token, history, sequence

# ---------------------------------------------------------------- actions as data


class Phase(Enum):
    """The three phases of a step; a computed position belongs to the forward."""

    PLAN = "plan"
    FORWARD = "forward"
    SETTLE = "settle"


@dataclass(frozen=True)
class Admit:
    """`actions.admit`."""

    request: RequestId
    prompt: tuple[Token, ...]
    sampler: Sampler
    domain: Domain
    arrival: int


@dataclass(frozen=True)
class Propose:
    """`actions.propose`."""

    request: RequestId
    draft: tuple[Token, ...]


@dataclass(frozen=True)
class Attach:
    """`actions.attach`."""

    request: RequestId
    page: PageId


@dataclass(frozen=True)
class Allocate:
    """`actions.allocate`."""

    request: RequestId
    page: PageId


@dataclass(frozen=True)
class Evict:
    """`actions.evict`."""

    page: PageId


@dataclass(frozen=True)
class Compute:
    """`actions.compute`: what a live row of the forward does."""

    request: RequestId


@dataclass(frozen=True)
class Emit:
    """`actions.emit`."""

    request: RequestId
    record: Record
    sampler: Sampler


@dataclass(frozen=True)
class Observe:
    """`actions.observe`."""

    request: RequestId
    position: int
    logits: Logits


@dataclass(frozen=True)
class Retract:
    """`actions.retract`."""

    request: RequestId


@dataclass(frozen=True)
class Publish:
    """`actions.publish`."""

    request: RequestId
    block: int


@dataclass(frozen=True)
class Preempt:
    """`actions.preempt`."""

    request: RequestId
    in_favour_of: RequestId


@dataclass(frozen=True)
class Finish:
    """`actions.finish`."""

    request: RequestId


@dataclass(frozen=True)
class Cancel:
    """`actions.cancel`."""

    request: RequestId


@dataclass(frozen=True)
class Fail:
    """`actions.fail`."""

    request: RequestId


Action = (
    Admit
    | Propose
    | Attach
    | Allocate
    | Evict
    | Compute
    | Emit
    | Observe
    | Retract
    | Publish
    | Preempt
    | Finish
    | Cancel
    | Fail
)


@dataclass(frozen=True)
class Rule:
    """How an action, as data, is read: its phase, and the functions of `vosti.spec.actions` that give it meaning.

    The fields of the data are the functions' arguments after the state, in order.
    """

    phase: Phase
    guard: Callable[..., bool]
    effect: Callable[..., State]


RULES: dict[type, Rule] = {
    Cancel: Rule(Phase.PLAN, actions.cancel_guard, actions.cancel),
    Preempt: Rule(Phase.PLAN, actions.preempt_guard, actions.preempt),
    Admit: Rule(Phase.PLAN, actions.admit_guard, actions.admit),
    Propose: Rule(Phase.PLAN, actions.propose_guard, actions.propose),
    Attach: Rule(Phase.PLAN, actions.attach_guard, actions.attach),
    Evict: Rule(Phase.PLAN, actions.evict_guard, actions.evict),
    Allocate: Rule(Phase.PLAN, actions.allocate_guard, actions.allocate),
    Compute: Rule(Phase.FORWARD, actions.compute_guard, actions.compute),
    Retract: Rule(Phase.SETTLE, actions.retract_guard, actions.retract),
    Emit: Rule(Phase.SETTLE, actions.emit_guard, actions.emit),
    Observe: Rule(Phase.SETTLE, actions.observe_guard, actions.observe),
    Fail: Rule(Phase.SETTLE, actions.fail_guard, actions.fail),
    Publish: Rule(Phase.SETTLE, actions.publish_guard, actions.publish),
    Finish: Rule(Phase.SETTLE, actions.finish_guard, actions.finish),
}
"""Every action, once."""

ARGUMENTS = {kind: tuple(attrgetter(field.name) for field in fields(kind)) for kind in RULES}


def arguments(action: Action) -> tuple[object, ...]:
    """The action's fields, as arguments of its guard and effect after the state."""
    return tuple(get(action) for get in ARGUMENTS[type(action)])


def guard(s: State, action: Action) -> bool:
    """Whether the action may happen in s."""
    return RULES[type(action)].guard(s, *arguments(action))


def effect(s: State, action: Action) -> State:
    """The state after the action. Needs its guard."""
    return RULES[type(action)].effect(s, *arguments(action))


# ---------------------------------------------------------------- the forward's rows


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


# ---------------------------------------------------------------- a step


@dataclass(frozen=True)
class Step:
    """One engine step, as data."""

    plan: tuple[Action, ...]
    rows: Rows
    settle: tuple[Action, ...]


def computes(rows: Rows) -> tuple[Action, ...]:
    """The forward as actions: one compute for each live row."""
    return tuple(Compute(row.request) for row in rows if row.request is not None)


def logits_were_taken(s: State, rows: Rows, action: Action) -> bool:
    """An emit or observe reports logits of this very forward, at the position that it speaks of."""
    match action:
        case Emit(request=r):
            return r in s.requests and row_yields(rows, r, last_position(s.requests[r]))
        case Observe(request=r, position=position):
            return row_yields(rows, r, position)
        case _:
            return True


def last_position(request: Request) -> int:
    """The position of the history's last token, whose row yields the next logits."""
    return len(history(request)) - 1


def run(s: State, phase: Phase, some_actions: Iterable[Action]) -> State | None:
    """The state after a phase, or None if an action is out of its phase or its guard is false."""
    for action in some_actions:
        if RULES[type(action)].phase is not phase or not guard(s, action):
            return None
        s = effect(s, action)
    return s


def step_ok(s: State, step: Step) -> bool:
    """Whether E → E′ is an engine step."""
    return after(s, step) is not None


def after(s: State, step: Step) -> State | None:
    """E′, or None if the step is not one."""
    planned = run(s, Phase.PLAN, step.plan)
    if planned is None or not forward_ok(planned, step.rows):
        return None
    computed = run(planned, Phase.FORWARD, computes(step.rows))
    if computed is None:
        return None
    settled: State | None = computed
    for action in step.settle:
        if settled is None or not logits_were_taken(settled, step.rows, action):
            return None
        settled = run(settled, Phase.SETTLE, (action,))
    return settled


def output(step: Step) -> Output:
    """O: the records of a step, by request, in order."""
    records: dict[RequestId, tuple[Record, ...]] = {}
    for action in step.settle:
        if isinstance(action, Emit):
            records[action.request] = (*records.get(action.request, ()), action.record)
    return records
