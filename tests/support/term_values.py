"""Terms and symbolic values, evaluated on concrete states: what the compiler says, without a solver.

Uninterpreted functions read a concrete value, quantifiers range over a finite universe, and an operation outside its
domain gives some value of its type. Nothing here uses the classes of the compiler, only their names and fields, so that
a compiler with a fault seeded into it is evaluated as well.
"""

from __future__ import annotations

import dataclasses
import types
import typing
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Environment = dict[str, Any]
"""Names of symbols to functions; names of bound symbols to values."""

Evaluation = Callable[[Environment], Any]

OUTSIDE = (KeyError, IndexError, AttributeError, TypeError, ValueError)

NOTHING = object()


_FIELDS: dict[Any, Mapping[str, object]] = {}


def fields(cls: Any) -> Mapping[str, object]:
    """The types of a dataclass's fields."""
    if cls not in _FIELDS:
        _FIELDS[cls] = typing.get_type_hints(cls)
    return _FIELDS[cls]


def some_value(annotation: object, *key: object) -> Any:
    """Some value of a type, fixed by the key: the result of an operation outside its domain."""
    n = zlib.crc32(repr((str(annotation), key)).encode())
    if annotation is bool or annotation == "Bool":
        return bool(n % 2)
    if annotation is int or annotation == "Int":
        return n % 5 - 1
    if str(annotation).startswith("Seq_") or typing.get_origin(annotation) is tuple:
        return tuple((n >> i) % 2 for i in range(n % 4))
    return n % 3


# ---------------------------------------------------------------- terms


def evaluation(
    term: Any, universe: Mapping[str, Iterable[Any]], memo: dict[Any, Evaluation] | None = None
) -> Evaluation:
    """A term as a function of the environment."""
    memo = {} if memo is None else memo
    if term not in memo:
        memo[term] = _build(term, universe, memo)
    return memo[term]


def _build(t: Any, universe: Mapping[str, Iterable[Any]], memo: dict[Any, Evaluation]) -> Evaluation:
    if t.op in ("forall", "exists"):
        return _quantified(t, universe, memo)
    args = [evaluation(a, universe, memo) for a in t.args]
    name = t.name
    if t.op == "literal":
        value = {"true": True, "false": False}.get(name)
        number = int(name) if value is None else value
        return lambda env: number
    if t.op == "symbol":
        return _applied(name, t.sort, args)
    if t.op == "and":
        return lambda env: all(a(env) for a in args)
    if t.op == "or":
        return lambda env: any(a(env) for a in args)
    if t.op == "not":
        return lambda env: not args[0](env)
    if t.op == "=>":
        return lambda env: not args[0](env) or args[1](env)
    if t.op == "ite":
        return lambda env: args[1](env) if args[0](env) else args[2](env)
    operations: dict[str, Callable[[Any, Any], Any]] = {
        "=": lambda x, y: x == y,
        "<": lambda x, y: x < y,
        "<=": lambda x, y: x <= y,
        "+": lambda x, y: x + y,
        "-": lambda x, y: x - y,
        "*": lambda x, y: x * y,
        "div": quotient,
        "mod": remainder,
    }
    operation, (a, b) = operations[t.op], args
    return lambda env: operation(a(env), b(env))


def _applied(name: str, sort: str, args: list[Evaluation]) -> Evaluation:
    """A function's application; without an interpretation, or outside its domain, some value."""

    def apply(env: Environment) -> Any:
        found = env.get(name, NOTHING)
        if not callable(found):
            return some_value(sort, name, *[a(env) for a in args]) if found is NOTHING else found
        values = [a(env) for a in args]
        try:
            return found(*values)
        except OUTSIDE:
            return some_value(sort, name, *values)

    return apply


def quotient(x: int, y: int) -> Any:
    """x // y, or something."""
    return x // y if y > 0 else some_value(int, "div", x, y)


def remainder(x: int, y: int) -> Any:
    """x % y, or something."""
    return x % y if y > 0 else some_value(int, "mod", x, y)


def _quantified(t: Any, universe: Mapping[str, Iterable[Any]], memo: dict[Any, Evaluation]) -> Evaluation:
    """Variable by variable, each condition tested as soon as its variables have values."""
    (body,) = t.args
    universal = t.op == "forall"
    premise, conclusion = body.args if universal and body.op == "=>" else (None, body)
    if not universal:
        premise, conclusion = body, None
    conditions = [] if premise is None else list(premise.args) if premise.op == "and" else [premise]
    last = evaluation(conclusion, universe, memo) if conclusion is not None else lambda env: True
    stages: list[list[Evaluation]] = [[] for _ in t.bound]
    for condition in conditions:
        inside = _symbols(condition)
        stage = max((i for i, v in enumerate(t.bound) if v in inside), default=0)
        stages[stage].append(evaluation(condition, universe, memo))
    names = [v.name for v in t.bound]
    sorts = [v.sort for v in t.bound]

    def search(env: Environment, i: int) -> bool:
        """Whether some values satisfy the conditions, and not the conclusion of a `forall`."""
        if i == len(names):
            return not last(env) if universal else True
        for value in universe[sorts[i]]:
            env[names[i]] = value
            if all(condition(env) for condition in stages[i]) and search(env, i + 1):
                return True
        return False

    return lambda env: search(env, 0) != universal


def _symbols(term: Any) -> set[Any]:
    found, pending = set(), [term]
    while pending:
        t = pending.pop()
        if t not in found:
            found.add(t)
            pending += t.args
    return found


# ---------------------------------------------------------------- interpretations


def interpret(annotation: object, name: str, value: Callable[..., Any], env: Environment) -> None:
    """Put into env the functions that a symbolic value of this name is made of, read from a concrete value."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)

    def get(*keys: Any) -> Any:
        try:
            return value(*keys)
        except OUTSIDE:
            return some_value(annotation, name, *keys)

    def has(*keys: Any) -> bool:
        try:
            return keys[-1] in value(*keys[:-1])
        except OUTSIDE:
            return bool(some_value(bool, name, *keys))

    if dataclasses.is_dataclass(annotation):
        for field, ty in fields(annotation).items():
            interpret(ty, f"{name}.{field}", lambda *keys, f=field: getattr(value(*keys), f), env)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        env[f"{name}.has"] = has
        interpret(args[1], name, lambda *keys: value(*keys[:-1])[keys[-1]], env)
    elif origin is frozenset:
        env[f"{name}.has"] = has
    elif origin is tuple and args[1:] != (Ellipsis,):
        for i, ty in enumerate(args):
            interpret(ty, f"{name}.{i}", lambda *keys, i=i: value(*keys)[i], env)
    elif origin is tuple:

        def item(*keys: Any) -> Any:
            elements = value(*keys[:-1])
            if not 0 <= keys[-1] < len(elements):
                raise IndexError
            return elements[keys[-1]]

        def index(*keys: Any) -> int:
            elements = get(*keys[:-1])
            return elements.index(keys[-1]) if keys[-1] in elements else -1

        env[name] = get
        env[f"{name}.len"] = lambda *keys: len(get(*keys))
        env[f"{name}.in"] = lambda *keys: keys[-1] in get(*keys[:-1])
        env[f"{name}.index"] = index
        interpret(args[0], f"{name}.at", item, env)
    elif origin in (typing.Union, types.UnionType):
        some = next(a for a in args if a is not type(None))

        def content(*keys: Any) -> Any:
            found = value(*keys)
            if found is None:
                raise KeyError
            return found

        env[f"{name}.is_none"] = lambda *keys: get(*keys) is None
        interpret(some, f"{name}.some", content, env)
    else:
        env[name] = get


def theory(env: Environment, sorts: Iterable[str]) -> None:
    """Put the functions of sequences, products and finite sets into env."""
    for sort in sorts:
        env[f"len_{sort}"] = len
        env[f"at_{sort}"] = lambda h, i, s=sort: h[i] if 0 <= i < len(h) else some_value(s, h, i)
        env[f"slice_{sort}"] = lambda h, a, b: (
            tuple(h[a:b]) if 0 <= a <= b <= len(h) else some_value(tuple[int, ...], h, a, b)
        )
        env[f"append_{sort}"] = lambda h, t: (*h, t)
        env[f"concat_{sort}"] = lambda g, h: (*g, *h)
        env[f"eq_{sort}"] = lambda g, h: g == h
        env[f"empty_{sort}"] = ()
        env[f"card_{sort}"] = len
        env[f"member_{sort}"] = lambda x, s: x in s
        env[f"none_{sort}"] = "absent"
    env["times"] = lambda x, y: x * y
    env["div_by"] = quotient
    env["mod_by"] = remainder


# ---------------------------------------------------------------- values


class Reader:
    """Turns symbolic values into functions of the environment that give Python values."""

    def __init__(self, universe: Mapping[str, Iterable[Any]]):
        self.universe = universe
        self.memo: dict[Any, Evaluation] = {}
        self.contents: dict[str, Evaluation] = {}

    def term(self, term: Any) -> Evaluation:
        """A term's value."""
        return evaluation(term, self.universe, self.memo)

    def value(self, value: Any, compiler: Any) -> Evaluation:
        """A symbolic value's Python value."""
        kind = type(value).__name__
        if kind == "Scalar" or (kind == "Tuple" and value.term is not None):
            return self.term(value.term)
        if kind == "Empty":
            return lambda env: ()
        if kind == "Nothing":
            return lambda env: None
        if kind == "Record":
            parts = {f: self.value(v, compiler) for f, v in value.fields.items()}
            if type(value.type).__name__ == "PairType":
                return lambda env: tuple(part(env) for part in parts.values())
            return lambda env: value.type.cls(**{f: part(env) for f, part in parts.items()})
        if kind == "Option":
            none, some = self.term(value.none), self.value(value.some, compiler)
            return lambda env: None if none(env) else some(env)
        if kind == "Tuple":
            i = compiler.fresh("i", _int_type(compiler))
            length, at = self.term(value.length), self.value(value.at(i), compiler)
            return lambda env: tuple(at(_with(env, i.name, k)) for k in range(length(env)))
        key = compiler.fresh("key", value.type.item if kind == "Set" else value.type.key)
        has, universe = self.term(value.has(key)), self.universe
        if kind == "Set":
            return lambda env: frozenset(k for k in universe[key.sort] if has(_with(env, key.name, k)))
        get = self.value(value.get(key), compiler)
        return lambda env: {k: get(_with(env, key.name, k)) for k in universe[key.sort] if has(_with(env, key.name, k))}

    def definitions(self, compiler: Any, env: Environment) -> None:
        """Put into env what the compiler's own symbols stand for: tuples and sets that became terms.

        They depend on their parameters alone, not on what happens to be bound where they are used.
        """
        closed = dict(env)
        for name, (parameters, value) in compiler.closures.items():
            if name not in self.contents:
                self.contents[name] = self.value(value, compiler)

            def defined(*keys: Any, names: Any = parameters, content: Evaluation = self.contents[name]) -> Any:
                return content({**closed, **{p.name: key for p, key in zip(names, keys, strict=True)}})

            env[name] = closed[name] = defined


def _with(env: Environment, name: str, value: Any) -> Environment:
    env[name] = value
    return env


def _int_type(compiler: Any) -> Any:
    return compiler.parameters(_number)[0][1]


def _number(n: int) -> int:
    return n
