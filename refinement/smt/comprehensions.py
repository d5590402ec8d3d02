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
    Refused,
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

    def source(self, node: ast.expr, env: Env) -> tuple[str, Value]:
        """What a comprehension ranges over: the view of it ("items", "enumerate"; "" for none), and the value."""
        match node:
            case (
                ast.Call(func=ast.Attribute(value=of, attr=view), args=[])
                | ast.Call(func=ast.Name(id="enumerate" as view), args=[of])
            ):
                return view, self.eval(of, env)
        return "", self.eval(node, env)

    def domain(self, view: str, of: Value) -> Domain:
        """What distinct elements a comprehension ranges over: keys, members, or what is in a tuple."""
        match of:
            case Map(MapType(key)) if view in ("", "items", "keys"):
                return Domain(key, of.has, lambda k: (self.scalar(key, k), *([of.get(k)] if view == "items" else ())))
            case Set(SetType(item)) if not view:
                return Domain(item, of.has, lambda k: (self.scalar(item, k),))
            case Tuple(TupleType(item)) if not view:
                return Domain(item, lambda k: self.contains(of, k), lambda k: (self.scalar(item, k),))
        raise Refused("a comprehension over what is no mapping, set or tuple")

    # ---------------------------------------------------------------- mappings, sets, tuples

    def collected(
        self, generators: list[ast.comprehension], key: ast.expr, value: ast.expr | None, env: Env
    ) -> Map | Set:
        """{k: e for k, v in m.items() if c}; without e, frozenset(k for k in c if b)."""
        if len(generators) != 1:
            raise Refused("a comprehension with one `for`")
        g = generators[0]
        names, domain = self.names(g.target), self.domain(*self.source(g.iter, env))
        if not isinstance(key, ast.Name) or key.id != names[0]:
            raise Refused("the elements or keys are those of what the comprehension ranges over")

        def at(k: Term) -> Env:
            return bound(env, names, domain.bind(k))

        k = self.fresh("k", domain.key)
        with self.each((k,), (domain.has(k),)):
            condition = self.connected(True, g.ifs, at(k))
            with self.given(condition):
                values = None if value is None else self.type(self.eval(value, at(k)))
        has = self.deferred(lambda k: conj(domain.has(k), self.connected(True, g.ifs, at(k))))
        if value is None or values is None:
            return Set(SetType(domain.key), has)
        return Map(MapType(domain.key, values), has, self.deferred(lambda k: self.eval(value, at(k))))

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
                return (i,), (T.at_most(lo, i), T.less(i, hi)), bound(env, names, (integer_value(i),))
        match self.source(g.iter, env):
            case ("" | "enumerate") as view, Tuple() as t:
                i = self.fresh(names[0] if view else "i", IntType())
                values = (integer_value(i), t.at(i)) if view else (t.at(i),)
                return (i,), tuple(T.conjuncts([T.within(i, t.length)])), bound(env, names, values)
            case "values", Map() as m:
                k = self.fresh("key", m.type.key)
                return (k,), (m.has(k),), bound(env, names, (m.get(k),))
            case view, of:
                domain = self.domain(view, of)
                k = self.fresh(names[0], domain.key)
                return (k,), (domain.has(k),), bound(env, names, domain.bind(k))

    def counters(self, variables: tuple[Term, ...], value: Term) -> tuple[T.Pattern, ...]:
        """Patterns for a statement about counts: it is used where a counter is read, not wherever a key occurs.

        Otherwise the witnesses of `theory.FiniteSets` would make it speak of ever new elements.
        """
        parts = [t for t in T.subterms([value]) if t.op == "symbol" and t.args]
        if not any(t.name.startswith("card_") for t in parts):
            return ()
        return tuple((t,) for t in parts if t.sort == T.INT and t.args == variables)
