"""What the operators of the subset do to symbolic values, whoever calls them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import reduce

from vosti.refinement.smt import terms as T
from vosti.refinement.smt import theory
from vosti.refinement.smt.symbols import Symbols, is_sequence, sequences
from vosti.refinement.smt.terms import FALSE, TRUE, Term, conj, disj, equal, ite, neg
from vosti.refinement.smt.values import (
    BoolType,
    Empty,
    IntType,
    Map,
    MapType,
    Nothing,
    Option,
    OptionType,
    PairType,
    Record,
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
    integer_value,
    sort_of,
)

Binary = Callable[[Term, Term], Term]
Operators = Mapping[type[ast.operator], Binary]

ORDER: Mapping[type[ast.cmpop], Binary] = {
    ast.Lt: T.less,
    ast.LtE: T.at_most,
    ast.Gt: lambda x, y: T.less(y, x),
    ast.GtE: lambda x, y: T.at_most(y, x),
}
LINEAR: Operators = {ast.Add: T.plus, ast.Sub: T.minus, ast.Mult: T.times, ast.FloorDiv: T.divide, ast.Mod: T.modulo}
UNKNOWN: Operators = {ast.Mult: theory.MULTIPLY, ast.FloorDiv: theory.DIVIDE, ast.Mod: theory.MODULO}
"""Products and quotients of two unknown numbers."""

OF_SETS: Operators = {ast.BitOr: disj, ast.BitAnd: conj, ast.Sub: lambda a, b: conj(a, neg(b))}
"""Whether an element is in the result, from whether it is in either set."""


class Operations(Symbols):
    """Operations on symbolic values."""

    # ---------------------------------------------------------------- types

    def type(self, v: Value) -> Type:
        """The type of a value.

        Raises:
            Refused: if it has none yet.
        """
        if isinstance(v, Nothing | Empty):
            raise Refused("it is not evident here of which type this empty value is")
        return v.type

    def plain(self, v: Value) -> Value:
        """Where an `X | None` is used as an X: it needs to be one."""
        if isinstance(v, Option):
            self.need(neg(v.none))
            return v.some
        return v

    def key_term(self, v: Value, ty: Type) -> Term:
        """The term of a number, a key or an element of this type."""
        return expect(Scalar, self.coerce(self.plain(v), ty), "what is to be a single term is none").term

    def int_term(self, v: Value) -> Term:
        """The term of a number."""
        return self.key_term(v, IntType())

    def a_map(self, v: Value) -> Map:
        """A mapping."""
        return expect(Map, v, "what is used as a mapping is none")

    def a_tuple(self, v: Value) -> Tuple:
        """A tuple of any length."""
        return expect(Tuple, v, "what is used as a tuple is none")

    def as_bool(self, v: Value) -> Term:
        """The truth of a value: of a tuple or a set, whether it is not empty."""
        match v:
            case Set():
                return self.inhabited(v)
            case Tuple():
                return T.less(T.integer(0), v.length)
            case Scalar(BoolType()):
                return v.term
        raise Refused("the truth of what is neither bool, tuple nor set")

    def coerce(self, v: Value, ty: Type) -> Value:
        """The value where a value of this type is expected.

        Raises:
            Refused: if it is of another type.
        """
        match v, ty:
            case Empty(), TupleType(item):
                if is_sequence(ty):
                    return self.scalar(ty, sequences(ty).empty)
                return Tuple(ty, T.integer(0), lambda i: self.no_value(item, i), lambda x: FALSE)
            case Empty(), SetType():
                return Set(ty, lambda k: FALSE, FALSE)
            case Empty(), MapType(_, value):
                return Map(ty, lambda k: FALSE, lambda k: self.no_value(value, k))
            case Nothing(), OptionType(some):
                return Option(ty, TRUE, self.no_value(some))
            case Option(), OptionType() if v.type == ty:
                return v
            case _, OptionType(some):
                return Option(ty, FALSE, self.coerce(v, some))
            case Option(), _:
                return self.coerce(self.plain(v), ty)
            case Record(PairType()), TupleType():
                return self.concat(self.coerce(Empty(), ty), v)
            case Record(PairType(items)), PairType(wanted) if len(items) == len(wanted):
                return Record(ty, {f: self.coerce(v.fields[f], t) for f, t in field_types(ty).items()})
            case Map(), MapType(key, value) if v.type.key == key:
                return v if v.type == ty else Map(ty, v.has, lambda k: self.coerce(v.get(k), value))
            case _ if self.type(v) == ty:
                return v
            case _:
                raise Refused(f"a value of type {self.type(v)} where {ty} is expected")

    def alike(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Two values, as values of one type."""
        for v, other in ((a, b), (b, a)):
            if isinstance(v, Nothing) and not isinstance(other, Option):
                ty: Type = OptionType(self.type(other))
                return self.coerce(a, ty), self.coerce(b, ty)
            if isinstance(v, Nothing | Empty) or isinstance(other, Option):
                return self.coerce(a, self.type(other)), self.coerce(b, self.type(other))
        return a, self.coerce(b, self.type(a))

    # ---------------------------------------------------------------- choice, equality, order, membership

    def ite(self, c: Term, yes: Value, no: Value) -> Value:
        """One of two values."""
        if isinstance(yes, Nothing | Empty) and type(yes) is type(no):
            return yes
        a, b = self.alike(yes, no)
        if c in (TRUE, FALSE):
            return a if c is TRUE else b
        match a, b:
            case Scalar() | Tuple(term=Term()), Scalar(term=y) | Tuple(term=Term() as y):
                return self.scalar(a.type, ite(c, a.term or y, y))
            case Record(), Record():
                return Record(a.type, {f: self.ite(c, a.fields[f], b.fields[f]) for f in a.fields})
            case Option(), Option():
                return Option(a.type, ite(c, a.none, b.none), self.ite(c, a.some, b.some))
            case Map(), Map():
                return Map(a.type, lambda k: ite(c, a.has(k), b.has(k)), lambda k: self.ite(c, a.get(k), b.get(k)))
            case Set(), Set():
                inhabited = None
                if a.inhabited is not None or b.inhabited is not None:
                    inhabited = ite(c, self.inhabited(a), self.inhabited(b))
                return Set(a.type, lambda k: ite(c, a.has(k), b.has(k)), inhabited)
            case Tuple(), Tuple():
                return Tuple(
                    a.type,
                    ite(c, a.length, b.length),
                    lambda i: self.ite(c, a.at(i), b.at(i)),
                    lambda x: ite(c, self.contains(a, x), self.contains(b, x)),
                )
        raise Refused("a choice between values of different kinds")

    def equal(self, x: Value, y: Value) -> Term:
        """x == y."""
        if isinstance(x, Empty) and isinstance(y, Empty):
            return TRUE
        for v, other in ((x, y), (y, x)):
            if isinstance(other, Nothing) and isinstance(v, Option):
                return v.none
            if isinstance(other, Empty) and isinstance(v, Set):
                return neg(self.inhabited(v))
            if isinstance(other, Empty) and not isinstance(v, Map):
                return equal(self.length(v), T.integer(0))
        match self.alike(x, y):
            case Scalar() as a, Scalar() as b:
                return equal(a.term, b.term)
            case Record() as a, Record() as b:
                return conj(*(self.equal(a.fields[f], b.fields[f]) for f in a.fields))
            case Option() as a, Option() as b:
                return disj(conj(a.none, b.none), conj(neg(a.none), neg(b.none), self.equal(a.some, b.some)))
            case Tuple(term=Term() as g) as a, Tuple(term=Term() as h):
                return sequences(a.type).same(g, h)
            case Tuple() as a, Tuple() as b:
                i = self.fresh("i", IntType())
                same = T.implies([T.within(i, a.length)], self.equal(a.at(i), b.at(i)))
                return conj(equal(a.length, b.length), T.for_all([i], same))
            case Set() as a, Set() as b:
                k = self.fresh("k", a.type.item)
                return T.for_all([k], equal(a.has(k), b.has(k)))
            case Map() as a, Map() as b:
                k = self.fresh("k", a.type.key)
                entries = T.implies([a.has(k)], self.equal(a.get(k), b.get(k)))
                return conj(T.for_all([k], equal(a.has(k), b.has(k))), T.for_all([k], entries))
        raise Refused("a comparison of values of different kinds")

    def comparison(self, op: ast.cmpop, a: Value, b: Value) -> Term:
        """One link of a chain of comparisons."""
        match op:
            case ast.Is() | ast.IsNot() if not isinstance(a, Nothing) and not isinstance(b, Nothing):
                raise Refused("`is` compares with None, and with nothing else")
            case ast.Eq() | ast.Is():
                return self.equal(a, b)
            case ast.NotEq() | ast.IsNot():
                return neg(self.equal(a, b))
            case ast.In():
                return self.member(a, b)
            case ast.NotIn():
                return neg(self.member(a, b))
            case _:
                return ORDER[type(op)](self.int_term(a), self.int_term(b))

    def member(self, x: Value, of: Value) -> Term:
        """x in a mapping, a set or a tuple. None is in none of them."""
        if isinstance(x, Option):
            return conj(neg(x.none), self.member(x.some, of))
        match of:
            case Map():
                return of.has(self.key_term(x, of.type.key))
            case Set() | Tuple() if of.has is not None:
                return of.has(self.key_term(x, of.type.item))
        i, elements = self.fresh("i", IntType()), self.a_tuple(of)
        return T.exists([i], conj(T.within(i, elements.length), self.equal(x, elements.at(i))))

    def contains(self, t: Tuple, x: Term) -> Term:
        """Whether an element is in a tuple."""
        return self.member(self.scalar(t.type.item, x), t)

    def inhabited(self, s: Set) -> Term:
        """Whether the set has an element."""
        if s.inhabited is not None:
            return s.inhabited
        k = self.fresh("k", s.type.item)
        return T.exists([k], s.has(k))

    # ---------------------------------------------------------------- tuples

    def length(self, v: Value) -> Term:
        """len, of a tuple or a set."""
        match v:
            case Empty():
                return T.integer(0)
            case Set():
                sets = theory.FiniteSets(sort_of(v.type.item))
                return sets.card(self.set_term(v, sets))
            case _:
                return self.a_tuple(v).length

    def slice(self, t: Tuple, lo: Term, hi: Term) -> Value:
        """t[lo:hi], within range."""
        if t.term is not None:
            return self.scalar(t.type, sequences(t.type).slice(t.term, lo, hi))
        return Tuple(t.type, T.minus(hi, lo), lambda i: t.at(T.plus(lo, i)))

    def append(self, v: Value, x: Value) -> Value:
        """v + (x,)."""
        t = self.a_tuple(v)
        if t.term is not None:
            return self.scalar(t.type, sequences(t.type).append(t.term, self.key_term(x, t.type.item)))
        new = self.coerce(x, t.type.item)
        return Tuple(
            t.type,
            T.plus(t.length, T.integer(1)),
            lambda i: self.ite(equal(i, t.length), new, t.at(i)),
            lambda y: disj(self.contains(t, y), self.equal(self.scalar(t.type.item, y), new)),
        )

    def concat(self, v: Value, more: Value) -> Value:
        """v + more, a tuple."""
        if isinstance(more, Record):
            return reduce(self.append, more.fields.values(), v)
        a, b = self.a_tuple(v), self.a_tuple(self.coerce(more, self.type(v)))
        if a.term is not None and b.term is not None:
            return self.scalar(a.type, sequences(a.type).concat(a.term, b.term))
        return Tuple(
            a.type,
            T.plus(a.length, b.length),
            lambda i: self.ite(T.less(i, a.length), a.at(i), b.at(T.minus(i, a.length))),
            lambda x: disj(self.contains(a, x), self.contains(b, x)),
        )

    # ---------------------------------------------------------------- arithmetic, sets, mappings

    def binary(self, op: ast.operator, a: Value, b: Value) -> Value:
        """Arithmetic, concatenation, and operations on sets."""
        if isinstance(a, Set):
            return self.set_operation(op, a, expect(Set, self.coerce(b, a.type), "what is used as a set is none"))
        if isinstance(op, ast.Add) and isinstance(a, Tuple | Empty):
            return self.concat(a, b)
        return integer_value(self.arithmetic(op, self.int_term(a), self.int_term(b)))

    def arithmetic(self, op: ast.operator, x: Term, y: Term) -> Term:
        """Operations on numbers; products and quotients of two unknown ones are those of `theory`."""
        if isinstance(op, ast.FloorDiv | ast.Mod):
            self.need(T.less(T.integer(0), y))
        known = T.is_number(y) or (isinstance(op, ast.Mult) and T.is_number(x))
        table = LINEAR if known or type(op) not in UNKNOWN else UNKNOWN
        if type(op) not in table:
            raise Refused("this operator is outside the subset")
        return table[type(op)](x, y)

    def set_operation(self, op: ast.operator, a: Set, b: Set) -> Set:
        """Union, intersection, difference."""
        if type(op) not in OF_SETS:
            raise Refused("this operator on sets is outside the subset")
        combined, known = OF_SETS[type(op)], isinstance(op, ast.BitOr) and TRUE in (a.inhabited, b.inhabited)
        return Set(a.type, lambda k: combined(a.has(k), b.has(k)), TRUE if known else None)

    def set(self, m: Map, key: Value, value: Value) -> Map:
        """The mapping with one entry set."""
        k, v = self.key_term(key, m.type.key), self.coerce(value, m.type.value)
        return self.overlaid(m, Map(m.type, lambda x: equal(x, k), lambda x: v))

    def overlaid(self, m: Map, new: Map) -> Map:
        """The mapping with the entries of another one set."""
        return Map(m.type, lambda x: disj(new.has(x), m.has(x)), lambda x: self.ite(new.has(x), new.get(x), m.get(x)))

    def without(self, m: Map, keys: Value) -> Map:
        """The mapping without some keys: those in a tuple, a set or another mapping."""
        return Map(m.type, lambda k: conj(m.has(k), neg(self.member(Scalar(m.type.key, k), keys))), m.get)
