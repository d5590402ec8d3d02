"""One step, unrolled: a propositional script that is satisfiable exactly if so many actions lead where they should.

A step is some actions of its plan, then its forward, then some actions of its settle. Before the solver is asked,
the values that each component can have in a phase are found: those that it begins with, and those that actions whose
guards can be true give it. A component is then one of a few values, at each moment.

Neighbours that do not touch what the other looks at or changes may be exchanged; of such pairs one order is enough.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from vosti.refinement.smt import terms as T
from vosti.refinement.smt.components import Env, Ids, Key
from vosti.refinement.smt.concrete import Cases, Evaluator, Frame, Work
from vosti.refinement.smt.terms import FALSE, TRUE, Term, conj, disj, neg

Label = TypeVar("Label")
Domains = dict[Key, dict[Hashable, None]]
"""The values that each component may have, in the order in which they were found."""

CHARACTERS = 50
"""So many characters of a script count as much as a term that is evaluated."""

NOW, NEXT = "@now", "@next"
"""How symbols end in a formula about one moment, and the one after it."""


@dataclass(frozen=True)
class Candidate(Generic[Label]):
    """An action that may have happened."""

    label: Label
    guard: Term
    after: Mapping[Key, Term]
    """The components that it may change, as they are afterwards."""

    env: Env
    """What parameters stand for in these terms."""


@dataclass(frozen=True)
class Phase(Generic[Label]):
    """What can happen in one phase."""

    candidates: tuple[Candidate[Label], ...]
    """Those whose guard can be true."""

    domains: Domains
    transition: str
    """The script of one transition, `NOW` to `NEXT`: at most one candidate happens."""

    neighbours: str
    """The script of two transitions, at `NOW` and at `NEXT`: none after none, and one order of each pair is enough."""


@dataclass(frozen=True)
class Constraint:
    """A formula that holds before the forward."""

    formula: Term
    env: Env


@dataclass(frozen=True)
class Write:
    """What one row of the forward does."""

    after: Mapping[Key, Term]
    env: Env


class Unrolling(Generic[Label]):
    """The scripts of one step."""

    def __init__(
        self, ids: Ids, constants: Mapping[Key, Hashable], work: Work, allowed: Callable[[Key, Hashable], bool]
    ):
        """`constants` is what no action changes. What is not `allowed` lies outside of what is searched."""
        self.ids, self.work, self.allowed = ids, work, allowed
        self.constants: dict[Key, Cases] = {key: {value: TRUE} for key, value in constants.items()}
        self.names = {name for name, _ in constants}
        """The names of all components; those of the state are added when its phases are looked at."""

        self.keys: list[Key] = []
        self.numbers: dict[Key, int] = {}
        self.values: dict[Key, dict[Hashable, int]] = {}

    # ---------------------------------------------------------------- components as symbols

    def symbols(self, key: Key, domain: Iterable[Hashable], when: str = NOW) -> Cases:
        """The cases of a component: a symbol for each value, or for a truth value one symbol."""
        values = list(domain)
        if len(values) == 1:
            return {values[0]: TRUE}
        if key not in self.numbers:
            self.numbers[key] = len(self.keys)
            self.keys.append(key)
        number, known = self.numbers[key], self.values.setdefault(key, {})
        if set(values) == {True, False} and all(isinstance(v, bool) for v in values):
            truth = T.symbol(f"c{number}{when}", T.BOOL)
            return {True: truth, False: neg(truth)}
        return {v: T.symbol(f"c{number}_{known.setdefault(v, len(known))}{when}", T.BOOL) for v in values}

    def frame(self, domains: Domains, when: str = NOW) -> dict[Key, Cases]:
        """All components."""
        return {**self.constants, **{key: self.symbols(key, domain, when) for key, domain in domains.items()}}

    def components(self, terms: Iterable[Term]) -> set[Key]:
        """The components that conditions depend on."""
        found = set()
        for t in T.subterms(terms):
            if t.op == "symbol" and t.name[0] == "c":
                found.add(self.keys[int(t.name[1:].partition("@")[0].partition("_")[0])])
        return found

    def evaluator(self, frame: Frame, instead: Frame | None = None) -> Evaluator:
        """An evaluator that shares the work."""
        return Evaluator(frame, self.names, self.ids, self.work, instead)

    def possible(self, evaluator: Evaluator, formula: Term, env: Env) -> tuple[Term, dict[Key, Cases]]:
        """A formula's truth, and of components the cases that they can still have if it holds."""
        truth, frame = evaluator.truth(formula, env), evaluator.frame
        left: dict[Key, Cases] = {}
        for key in self.components([truth]):
            cases = {
                value: when
                for value, when in frame[key].items()
                if self.evaluator(frame, {key: {value: TRUE}}).truth(formula, env) is not FALSE
            }
            if len(cases) < len(frame[key]):
                left[key] = {next(iter(cases)): TRUE} if len(cases) == 1 else cases
        return truth, left

    # ---------------------------------------------------------------- phases

    def phase(self, start: Domains, candidates: Sequence[Candidate[Label]]) -> Phase[Label]:
        """What can happen in a phase that begins with these values."""
        self.names |= {name for name, _ in start}
        domains: Domains = {key: dict(domain) for key, domain in start.items()}
        found: dict[tuple[Key, Hashable], None] | None = None
        while found is None or found:
            evaluator = self.evaluator(self.frame(domains))
            found = {pair: None for c in candidates for pair in self._results(evaluator, domains, c)}
            for key, value in found:
                domains[key][value] = None
        return self._transition(domains, candidates)

    def _results(
        self, evaluator: Evaluator, domains: Domains, candidate: Candidate[Label]
    ) -> Iterator[tuple[Key, Hashable]]:
        """The new values that a candidate can give to components."""

        def new(some: Evaluator, keys: Iterable[Key]) -> dict[tuple[Key, Hashable], None]:
            values = ((key, value) for key in keys for value in some.cases(after[key], candidate.env))
            return {(k, v): None for k, v in values if v not in domains[k] and self.allowed(k, v)}

        guard, after = candidate.guard, candidate.after
        if evaluator.truth(guard, candidate.env) is FALSE:
            return
        found = new(evaluator, (key for key in after if key not in self.constants))
        if found:
            # Some of these values belong to cases in which the guard is false.
            _, left = self.possible(evaluator, guard, candidate.env)
            if all(left.values()):
                yield from new(self.evaluator(evaluator.frame, left), dict.fromkeys(key for key, _ in found))

    def _transition(self, domains: Domains, candidates: Sequence[Candidate[Label]]) -> Phase[Label]:
        frame, later = self.frame(domains), self.frame(domains, NEXT)
        evaluator = self.evaluator(frame)
        formulas: list[Term] = []
        chosen: list[Candidate[Label]] = []
        looks: list[set[Key]] = []
        writes: list[dict[Key, Cases]] = []
        for candidate in candidates:
            guard = evaluator.truth(candidate.guard, candidate.env)
            if guard is FALSE:
                continue
            written: dict[Key, Cases] = {}
            for key, term in candidate.after.items():
                cases = evaluator.cases(term, candidate.env)
                if key not in self.constants and cases != frame[key]:
                    written[key] = {value: when for value, when in cases.items() if value in domains[key]}
                    guard = conj(guard, neg(disj(*(w for v, w in cases.items() if v not in domains[key]))))
            formulas.append(T.implies([_act(len(chosen))], guard))
            looks.append(self.components([guard, *(w for cases in written.values() for w in cases.values())]))
            writes.append(written)
            chosen.append(candidate)
        for key in self.numbers:
            if len(domains.get(key, ())) > 1:
                formulas += _follows(key, frame, later, writes)
        acts = [_act(i) for i in range(len(chosen))]
        formulas += [disj(neg(a), neg(b)) for i, a in enumerate(acts) for b in acts[:i]]
        formulas.append(T.equal(_used(), disj(*acts)))
        neighbours = [T.implies([_used(NEXT)], _used())]
        for i in range(len(chosen)):
            for j in range(i):
                if _independent(looks[i], set(writes[i]), looks[j], set(writes[j])):
                    neighbours.append(disj(neg(_act(i)), neg(_act(j, NEXT))))
        return Phase(tuple(chosen), domains, asserted(formulas, "d"), asserted(neighbours, "n"))

    # ---------------------------------------------------------------- the forward

    def forward(
        self, domains: Domains, constraints: Iterable[Constraint], writes: Iterable[Write]
    ) -> tuple[list[Term], dict[Key, Cases]]:
        """What must hold before the forward, and the cases afterwards."""
        frame, formulas = self.frame(domains), list[Term]()
        evaluator = self.evaluator(frame)
        for constraint in constraints:
            truth, left = self.possible(evaluator, constraint.formula, constraint.env)
            formulas.append(truth)
            if truth is FALSE or not all(left.values()):
                return [FALSE], frame
            if left:
                frame = {**frame, **left}
                evaluator = self.evaluator(frame)
        for write in writes:
            evaluator = self.evaluator(frame)
            new = {key: evaluator.cases(term, write.env) for key, term in write.after.items()}
            frame.update({key: cases for key, cases in new.items() if key not in self.constants})
        return formulas, {key: frame[key] for key in domains}

    def link(self, cases: Mapping[Key, Cases], domains: Domains) -> list[Term]:
        """The components of a phase's beginning have these cases, which are about what was before it."""
        later = self.frame(domains, NEXT)
        return [
            T.equal(symbol, cases[key].get(value, FALSE))
            for key in cases
            for value, symbol in later[key].items()
            if symbol is not TRUE and symbol.op == "symbol"
        ]

    # ---------------------------------------------------------------- the whole step

    def script(self, n: int, phases: Sequence[Phase[Label]], between: Sequence[str], goal: Sequence[Term]) -> str:
        """At most n actions in these phases lead from the first values of the first one to the goal.

        `between` holds what stands between two phases, `NOW` to `NEXT`.
        """
        first, (length, last) = self.frame(phases[0].domains), (n + 1, len(phases) * (n + 1) - 1)
        begins = [
            symbol if value == next(iter(phases[0].domains[key])) else neg(symbol)
            for key in phases[0].domains
            for value, symbol in first[key].items()
            if symbol.op == "symbol"
        ]
        timed = [(asserted(begins, "i"), 0), (asserted(goal, "g"), last)]
        timed += [(phase.transition, k * length + i) for k, phase in enumerate(phases) for i in range(n)]
        timed += [(phase.neighbours, k * length + i) for k, phase in enumerate(phases) for i in range(n - 1)]
        timed += [(text, k * length + n) for k, text in enumerate(between)]
        if len(phases) == 2:
            # i + 1 actions in the plan and n - i in the settle are too many.
            timed += [(f"(assert (not (and used@{i} used@{2 * n - i})))", 0) for i in range(n)]
        self.work.spend(sum(len(text) for text, _ in timed) // CHARACTERS)
        names = {at(name, moment) for text, moment in timed for name in _names(text)}
        declarations = (f"(declare-const {name} Bool)" for name in sorted(names))
        return "\n".join([*declarations, *(at(text, moment) for text, moment in timed)])

    def happened(self, n: int, phases: Sequence[Phase[Label]], true: Collection[str]) -> tuple[tuple[Label, ...], ...]:
        """The actions of each phase, in order, in a model in which these symbols are true."""
        return tuple(
            tuple(
                candidate.label
                for moment in range(number * (n + 1), number * (n + 1) + n)
                for i, candidate in enumerate(phase.candidates)
                if _act(i, f"@{moment}").name in true
            )
            for number, phase in enumerate(phases)
        )


def asserted(formulas: Iterable[Term], name: str) -> str:
    """The formulas, each asserted. What they share is said once, under names that begin with `name`."""
    uses = Counter[Term]()
    order: list[Term] = []

    def count(t: Term) -> None:
        uses[t] += 1
        if uses[t] == 1:
            for a in t.args:
                count(a)
            order.append(t)

    formulas = [f for f in formulas if f is not TRUE]
    for formula in formulas:
        count(formula)
    short: dict[Term, Term] = {}
    lines: list[str] = []
    for t in order:
        plain = T.make(t.op, t.sort, tuple(short[a] for a in t.args), t.name) if t.args else t
        short[t] = plain
        if uses[t] > 1 and t.args and not (t.op == "not" and t.args[0].op == "symbol"):
            short[t] = T.symbol(f"{name}{len(lines)}{NOW}", T.BOOL)
            lines.append(f"(assert {T.text(T.equal(short[t], plain))})")
    return "\n".join([*lines, *(f"(assert {T.text(short[f])})" for f in formulas)])


def at(script: str, moment: int) -> str:
    """A script about `NOW` and `NEXT`, at one moment."""
    return script.replace(NOW, f"@{moment}").replace(NEXT, f"@{moment + 1}")


@lru_cache(maxsize=16)
def _names(script: str) -> frozenset[str]:
    """The symbols of a script."""
    return frozenset(re.findall(r"[a-z]+[0-9_]*@[a-z0-9]+", script))


def _used(when: str = NOW) -> Term:
    """Whether some action happens at a moment."""
    return T.symbol(f"used{when}", T.BOOL)


def _act(i: int, when: str = NOW) -> Term:
    return T.symbol(f"a{i}{when}", T.BOOL)


def _follows(key: Key, frame: Frame, later: Frame, writes: Sequence[Mapping[Key, Cases]]) -> Iterator[Term]:
    """A component is afterwards what an action made it, or what it was."""
    writers = [(i, written[key]) for i, written in enumerate(writes) if key in written]
    kept = conj(*(neg(_act(i)) for i, _ in writers))
    for value, symbol in later[key].items():
        if symbol.op == "symbol":
            made = (conj(_act(i), cases.get(value, FALSE)) for i, cases in writers)
            yield T.equal(symbol, disj(conj(kept, frame[key].get(value, FALSE)), *made))


def _independent(looks_a: set[Key], writes_a: set[Key], looks_b: set[Key], writes_b: set[Key]) -> bool:
    return not (writes_a & (looks_b | writes_b) or writes_b & looks_a)
