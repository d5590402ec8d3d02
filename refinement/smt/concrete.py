"""Terms on the ids of one concrete step: every quantifier is expanded, and every value is one of a few.

Each component of the state has its *cases*: the values that it may have, each with the condition under which it has
it. An `Evaluator` carries cases through the terms that the compiler made of a function's text. What is left is
propositional: the conditions of cases.

A value that means nothing (an element beyond a tuple's end, a field of a request that is absent) is `UNDEFINED`, which
equals nothing. The specification never asks for one; that is proved, and not checked here again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from vosti.refinement.smt import terms as T
from vosti.refinement.smt.components import Env, Ids, Key
from vosti.refinement.smt.terms import FALSE, TRUE, Term, conj, disj, neg
from vosti.refinement.smt.values import Refused

Cases = Mapping[Hashable, Term]
"""The values that something may have, each with the condition under which it has it. Exactly one condition holds."""

Frame = Mapping[Key, Cases]
"""What is known of all components. One that is absent is false, or undefined."""

UNDEFINED = None
"""The value of what has none."""


class WorkExhausted(Exception):
    """There was more to evaluate than was allowed."""


@dataclass
class Work:
    """How much may be evaluated: a count of terms, so that a verdict does not depend on the load."""

    left: int

    def spend(self, terms: int = 1) -> None:
        """Evaluate terms, or do as much of other work. Raises `WorkExhausted`."""
        self.left -= terms
        if self.left < 0:
            raise WorkExhausted


class Evaluator:
    """Evaluates terms in one frame."""

    def __init__(self, frame: Frame, names: Collection[str], ids: Ids, work: Work, instead: Frame | None = None):
        """`names` are those of all components; `instead` holds cases that stand in the place of the frame's."""
        self.frame, self.names, self.ids, self.work, self.instead = frame, names, ids, work, instead or {}
        self._memo: dict[tuple[object, ...], Cases] = {}

    def truth(self, term: Term, env: Env) -> Term:
        """The condition under which a formula holds."""
        return self.cases(term, env).get(True, FALSE)

    def cases(self, term: Term, env: Env) -> Cases:
        """The cases of a term; of a formula, those of True and False."""
        key = (term, *(env.get(v) for v in free(term)))
        found = self._memo.get(key)
        if found is None:
            self.work.spend()
            found = self._memo[key] = self._cases(term, env)
        return found

    def _cases(self, t: Term, env: Env) -> Cases:
        if t in env:
            return {env[t]: TRUE}
        match t.op:
            case "literal":
                return {self._literal(t): TRUE}
            case "symbol":
                return self._applied(t, env)
            case "and" | "or" | "not" | "=>" | "forall" | "exists":
                return _truth(self._formula(t, env))
            case "ite":
                condition = self.truth(t.args[0], env)
                if condition.op == "literal":
                    return self.cases(t.args[1] if condition is TRUE else t.args[2], env)
                return merged(condition, self.cases(t.args[1], env), self.cases(t.args[2], env))
            case "=":
                return _truth(_same(self.cases(t.args[0], env), self.cases(t.args[1], env)))
        return self._computed(OPERATORS[t.op], t, env)

    def _literal(self, t: Term) -> Hashable:
        if t.sort == T.BOOL:
            return t is TRUE
        return int(t.name) if t.sort == T.INT else self.ids.values[t]

    def _formula(self, t: Term, env: Env) -> Term:
        """Connectives, decided as early as they can be, and quantifiers, expanded."""
        match t.op:
            case "not":
                return neg(self.truth(t.args[0], env))
            case "=>":
                premise = self.truth(t.args[0], env)
                return TRUE if premise is FALSE else disj(neg(premise), self.truth(t.args[1], env))
            case "and" | "or":
                instances: Iterator[tuple[Term, Env]] = ((part, env) for part in t.args)
            case _:
                instances = self._instances(t.args[0], t.bound, env)
        conjunction = t.op in ("and", "forall")
        decided = FALSE if conjunction else TRUE
        found: list[Term] = []
        for part, inner in instances:
            truth = self.truth(part, inner)
            if truth is decided:
                return decided
            found.append(truth)
        return conj(*found) if conjunction else disj(*found)

    def _instances(self, body: Term, bound: tuple[Term, ...], env: Env) -> Iterator[tuple[Term, Env]]:
        """The body, for all that its bound symbols may stand for."""
        if not bound:
            yield body, env
            return
        variable, *rest = bound
        for value in self._range(body, variable, env) if variable.sort == T.INT else self.ids.by_sort[variable.sort]:
            yield from self._instances(body, tuple(rest), {**env, variable: value})

    def _range(self, body: Term, i: Term, env: Env) -> range:
        """What a bound number ranges over: the body is about numbers from 0 to below some bound, and says so first."""
        first = body.args[0] if body.op == "=>" else body
        for part in T.conjuncts([first]):
            if part.op == "<" and part.args[0] is i:
                ends = [end for end in self.cases(part.args[1], env) if isinstance(end, int)]
                return range(max(ends, default=0))
        raise Refused(f"{T.text(body)} gives {i.name} no bound")

    def _applied(self, t: Term, env: Env) -> Cases:
        """A component, one of the known functions of tuples and numbers, or membership of a tuple."""
        if t.name in FUNCTIONS:
            return self._computed(FUNCTIONS[t.name], t, env)
        if t.name.endswith(".in"):
            return _truth(self._member(t, env))
        if t.name not in self.names:
            return {False if t.sort == T.BOOL else UNDEFINED: TRUE}
        return self._looked_up(t.name, t.sort, [self.cases(a, env) for a in t.args])

    def _looked_up(self, name: str, sort: str, args: list[Cases]) -> Cases:
        absent: Cases = {False if sort == T.BOOL else UNDEFINED: TRUE}
        if all(len(cases) == 1 for cases in args):
            return self._component((name, tuple(value for cases in args for value in cases)), absent)
        found: dict[Hashable, list[Term]] = {}
        for combination in itertools.product(*(cases.items() for cases in args)):
            self.work.spend()
            condition = conj(*(c for _, c in combination))
            for value, when in self._component((name, tuple(v for v, _ in combination)), absent).items():
                found.setdefault(value, []).append(conj(condition, when))
        return {value: disj(*parts) for value, parts in found.items()}

    def _component(self, key: Key, absent: Cases) -> Cases:
        return self.instead.get(key) or self.frame.get(key) or absent

    def _member(self, t: Term, env: Env) -> Term:
        """x in a tuple of the state: it is the element at some index below the length."""
        stem, params = t.name.removesuffix(".in"), [self.cases(a, env) for a in t.args[:-1]]
        x = self.cases(t.args[-1], env)
        lengths = self._looked_up(f"{stem}.len", T.INT, params)
        found: list[Term] = []
        for n, condition in lengths.items():
            for i in range(n if isinstance(n, int) else 0):
                element = self._looked_up(f"{stem}.at", t.args[-1].sort, [*params, {i: TRUE}])
                found.append(conj(condition, _same(element, x)))
        return disj(*found)

    def _computed(self, function: Callable[..., Hashable], t: Term, env: Env) -> Cases:
        """A function of what the arguments may be."""
        found: dict[Hashable, list[Term]] = {}
        for combination in itertools.product(*(self.cases(a, env).items() for a in t.args)):
            self.work.spend()
            values = [v for v, _ in combination]
            value = UNDEFINED if UNDEFINED in values else function(*values)
            if value is UNDEFINED and t.sort == T.BOOL:
                value = False
            found.setdefault(value, []).append(conj(*(c for _, c in combination)))
        return {value: disj(*parts) for value, parts in found.items()}


@lru_cache(maxsize=2**16)
def free(t: Term) -> tuple[Term, ...]:
    """The constants that a term mentions and does not bind, each once."""
    own = (t,) if t.op == "symbol" and not t.args else ()
    return (*own, *dict.fromkeys(v for a in t.args for v in free(a) if v not in t.bound))


def merged(condition: Term, yes: Cases, no: Cases) -> Cases:
    """The cases of one if the condition holds, and else of the other."""
    if yes == no:
        return yes
    found = {value: conj(condition, when) for value, when in yes.items()}
    for value, when in no.items():
        found[value] = disj(found.get(value, FALSE), conj(neg(condition), when))
    return found


def _truth(condition: Term) -> Cases:
    if condition.op == "literal":
        return {condition is TRUE: TRUE}
    return {True: condition, False: neg(condition)}


def _same(a: Cases, b: Cases) -> Term:
    """The condition under which two have the same value."""
    return disj(*(conj(when, b[value]) for value, when in a.items() if value in b and value is not UNDEFINED))


def _at(h: tuple[Hashable, ...], i: int) -> Hashable:
    return h[i] if 0 <= i < len(h) else UNDEFINED


def _slice(h: tuple[Hashable, ...], a: int, b: int) -> Hashable:
    return h[a:b] if 0 <= a <= b <= len(h) else UNDEFINED


def _quotient(a: int, b: int) -> Hashable:
    return a // b if b > 0 else UNDEFINED


def _remainder(a: int, b: int) -> Hashable:
    return a % b if b > 0 else UNDEFINED


OPERATORS: Mapping[str, Callable[..., Hashable]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "div": _quotient,
    "mod": _remainder,
}
"""Operators of SMT-LIB on numbers."""

FUNCTIONS: Mapping[str, Callable[..., Hashable]] = {
    "times": lambda a, b: a * b,
    "div_by": _quotient,
    "mod_by": _remainder,
    "empty_Token": lambda: (),
    "len_Token": len,
    "at_Token": _at,
    "slice_Token": _slice,
    "append_Token": lambda h, t: (*h, t),
    "concat_Token": lambda g, h: g + h,
    "eq_Token": lambda g, h: g == h,
}
"""The functions of `vosti.refinement.smt.theory`, on numbers and tuples as they are."""
