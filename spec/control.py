"""The control part of a step: all of it that can be judged without looking at a value.

`step_ok` judges a step whole, and for that it needs values. Here are the same guards and effects, the five actions
that look at values reduced to their control parts, with an answer that says what is wrong: an engine asserts `planned`
and `false_row` of its own plan and rows before a forward touches the pool of values, `computed` and `settled` of what
follows, and a checker of recorded steps evaluates `false_row` on the rows that were recorded.

Outside the subset: the folds over actions and rows are loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vosti.spec import actions
from vosti.spec.rows import ROW_CONJUNCTS, Rows, pages_read, row_writes_alone
from vosti.spec.state import PageId, RequestId, State, Value
from vosti.spec.step import (
    RULES,
    Action,
    Compute,
    Emit,
    Fail,
    Observe,
    Phase,
    Publish,
    arguments,
    computes,
    effect,
    logits_were_taken,
)

UNSEEN = Value(None)
"""What stands for a value at which nobody looks."""


@dataclass(frozen=True)
class Objection:
    """Why something is no part of a step of the specification."""

    conjunct: str
    """The name of the predicate that does not hold."""

    request: RequestId | None
    """Whose it is, if it is a request's."""

    subject: Action | int
    """The action that may not happen, or the number of the row that may not be computed."""


# ---------------------------------------------------------------- actions


def fail_ready(s: State, r: RequestId) -> bool:
    """Control part of `fail_guard`: the request is live."""
    return r in s.requests


def control_part(action: Action) -> tuple[Callable[..., bool], tuple[object, ...]]:
    """What of a guard can be judged without values, and its arguments after the state: mostly all of it."""
    match action:
        case Emit(request=r, record=record):
            return actions.emit_ready, (r, record.token)
        case Observe(request=r, position=position):
            return actions.observe_ready, (r, position)
        case Publish(request=r, block=block):
            return actions.publish_ready, (r, block)
        case Fail(request=r):
            return fail_ready, (r,)
        case _:
            return RULES[type(action)].guard, arguments(action)


def control_effect(s: State, action: Action) -> State:
    """The state after the action; what a compute writes is `UNSEEN`. Needs the guard's control part."""
    return actions.written(s, action.request, UNSEEN) if isinstance(action, Compute) else effect(s, action)


def performed(s: State, phase: Phase, some_actions: Iterable[Action], rows: Rows = ()) -> State | Objection:
    """The state after actions of one phase, or the first of them that may not happen.

    Args:
        s: the state that they find.
        phase: in which they are.
        some_actions: in order.
        rows: of the step's forward, in its settle phase.
    """
    for action in some_actions:
        guard, args = control_part(action)
        request = getattr(action, "request", None)
        if RULES[type(action)].phase is not phase:
            return Objection("action_is_in_its_phase", request, action)
        if not guard(s, *args):
            return Objection(guard.__name__, request, action)
        if not logits_were_taken(s, rows, action):
            return Objection("logits_were_taken", request, action)
        s = control_effect(s, action)
    return s


def planned(s: State, plan: Iterable[Action]) -> State | Objection:
    """The state after a plan."""
    return performed(s, Phase.PLAN, plan)


def computed(s: State, rows: Rows) -> State | Objection:
    """The state after the forward of some rows, of which `forward_ok` holds."""
    return performed(s, Phase.FORWARD, computes(rows))


def settled(s: State, rows: Rows, settle: Iterable[Action]) -> State | Objection:
    """The state after what was settled of a forward."""
    return performed(s, Phase.SETTLE, settle, rows)


# ---------------------------------------------------------------- rows


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
