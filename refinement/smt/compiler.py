"""The compiler: functions of the documented subset of Python, to symbolic values.

What is evaluated is the function's own text. `Compiler.run` gives its value for symbolic arguments, and what must hold
for Python not to raise: each lookup, index, slice and division *needs* something under the conditions on its path.
`all` and `any` need this of every element, also of those after the one that decides.

The subset, construct by construct:

| construct | meaning |
| --- | --- |
| docstring, `x = e`, `return e`, `if c: ... [else: ...]` | every path ends in a `return` |
| `and`, `or`, `not`, `a if c else b`, comparisons in chains | conditions guard what follows them |
| `P_UNIT` | an integer of the function's module, as it is when it is compiled |
| `+`, `-` on `int`; `*`, `//`, `%` | of `//` and `%` the divisor is positive |
| `==`, `in`, `is None` | on all types; tuples, records and mappings by content |
| `r.f`, `C(f=e, ...)`, `replace(r, f=e, ...)` | frozen dataclasses |
| `m[k]`, `{**m, k: e}`, `{k: e for k, v in m.items() if c}` | mappings; a comprehension keeps its keys |
| `m.get(k)`, `m.set(k, e)`, `m.delete(k)`, `m.update(n)`, `without(m, ks)` | persistent maps |
| `t[i]`, `t[-1]`, `t[a:b]` within range, `t + u`, `tuple(e for i in range(n))` | tuples |
| `{e}`, `a \\| b`, `a & b`, `a - b`, `frozenset(x for x in c if b)`, `len` of the latter | sets |
| `all(...)`, `any(...)` over `range`, `enumerate`, tuples, sets, mappings and their views | quantifiers |
| `min(a, b)`, `max(a, b)`, `len(t)`, calls of other functions of the subset | inlined |

Everything else is refused, with file, line and construct: loops, recursion, lambdas, exceptions, `sum`, strings.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import partial

from vosti.refinement.smt import terms as T
from vosti.refinement.smt import theory
from vosti.refinement.smt.comprehensions import Comprehensions, Env, X
from vosti.refinement.smt.source import Function, Sources
from vosti.refinement.smt.terms import Term, conj, neg
from vosti.refinement.smt.values import (
    Empty,
    Map,
    Nothing,
    Option,
    OptionType,
    PairType,
    Record,
    RecordType,
    Refused,
    Scalar,
    Set,
    SetType,
    Type,
    Value,
    expect,
    field_types,
    integer_value,
    sort_of,
    truth_value,
)

BUILTIN = ("all", "any", "frozenset", "len", "max", "min", "tuple")
KNOWN = {
    "dataclasses.replace": "replace",
    "immutables._map.Map": "Map",
    "vosti.impl.persistent.replace": "replace",
    "vosti.impl.persistent.without": "without",
}
"""Functions whose meaning is known here, by where they are defined."""


def known(func: ast.expr, found: object) -> str | None:
    """Which of the functions known here is meant. Another of the same name is another function."""
    if found is None:
        return func.id if isinstance(func, ast.Name) and func.id in BUILTIN else None
    return KNOWN.get(f"{getattr(found, '__module__', '')}.{getattr(found, '__qualname__', '')}")


@dataclass(frozen=True)
class Compiled:
    """A function's value, and what it needs to be defined."""

    value: Value
    needs: tuple[Term, ...]

    @property
    def term(self) -> Term:
        """The value, of a function whose values are single terms.

        Raises:
            Refused: if they are not.
        """
        return expect(Scalar, self.value, f"{type(self.value).__name__} is no single term").term


class Compiler(Comprehensions):
    """Compiles functions; one for each set of obligations that share symbols.

    `replaced` puts other texts in the place of some functions, by qualified name.
    """

    def __init__(self, replaced: Mapping[str, ast.FunctionDef] | None = None):
        super().__init__()
        self.sources = Sources(replaced)
        self.stack: list[Function] = []
        self.unknown: dict[str, Function] = {}

    # ---------------------------------------------------------------- the interface of proofs

    def run(self, f: Callable[..., object], *args: Value) -> Compiled:
        """A function's value for these arguments.

        Raises:
            Refused: with file, line and construct, if the text is outside the subset.
        """
        self.needs, self.path = [], []
        value = self.call(self.sources.function(f), args)
        return Compiled(value, tuple(self.needs))

    def definition(self, f: Callable[..., object], *args: Value) -> Compiled:
        """What an opaque function says of these arguments: its application equals its body."""
        self.needs, self.path = [], []
        function = self.sources.function(f)
        body = self.call(replace(function, opaque=False), args)
        return Compiled(truth_value(self.equal(self.call(function, args), body)), tuple(self.needs))

    def parameters(self, f: Callable[..., object]) -> tuple[tuple[str, Type], ...]:
        """The names and types of a function's parameters."""
        return self.sources.function(f).parameters

    # ---------------------------------------------------------------- functions and statements

    def refuse(self, node: ast.AST, reason: str) -> Refused:
        """The error for a construct: file, line, its text, and what is wrong with it."""
        file = self.stack[-1].module.__file__ if self.stack else "?"
        return Refused(f"{file}:{getattr(node, 'lineno', '?')}: {ast.unparse(node).splitlines()[0]}: {reason}")

    def deferred(self, f: Callable[[Term], X]) -> Callable[[Term], X]:
        """f, to be evaluated later as if here; what it needs has been stated already."""
        captured = list(self.stack)

        def evaluate(term: Term) -> X:
            needs, stack = self.needs, self.stack
            self.needs, self.stack = [], list(captured)
            try:
                return f(term)
            finally:
                self.needs, self.stack = needs, stack

        return evaluate

    def call(self, function: Function, args: Sequence[Value]) -> Value:
        """A call: inlined, or an uninterpreted function's application."""
        if function in self.stack:
            raise Refused(f"{function.node.name} is recursive")
        if len(args) != len(function.parameters):
            raise Refused(f"{function.node.name} takes {len(function.parameters)} arguments, not {len(args)}")
        self.stack.append(function)  # names mean what they mean where the function is written
        try:
            values = [self.coerce(v, ty) for v, (_, ty) in zip(args, function.parameters, strict=True)]
            if function.opaque:
                taken = self.unknown.setdefault(function.node.name, function) is not function
                if taken or function.node.name in theory.PRODUCTS:
                    raise Refused(f"another unknown function is called {function.node.name}")
                parts = tuple(part for v in values for part in self.reify(v))
                return self.scalar(function.result, T.apply(function.node.name, parts, sort_of(function.result)))
            env = dict(zip((name for name, _ in function.parameters), values, strict=True))
            return self.coerce(self.block(function.node.body, env, function.node), function.result)
        finally:
            self.stack.pop()

    def block(self, body: list[ast.stmt], env: Env, owner: ast.AST) -> Value:
        """The value that a block returns."""
        for index, node in enumerate(body):
            match node:
                case ast.Expr(value=ast.Constant()):
                    continue
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    env = {**env, name: self.eval(value, env)}
                case ast.Return(value=ast.expr() as value):
                    return self.eval(value, env)
                case ast.If(test=test, body=yes, orelse=no):
                    rest = [*no, *body[index + 1 :]]
                    return self.choice(
                        test, env, partial(self.block, yes, env, node), partial(self.block, rest, env, owner)
                    )
                case _:
                    raise self.refuse(node, "this statement is outside the subset")
        raise self.refuse(owner, "may end without a return")

    def choice(self, test: ast.expr, env: Env, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        """What one of two texts gives, each under the condition that it is the one."""
        condition = self.truth(test, env)
        with self.given(condition):
            first = yes()
        with self.given(neg(condition)):
            second = no()
        return self.ite(condition, first, second)

    # ---------------------------------------------------------------- expressions

    def eval(self, node: ast.expr, env: Env) -> Value:
        """The value of an expression.

        Raises:
            Refused: with file, line and construct.
        """
        try:
            return self.expression(node, env)
        except Refused as error:
            raise error if ".py:" in str(error) else self.refuse(node, str(error)) from None

    def expression(self, node: ast.expr, env: Env) -> Value:
        """Each form of expression, by its kind."""
        match node:
            case ast.Constant(value=None):
                return Nothing()
            case ast.Constant(value=bool() as truth):
                return truth_value(T.boolean(truth))
            case ast.Constant(value=int() as n):
                return integer_value(T.integer(n))
            case ast.Name(id=name) if name in env:
                return env[name]
            case ast.Attribute(value=owner, attr=field):
                record = self.plain(self.eval(owner, env))
                if isinstance(record, Record) and field in record.fields:
                    return record.fields[field]
                raise Refused(f"what has no field {field}")
            case ast.BoolOp(op=op, values=parts):
                return truth_value(self.connected(isinstance(op, ast.And), parts, env))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return truth_value(neg(self.truth(operand, env)))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return integer_value(T.minus(T.integer(0), self.number(operand, env)))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.choice(test, env, partial(self.eval, body, env), partial(self.eval, orelse, env))
            case ast.Compare(left=left, ops=ops, comparators=rights):
                return truth_value(self.compared(left, ops, rights, env))
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, self.eval(left, env), self.eval(right, env))
            case ast.Tuple(elts=[]) | ast.Dict(keys=[]):
                return Empty()
            case ast.Tuple(elts=elements):
                items = {str(i): self.eval(e, env) for i, e in enumerate(elements)}
                return Record(PairType(tuple(map(self.type, items.values()))), items)
            case ast.Set(elts=[element]):
                only = self.eval(element, env)
                term = self.key_term(only, self.type(only))
                return Set(SetType(self.type(only)), lambda x: T.equal(x, term), T.TRUE)
            case ast.Dict(keys=[None, *keys], values=[spread, *values]):
                result = self.eval(spread, env)
                for key, value in zip(keys, values, strict=True):
                    if key is None:
                        raise Refused("one mapping, then its new entries")
                    result = self.set(self.a_map(result), self.eval(key, env), self.eval(value, env))
                return result
            case ast.DictComp():
                return self.collected(node.generators, node.key, node.value, env)
            case ast.Subscript(value=of, slice=ast.Slice(lower=lower, upper=upper, step=None)):
                whole = self.a_tuple(self.eval(of, env))
                lo = self.number(lower, env) if lower else T.integer(0)
                hi = self.number(upper, env) if upper else whole.length
                self.need(conj(T.at_most(T.integer(0), lo), T.at_most(lo, hi), T.at_most(hi, whole.length)))
                return self.slice(whole, lo, hi)
            case ast.Subscript(value=of, slice=index):
                return self.subscript(self.plain(self.eval(of, env)), index, env)
            case ast.Call(func=func, args=args, keywords=keywords):
                return self.called(func, args, keywords, env)
            case ast.Name():
                return integer_value(T.integer(self.constant(node)))
            case _:
                raise Refused(f"{type(node).__name__} is outside the subset")

    def constant(self, node: ast.Name) -> int:
        """The number that a name stands for in its module, unless the function gives it a value of its own."""
        owner, found = self.stack[-1], self.sources.resolve(self.stack[-1].module, node)
        own = {n.id for n in ast.walk(owner.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if isinstance(found, bool) or not isinstance(found, int) or node.id in own:
            raise Refused("this name is no parameter, no local name, and no number of its module")
        return found

    def compared(self, left: ast.expr, ops: list[ast.cmpop], rights: list[ast.expr], env: Env) -> Term:
        """A chain of comparisons."""
        a, found = self.eval(left, env), list[Term]()
        for op, right in zip(ops, rights, strict=True):
            with self.given(*found):
                b = self.eval(right, env)
                found.append(self.comparison(op, a, b))
            a = b
        return conj(*found)

    def subscript(self, of: Value, index: ast.expr, env: Env) -> Value:
        """m[k], t[i], t[-1]."""
        if isinstance(of, Map):
            key = self.key_term(self.eval(index, env), of.type.key)
            self.need(of.has(key))
            return of.get(key)
        if isinstance(of, Record):
            if isinstance(index, ast.Constant) and repr(index.value) in of.fields:
                return of.fields[repr(index.value)]
            raise Refused("an index of a tuple of fixed length is a number that it has")
        i, t = self.number(index, env), self.a_tuple(of)
        if isinstance(index, ast.UnaryOp):
            i = T.plus(t.length, i)
        self.need(T.within(i, t.length))
        return t.at(i)

    # ---------------------------------------------------------------- calls

    def called(self, func: ast.expr, args: list[ast.expr], keywords: list[ast.keyword], env: Env) -> Value:
        """A call of a function, a constructor, a method of a persistent map, or one of the functions known here."""
        if isinstance(func, ast.Name) and func.id in env:
            raise Refused("a function that is passed as a value")
        found = self.sources.resolve(self.stack[-1].module, func)
        if found is None and isinstance(func, ast.Attribute):
            return self.method(self.a_map(self.eval(func.value, env)), func.attr, args, env)
        name = known(func, found)
        if isinstance(found, type) and is_dataclass(found) and not args:
            return self.record(RecordType(found), {}, keywords, env)
        match name, args:
            case "replace", [old]:
                record = expect(Record, self.eval(old, env), "what is replaced in is no record")
                return self.record(expect(RecordType, record.type, "no names"), record.fields, keywords, env)
            case _ if keywords:
                raise Refused("this call is outside the subset")
            case (("all" | "any"), [ast.GeneratorExp() as comprehension]):
                return truth_value(self.quantified(name == "all", comprehension, env))
            case "tuple", [ast.GeneratorExp() as comprehension]:
                return self.tuple_of(comprehension, env)
            case "frozenset", [ast.GeneratorExp() as comprehension]:
                return self.collected(comprehension.generators, comprehension.elt, None, env)
            case None, _ if callable(found) and not isinstance(found, type):
                return self.call(self.sources.function(found), [self.eval(a, env) for a in args])
        match name, [self.eval(a, env) for a in args]:
            case (("frozenset" | "Map"), []):
                return Empty()
            case ("frozenset", [Set() as same]) | ("Map", [Map() as same]):
                return same
            case "len", [collection]:
                return integer_value(self.length(collection))
            case (("min" | "max"), [left, right]):
                a, b = self.int_term(left), self.int_term(right)
                return integer_value(T.ite(T.at_most(a, b), *((a, b) if name == "min" else (b, a))))
            case "without", [mapping, keys]:
                return self.without(self.a_map(mapping), keys)
        raise Refused("this call is outside the subset")

    def record(self, ty: RecordType, old: Mapping[str, Value], keywords: list[ast.keyword], env: Env) -> Record:
        """A record with some fields given, the others as before."""
        types, new = field_types(ty), dict(old)
        for keyword in keywords:
            name = str(keyword.arg)
            if name not in types:
                raise Refused(f"{ty.cls.__name__} has no field {name}")
            new[name] = self.coerce(self.eval(keyword.value, env), types[name])
        if len(new) != len(types):
            raise Refused(f"not all fields of {ty.cls.__name__} are given")
        return Record(ty, new)

    def method(self, m: Map, name: str, args: list[ast.expr], env: Env) -> Value:
        """The methods of persistent maps."""
        values = [self.eval(a, env) for a in args]
        match name, values:
            case "set", [key, value]:
                return self.set(m, key, value)
            case "delete", [key]:
                k = self.key_term(key, m.type.key)
                self.need(m.has(k))
                return Map(m.type, lambda x: conj(neg(T.equal(x, k)), m.has(x)), m.get)
            case "get", [key]:
                if isinstance(m.type.value, OptionType):
                    raise Refused("get, where None may also be a value")
                k = self.key_term(key, m.type.key)
                return Option(OptionType(m.type.value), neg(m.has(k)), m.get(k))
            case "update", [entries]:
                return self.overlaid(m, self.a_map(self.coerce(entries, m.type)))
        raise Refused("this method is outside the subset")
