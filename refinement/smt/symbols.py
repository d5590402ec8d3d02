"""The symbols that a compilation introduces, what they stand for, and what must hold for Python not to raise."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vosti.refinement.smt import terms as T
from vosti.refinement.smt import theory
from vosti.refinement.smt.terms import TRUE, Term, conj, equal, ite
from vosti.refinement.smt.values import (
    IntType,
    Map,
    MapType,
    NamedType,
    Option,
    OptionType,
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
    expect,
    field_types,
    sort_of,
)

SEQUENCE_TERMS = frozenset({NamedType("Token")})
"""The element types whose tuples are terms: arguments of unknown functions, compared and sliced as a whole."""


def is_sequence(ty: Type) -> bool:
    """Whether values of this type are terms of a sequence sort."""
    return isinstance(ty, TupleType) and ty.item in SEQUENCE_TERMS


def sequences(ty: TupleType) -> theory.Sequences:
    """The sequences that are terms of a type."""
    return theory.Sequences(sort_of(ty.item))


class Symbols:
    """Symbols, and needs.

    `needs` collects what must hold for Python not to raise, under the conditions of `path`. `definitions` gives, for
    some uninterpreted symbols, the formulas that are true of them; `closures` what the others stand for.
    """

    def __init__(self) -> None:
        self.counter = itertools.count()
        self.needs: list[Term] = []
        self.path: list[Term] = []
        self.definitions: dict[str, tuple[Term, ...]] = {}
        self.closures: dict[str, tuple[tuple[Term, ...], Tuple | Set]] = {}

    # ---------------------------------------------------------------- needs

    def need(self, condition: Term) -> None:
        """For Python not to raise here, the condition must hold."""
        known = set(T.conjuncts(self.path))
        missing = [c for c in T.conjuncts([condition]) if c not in known]
        new = T.implies(self.path, conj(*missing))
        if new is not TRUE and new not in self.needs:
            self.needs.append(new)

    @contextmanager
    def given(self, *conditions: Term) -> Iterator[None]:
        """What is needed is needed only if these conditions hold."""
        self.path += conditions
        try:
            yield
        finally:
            del self.path[len(self.path) - len(conditions) :]

    @contextmanager
    def each(self, variables: tuple[Term, ...], domain: tuple[Term, ...]) -> Iterator[None]:
        """What is needed inside is needed of all elements of the domain."""
        outer_needs, outer_path = self.needs, self.path
        self.needs, self.path = [], list(domain)
        try:
            yield
        finally:
            inner, self.needs, self.path = self.needs, outer_needs, outer_path
        for need in inner:
            self.need(T.for_all(variables, need))

    # ---------------------------------------------------------------- values of which nothing is known

    def fresh(self, name: str, ty: Type) -> Term:
        """A symbol that occurs nowhere else."""
        return T.symbol(f"{name}!{next(self.counter)}", sort_of(ty))

    def scalar(self, ty: Type, term: Term) -> Value:
        """A term as a value of its type."""
        if not isinstance(ty, TupleType):
            return Scalar(ty, term)
        of = sequences(ty)
        return Tuple(ty, of.length(term), lambda i: self.scalar(ty.item, of.at(term, i)), term=term)

    def symbolic(self, ty: Type, name: str, params: tuple[Term, ...] = ()) -> Value:
        """A value of a type about which nothing is known: uninterpreted functions of the parameters."""

        def leaf(suffix: str, sort: str, *keys: Term) -> Term:
            return T.apply(name + suffix, (*params, *keys), sort)

        def has(k: Term) -> Term:
            return leaf(".has", T.BOOL, k)

        match ty:
            case RecordType() | PairType():
                fields = field_types(ty).items()
                return Record(ty, {f: self.symbolic(t, f"{name}.{f}", params) for f, t in fields})
            case MapType(_, value):
                return Map(ty, has, lambda k: self.symbolic(value, name, (*params, k)))
            case SetType():
                return Set(ty, has)
            case OptionType(some):
                return Option(ty, leaf(".is_none", T.BOOL), self.symbolic(some, f"{name}.some", params))
            case TupleType(item) if not is_sequence(ty):
                isin = self.tuple_facts(name, params, item)
                return Tuple(ty, leaf(".len", T.INT), lambda i: self.symbolic(item, f"{name}.at", (*params, i)), isin)
            case _:
                return self.scalar(ty, leaf("", sort_of(ty)))

    def no_value(self, ty: Type, *params: Term) -> Value:
        """A value that means nothing: what an empty mapping maps to, or the content of None."""
        stem = "_".join(["nothing", re.sub(r"\W+", "_", repr(ty)), *(p.sort for p in params)])
        return self.symbolic(ty, stem, params)

    def tuple_facts(self, name: str, params: tuple[Term, ...], item: Type) -> Callable[[Term], Term] | None:
        """A tuple's length is not negative; its elements, where they are identifiers, are its members."""
        bound = tuple(T.symbol(f"x{i}!", p.sort) for i, p in enumerate(params))

        def part(suffix: str, sort: str, *more: Term) -> Term:
            return T.apply(f"{name}.{suffix}", (*bound, *more), sort)

        length = part("len", T.INT)
        positive = T.at_most(T.integer(0), length)
        self.definitions[f"{name}.len"] = (T.for_all(bound, positive, ((length,),)),)
        if not isinstance(item, NamedType):
            return None
        y, j = T.symbol("y!", item.name), T.symbol("j!", T.INT)
        at, inside, index = part("at", item.name, j), part("in", T.BOOL, y), part("index", T.INT, y)
        elements = T.implies([T.within(j, length)], part("in", T.BOOL, at))
        members = T.implies([inside], conj(T.within(index, length), equal(part("at", item.name, index), y)))
        self.definitions[f"{name}.in"] = (
            T.for_all((*bound, j), elements, ((at,),)),
            T.for_all((*bound, y), members, ((inside,),)),
        )
        return lambda v: T.apply(f"{name}.in", (*params, v), T.BOOL)

    # ---------------------------------------------------------------- closures as terms

    def reify(self, v: Value) -> tuple[Term, ...]:
        """A value as arguments of an uninterpreted function.

        Raises:
            Refused: for sets, mappings and records.
        """
        match v:
            case Scalar(term=Term() as term) | Tuple(term=Term() as term):
                return (term,)
            case Option():
                # One term for all absent values, so that two of them are the same argument.
                (some,) = self.reify(v.some)
                return (v.none, ite(v.none, T.symbol(f"none_{some.sort}", some.sort), some))
            case Tuple(TupleType(NamedType())):
                return (self.tuple_term(v, sequences(v.type)),)
        raise Refused("an argument of an unknown function is a number, an identifier or a tuple of identifiers")

    def tuple_term(self, v: Tuple, sequences: theory.Sequences) -> Term:
        """A tuple as one term: a function of the variables that it depends on, defined by its elements."""
        i = self.fresh("i", IntType())
        element = expect(Scalar, v.at(i), "an element that is no single term").term
        free, term = named("tuple", sequences.element, sequences.sort, i, [v.length, element])
        if term.name not in self.definitions:
            # A slice that is not defined may have a negative length; no sequence has, and to say so would say "false".
            length = T.not_negative(v.length)
            at = sequences.at(term, i)
            self.definitions[term.name] = (
                T.for_all(free, equal(sequences.length(term), length), ((term,),) if free else ()),
                T.for_all((*free, i), T.implies([T.within(i, length)], equal(at, element)), ((at,),)),
            )
            self.closures[term.name] = (free, v)
        return term

    def set_term(self, s: Set, sets: theory.FiniteSets) -> Term:
        """A set as one term: a function of the variables that it depends on, defined by its membership."""
        x = self.fresh("x", s.type.item)
        body = s.has(x)
        free, term = named("set", sets.element, sets.sort, x, [body])
        if term.name not in self.definitions:
            member = sets.member(x, term)
            touching = [t for t in T.subterms([body]) if t.op == "symbol" and t.name.endswith(".has") and x in t.args]
            patterns = ((member,), *((sets.card(term), t) for t in touching))
            self.definitions[term.name] = (T.for_all((*free, x), equal(member, body), patterns),)
            self.closures[term.name] = (free, s)
        return term


def named(kind: str, element: str, sort: str, x: Term, parts: list[Term]) -> tuple[tuple[Term, ...], Term]:
    """A term for a closure of x: a function of what else its parts depend on, under a name for what they say, whatever
    their variables are called.
    """
    free = tuple(p for p in T.parameters_of(parts) if p is not x)
    said = T.text(T.make("forall", T.BOOL, (T.make("parts", T.BOOL, tuple(parts)),), bound=(x, *free)))
    return free, T.apply(f"{kind}_{element}!h{hashlib.sha256(said.encode()).hexdigest()[:12]}", free, sort)
