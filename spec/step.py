"""An engine step E →O E′, in three phases (section 4.3 of the paper).

- **plan**: who leaves, who arrives, which pages are reused, taken, or given up. All prefix hits of a step are decided
  here, before the step publishes anything (section 4.1: "separate cache reuse from generation").
- **forward**: one launch sequence over packed rows. Each live row computes one position of one request.
- **settle**: drafts are judged, records emitted, pages published, requests ended.

`step_ok` says whether a step is one: every action happens in its phase, with its guard true in the state that it
finds, and the packed rows are those that the plan asks for (`vosti.spec.rows`). The fold over a phase's actions is a
loop, and outside the subset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from enum import Enum
from operator import attrgetter

from vosti.spec import actions
from vosti.spec.determinism import Output, Record
from vosti.spec.rows import Rows, forward_ok, row_yields
from vosti.spec.state import Domain, Logits, PageId, Request, RequestId, Sampler, State, Token, history

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
