"""Types of the subset, and symbolic values of them.

Values are of any size, and closures rather than terms: a mapping is a membership and a lookup, a set its membership, a
tuple a length and a lookup, a record its fields. What a symbolic state is made of, uninterpreted functions, therefore
stays visible after every update, which is what makes proofs quick. Tuples whose elements are to be compared and sliced
as a whole (of tokens) are terms of a sequence sort besides.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache

from vosti.refinement.errors import RefinementError
from vosti.refinement.smt.terms import BOOL, INT, Term


class Refused(RefinementError):
    """A text is outside the subset of Python that can be translated. The message says where, and what it is."""


# ---------------------------------------------------------------- types


@dataclass(frozen=True)
class IntType:
    """`int`."""


@dataclass(frozen=True)
class BoolType:
    """`bool`."""


@dataclass(frozen=True)
class NamedType:
    """A `NewType`: a sort of which nothing is known but equality. There is no arithmetic on identifiers."""

    name: str


@dataclass(frozen=True)
class TupleType:
    """`tuple[X, ...]`."""

    item: Type


@dataclass(frozen=True)
class PairType:
    """`tuple[X, Y]` and longer ones, of fixed length."""

    items: tuple[Type, ...]


@dataclass(frozen=True)
class SetType:
    """`frozenset[X]`."""

    item: Type


@dataclass(frozen=True)
class MapType:
    """`Mapping[K, V]`, whatever its class."""

    key: Type
    value: Type


@dataclass(frozen=True)
class OptionType:
    """`X | None`."""

    some: Type


@dataclass(frozen=True)
class RecordType:
    """A dataclass."""

    cls: type


Type = IntType | BoolType | NamedType | TupleType | PairType | SetType | MapType | OptionType | RecordType


def type_of(annotation: object) -> Type:
    """The type that an evaluated annotation stands for.

    Raises:
        Refused: for any other annotation.
    """
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is int:
        return IntType()
    if annotation is bool:
        return BoolType()
    if isinstance(annotation, typing.NewType):
        return NamedType(annotation.__name__)
    if isinstance(annotation, type) and is_dataclass(annotation):
        return RecordType(annotation)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return TupleType(type_of(args[0]))
    if origin is tuple:
        return PairType(tuple(map(type_of, args)))
    if origin is frozenset:
        return SetType(type_of(args[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return MapType(type_of(args[0]), type_of(args[1]))
    if origin in (typing.Union, types.UnionType) and len(args) == 2 and type(None) in args:
        return OptionType(next(type_of(a) for a in args if a is not type(None)))
    raise Refused(f"{annotation} is no type of the subset")


@cache
def field_types(ty: RecordType | PairType) -> Mapping[str, Type]:
    """The types of a dataclass's fields, in order; those of a tuple of fixed length are numbered."""
    if isinstance(ty, PairType):
        return {str(i): item for i, item in enumerate(ty.items)}
    return {name: type_of(hint) for name, hint in typing.get_type_hints(ty.cls).items()}


def sort_of(ty: Type) -> str:
    """The sort of terms of a type.

    Raises:
        Refused: for a type whose values are no terms.
    """
    match ty:
        case IntType():
            return INT
        case BoolType():
            return BOOL
        case NamedType(name):
            return name
        case TupleType(NamedType(name)):
            return f"Seq_{name}"
        case _:
            raise Refused(f"a value of type {ty} is no single term")


# ---------------------------------------------------------------- values


@dataclass(frozen=True)
class Scalar:
    """A number, a truth value or an identifier."""

    type: Type
    term: Term


@dataclass(frozen=True)
class Record:
    """A dataclass instance, or a tuple of fixed length, whose fields are numbered."""

    type: RecordType | PairType
    fields: Mapping[str, Value]


@dataclass(frozen=True)
class Option:
    """Something, or None. `some` has no meaning where `none` holds."""

    type: OptionType
    none: Term
    some: Value


@dataclass(frozen=True)
class Map:
    """A mapping. `get` has no meaning for keys that it does not have."""

    type: MapType
    has: Callable[[Term], Term]
    get: Callable[[Term], Value]


@dataclass(frozen=True)
class Set:
    """A set; `inhabited` where it is known without a quantifier whether it has an element."""

    type: SetType
    has: Callable[[Term], Term]
    inhabited: Term | None = None


@dataclass(frozen=True)
class Tuple:
    """A tuple as a closure; `has` where membership is known without a quantifier, `term` where it is a sequence."""

    type: TupleType
    length: Term
    at: Callable[[Term], Value]
    has: Callable[[Term], Term] | None = None
    term: Term | None = None


@dataclass(frozen=True)
class Nothing:
    """None, before it is known of which type it is an absence."""


@dataclass(frozen=True)
class Empty:
    """An empty tuple, set or mapping, before it is known of which type."""


Value = Scalar | Record | Option | Map | Set | Tuple | Nothing | Empty


V = typing.TypeVar("V")


def expect(kind: type[V], v: object, otherwise: str) -> V:
    """What is to be of a kind.

    Raises:
        Refused: if it is of another one; `otherwise` says what is wrong with that.
    """
    if isinstance(v, kind):
        return v
    raise Refused(otherwise)


def integer_value(term: Term) -> Scalar:
    """A number."""
    return Scalar(IntType(), term)


def truth_value(term: Term) -> Scalar:
    """A truth value."""
    return Scalar(BoolType(), term)
