"""Quantifiers and comprehensions: what ranges over the elements of a value of any size."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from vosti.refinement.smt import terms as T
from vosti.refinement.smt.operations import Operations
from vosti.refinement.smt.terms import Term, conj, disj, neg
from vosti.refinement.smt.values import (
    IntType,
    Map,
    MapType,
    Nothing,
    Refused,
    Scalar,
    Set,
    SetType,
    Tuple,
    TupleType,
    Type,
    Value,
    integer_value,
)

Env = Mapping[str, Value]
X = TypeVar("X")


@dataclass(frozen=True)
class Domain:
    """What a comprehension ranges over: distinct elements, and the names that it binds for each."""

    key: Type
    has: Callable[[Term], Term]
    bind: Callable[[Term], tuple[Value, ...]]


def bound(env: Env, names: list[str], values: tuple[Value, ...]) -> Env:
    """The names, with these values."""
    if len(names) != len(values):
        raise Refused(f"a `for` that binds {len(names)} names to {len(values)} values")
    return {**env, **dict(zip(names, values, strict=True))}


class Comprehensions(Operations, ABC):
    """Comprehensions, given a way to evaluate the expressions in them."""

    @abstractmethod
    def eval(self, node: ast.expr, env: Env) -> Value:
        """The value of an expression."""

    @abstractmethod
    def deferred(self, f: Callable[[Term], X]) -> Callable[[Term], X]:
        """f, to be evaluated later as if here; what it needs has been stated already."""

    def truth(self, node: ast.expr, env: Env) -> Term:
        """The truth of an expression, as `if` sees it."""
        return self.as_bool(self.eval(node, env))

    def number(self, node: ast.expr, env: Env) -> Term:
        """An expression that is a number."""
        return self.int_term(self.eval(node, env))

    def connected(self, conjunction: bool, parts: list[ast.expr], env: Env) -> Term:
        """and, or: each part under the condition that those before it have not decided."""
        found: list[Term] = []
        for part in parts:
            with self.given(*(found if conjunction else map(neg, found))):
                found.append(self.truth(part, env))
        return conj(*found) if conjunction else disj(*found)

    # ---------------------------------------------------------------- what is ranged over

    def names(self, target: ast.expr) -> list[str]:
        """The names that a `for` binds."""
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        if not all(isinstance(t, ast.Name) for t in targets):
            raise Refused("a comprehension binds plain names")
        return [t.id for t in targets if isinstance(t, ast.Name)]

    def domain(self, source: ast.expr, env: Env) -> Domain:
        """What distinct elements a comprehension ranges over: keys, members, or what is in a tuple."""
        view, of = "", source
        if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute) and not source.args:
            view, of = source.func.attr, source.func.value
        match self.eval(of, env):
            case Map() as m if view in ("", "items", "keys"):
                return Domain(
                    m.type.key,
                    m.has,
                    lambda k: (self.scalar(m.type.key, k), *((m.get(k),) if view == "items" else ())),
                )
            case Set() as s if not view:
                return Domain(s.type.item, s.has, lambda k: (self.scalar(s.type.item, k),))
            case Tuple(TupleType(item)) as t if not view:
                return Domain(item, lambda k: self.member(self.scalar(item, k), t), lambda k: (self.scalar(item, k),))
            case _:
                raise Refused("a comprehension over what is no mapping, set or tuple")

    def comprehension(
        self, generators: list[ast.comprehension], key: ast.expr, env: Env
    ) -> tuple[Domain, Callable[[Term], Term], Callable[[Term], Env]]:
        """`for k in c if ...`, the element or key being k: what k ranges over, which k are chosen, and the names."""
        if len(generators) != 1:
            raise Refused("a comprehension with one `for`")
        g = generators[0]
        names, domain = self.names(g.target), self.domain(g.iter, env)
        if not isinstance(key, ast.Name) or key.id != names[0]:
            raise Refused("the elements or keys are those of what the comprehension ranges over")

        def at(k: Term) -> Env:
            return bound(env, names, domain.bind(k))

        return domain, self.deferred(lambda k: conj(domain.has(k), self.connected(True, g.ifs, at(k)))), at

    # ---------------------------------------------------------------- mappings, sets, tuples

    def mapping_of(self, node: ast.DictComp, env: Env) -> Value:
        """{k: e for k, v in m.items() if c}."""
        domain, has, at = self.comprehension(node.generators, node.key, env)
        k = self.fresh("k", domain.key)
        with self.each((k,), (domain.has(k),)):
            condition = self.connected(True, node.generators[0].ifs, at(k))
            with self.given(condition):
                value = self.type(self.eval(node.value, at(k)))
        return Map(MapType(domain.key, value), has, self.deferred(lambda k: self.eval(node.value, at(k))))

    def set_of(self, node: ast.GeneratorExp, env: Env) -> Value:
        """frozenset(x for x in c if b)."""
        domain, has, at = self.comprehension(node.generators, node.elt, env)
        k = self.fresh("k", domain.key)
        with self.each((k,), (domain.has(k),)):
            self.connected(True, node.generators[0].ifs, at(k))
        return Set(SetType(domain.key), has)

    def tuple_of(self, node: ast.GeneratorExp, env: Env) -> Value:
        """tuple(e for i in range(n))."""
        g = node.generators[0]
        match g.iter:
            case ast.Call(func=ast.Name(id="range"), args=[count]) if len(node.generators) == 1 and not g.ifs:
                n = self.number(count, env)
            case _:
                raise Refused("a tuple of one `for`, over range(n), without a filter")
        (name,) = self.names(g.target)
        i = self.fresh(name, IntType())
        with self.each((i,), tuple(T.conjuncts([T.within(i, n)]))):
            item = self.type(self.eval(node.elt, {**env, name: integer_value(i)}))
        # range(n) is empty for n < 0; without this, a tuple as a term would assume n ≥ 0.
        at = self.deferred(lambda i: self.eval(node.elt, {**env, name: integer_value(i)}))
        return Tuple(TupleType(item), T.not_negative(n), at)

    # ---------------------------------------------------------------- quantifiers

    def quantified(self, universal: bool, node: ast.GeneratorExp, env: Env) -> Term:
        """all(...), any(...)."""

        def level(generators: list[ast.comprehension], env: Env) -> tuple[tuple[Term, ...], list[Term], Term]:
            if not generators:
                return (), [], self.truth(node.elt, env)
            g = generators[0]
            variables, domain, inner = self.bind(g, env)
            with self.each(variables, domain):
                condition = self.connected(True, g.ifs, inner)
                with self.given(condition):
                    more, conditions, value = level(generators[1:], inner)
            return (*variables, *more), [*domain, condition, *conditions], value

        variables, domain, value = level(node.generators, env)
        if universal:
            return T.for_all(variables, T.implies(domain, value), self.counters(variables, value))
        return T.exists(variables, conj(*domain, value))

    def bind(self, g: ast.comprehension, env: Env) -> tuple[tuple[Term, ...], tuple[Term, ...], Env]:
        """Variables, their domain, and the names of one `for` of a quantifier."""
        names = self.names(g.target)
        match g.iter:
            case ast.Call(func=ast.Name(id="range"), args=[*first, last]) if len(first) <= 1:
                lo = self.number(first[0], env) if first else T.integer(0)
                hi = self.number(last, env)
                i = self.fresh(names[0], IntType())
                return (i,), (T.at_most(lo, i), T.less(i, hi)), {**env, names[0]: integer_value(i)}
            case ast.Call(func=ast.Name(id="enumerate"), args=[of]):
                indexed, of_value = True, self.eval(of, env)
            case ast.Call(func=ast.Attribute(value=of, attr="values"), args=[]):
                m = self.a_map(self.eval(of, env))
                k = self.fresh("key", m.type.key)
                return (k,), (m.has(k),), {**env, names[0]: m.get(k)}
            case ast.Name() | ast.Attribute() | ast.Subscript() | ast.Call(func=ast.Name()):
                indexed, of_value = False, self.eval(g.iter, env)
            case _:
                indexed, of_value = False, Nothing()
        if isinstance(of_value, Tuple) or (isinstance(of_value, Scalar) and isinstance(of_value.type, TupleType)):
            i = self.fresh(names[0] if indexed else "i", IntType())
            values = (integer_value(i), self.item(of_value, i)) if indexed else (self.item(of_value, i),)
            domain = tuple(T.conjuncts([T.within(i, self.length(of_value))]))
            return (i,), domain, bound(env, names, values)
        collection = self.domain(g.iter, env)
        k = self.fresh(names[0], collection.key)
        return (k,), (collection.has(k),), bound(env, names, collection.bind(k))

    def counters(self, variables: tuple[Term, ...], value: Term) -> tuple[T.Pattern, ...]:
        """Patterns for a statement about counts: it is used where a counter is read, not wherever a key occurs.

        Otherwise the witnesses of `theory.FiniteSets` would make it speak of ever new elements.
        """
        parts = [t for t in T.subterms([value]) if t.op == "symbol" and t.args]
        if not any(t.name.startswith("card_") for t in parts):
            return ()
        return tuple((t,) for t in parts if t.sort == T.INT and t.args == variables)
