"""Wrong texts are not proved, and runs show what is wrong with them."""

from __future__ import annotations

import ast
import sys
from collections import Counter

import pytest

from vosti.impl import pool
from vosti.proofs import mutant_pool_runs, mutant_runs, mutant_texts, pool_refinement, prove
from vosti.proofs.mutant_lists import by_rule, pool_mutants, spec_mutants
from vosti.proofs.mutant_texts import CLASSIC, EFFECT, GUARD, INVARIANT, Mutant, StaleMistake, mistaken
from vosti.proofs.mutants import IMPLIED, NOT_PROVED, OPEN, Report, Result, Trial, mutants, tried
from vosti.refinement.smt.solve import Answer, solve
from vosti.spec import actions

SPEC, POOL = list(spec_mutants()), list(pool_mutants())

FEW = Trial(actions=4_000)


def named(some: list[Mutant], name: str) -> Mutant:
    """The mutant of that name."""
    (found,) = [mutant for mutant in some if mutant.name == name]
    return found


@pytest.mark.parametrize("some", [SPEC, POOL], ids=["spec", "pool"])
def test_mutants_are_other_texts(some: list[Mutant]) -> None:
    """Every mutant has a name of its own, and changes one function; there are many of each kind."""
    kinds = Counter(mutant.kind for mutant in some)
    assert all(kinds[kind] >= 16 for kind in (GUARD, EFFECT, INVARIANT, CLASSIC)), kinds
    assert len(some) == len({(mutant.kind, mutant.name) for mutant in some})
    for mutant in some:
        ((qualified, text),) = mutant.replaced.items()
        module, _, name = qualified.rpartition(".")
        original = mutant_texts.functions(sys.modules[module])[name]
        assert ast.dump(original) != ast.dump(text), mutant.name


def test_a_conjunct_is_left_out_wherever_it_stands() -> None:
    """Of early refusals, of chains and of what stands under `or`, each condition is left out in turn."""
    source = """
def f_guard(a: int, b: int) -> bool:
    if a < 0 or not 0 <= b < 9:
        return False
    return a == 1 and (b == 2 or (a == 3 and b == 4))
"""
    (text,) = ast.parse(source).body
    assert isinstance(text, ast.FunctionDef)
    changes = {change for change, _ in mutant_texts.without_conjunct(text, alone=True)}
    assert changes == {
        "without the refusal if a < 0",
        "only b < 9",
        "only 0 <= b",
        "without a == 1",
        "without b == 2 or (a == 3 and b == 4)",
        "without a == 3",
        "without b == 4",
    }


def test_a_helper_is_changed_for_all_that_use_it() -> None:
    """What giving pages back is made of is changed once, for the four actions that do so."""
    effects = {name: name for name in ("finish", "cancel", "fail", "preempt")}
    found = by_rule(actions, mutant_texts.functions(actions), effects, EFFECT)
    released = {mutant.subjects for mutant in found if mutant.change.startswith("released,")}
    assert released == {("finish", "cancel", "fail", "preempt")}


def test_a_mistake_that_fits_no_more_is_refused() -> None:
    """A text that does not stand in its function once is no mutant."""
    with pytest.raises(StaleMistake, match="evict_guard has 0 times"):
        mistaken(actions, "evict_guard", "no such text", "")


# ---------------------------------------------------------------- one line changed


def test_eviction_without_the_leaf_condition_is_not_proved_and_refuted(capsys: pytest.CaptureFixture[str]) -> None:
    """One line of the specification changed: the proof of Inv fails, and a run that breaks Inv is printed."""
    leaf = " and all(child.parent != page_id for child in s.pages.values())"
    replaced = mistaken(actions, "evict_guard", leaf, "")
    report = prove.prove(["inductive"], action="evict", replaced=replaced, solvers=["z3"])
    assert {"inductive/evict: parents_precede"} <= {result.obligation.name for result in report.failures}
    found = mutant_runs.refutation(replaced, ["evict"])
    print(found)
    lines = capsys.readouterr().out.splitlines()
    assert "Inv: parents_precede is false of page" in lines[0]
    assert "evict(page=" in lines[-1]
    assert any("publish(" in line for line in lines)


def test_the_pool_without_the_leaf_condition_is_not_proved_and_refuted(capsys: pytest.CaptureFixture[str]) -> None:
    """One line of the engine's page pool changed: the proof of refinement fails, and a run of the pool is printed."""
    mutant = named(POOL, "evict: a parent before its child")
    book = pool_refinement.PoolBook("pool_refinement", mutant.replaced)
    (evict,) = [simulation for simulation in pool_refinement.SIMULATIONS if simulation.action == "evict"]
    pool_refinement.simulates(book, evict)
    failing = [o.name for o in book.obligations if solve(o.script, "z3").answer is not Answer.PROVED]
    assert any(name.startswith("pool_refinement/evict") for name in failing)
    found = mutant_pool_runs.refutation(mutant.replaced, mutant.subjects)
    print(found)
    lines = capsys.readouterr().out.splitlines()
    assert "what the pool allows the specification allows is false: evict(page=" in lines[0]
    assert "evict(" in lines[-1]


# ---------------------------------------------------------------- a sample of all of them


@pytest.mark.parametrize(
    "name",
    [
        "admit: an identifier is used again",
        "attach: a match on hash alone",
        "attach: a page is shared while it is written",
        "allocate: two rows on one slot",
        "publish: a draft is published",
        "publish: published before it is computed",
        "preempt: in favour of a later arrival",
        "retract: frozen: draft=()",
        "emit: emits, without sampler == next_sampler(request.sampler)",
    ],
)
def test_a_run_shows_what_is_wrong(name: str) -> None:
    """A run of the mutated text, found without a proof, contradicts a theorem."""
    mutant = named(SPEC, name)
    found = mutant_runs.refutation(mutant.replaced, mutant.subjects, most=20_000)
    assert found is not None
    again = mutant_runs.contradiction(
        mutant_runs.rules_of(mutant.replaced),
        next(world for world in mutant_runs.WORLDS if world.name == found.run.bounds),
        found.run.actions,
    )
    assert found.other is not None or (again is not None and again.broken == found.broken)


@pytest.mark.parametrize(
    "name",
    [
        "evict: an index entry outlives its page",
        "allocate: two rows on one slot",
        "remove: shared pages go with one of their holders",
        "advance_each: one slot for everybody",
        "attach: a page is shared while it is written",
    ],
)
def test_a_run_of_the_pool_shows_what_is_wrong(name: str) -> None:
    """A run of the mutated pool contradicts what is proved of the pool."""
    mutant = named(POOL, name)
    assert mutant_pool_runs.refutation(mutant.replaced, mutant.subjects, most=20_000) is not None


def test_a_whole_text_is_not_refuted() -> None:
    """Of the specification and the pool as they are no contradiction is found."""
    assert mutant_runs.refutation({}, most=2_000) is None
    assert mutant_pool_runs.refutation({}, ["advance", "attach_prefix"], most=1_500) is None


def test_what_is_implied_is_proved_to_be() -> None:
    """That a computed page is not registered follows from Inv and the rest of the guard: two texts of one meaning."""
    name = "compute: without not s.pages[request.table[request.cached // s.page_size]].registered"
    result = tried("spec", named(SPEC, name), FEW)
    assert (IMPLIED, None) == (result.verdict, result.run)


def test_not_proved_and_refuted_are_counted_apart() -> None:
    """A mutant of each kind: the report counts them, and is complete."""
    wanted = {
        "admit: without len(prompt) >= 1",
        "compute: written, frozen: kv=page.kv + (value,)",
        "tables_hold: left out",
        "attach: another tenant's page",
    }
    report = mutants(["spec"], trial=FEW, chosen=lambda subject, mutant: mutant.name in wanted)
    assert len(wanted) == len(report.results)
    assert report.complete
    assert all(NOT_PROVED == result.verdict for result in report.results)
    counts = {kind: (numbers["not proved"], numbers["refuted by a run"]) for _, kind, numbers in report.counts()}
    assert counts == {GUARD: (1, 1), EFFECT: (1, 1), INVARIANT: (1, 0), CLASSIC: (1, 1)}


def test_a_survivor_makes_the_report_incomplete() -> None:
    """What is neither implied, nor not proved, nor refuted is named."""
    mutant = named(SPEC, "attach: a match on hash alone")
    open_one = Result("spec", mutant, OPEN, "implied/attach_guard", None, None)
    report = Report((open_one,))
    assert not report.complete
    assert "survivor: spec, attach: a match on hash alone" in str(report)
    assert not Report(()).complete


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_mutant_survives() -> None:
    """Every mutant of the specification and of the page pool is implied, not proved, or refuted by a run."""
    report = mutants(jobs=2)
    assert report.complete, str(report)
    refuted = sum(result.run is not None for result in report.results)
    assert 0.9 * sum(result.mutant.kind != INVARIANT for result in report.results) <= refuted


def test_modules_are_mutated_apart() -> None:
    """A mutated module is nobody else's: the pool that others import is whole."""
    names = mutant_texts.executed(pool, named(POOL, "evict: a parent before its child").replaced)
    assert names["evict_guard"] is not pool.evict_guard
    assert names["attach_guard"].__globals__ is names["evict_guard"].__globals__
