"""What is to be proved: an SMT-LIB script that is unsatisfiable exactly if the assumptions imply the goal."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vosti.refinement.smt import theory
from vosti.refinement.smt.terms import TRUE, Term, neg, script, subterms


@dataclass(frozen=True)
class Obligation:
    """One thing to prove. The script is all that a verdict depends on, solver and limits aside."""

    name: str
    """theorem/part."""

    script: str
    """Declarations, axioms, assumptions, and the negated goal."""

    @property
    def digest(self) -> str:
        """The script's hash."""
        return hashlib.sha256(self.script.encode()).hexdigest()


def obligation(
    name: str, assumptions: Iterable[Term], goal: Term, definitions: Mapping[str, tuple[Term, ...]]
) -> Obligation:
    """Assumptions imply goal, with the definitions and axioms of what they mention, and no others."""
    assumptions = [a for a in assumptions if a is not TRUE]
    used = relevant([*assumptions, goal], definitions)
    axioms = [axiom.formula for axiom in axioms_for([*used, *assumptions, goal])]
    return Obligation(name, script([*axioms, *used, *assumptions, neg(goal)]))


def relevant(formulas: list[Term], definitions: Mapping[str, tuple[Term, ...]]) -> list[Term]:
    """The definitions of every symbol that the formulas mention, directly or through definitions."""
    found: dict[str, tuple[Term, ...]] = {}
    pending = list(formulas)
    while pending:
        names = {t.name for t in subterms(pending) if t.op == "symbol" and t.name in definitions}
        new = {name: definitions[name] for name in sorted(names) if name not in found}
        found |= new
        pending = [formula for formulas in new.values() for formula in formulas]
    return list(dict.fromkeys(formula for formulas in found.values() for formula in formulas))


def axioms_for(formulas: list[Term]) -> list[theory.Axiom]:
    """The axioms of the sorts and functions that the formulas mention."""
    parts = list(subterms(formulas))
    sorts = sorted({t.sort for t in parts} | {v.sort for t in parts for v in t.bound})
    found: list[theory.Axiom] = []
    for sort in sorts:
        kind, _, element = sort.partition("_")
        if kind == "Seq":
            found += theory.Sequences(element).axioms()
        elif kind == "Set":
            found += theory.FiniteSets(element).axioms()
    if any(t.op == "symbol" and t.name in theory.PRODUCTS for t in parts):
        found += theory.product_axioms()
    return found
