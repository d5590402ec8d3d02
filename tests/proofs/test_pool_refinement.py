"""The theorems about the page pool are proved, and so are the axioms of the cardinalities that they rest on."""

from __future__ import annotations

import pytest

from vosti.impl.pool import TRANSITIONS
from vosti.impl.pool_invariants import INVARIANTS
from vosti.proofs.axioms import finite_sets
from vosti.proofs.pool_refinement import ELSEWHERE, SIMULATIONS
from vosti.proofs.pool_relation import RELATION
from vosti.proofs.prove import Report, prove
from vosti.refinement.smt.solve import LIMITS, Answer, solve
from vosti.refinement.smt.theory import FiniteSets
from vosti.spec.step import RULES

THEOREMS = ("pool_refinement", "pool_composites", "pool_matches", "pool_rows", "pool_consequences")
COMPOSITES = ("attach_prefix", "advance", "advance_each")


@pytest.fixture(scope="module")
def by_z3() -> Report:
    """What Z3 says of all of them."""
    return prove(THEOREMS, solvers=("z3",), jobs=2)


def test_everything_is_proved(by_z3: Report) -> None:
    """Every obligation, by Z3."""
    assert [] == [result.obligation.name for result in by_z3.failures]
    assert by_z3.proved


def test_limits_leave_a_margin(by_z3: Report) -> None:
    """No proof takes a third of what it may."""
    hardest = max(by_z3.results, key=lambda result: result.verdicts["z3"].resources)
    assert hardest.verdicts["z3"].resources * 3 < LIMITS.z3, hardest.obligation.name


def test_everything_is_stated(by_z3: Report) -> None:
    """Every transition has each invariant, each part of the relation, its action's guard, and definedness; every
    composite is reduced to these; every action is spoken of.
    """
    names = {result.obligation.name.partition("/")[2].partition(" (1 of")[0] for result in by_z3.results}
    names |= {name.partition(", 1")[0] for name in names}
    simple = {simulation.transition for simulation in SIMULATIONS}
    assert set(TRANSITIONS) == simple | set(COMPOSITES)
    assert {effect.effect.__name__ for effect in RULES.values()} == {s.action for s in SIMULATIONS} | set(ELSEWHERE)
    expected = {f"{transition}: {invariant.__name__}" for transition in simple for invariant in INVARIANTS}
    expected |= {f"{s.action}: {part.__name__}" for s in SIMULATIONS for part in RELATION}
    expected |= {f"{s.action}: allowed" for s in SIMULATIONS}
    expected |= {f"{action}: {part.__name__}" for action in ELSEWHERE for part in RELATION}
    expected |= {f"{composite}: {part}" for composite in COMPOSITES for part in ("nothing", "guard", "effect")}
    kept = [*RELATION, *INVARIANTS]
    expected |= {f"{c}: {part}, {f.__name__}" for c in COMPOSITES for part in ("base", "step") for f in kept}
    expected |= {"advance: step, allowed", "attach_prefix: step, allowed", "advance_each: step, owed"}
    expected |= {f"{transition} is defined" for transition in simple - {"admit", "compute", "preempt", "remove"}}
    assert set() == expected - names


@pytest.mark.slow
def test_both_solvers_prove_everything() -> None:
    """Every obligation, by Z3 and by cvc5."""
    report = prove(THEOREMS, jobs=2)
    assert [] == [result.obligation.name for result in report.failures]


# ---------------------------------------------------------------- cardinalities


def test_cardinality_axioms_are_proved() -> None:
    """Every axiom of finite sets is an obligation, and proved by induction over lists without duplicates."""
    proofs = {o.name: solve(o.script, "z3").answer for o in finite_sets()}
    assert {Answer.PROVED} == set(proofs.values())
    axioms = {axiom.name for axiom in FiniteSets("Element").axioms()}
    assert axioms == {name for name in axioms if any(proof.startswith(f"axioms/{name}") for proof in proofs)}


@pytest.mark.parametrize("name", ["card_same", "card_step", "inclusion: cons", "remove: size: cons"])
def test_no_premise_can_be_spared(name: str) -> None:
    """Controls: without the last assumption, which says how the two sets are alike, or what the induction has for a
    shorter list, the axiom is not proved.
    """
    (one,) = (o for o in finite_sets() if o.name == f"axioms/{name}")
    *lines, last, goal = one.script.splitlines()
    assert last.startswith("(assert")
    assert solve("\n".join([*lines, goal]), "z3").answer is not Answer.PROVED


def test_names_are_unique(by_z3: Report) -> None:
    """No two obligations have one name."""
    names = [result.obligation.name for result in by_z3.results]
    assert len(set(names)) == len(names)
