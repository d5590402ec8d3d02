"""Whether the compiler says of a function what Python does: value for value, and where Python raises."""

from __future__ import annotations

import builtins
import dataclasses
import inspect
import random
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from immutables import Map

import subset_forms
from spec_walk import SAMPLERS, proposal, walk
from term_values import Environment, Reader, fields, interpret, theory
from vosti.spec import actions, invariants, reference, state, step
from vosti.spec.invariants import CONJUNCTS, invariant
from vosti.spec.reference import (
    NON_FINITE,
    canonical_kv,
    finite_kv,
    finite_logits,
    forward,
    next_sampler,
    sampled_token,
    unspecified_kv,
    unspecified_logits,
)
from vosti.spec.state import PageId, RequestId, State, initial, sequence
from vosti.spec.step import RULES

RAISES = (KeyError, IndexError, ZeroDivisionError, AttributeError, TypeError)


class Strict(tuple[Any, ...]):
    """A tuple that also refuses what the compiler calls undefined: slices out of range, indices below 0."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            lo, hi = key.start or 0, len(self) if key.stop is None else key.stop
            if not 0 <= lo <= hi <= len(self):
                raise IndexError("slice out of range")
            return Strict(tuple.__getitem__(self, key))
        if key < -1:
            raise IndexError("index below 0")
        if key == -1:
            # Python allows it in t[-1] and in t[i]; the compiler, in t[-1] alone.
            wraps.append(True)
        return tuple.__getitem__(self, key)

    def __add__(self, other: Any) -> Strict:
        return Strict(tuple.__add__(self, other))


wraps: list[bool] = []


def strict(value: Any) -> Any:
    """The value with strict tuples throughout."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: strict(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    if isinstance(value, Map):
        return Map({k: strict(v) for k, v in value.items()})
    if isinstance(value, dict):
        return {k: strict(v) for k, v in value.items()}
    return Strict(map(strict, value)) if type(value) is tuple else value


@dataclass(frozen=True)
class Sample:
    """Arguments of a function, and what Python makes of them."""

    arguments: Mapping[str, Any]
    env: Environment
    raised: str | None
    value: Any
    wrapped: bool
    """Whether an index of -1 was used: where it is computed, the compiler calls it undefined, and Python does not."""


def sample(python: Callable[..., Any], arguments: Mapping[str, Any], env: Environment) -> Sample:
    """Run Python on some arguments."""
    wraps.clear()
    try:
        value = python(*map(strict, arguments.values()))
    except RAISES as error:
        return Sample(arguments, env, repr(error), None, bool(wraps))
    return Sample(arguments, env, None, value, bool(wraps))


class Case:
    """A compiled function, to be compared with Python."""

    def __init__(self, name: str, compiled: Any, compiler: Any, reader: Reader):
        self.name, self.compiler, self.reader = name, compiler, reader
        self.value = reader.value(compiled.value, compiler)
        self.needs = [reader.term(need) for need in compiled.needs]

    def disagreement(self, sample: Sample) -> str | None:
        """What Python and the compiled function say differently, or None."""
        env = dict(sample.env)
        self.reader.definitions(self.compiler, env)
        call = f"{self.name}{tuple(sample.arguments.values())}"
        defined = all(need(env) for need in self.needs)
        if sample.raised is not None:
            return f"{call} raises {sample.raised}, and is said to be defined" if defined else None
        if not defined:
            return None if sample.wrapped else f"{call} is {sample.value}, and is said to be undefined"
        found = self.value(env)
        if _plain(found) != _plain(sample.value):
            return f"{call} is {sample.value}, and is said to be {found}"
        return None


def _plain(value: Any) -> Any:
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, Map | dict) else value


@cache
def hints(f: Callable[..., Any]) -> dict[str, object]:
    """The types of a function's parameters."""
    found = typing.get_type_hints(f)
    return {name: found[name] for name in inspect.signature(f).parameters}


def environment(
    arguments: Mapping[str, tuple[object, Any]], opaque: Iterable[Callable[..., Any]], sorts: Iterable[str]
) -> Environment:
    """The interpretation of everything that a function's translation may mention."""
    env: Environment = {}
    theory(env, sorts)
    env |= {f.__name__: with_options(f) for f in opaque}
    for name, (annotation, value) in arguments.items():
        interpret(annotation, name, lambda value=value: value, env)
    return env


def with_options(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function, where each `X | None` is two arguments: whether it is None, and what it is."""
    optional = [type(None) in typing.get_args(ty) for ty in hints(f).values()]

    def call(*parts: Any) -> Any:
        rest, values = iter(parts), []
        for is_optional in optional:
            value = next(rest)
            values.append((None if value else next(rest)) if is_optional and not value else value)
            if is_optional and value:
                next(rest)
                values[-1] = None
        return f(*values)

    return call


class Samples:
    """Small random values of any type of the subset."""

    def __init__(self, rng: random.Random, atoms: Mapping[str, tuple[Any, ...]]):
        self.rng, self.atoms = rng, atoms

    def value(self, annotation: Any) -> Any:
        """Some value of a type."""
        origin, args, rng = typing.get_origin(annotation), typing.get_args(annotation), self.rng
        if annotation is bool:
            return rng.random() < 0.5
        if annotation is int:
            return rng.randrange(-1, 4)
        if isinstance(annotation, typing.NewType):
            return rng.choice(self.atoms[annotation.__name__])
        if dataclasses.is_dataclass(annotation):
            types = fields(annotation)
            return annotation(**{name: self.value(ty) for name, ty in types.items()})  # type: ignore[operator]
        if origin is tuple and args[1:] == (Ellipsis,):
            return tuple(self.value(args[0]) for _ in range(rng.randrange(5)))
        if origin is tuple:
            return tuple(map(self.value, args))
        if origin is frozenset:
            return frozenset(self.value(args[0]) for _ in range(rng.randrange(3)))
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return Map({self.value(args[0]): self.value(args[1]) for _ in range(rng.randrange(4))})
        some = next(a for a in args if a is not type(None))
        return None if rng.random() < 0.4 else self.value(some)


FORM_ATOMS = {"Name": ("a", "b", "c"), "Token": (0, 1), "Mark": (0, 1, 2)}
FORM_UNIVERSE = {**FORM_ATOMS, "Int": range(-3, 8)}


@cache
def form_samples(f: Callable[..., Any], count: int) -> tuple[Sample, ...]:
    """Random arguments of a form of the subset, the same each time."""
    draw, types = Samples(random.Random(f.__name__), FORM_ATOMS), hints(f)
    found = []
    for _ in range(count):
        arguments = {name: draw.value(ty) for name, ty in types.items()}
        typed = {name: (ty, arguments[name]) for name, ty in types.items()}
        found.append(sample(f, arguments, environment(typed, [subset_forms.unknown], FORM_UNIVERSE)))
    return tuple(found)


def form_disagreement(
    compiler_class: Any, type_of: Callable[[object], Any], f: Callable[..., Any], count: int
) -> str | None:
    """A form of the subset, compared with Python on random arguments."""
    compiler, reader = compiler_class(), Reader(FORM_UNIVERSE)
    values = [compiler.symbolic(type_of(ty), name) for name, ty in hints(f).items()]
    case = Case(f.__name__, compiler.run(f, *values), compiler, reader)
    return next(filter(None, map(case.disagreement, form_samples(f, count))), None)


# ---------------------------------------------------------------- the specification's own functions


Compared = tuple[type | None, Callable[..., Any], Case]
"""A function, as Python and compiled, and of which action it is."""


class SpecCases:
    """Guards, effects, conjuncts of Inv, and conjuncts after effects: compiled once, compared on many states."""

    def __init__(self, compiler_class: Any, type_of: Callable[[object], Any]):
        self.universe: dict[str, Iterable[Any]] = {}
        self.compiler, self.reader = compiler_class(), Reader(self.universe)
        s = self.compiler.symbolic(type_of(State), "s")
        self.cases: list[Compared] = []
        self.goals: list[Compared] = []
        for conjunct in CONJUNCTS:
            compiled = self.compiler.run(conjunct.whole, s)
            self.add(self.cases, None, conjunct.name, conjunct.whole, compiled)
        for kind, rule in RULES.items():
            values = [self.compiler.symbolic(type_of(ty), name) for name, ty in list(hints(rule.guard).items())[1:]]
            for f in (rule.guard, rule.effect):
                self.add(self.cases, kind, f.__name__, f, self.compiler.run(f, s, *values))
            after = self.compiler.run(rule.effect, s, *values)
            for conjunct in CONJUNCTS:
                compiled = self.compiler.run(conjunct.whole, after.value)
                both = dataclasses.replace(compiled, needs=(*after.needs, *compiled.needs))
                name = f"{conjunct.name} after {rule.effect.__name__}"
                self.add(self.goals, kind, name, composed(conjunct.whole, rule.effect), both)

    def add(self, to: list[Compared], kind: type | None, name: str, python: Callable[..., Any], compiled: Any) -> None:
        """One function to be compared."""
        to.append((kind, python, Case(name, compiled, self.compiler, self.reader)))

    def disagreements(self, s: State, rng: random.Random, goals: int) -> Iterator[str]:
        """What Python and the translation say differently of a state, for some arguments of every action."""
        draw = Samples(rng, atoms_of(s))
        proposed = {type(a): a for a in (proposal(s, rng) for _ in range(30))} if well_formed(s) else {}
        known = universe_of(s)
        base = environment({"s": (State, s)}, OPAQUE, known)
        for kind, python, case in [*self.cases, *rng.sample(self.goals, goals)]:
            types = {} if kind is None else dict(list(hints(RULES[kind].guard).items())[1:])
            if kind in proposed and rng.random() < 0.7:
                values = dict(zip(types, step.arguments(proposed[kind]), strict=True))
            else:
                values = {name: draw.value(ty) for name, ty in types.items()}
            named = {value for name, value in values.items() if types[name] is RequestId}
            self.universe.update(known, RequestId=(*known["RequestId"], *named.difference(known["RequestId"])))
            env = {**base, **environment({name: (ty, values[name]) for name, ty in types.items()}, (), ())}
            difference = case.disagreement(sample(python, {"s": s, **values}, env))
            if difference:
                yield difference


def composed(outer: Callable[..., Any], inner: Callable[..., Any]) -> Callable[..., Any]:
    """outer ∘ inner."""
    return lambda *args: outer(strict(inner(*args)))


OPAQUE = (
    canonical_kv,
    forward,
    finite_kv,
    finite_logits,
    sampled_token,
    next_sampler,
    unspecified_kv,
    unspecified_logits,
)


def well_formed(s: State) -> bool:
    """Whether a walk can go on from a state."""
    return bool(s.capacity) and invariant(s)


def atoms_of(s: State) -> dict[str, tuple[Any, ...]]:
    """Identifiers and values to draw arguments from: the state's own, and others."""
    prefixes = [(), (0,), (0, 0), (0, 1), (0, 0, 0), (0, 0, NON_FINITE)]
    return {
        "RequestId": (*s.requests, *s.requests, "nobody"),
        "PageId": (*sorted(s.pages), *range(6)),
        "Token": (0, 0, 1, 2, NON_FINITE),
        "Domain": ("a", "b"),
        "Sampler": SAMPLERS,
        "Value": tuple(canonical_kv(typing.cast(Any, p)) for p in prefixes),
        "Logits": tuple(forward(typing.cast(Any, p)) for p in prefixes),
    }


def universe_of(s: State) -> dict[str, Iterable[Any]]:
    """What quantifiers range over in a state."""
    holders = {r for page in s.pages.values() for r in page.holders}
    longest = max([len(sequence(r)) for r in s.requests.values()] + [len(r.table) for r in s.requests.values()] + [4])
    atoms = {name: tuple(dict.fromkeys(values)) for name, values in atoms_of(s).items()}
    return {
        **atoms,
        "RequestId": tuple({*s.requests, *s.seen, *holders, "nobody"}),
        "PageId": tuple({*range(6), *s.pages, *s.capacity}),
        "Int": range(-2, longest + 3),
    }


def corrupted(s: State, rng: random.Random) -> State:
    """The state with one field of one record replaced by something of its type."""
    draw = Samples(rng, atoms_of(s))
    choice = rng.random()
    if s.requests and choice < 0.45:
        r = rng.choice(sorted(s.requests))
        request = with_one_field(s.requests[r], draw, rng)
        return dataclasses.replace(s, requests={**s.requests, r: request})
    if s.pages and choice < 0.9:
        p = rng.choice(sorted(s.pages))
        if rng.random() < 0.2:
            return dataclasses.replace(s, pages={k: v for k, v in s.pages.items() if k != p})
        page = with_one_field(s.pages[p], draw, rng)
        return dataclasses.replace(s, pages={**s.pages, p: page})
    return dataclasses.replace(s, page_size=rng.randrange(0, 4))


def with_one_field(record: Any, draw: Samples, rng: random.Random) -> Any:
    """A record with one field replaced."""
    name, ty = rng.choice(list(fields(type(record)).items()))
    return dataclasses.replace(record, **{name: draw.value(ty)})


def some_state(rng: random.Random) -> State:
    """A state from a walk, sound two times in five, else corrupted once or more."""
    visits = list(walk(rng, rng.randrange(1, 120)))
    s = visits[-1].after if visits else initial(frozenset({PageId(0), PageId(1)}), 2)
    for _ in range(max(0, rng.randrange(-1, 4))):
        s = corrupted(s, rng)
    return s


@contextmanager
def eager_quantifiers() -> Iterator[None]:
    """While this lasts, the specification's `all` and `any` look at every element, as definedness asks."""
    modules = (actions, invariants, reference, state, step)
    for module in modules:
        vars(module)["all"] = lambda xs: builtins.all(list(xs))
        vars(module)["any"] = lambda xs: builtins.any(list(xs))
    try:
        yield
    finally:
        for module in modules:
            del vars(module)["all"], vars(module)["any"]


def state_disagreements(cases: SpecCases, rng: random.Random, goals: int) -> list[str]:
    """The specification's functions, compared with Python on a random state."""
    s = some_state(rng)
    with eager_quantifiers():
        return list(cases.disagreements(s, rng, goals))
