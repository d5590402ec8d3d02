"""What the operators of the subset do to symbolic values, whoever calls them."""

from __future__ import annotations

import ast

from vosti.refinement.smt import terms as T
from vosti.refinement.smt import theory
from vosti.refinement.smt.symbols import Symbols, is_sequence
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
    Pair,
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
    integer_value,
    sort_of,
)


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

    def int_term(self, v: Value) -> Term:
        """The term of a number."""
        v = self.plain(v)
        if isinstance(v, Scalar) and v.type == IntType():
            return v.term
        raise Refused("what is used as a number is none")

    def key_term(self, v: Value, ty: Type) -> Term:
        """The term of a key or an element of this type."""
        v = self.coerce(self.plain(v), ty)
        if isinstance(v, Scalar):
            return v.term
        raise Refused("keys and elements are identifiers or numbers")

    def a_map(self, v: Value) -> Map:
        """A mapping."""
        if isinstance(v, Map):
            return v
        raise Refused("what is used as a mapping is none")

    def as_bool(self, v: Value) -> Term:
        """The truth of a value: of a tuple or a set, whether it is not empty."""
        if isinstance(v, Set):
            return self.inhabited(v)
        if isinstance(v, Scalar) and v.type == BoolType():
            return v.term
        if isinstance(v, Tuple) or (isinstance(v, Scalar) and isinstance(v.type, TupleType)):
            return T.less(T.integer(0), self.length(v))
        raise Refused("the truth of what is neither bool, tuple nor set")

    def coerce(self, v: Value, ty: Type) -> Value:
        """The value where a value of this type is expected.

        Raises:
            Refused: if it is of another type.
        """
        match v, ty:
            case Empty(), TupleType(item):
                if is_sequence(ty):
                    return Scalar(ty, theory.Sequences(sort_of(item)).empty)
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
            case Pair(), TupleType():
                start = self.coerce(Empty(), ty)
                for x in v.items:
                    start = self.append(start, x)
                return start
            case Pair(), PairType(items) if len(items) == len(v.items):
                return Pair(ty, tuple(self.coerce(x, t) for x, t in zip(v.items, items, strict=True)))
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
            case Scalar(), Scalar():
                return Scalar(a.type, ite(c, a.term, b.term))
            case Record(), Record():
                return Record(a.type, {f: self.ite(c, a.fields[f], b.fields[f]) for f in a.fields})
            case Pair(), Pair():
                return Pair(a.type, tuple(self.ite(c, x, y) for x, y in zip(a.items, b.items, strict=True)))
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
                item = a.type.item
                return Tuple(
                    a.type,
                    ite(c, a.length, b.length),
                    lambda i: self.ite(c, a.at(i), b.at(i)),
                    lambda x: ite(c, self.member(Scalar(item, x), a), self.member(Scalar(item, x), b)),
                )
        raise Refused("a choice between values of different kinds")

    def equal(self, x: Value, y: Value) -> Term:
        """x == y."""
        if isinstance(x, Option) and isinstance(y, Nothing):
            return x.none
        if isinstance(y, Option) and isinstance(x, Nothing):
            return y.none
        if isinstance(x, Empty) and isinstance(y, Empty):
            return TRUE
        for v, other in ((x, y), (y, x)):
            if isinstance(other, Empty) and isinstance(v, Set):
                return neg(self.inhabited(v))
            if isinstance(other, Empty) and not isinstance(v, Map):
                return equal(self.length(v), T.integer(0))
        match self.alike(x, y):
            case Scalar() as a, Scalar() as b:
                if isinstance(a.type, TupleType):
                    return theory.Sequences(sort_of(a.type.item)).same(a.term, b.term)
                return equal(a.term, b.term)
            case Record() as a, Record() as b:
                return conj(*(self.equal(a.fields[f], b.fields[f]) for f in a.fields))
            case Pair() as a, Pair() as b:
                return conj(*(self.equal(v, w) for v, w in zip(a.items, b.items, strict=True)))
            case Option() as a, Option() as b:
                return disj(conj(a.none, b.none), conj(neg(a.none), neg(b.none), self.equal(a.some, b.some)))
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
        x, y = self.int_term(a), self.int_term(b)
        match op:
            case ast.Lt():
                return T.less(x, y)
            case ast.LtE():
                return T.at_most(x, y)
            case ast.Gt():
                return T.less(y, x)
            case _:
                return T.at_most(y, x)

    def member(self, x: Value, of: Value) -> Term:
        """x in a mapping, a set or a tuple. None is in none of them."""
        if isinstance(x, Option):
            return conj(neg(x.none), self.member(x.some, of))
        match of:
            case Map():
                return of.has(self.key_term(x, of.type.key))
            case Set():
                return of.has(self.key_term(x, of.type.item))
            case Tuple(has=has) if has is not None:
                return has(self.key_term(x, of.type.item))
        i = self.fresh("i", IntType())
        return T.exists([i], conj(T.within(i, self.length(of)), self.equal(x, self.item(of, i))))

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
            case Tuple():
                return v.length
            case Scalar(TupleType(item), term):
                return theory.Sequences(sort_of(item)).length(term)
            case Set():
                sets = theory.FiniteSets(sort_of(v.type.item))
                return sets.card(self.set_term(v, sets))
        raise Refused("the length of what is neither tuple nor set")

    def item(self, v: Value, i: Term) -> Value:
        """The element at an index within range."""
        match v:
            case Tuple():
                return v.at(i)
            case Scalar(TupleType(item), term):
                return self.scalar(item, theory.Sequences(sort_of(item)).at(term, i))
        raise Refused("an element of what is neither mapping nor tuple")

    def slice(self, v: Value, lo: Term, hi: Term) -> Value:
        """v[lo:hi], within range."""
        match v:
            case Tuple():
                return Tuple(v.type, T.minus(hi, lo), lambda i: v.at(T.plus(lo, i)))
            case Scalar(TupleType(item), term):
                return Scalar(v.type, theory.Sequences(sort_of(item)).slice(term, lo, hi))
        raise Refused("a slice of what is no tuple")

    def append(self, v: Value, x: Value) -> Value:
        """v + (x,)."""
        match v:
            case Tuple(TupleType(item)):
                new = self.coerce(x, item)
                return Tuple(
                    v.type,
                    T.plus(v.length, T.integer(1)),
                    lambda i: self.ite(equal(i, v.length), new, v.at(i)),
                    lambda y: disj(self.member(Scalar(item, y), v), self.equal(Scalar(item, y), new)),
                )
            case Scalar(TupleType(item), term):
                return Scalar(v.type, theory.Sequences(sort_of(item)).append(term, self.key_term(x, item)))
        raise Refused("+ of what is no tuple")

    def binary(self, op: ast.operator, a: Value, b: Value) -> Value:
        """Arithmetic, concatenation, and operations on sets."""
        if isinstance(a, Set):
            return self.set_operation(op, a, self.coerce(b, a.type))
        if isinstance(op, ast.Add) and isinstance(b, Pair):
            for x in b.items:
                a = self.append(a, x)
            return a
        if isinstance(op, ast.Add) and isinstance(a, Tuple) and isinstance(b, Tuple) and a.type == b.type:
            first, second, item = a, b, a.type.item
            return Tuple(
                a.type,
                T.plus(a.length, b.length),
                lambda i: self.ite(T.less(i, first.length), first.at(i), second.at(T.minus(i, first.length))),
                lambda x: disj(self.member(Scalar(item, x), first), self.member(Scalar(item, x), second)),
            )
        if isinstance(op, ast.Add) and isinstance(a, Scalar) and isinstance(a.type, TupleType):
            tail = self.coerce(b, a.type)
            assert isinstance(tail, Scalar)
            return Scalar(a.type, theory.Sequences(sort_of(a.type.item)).concat(a.term, tail.term))
        return integer_value(self.arithmetic(op, self.int_term(a), self.int_term(b)))

    def arithmetic(self, op: ast.operator, x: Term, y: Term) -> Term:
        """Operations on numbers; products and quotients of two unknown ones are those of `theory`."""
        known = T.is_number(y)
        match op:
            case ast.Add():
                return T.plus(x, y)
            case ast.Sub():
                return T.minus(x, y)
            case ast.Mult():
                return T.times(x, y) if known or T.is_number(x) else theory.MULTIPLY(x, y)
            case ast.FloorDiv():
                self.need(T.less(T.integer(0), y))
                return T.divide(x, y) if known else theory.DIVIDE(x, y)
            case ast.Mod():
                self.need(T.less(T.integer(0), y))
                return T.modulo(x, y) if known else theory.MODULO(x, y)
        raise Refused("this operator is outside the subset")

    def set_operation(self, op: ast.operator, a: Set, other: Value) -> Set:
        """Union, intersection, difference."""
        assert isinstance(other, Set)
        b = other
        match op:
            case ast.BitOr():
                known = a.inhabited is TRUE or b.inhabited is TRUE
                return Set(a.type, lambda k: disj(a.has(k), b.has(k)), TRUE if known else None)
            case ast.BitAnd():
                return Set(a.type, lambda k: conj(a.has(k), b.has(k)))
            case ast.Sub():
                return Set(a.type, lambda k: conj(a.has(k), neg(b.has(k))))
        raise Refused("this operator on sets is outside the subset")

    # ---------------------------------------------------------------- mappings

    def set(self, m: Map, key: Value, value: Value) -> Map:
        """The mapping with one entry set."""
        k, v = self.key_term(key, m.type.key), self.coerce(value, m.type.value)
        return Map(
            m.type,
            lambda x: disj(equal(x, k), m.has(x)),
            lambda x: self.ite(equal(x, k), v, m.get(x)),
        )

    def without(self, m: Map, keys: Value) -> Map:
        """The mapping without some keys: those in a tuple, a set or another mapping."""
        return Map(m.type, lambda k: conj(m.has(k), neg(self.member(Scalar(m.type.key, k), keys))), m.get)
