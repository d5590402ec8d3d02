"""Terms over the ids of one concrete step: every quantifier is expanded, and every value is one of a few.

A symbolic state is a family of *components*, such as `s.requests.cached` of the request r1. Here each component has
its *cases*: the values that it may have, each with the condition under which it has it. An `Evaluator` carries cases
through the terms that the compiler made of a function's text. What is left is propositional: the conditions of cases.

A value that means nothing (an element beyond a tuple's end, a field of a request that is absent) is `UNDEFINED`, which
equals nothing. The specification never asks for one; that is proved, and not checked here again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from vosti.refinement.smt import terms as T
from vosti.refinement.smt.symbols import is_sequence
from vosti.refinement.smt.terms import FALSE, TRUE, Term, conj, disj, neg
from vosti.refinement.smt.values import (
    Map,
    MapType,
    Option,
    OptionType,
    Pair,
    PairType,
    Record,
    RecordType,
    Refused,
    Scalar,
    Set,
    SetType,
    Tuple,
    TupleType,
    Type,
    Value,
    field_types,
    sort_of,
)

Key = tuple[str, tuple[Hashable, ...]]
"""A component: the name of a function of the symbolic state, and its arguments."""

Cases = Mapping[Hashable, Term]
"""The values that something may have, each with the condition under which it has it. Exactly one condition holds."""

Frame = Mapping[Key, Cases]
"""What is known of all components. One that is absent is false, or undefined."""

Env = Mapping[Term, Hashable]
"""What parameters and bound symbols stand for."""

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


@dataclass(frozen=True)
class Ids:
    """The ids of a step, by sort, and the terms that stand for them."""

    by_sort: Mapping[str, tuple[Hashable, ...]]
    widths: Callable[[Key], int]
    """How long a tuple may be: the key is that of its length."""

    terms: dict[tuple[str, Hashable], Term] = field(default_factory=dict)
    values: dict[Term, Hashable] = field(default_factory=dict)

    def literal(self, sort: str, value: Hashable) -> Term:
        """The term that stands for an id; different ids have different terms, and it is evident that they differ."""
        term = self.terms.get((sort, value))
        if term is None:
            term = T.make("literal", sort, name=f"id{len(self.terms)}")
            self.terms[sort, value] = term
            self.values[term] = value
        return term


def flat(ty: Type, name: str, value: object, params: tuple[Hashable, ...] = ()) -> Iterator[tuple[Key, Hashable]]:
    """The components of a concrete value, under the names that `Operations.symbolic` gives to those of a symbolic one.

    Those that are absent are false, or undefined.
    """
    match ty:
        case RecordType():
            for name_of, type_of in field_types(ty).items():
                yield from flat(type_of, f"{name}.{name_of}", getattr(value, name_of), params)
        case MapType(_, item) if isinstance(value, Mapping):
            for key, element in value.items():
                yield (f"{name}.has", (*params, key)), True
                yield from flat(item, name, element, (*params, key))
        case SetType() if isinstance(value, frozenset):
            yield from (((f"{name}.has", (*params, element)), True) for element in value)
        case PairType(items) if isinstance(value, tuple):
            for i, (item, element) in enumerate(zip(items, value, strict=True)):
                yield from flat(item, f"{name}.{i}", element, params)
        case OptionType(some):
            yield (f"{name}.is_none", params), value is None
            if value is not None:
                yield from flat(some, f"{name}.some", value, params)
        case TupleType() if isinstance(value, tuple) and not is_sequence(ty):
            yield (f"{name}.len", params), len(value)
            for i, element in enumerate(value):
                yield from flat(ty.item, f"{name}.at", element, (*params, i))
        case _ if isinstance(value, Hashable):
            yield (name, params), value
        case _:
            raise Refused(f"{value!r} is no value of type {ty}")


def parts(value: Value, name: str, ids: Ids, params: tuple[Hashable, ...] = ()) -> Iterator[tuple[Key, Term]]:
    """The components of a symbolic value, each as a term, for all ids of the step."""
    match value:
        case Record(_, fields):
            for name_of, item in fields.items():
                yield from parts(item, f"{name}.{name_of}", ids, params)
        case Map(ty):
            for key in ids.by_sort[sort_of(ty.key)]:
                literal = ids.literal(sort_of(ty.key), key)
                yield (f"{name}.has", (*params, key)), value.has(literal)
                yield from parts(value.get(literal), name, ids, (*params, key))
        case Set(ty):
            sort = sort_of(ty.item)
            for key in ids.by_sort[sort]:
                yield (f"{name}.has", (*params, key)), value.has(ids.literal(sort, key))
        case Option(_, none, some):
            yield (f"{name}.is_none", params), none
            yield from parts(some, f"{name}.some", ids, params)
        case Pair(_, items):
            for i, item in enumerate(items):
                yield from parts(item, f"{name}.{i}", ids, params)
        case Tuple():
            length = (f"{name}.len", params)
            yield length, value.length
            for i in range(ids.widths(length)):
                yield from parts(value.at(T.integer(i)), f"{name}.at", ids, (*params, i))
        case Scalar(_, term):
            yield (name, params), term
        case _:
            raise Refused("a value without a type has no components")


def resolved(t: Term, env: Env, ids: Ids) -> Term:
    """A term without what is decided by comparing ids and parameters, whatever the state is."""
    match t.op:
        case "ite":
            condition = resolved(t.args[0], env, ids)
            if condition.op == "literal":
                return resolved(t.args[1] if condition is TRUE else t.args[2], env, ids)
        case "and" | "or":
            of = [resolved(a, env, ids) for a in t.args]
            return conj(*of) if t.op == "and" else disj(*of)
        case "not":
            return neg(resolved(t.args[0], env, ids))
        case "=":
            a, b = (env.get(of, ids.values.get(of)) for of in t.args)
            if a is not None and b is not None:
                return T.boolean(a == b)
    return t


# ---------------------------------------------------------------- evaluation


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


_FREE: dict[Term, tuple[Term, ...]] = {}


def free(t: Term) -> tuple[Term, ...]:
    """The constants that a term mentions and does not bind, each once."""
    found = _FREE.get(t)
    if found is None:
        own = (t,) if t.op == "symbol" and not t.args else ()
        inner = dict.fromkeys(v for a in t.args for v in free(a) if v not in t.bound)
        found = _FREE[t] = (*own, *inner)
    return found


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
