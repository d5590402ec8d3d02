"""Every theorem is proved, by both solvers, and a false one is not."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vosti.proofs
from edited_functions import replaced
from spec_walk import walk
from vosti.proofs import axioms
from vosti.proofs.book import Book, state, transitions
from vosti.proofs.prove import GROUPS, THEOREMS, obligations, prove
from vosti.refinement.smt import theory
from vosti.refinement.smt.obligation import Obligation, obligation
from vosti.refinement.smt.solve import LIMITS, Answer, solve
from vosti.refinement.smt.terms import FALSE, implies, neg
from vosti.spec import actions
from vosti.spec.invariants import broken
from vosti.spec.step import Evict, guard

SPEC = GROUPS["spec"]


@pytest.mark.parametrize("theorem", SPEC)
def test_a_theorem_is_proved(theorem: str) -> None:
    """Z3 proves every obligation, within a third of its limit."""
    report = prove([theorem], solvers=("z3",))

    assert [] == [(r.obligation.name, r.verdicts["z3"].detail) for r in report.failures]
    assert report.proved
    assert max(r.verdicts["z3"].resources for r in report.results) * 3 <= LIMITS.z3


@pytest.fixture(scope="module")
def spec_obligations() -> list[Obligation]:
    """All obligations about the specification."""
    return obligations(SPEC)


def test_the_second_solver_agrees(spec_obligations: list[Obligation]) -> None:
    """cvc5 proves every tenth obligation; all of them are put to it where there is more time."""
    sample = spec_obligations[::10]
    verdicts = {o.name: solve(o.script, "cvc5") for o in sample}

    assert len(sample) >= 80
    assert [] == [name for name, verdict in verdicts.items() if verdict.answer is not Answer.PROVED]
    assert max(verdict.resources for verdict in verdicts.values()) * 3 <= LIMITS.cvc5


@pytest.mark.slow
def test_both_solvers_prove_everything() -> None:
    """Every obligation of every theorem, by each of the two."""
    report = prove(jobs=2)

    assert [] == [r.obligation.name for r in report.failures]
    assert all({"z3", "cvc5"} == set(r.verdicts) for r in report.results)


def test_no_theorem_is_forgotten() -> None:
    """Every module that yields obligations is listed."""
    folder = Path(inspect.getfile(vosti.proofs)).parent
    names = {path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "prove", "book")}
    yielding = {name for name in names if "def obligations(" in (folder / f"{name}.py").read_text()}

    assert yielding == set(THEOREMS)
    assert set(THEOREMS) == {name for names in GROUPS.values() for name in names}


def test_names_are_unique(spec_obligations: list[Obligation]) -> None:
    """An obligation is known by its name."""
    names = [o.name for o in spec_obligations]

    assert len(names) == len(set(names))


# ---------------------------------------------------------------- what is wrong is not proved


LEAF = " and all(child.parent != page_id for child in s.pages.values())"


@pytest.mark.parametrize(
    ("theorem", "action", "statement", "function", "old", "new"),
    [
        ("inductive", "evict", "parents_precede", actions.evict_guard, LEAF, ""),
        (
            "inductive",
            "admit",
            "requests_were_seen",
            actions.admit,
            ", seen=s.seen | {r}",
            "",
        ),
        (
            "definedness",
            None,
            "attach_guard",
            actions.attach_guard,
            "if r not in s.requests or page_id not in s.pages:",
            "if r not in s.requests:",
        ),
        (
            "two_states",
            "cancel",
            "held_stays",
            actions.released,
            "if page.registered or r not in page.holders",
            "if page.registered",
        ),
        (
            "canonical_output",
            None,
            "emit",
            actions.emit_ready,
            "request.cached >= len(history(request)) and ",
            "",
        ),
        (
            "forward_order",
            None,
            "guard_stays",
            actions.written,
            "requests={**s.requests, r: further}",
            "requests={other: replace(further, cached=0) for other in s.requests}",
        ),
        (
            "canonical_output",
            None,
            "emit",
            actions.emits,
            "and sampler == next_sampler(request.sampler)",
            "",
        ),
        (
            "determinism",
            "emit",
            "lives_follow",
            actions.emit,
            "(record.token,)",
            "(record.token, record.token)",
        ),
        (
            "determinism",
            None,
            "emit is not blocked",
            actions.emits,
            "and finite_logits(record.logits)",
            "",
        ),
        (
            "reuse",
            "preempt",
            "retained",
            actions.released,
            "if page.registered or r not in page.holders",
            "if r not in page.holders",
        ),
    ],
)
def test_a_fault_of_the_specification_is_not_proved(
    theorem: str, action: str | None, statement: str, function: Callable[..., Any], old: str, new: str
) -> None:
    """With one part of an action's text gone, the obligation that needs it fails, and nobody is asked to believe it."""
    faulty = replaced(function, old, new)
    chosen = [o for o in obligations([theorem], faulty) if statement in o.name and (action or "") in o.name]

    assert chosen
    assert any(solve(o.script, "z3").answer is not Answer.PROVED for o in chosen)


def test_a_fault_of_the_specification_is_seen_in_a_run() -> None:
    """A page evicted while a child refers to it: the walk that breaks Inv, action by action."""

    def faulty(s: Any, action: Any) -> bool:
        if not isinstance(action, Evict):
            return guard(s, action)
        return action.page in s.pages and s.pages[action.page].registered and not s.pages[action.page].holders

    trace: list[Any] = []
    for seed in range(40):
        trace = []
        for visit in walk(random.Random(seed), 400, guard=faulty):
            trace.append(visit.action)
            found = [conjunct.name for conjunct, _ in broken(visit.after)]
            if found:
                assert ["parents_precede"] == sorted(set(found))
                assert isinstance(trace[-1], Evict)
                return
    pytest.fail("no walk breaks Inv")


def test_nothing_false_follows() -> None:
    """No action's guard contradicts Inv, as far as a solver can tell: false does not follow for any of them."""
    book = Book("vacuity")
    s = state(book)
    inv = book.invariant(s)
    for action in transitions(book, s):
        script = obligation(action.name, [*inv, action.guard.term], FALSE, book.compiler.definitions).script
        assert Answer.PROVED is not solve(script, "z3").answer, action.name


@pytest.mark.parametrize("name", [axiom.name for axiom in theory.Sequences("Element").axioms()])
def test_a_false_axiom_of_sequences_is_not_proved(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an axiom denied, its own induction fails, or that of one that rests on it."""
    sound = theory.Sequences("Element").axioms()
    false = tuple(
        axiom if axiom.name != name else theory.Axiom(name, axiom.variables, neg(axiom.body), axiom.pattern)
        for axiom in sound
    )
    monkeypatch.setattr(theory.Sequences, "axioms", lambda self: false)
    mine = [o for o in axioms.sequences() if o.name.split(":")[0] == f"axioms/{name}"]
    if name in axioms.BY_DEFINITION:
        assert [] == mine
    else:
        assert any(solve(o.script, "z3").answer is not Answer.PROVED for o in mine)


def test_a_false_axiom_of_sets_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """One element more is not one more if the element was there before."""
    sound = {axiom.name: axiom for axiom in theory.FiniteSets("Element").axioms()}
    step = sound["card_step"]
    premise, conclusion = step.body.args
    without = theory.Axiom("card_step", step.variables, implies([premise.args[0]], conclusion), step.pattern)
    monkeypatch.setattr(theory.FiniteSets, "axioms", lambda self: ({**sound, "card_step": without}).values())
    found = {o.name: solve(o.script, "z3").answer for o in axioms.finite_sets() if "card_step" in o.name}

    assert {"axioms/card_step": Answer.NOT_PROVED} == found


def test_a_false_axiom_of_products_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arithmetic proves what is true of products, and not its denial."""
    false = tuple(
        theory.Axiom(axiom.name, axiom.variables, neg(axiom.body), axiom.pattern) for axiom in theory.product_axioms()
    )
    monkeypatch.setattr(theory, "product_axioms", lambda: false)

    assert Answer.PROVED not in {solve(o.script, "z3").answer for o in axioms.products() if "ceiling" not in o.name}
