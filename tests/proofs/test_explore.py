"""The explorer: it leaves nothing out within its bounds, and its counterexamples are shortest runs that go wrong."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import fields, replace
from itertools import product
from typing import Any

import pytest

from explore_faults import FAULTS, Fault, counterexample
from vosti.proofs.explore import Guard, explore
from vosti.proofs.explore_bounds import DEFAULT, GREEDY, ONE, OTHER, SEEDED, SMALL, Bounds, candidates, tokens
from vosti.proofs.explore_canonical import Canonical
from vosti.proofs.explore_counterexample import DETERMINISM, INVARIANT
from vosti.proofs.explore_engine import EngineBounds, Job
from vosti.proofs.explore_report import explore_all, refute
from vosti.spec import step
from vosti.spec.invariants import broken
from vosti.spec.reference import NON_FINITE
from vosti.spec.state import RequestId, State, Token
from vosti.spec.step import RULES, Action, Admit

MIXED = Bounds(
    "mixed",
    requests=2,
    pages=2,
    page_size=1,
    prompts=(tokens(0), tokens(0, NON_FINITE)),
    outputs=1,
    drafts=(tokens(0),),
)
"""A little of everything."""

LITTLE = replace(MIXED, name="little", prompts=(tokens(0, 0),), drafts=())
"""Few enough states to be told apart by their names."""

SHARED = next(bounds for bounds in SMALL if bounds.name == "a shared page")

BY_NAME = {fault.name: fault for fault in FAULTS}


def test_small_bounds_are_exhausted_and_nothing_is_found() -> None:
    """Within small bounds every action happens, and every state satisfies every theorem.

    The search says how far it has come, level by level, and counts what it ends with.
    """
    levels_seen: list[tuple[int, int, int]] = []
    exploration = explore(MIXED, progress=lambda *numbers: levels_seen.append(numbers))

    assert (exploration.states, exploration.transitions, exploration.depth) == levels_seen[-1]
    assert levels_seen == sorted(levels_seen)
    assert exploration.depth + 1 == len(levels_seen)
    assert exploration.exhausted
    assert exploration.counterexample is None
    assert {rule.effect.__name__ for rule in RULES.values()} == set(exploration.taken)
    assert min(exploration.taken.values()) >= 20
    assert sum(exploration.taken.values()) == exploration.transitions
    assert f"{exploration.states:,} distinct states" in str(exploration)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_default_bounds_are_exhausted_and_nothing_is_found() -> None:
    """Within the default bounds there are more than 10⁵ distinct states, and every one satisfies every theorem."""
    report = explore_all(jobs=2)

    assert () == report.counterexamples
    assert report.exhausted
    assert report.states >= 10**5


def test_a_search_that_stops_says_so() -> None:
    """A search that is cut short is not taken for one that found nothing to the end."""
    exploration = explore(LITTLE, most=100)

    assert not exploration.exhausted
    assert exploration.counterexample is None
    assert 100 < exploration.states < explore(LITTLE).states


# ---------------------------------------------------------------- nothing is left out

Choices = Callable[[State, Action], Iterator[Action]]
Key = Callable[[State], Hashable]


def levels(bounds: Bounds, choices: Choices, key: Key, guard: Guard = step.guard) -> Iterator[list[State]]:
    """The reachable states, level by level; those of one key are one."""
    level, met = [bounds.start], {key(bounds.start)}
    while level:
        yield level
        following = []
        for s in level:
            for tried in candidates(s, bounds):
                for action in choices(s, tried):
                    if guard(s, action):
                        after = step.effect(s, action)
                        if key(after) not in met:
                            met.add(key(after))
                            following.append(after)
        level = following


def images(bounds: Bounds) -> Choices:
    """An action with every choice of what is interchangeable: free pages, unused names, domains of nobody."""

    def choose(s: State, action: Action) -> Iterator[Action]:
        free = s.capacity - s.pages.keys()
        fresh = {RequestId(f"r{i}") for i in range(bounds.requests)} - s.seen
        known = {request.domain for request in s.requests.values()} | {page.domain for page in s.pages.values()}
        unknown = set(bounds.domains) - known
        alternatives = [
            [(field.name, other) for other in group]
            for field in fields(action)
            for group in (free, fresh, unknown)
            if getattr(action, field.name) in group and field.name in ("page", "request", "domain")
        ]
        for chosen in product(*alternatives):
            changes: dict[str, Any] = dict(chosen)
            yield replace(action, **changes)

    return choose


def only(s: State, action: Action) -> Iterator[Action]:
    """The action as it is."""
    yield action


def raw(s: State) -> Hashable:
    """The state under its own names."""
    return (frozenset(s.requests.items()), frozenset(s.pages.items()), s.seen)


def digests(canonical: Canonical) -> Key:
    """The state up to names."""
    return lambda s: canonical.digest(s, dict.fromkeys(s.requests, ()))


def swapped(s: State) -> State:
    """The state with the two domains exchanged."""
    other = {ONE: OTHER, OTHER: ONE}
    return replace(
        s,
        requests={r: replace(request, domain=other[request.domain]) for r, request in s.requests.items()},
        pages={page_id: replace(page, domain=other[page.domain]) for page_id, page in s.pages.items()},
    )


@pytest.mark.parametrize("bounds", [LITTLE, replace(LITTLE, prompts=(tokens(0),), domains=(ONE, OTHER))])
def test_states_that_are_told_apart_by_names_are_the_same_up_to_names(bounds: Bounds) -> None:
    """A search that tries every free page, every name and every domain finds the same states up to names."""
    key = digests(Canonical())
    reduced = [s for level in levels(bounds, only, key) for s in level]
    every = [s for level in levels(bounds, images(bounds), raw) for s in level]
    expected = {key(s) for s in reduced} | {key(swapped(s)) for s in reduced if len(bounds.domains) == 2}

    assert explore(bounds).states == len(reduced)
    assert 3 * len(reduced) < len(every)
    assert expected == {key(s) for s in every}


def test_a_search_that_leaves_something_out_finds_fewer_states() -> None:
    """The comparison above is no formality: without preemption there are fewer states."""
    key = digests(Canonical())
    cautious = levels(LITTLE, only, key, lambda s, action: type(action) is not step.Preempt and step.guard(s, action))

    assert sum(map(len, cautious)) < explore(LITTLE).states


# ---------------------------------------------------------------- what is found


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_found(fault: Fault) -> None:
    """A specification with a fault is refuted, by the theorem that the fault concerns."""
    found = counterexample(fault)

    assert (fault.theorem, fault.broken) == ((None, None) if found is None else (found.theorem, found.broken))


def test_the_specification_itself_is_not_refuted() -> None:
    """What refutes the faults finds nothing wrong with the specification as it stands."""
    assert refute() is None


@pytest.mark.parametrize("fault", [f for f in FAULTS if f.theorem == INVARIANT], ids=lambda fault: fault.name)
def test_counterexample_is_a_run_that_goes_wrong_at_its_end(fault: Fault) -> None:
    """Every action of the run may happen where it does, and Inv holds before the last one, and not after it."""
    found = counterexample(fault)
    assert found is not None
    s = found.run.start
    for action in found.run.actions:
        assert [] == list(broken(s))
        assert fault.guard(s, action)
        s = fault.effect(s, action)

    assert found.broken in {conjunct.name for conjunct, _ in broken(s)}


@pytest.mark.parametrize("name", ["evict a parent before its child", "attach a page that is still written"])
def test_counterexample_is_a_shortest_one(name: str) -> None:
    """A search under all names finds the violation at the same depth, and none before."""
    fault = BY_NAME[name]
    found = explore(LITTLE, fault.guard).counterexample
    assert found is not None
    searched = levels(LITTLE, images(LITTLE), raw, fault.guard)
    depth = next(depth for depth, level in enumerate(searched) if any(True for s in level for _ in broken(s)))

    assert depth == len(found.run.actions)


def test_counterexample_reads_as_a_run() -> None:
    """The text has the actions with their arguments, the conjunct, the object, and both sides."""
    found = explore(SHARED, BY_NAME["evict a parent before its child"].guard).counterexample

    assert str(found).splitlines() == [
        "Inv: parents_precede is false of page 1",
        "expected  page.parent in s.pages",
        "actual    page.parent is 0, s.pages is {1: Page(prefix=(0,), tokens=(0,), kv=(('kv', (0, 0)),), "
        "holders=frozenset(), registered=True, parent=0, domain='one')}",
        "after these actions (bounds: a shared page):",
        "   1. admit(request='r0', prompt=(0, 0), sampler=(temperature 0, seed 0, index 0), domain='one', arrival=0)",
        "   2. allocate(request='r0', page=0)",
        "   3. allocate(request='r0', page=1)",
        "   4. compute(request='r0')",
        "   5. compute(request='r0')",
        "   6. publish(request='r0', block=0)",
        "   7. publish(request='r0', block=1)",
        "   8. cancel(request='r0')",
        "   9. evict(page=0)",
    ]


def test_two_views_that_differ_are_two_runs() -> None:
    """A second record for one prompt, sampler and index is shown as the two runs that lead to the two records."""
    found = counterexample(BY_NAME["emit any token"])
    assert found is not None
    assert found.other is not None
    first, second = found.run.actions[0], found.other.actions[0]
    assert isinstance(first, Admit)
    assert isinstance(second, Admit)

    assert (first.prompt, first.sampler) == (second.prompt, second.sampler)
    assert found.run.actions[-1].record.logits == found.other.actions[-1].record.logits  # type: ignore[union-attr]
    assert found.run.actions[-1].record.token != found.other.actions[-1].record.token  # type: ignore[union-attr]
    assert "where these lead to something else" in str(found)


# ---------------------------------------------------------------- several bounds together


def test_several_bounds_in_two_processes_are_one_report() -> None:
    """What two processes find is what one finds, in the order of the bounds."""
    bounds = (SHARED, LITTLE)
    engine = (EngineBounds("engine", 2, 3, 1, 2, 2, jobs=(Job(tokens(0, 0), 2),)),)
    names: list[str] = []
    report = explore_all(bounds, engine, jobs=2, done=lambda exploration: names.append(exploration.bounds.name))

    assert explore_all(bounds, engine) == report
    assert ["a shared page", "little", "engine"] == names
    assert () == report.counterexamples
    assert report.exhausted
    assert report.states == sum(exploration.states for exploration in report.explorations)
    assert f"{report.states:,} distinct states" in str(report)


def test_views_are_compared_across_bounds() -> None:
    """Definition 2.1 holds between runs with other page sizes, pools and drafts; a contradiction there is found."""
    report = explore_all((SHARED, replace(LITTLE, page_size=2)), ())
    one, two = (exploration.views for exploration in report.explorations)
    key = next(iter(one.records))
    record, run = two.records[key]
    two.records[key] = (replace(record, token=Token(record.token + 1)), run)
    found = one.merge(two)

    assert report.views is None
    assert found is not None
    assert (DETERMINISM, "a shared page", "little") == (
        found.theorem,
        found.other and found.other.bounds,
        found.run.bounds,
    )


def test_default_bounds_hold_a_little_of_everything() -> None:
    """Drafts that are right and wrong, failures, domains, samplers, and pools too small for everybody are explored."""
    assert any(len(bounds.domains) > 1 for bounds in DEFAULT)
    assert any(bounds.samplers == (GREEDY, SEEDED) for bounds in DEFAULT)
    assert any(NON_FINITE in prompt for bounds in DEFAULT for prompt in bounds.prompts)
    assert any(bounds.requests == 3 for bounds in DEFAULT)
    assert {1, 2} == {bounds.page_size for bounds in DEFAULT}
