"""The components of a state: what a concrete one and a symbolic one are made of, under the same names.

A symbolic state is a family of uninterpreted functions (`Symbols.symbolic`), such as `s.requests.cached` of the request
r1. A function with ids and numbers for its arguments is a *component*; a step has finitely many.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from vosti.refinement.smt import terms as T
from vosti.refinement.smt.symbols import is_sequence
from vosti.refinement.smt.terms import TRUE, Term, conj, disj, neg
from vosti.refinement.smt.values import (
    Map,
    MapType,
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
    field_types,
    sort_of,
)

Key = tuple[str, tuple[Hashable, ...]]
"""A component: the name of a function of the symbolic state, and its arguments."""

Env = Mapping[Term, Hashable]
"""What parameters and bound symbols stand for."""


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
        case Scalar(term=Term() as term) | Tuple(term=Term() as term):
            yield (name, params), term
        case Tuple():
            length = (f"{name}.len", params)
            yield length, value.length
            for i in range(ids.widths(length)):
                yield from parts(value.at(T.integer(i)), f"{name}.at", ids, (*params, i))
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
