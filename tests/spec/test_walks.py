"""The specification, run: random walks keep Inv, every record is the reference machine's, and views are
prefix-comparable.

The theorems are proved for all states elsewhere; here the text that is proved is also seen to work, and to fail when
a guard is dropped.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from spec_walk import Guard, Visit, walk
from vosti.spec import actions
from vosti.spec.determinism import Admission, Execution, Record, deterministic
from vosti.spec.invariants import CONJUNCTS, broken, objects
from vosti.spec.reference import canonical_kv, forward, kernel_logits, reference_run
from vosti.spec.state import RequestId, State, Token, history
from vosti.spec.step import (
    RULES,
    Admit,
    Attach,
    Compute,
    Emit,
    Evict,
    Fail,
    Finish,
    Observe,
    Preempt,
    Publish,
    arguments,
    guard,
)

WALKS, LENGTH = 40, 1000


@pytest.fixture(scope="module")
def visited() -> list[list[Visit]]:
    """Several walks, each from its own seed."""
    return [list(walk(random.Random(seed), LENGTH)) for seed in range(WALKS)]


def execution(visits: list[Visit]) -> Execution:
    """A walk as an observer sees it, each action a step."""
    admitted = {
        v.action.request: Admission(v.action.prompt, v.action.sampler) for v in visits if isinstance(v.action, Admit)
    }
    outputs = tuple({v.action.request: (v.action.record,)} for v in visits if isinstance(v.action, Emit))
    failed = frozenset(v.action.request for v in visits if isinstance(v.action, Fail))
    return Execution(configuration="W", admitted=admitted, outputs=outputs, failed=failed)


def test_every_action_happens(visited: list[list[Visit]]) -> None:
    """The walks are no proof of anything that they never do."""
    taken = Counter(type(visit.action) for visits in visited for visit in visits)

    assert set(RULES) == set(taken)
    assert min(taken.values()) >= 20


def test_invariant_is_kept(visited: list[list[Visit]]) -> None:
    """Inv holds in every state that a walk reaches."""
    for visits in visited:
        for visit in visits:
            assert [] == list(broken(visit.after)), visit.action


def test_records_are_those_of_the_reference_machine(visited: list[list[Visit]]) -> None:
    """Theorem 4.1 at every emit and observe: the logits are a cold forward's, and so is the whole record."""
    for visits in visited:
        for visit in visits:
            if isinstance(visit.action, Emit):
                request = visit.before.requests[visit.action.request]
                assert forward(history(request)) == visit.action.record.logits
                first = admission(visits, visit.action.request)
                run = reference_run(first.prompt, first.sampler, len(request.output) + 1)
                assert run[-1] == visit.action.record
            elif isinstance(visit.action, Observe):
                tokens = history(visit.before.requests[visit.action.request])[: visit.action.position + 1]
                assert forward(tokens) == visit.action.logits


def admission(visits: list[Visit], r: RequestId) -> Admit:
    """The admission of a request of a walk."""
    return next(v.action for v in visits if isinstance(v.action, Admit) and v.action.request == r)


def test_walks_are_deterministic(visited: list[list[Visit]]) -> None:
    """Definition 2.1 over all walks, whose requests share prompts and samplers; and some views really meet."""
    executions = [execution(visits) for visits in visited]

    assert deterministic(executions)
    admissions = Counter(admission for e in executions for admission in e.admitted.values())
    assert 20 <= sum(count > 1 for count in admissions.values())


def test_registered_pages_are_immutable(visited: list[list[Visit]]) -> None:
    """A registered page keeps its tokens, values and parent until it is evicted; a held page never vanishes."""
    for visits in visited:
        for visit in visits:
            for page_id, page in visit.before.pages.items():
                later = visit.after.pages.get(page_id)
                if page.registered and later is not None:
                    assert replace(page, holders=later.holders) == later
                if later is None and page.registered:
                    assert Evict(page_id) == visit.action
                    assert not page.holders


def test_only_emit_changes_a_history(visited: list[list[Visit]]) -> None:
    """Nobody's history or sampler state changes but by an emit of its own."""
    for visits in visited:
        for visit in visits:
            for r, request in visit.before.requests.items():
                later = visit.after.requests.get(r)
                if later is not None and (history(later), later.sampler) != (history(request), request.sampler):
                    assert isinstance(visit.action, Emit)
                    assert r == visit.action.request


# ---------------------------------------------------------------- what happens when a guard is weaker


def without_check(kind: type, weaker: Guard) -> Guard:
    """The guard of every action, but for one kind."""
    return lambda s, action: weaker(s, action) if type(action) is kind else guard(s, action)


def shares_anything_full(s: State, action: Any) -> bool:
    """Attach by length alone: tokens are not compared, as if a hash decided."""
    if action.request not in s.requests or action.page not in s.pages:
        return False
    request, page = s.requests[action.request], s.pages[action.page]
    return (
        page.registered
        and action.page not in request.table
        and request.cached == len(request.table) * s.page_size
        and request.cached + s.page_size < len(history(request))
        and page.domain == request.domain
    )


def attaches_other_domains(s: State, action: Any) -> bool:
    """Attach without comparing domains."""
    request = s.requests.get(action.request)
    page = s.pages.get(action.page)
    if request is None or page is None:
        return False
    disguised = {**s.pages, action.page: replace(page, domain=request.domain)}
    return guard(replace(s, pages=disguised), action)


def evicts_parents(s: State, action: Any) -> bool:
    """Evict without looking for children."""
    page = s.pages.get(action.page)
    return page is not None and page.registered and not page.holders


def publishes_unready(s: State, action: Any) -> bool:
    """Publish a page before its parent."""
    if action.request not in s.requests or not 0 <= action.block < len(s.requests[action.request].table):
        return False
    request = s.requests[action.request]
    page = s.pages[request.table[action.block]]
    return not page.registered and (action.block + 1) * s.page_size <= min(request.cached, len(history(request)))


def publishes_drafts(s: State, action: Any) -> bool:
    """Publish a page that holds a draft."""
    if action.request not in s.requests or not 0 <= action.block < len(s.requests[action.request].table):
        return False
    request = s.requests[action.request]
    verified = replace(request, output=request.output + request.draft, draft=())
    return guard(replace(s, requests={**s.requests, action.request: verified}), action)


def admits_again(s: State, action: Any) -> bool:
    """Admit without asking whether the identifier was seen."""
    return len(action.prompt) >= 1 and all(request.arrival < action.arrival for request in s.requests.values())


def preempts_anybody(s: State, action: Any) -> bool:
    """Preempt in favour of anybody."""
    return action.request in s.requests and action.in_favour_of in s.requests


def emits_anything(s: State, action: Any) -> bool:
    """Emit with a draft that begins with another token."""
    return action.request in s.requests and s.requests[action.request].cached >= len(
        history(s.requests[action.request])
    )


@pytest.mark.parametrize(
    ("kind", "weaker", "expected"),
    [
        (Attach, shares_anything_full, {"tables_map_sequences"}),
        (Attach, attaches_other_domains, {"tables_stay_in_domain", "parents_stay_in_domain"}),
        (Evict, evicts_parents, {"parents_precede"}),
        (Publish, publishes_unready, {"parents_precede", "registered_are_finite"}),
        (Publish, publishes_drafts, {"drafts_are_private", "tables_map_sequences"}),
        (Admit, admits_again, {"holders_map", "tables_hold", "tables_map_sequences", "unregistered_are_private"}),
        (Emit, emits_anything, {"tables_map_sequences", "cached_in_range"}),
    ],
)
def test_weaker_guard_breaks_a_conjunct(kind: type, weaker: Guard, expected: set[str]) -> None:
    """With one guard weakened, a walk reaches a state in which Inv is false, and the conjunct says why."""
    found = set()
    for seed in range(400):
        try:
            for visit in walk(random.Random(seed), LENGTH, guard=without_check(kind, weaker)):
                failing = next(broken(visit.after), None)
                if failing is not None:
                    found.add(failing[0].name)
                    break
        except (KeyError, IndexError):
            continue  # a state outside Inv may make a guard raise; another walk shows the conjunct
        if found & expected:
            return
    pytest.fail(f"expected one of {expected} to break, found {found}")


def test_preempting_an_earlier_arrival_breaks_no_conjunct() -> None:
    """In whose favour a request is preempted is a matter of progress, not of safety: Inv does without that guard."""
    for seed in range(WALKS):
        for visit in walk(random.Random(seed), LENGTH, guard=without_check(Preempt, preempts_anybody)):
            assert [] == list(broken(visit.after))


def test_whole_conjuncts_say_what_their_locals_say() -> None:
    """`whole` is `all(local)`: on reachable states, and on the corrupted ones of the weakened walks."""
    for seed in range(40):
        for kind, weaker in ((Evict, evicts_parents), (Attach, shares_anything_full), (Publish, publishes_unready)):
            try:
                for visit in walk(random.Random(seed), LENGTH, guard=without_check(kind, weaker)):
                    for conjunct in CONJUNCTS:
                        assert conjunct.whole(visit.after) == all(
                            conjunct.local(visit.after, *x) for x in objects(visit.after, conjunct.kind)
                        )
                    if next(broken(visit.after), None):
                        break
            except (KeyError, IndexError):
                continue


def test_a_record_that_the_kernels_did_not_compute_is_refused(visited: list[list[Visit]]) -> None:
    """emit's value part: other logits, another token or another sampler state do not pass its guard."""
    emits = [(v.before, v.action) for visits in visited for v in visits if isinstance(v.action, Emit)][:200]
    for s, action in emits:
        record = action.record
        assert guard(s, action)
        longer = forward((*history(s.requests[action.request]), record.token))
        assert not guard(s, replace(action, record=Record(longer, record.token)))
        assert not guard(s, replace(action, record=Record(record.logits, Token(record.token + 1))))
        assert not guard(s, replace(action, sampler=s.requests[action.request].sampler))


def test_values_from_a_bad_past_are_not_canonical() -> None:
    """The kernel contract promises nothing about a row whose past is incomplete or not canonical."""
    one, both = (Token(1),), (Token(1), Token(2))
    wrong = canonical_kv((Token(2),))

    assert forward(both) != kernel_logits((), both)
    assert forward(both) != kernel_logits((canonical_kv(one), wrong), both)
    assert forward(both) == kernel_logits((canonical_kv(one), canonical_kv(both)), both)


def test_rules_take_the_fields_of_their_action(visited: list[list[Visit]]) -> None:
    """An action's fields are its functions' arguments after the state, in order and number."""
    for visits in visited[:5]:
        for visit in visits:
            rule = RULES[type(visit.action)]
            names = rule.guard.__code__.co_varnames[1 : rule.guard.__code__.co_argcount]
            assert len(names) == len(arguments(visit.action))
    assert actions.compute_guard is RULES[Compute].guard
    assert actions.finish is RULES[Finish].effect
