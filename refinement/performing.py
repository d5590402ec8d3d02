"""One action: its guard, interpreted where it looks at values, and its effect."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from dataclasses import replace

from vosti.refinement.explain import explain
from vosti.refinement.run import Run
from vosti.spec import actions
from vosti.spec.candidates import Candidates, drawn, may_be_candidates
from vosti.spec.determinism import Admission
from vosti.spec.events import RowBits
from vosti.spec.reference import next_sampler
from vosti.spec.sampling import SamplerState, sample
from vosti.spec.state import PageId, State, history
from vosti.spec.step import (
    RULES,
    Action,
    Admit,
    Attach,
    Cancel,
    Emit,
    Evict,
    Fail,
    Finish,
    Observe,
    Phase,
    Preempt,
    Publish,
    Retract,
    arguments,
    effect,
    last_position,
    logits_were_taken,
)


def perform(run: Run, phase: Phase, action: Action) -> None:
    """Let an action happen in a run.

    Raises:
        Refuted: if it is out of its phase, or its guard does not hold.
    """
    run.place.action = action
    rule = RULES[type(action)]
    if rule.phase is not phase:
        run.place.refute("action_is_in_its_phase", expected=rule.phase.value, actual=phase.value)
    match action:
        case Emit():
            _check_emit(run, action)
        case Observe():
            _check_observe(run, action)
        case Publish():
            _check_publish(run, action)
        case Fail():
            _check_fail(run, action)
        case Evict(page=page_id) if _is_idle_leaf(run, page_id):
            pass  # evict_guard, without a look at each page of the pool
        case _:
            require(run, rule.guard, *arguments(action))
    run.witnesses.action(run.state, action)
    run.outputs.note(action)
    _follow(run, action)
    run.state = _evicted(run.state, action.page) if isinstance(action, Evict) else effect(run.state, action)
    run.place.action = None


def require(run: Run, predicate: Callable[..., bool], *args: object) -> None:
    """Refute the run if a predicate of the specification does not hold in its state."""
    if not predicate(run.state, *args):
        expected, actual = explain(predicate, run.state, *args)
        run.place.refute(predicate.__name__, expected=expected, actual=actual)


def _is_idle_leaf(run: Run, page_id: PageId) -> bool:
    """`vosti.spec.actions.evict_guard`, if children are counted right; if it is false, the guard itself decides."""
    page = run.state.pages.get(page_id)
    return page is not None and page.registered and not page.holders and run.children[page_id] == 0


def _evicted(s: State, page_id: PageId) -> State:
    """`vosti.spec.actions.evict`, by a copy without the page."""
    pages = dict(s.pages)
    del pages[page_id]
    return replace(s, pages=pages)


def _follow(run: Run, action: Action) -> None:
    """What goes beside the state follows an action that is about to happen."""
    match action:
        case Evict(page=page_id):
            parent = run.state.pages[page_id].parent
            if parent is not None:
                run.children[parent] -= 1
        case Publish(request=r, block=block) if block > 0:
            run.children[run.state.requests[r].table[block - 1]] += 1
        case Admit(request=r, prompt=prompt, sampler=sampler):
            run.positions.start(r)
            run.admitted[r] = Admission(prompt, sampler)
            run.records[r] = []
        case Attach(request=r, page=page_id):
            run.positions.attach(r, run.state.pages[page_id].tokens)
        case Preempt(request=r):
            run.positions.start(r)
        case Retract(request=r):
            run.positions.retract(r, len(history(run.state.requests[r])))
        case Emit(request=r, record=record):
            run.records[r].append(record)
        case Fail(request=r):
            run.positions.end(r)
            run.failed.add(r)
        case Finish(request=r) | Cancel(request=r):
            run.positions.end(r)
        case _:
            pass


# ---------------------------------------------------------------- actions that look at values


def _require_row(run: Run, action: Emit | Observe) -> None:
    if not logits_were_taken(run.state, run.forward.rows, action):
        run.place.refute(
            "logits_were_taken",
            expected="a row of this forward that takes logits at the position",
            actual="no such row",
            position=last_position(run.state.requests[action.request])
            if isinstance(action, Emit) and action.request in run.state.requests
            else None,
        )


def _check_emit(run: Run, emit: Emit) -> None:
    """The guard of an emit: `emit_ready`, and the parts of `vosti.spec.actions.emits` one by one."""
    require(run, actions.emit_ready, emit.request, emit.record.token)
    _require_row(run, emit)
    r, logits, token = emit.request, emit.record.logits, emit.record.token
    request = run.state.requests[r]
    tokens = history(request)
    last = len(tokens) - 1
    place = run.place
    bad = run.positions.non_finite(r, len(tokens))
    if bad is not None:
        place.refute("history_finite", expected="finite values", actual="a value that is not finite", position=bad)
    row = run.forward.yielded[r, last]
    run.forward.used.add((r, last))
    if logits != row.logits:
        place.refute("emitted_logits", expected=row.logits, actual=logits, position=last, row=row.row)
    if not row.finite:
        place.refute("finite_logits", expected="finite logits", actual="not finite", position=last, row=row.row)
    _check_token(run, emit, row, tokens)
    try:
        expected = next_sampler(request.sampler)
    except ValueError as error:  # the last index there is
        place.refute("next_sampler", expected=f"no further output: {error}", actual=emit.sampler, position=last)
    if emit.sampler != expected:
        place.refute("next_sampler", expected=expected, actual=emit.sampler, position=last)
    key = (run.positions.prefix(r, last), len(request.prompt), request.sampler)
    run.observations.records.observe(key, (str(logits), token), place.trace, run.step)


def _check_token(run: Run, emit: Emit, row: RowBits, tokens: tuple[int, ...]) -> None:
    """`sampled_token`: what was seen for these logits and this sampler state, and what the sampler itself draws."""
    request = run.state.requests[emit.request]
    sampler, token, position = request.sampler, emit.record.token, len(tokens) - 1
    first = run.observations.tokens.observe((str(row.logits), sampler), token, run.place.trace, run.step)
    if first is not None and first.answer != token:
        run.place.refute("sampled_token", expected=str(first), actual=str(token), position=position)
    if run.drawn_from is not None and isinstance(sampler, SamplerState):
        _check_candidates(run, next(run.drawn_from), str(row.logits), sampler, token, position)
    if run.full and isinstance(sampler, SamplerState):
        try:
            drawn = sample(floats(run.forward.values[str(row.logits)]), sampler, tokens, len(request.prompt))
        except ValueError as error:  # a row of no tokens, or of too many
            run.place.refute("sampled_token", expected=f"none: {error}", actual=token, position=position)
        if token != drawn:
            run.place.refute("sampled_token", expected=drawn, actual=token, position=position)


def _check_candidates(
    run: Run, found: Candidates, logits: str, sampler: SamplerState, token: int, position: int
) -> None:
    """The token is the one that is drawn from the candidates, and these are what was seen of the row before."""
    place = run.place
    if not may_be_candidates(found, sampler):
        expected, actual = explain(may_be_candidates, found, sampler)
        place.refute("candidates_are_kept", expected=expected, actual=actual, position=position)
    if token != drawn(found, sampler):
        place.refute("sampled_token", expected=drawn(found, sampler), actual=token, position=position)
    parameters = (sampler.temperature, sampler.top_k, sampler.top_p, sampler.min_p)
    first = run.observations.candidates.observe((logits, parameters), found, place.trace, run.step)
    if first is not None and first.answer != found:
        place.refute("candidates_are_canonical", expected=str(first), actual=found, position=position)


def floats(bits: bytes) -> array[float]:
    """A row of logits from its bits: float32, little-endian."""
    row = array("f", bits)
    if sys.byteorder == "big":
        row.byteswap()
    return row


def _check_observe(run: Run, observe: Observe) -> None:
    """The guard of an observe."""
    r, position = observe.request, observe.position
    require(run, actions.observe_ready, r, position)
    _require_row(run, observe)
    row = run.forward.yielded[r, position]
    run.forward.used.add((r, position))
    if observe.logits != row.logits:
        run.place.refute("observes", expected=row.logits, actual=observe.logits, row=row.row)


def _check_publish(run: Run, publish: Publish) -> None:
    """The guard of a publish."""
    require(run, actions.publish_ready, publish.request, publish.block)
    page_id = run.state.requests[publish.request].table[publish.block]
    if not run.observations.page_is_finite(run.state.pages[page_id]):
        run.place.refute("publishes", expected="finite values", actual="a value that is not finite", page=page_id)


def _check_fail(run: Run, fail: Fail) -> None:
    """The guard of a fail: a value of this request's history was seen not to be finite, or its row of logits."""
    r = fail.request
    if r not in run.state.requests:
        run.place.refute("fail_guard", expected="a live request", actual="no such request")
    length = len(history(run.state.requests[r]))
    row = run.forward.yielded.get((r, length - 1))
    if run.positions.non_finite(r, length) is None and (row is None or row.finite):
        run.place.refute(
            "fail_guard",
            expected="a value of its history, or its row of logits, that is not finite",
            actual="all that was observed of it is finite",
        )
