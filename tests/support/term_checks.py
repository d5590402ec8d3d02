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
from types import ModuleType
from typing import Any

from immutables import Map

import subset_forms
from term_values import Environment, Reader, fields, interpret, theory

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
    """The value with mappings as dictionaries, whatever their class."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), [_plain(getattr(value, f.name)) for f in dataclasses.fields(value)]
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
        with eager_quantifiers((subset_forms,)):
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


# ---------------------------------------------------------------- functions of a state


Guarded = tuple[Callable[..., Any], Callable[..., Any]]
"""A guard and an effect, of the same arguments."""


class Comparison:
    """Functions of a state, compiled once and compared on many states.

    `predicates` are of the state alone. Of `transitions`, guard and effect are compared, and predicates after the
    effect; of `functions`, the value. The names are those of proposed arguments.
    """

    def __init__(
        self,
        compiler_class: Any,
        type_of: Callable[[object], Any],
        subject: type,
        opaque: Iterable[Callable[..., Any]],
        predicates: Iterable[Callable[..., Any]],
        transitions: Mapping[str, Guarded],
        functions: Mapping[str, Callable[..., Any]],
    ):
        self.subject, self.opaque = subject, tuple(opaque)
        self.universe: dict[str, Iterable[Any]] = {}
        self.compiler, self.reader = compiler_class(), Reader(self.universe)
        self.cases: list[tuple[str, Callable[..., Any], Mapping[str, object], Case]] = []
        self.goals = list(self.cases)
        state = self.compiler.symbolic(type_of(subject), "s")
        for predicate in predicates:
            self.cases.append((predicate.__name__, predicate, {}, self.case(predicate, state)))
        for name, (guard, effect) in transitions.items():
            functions = {**functions, f"{name} guard": guard, f"{name} effect": effect}
            types = arguments_of(guard)
            values = [self.compiler.symbolic(type_of(ty), argument) for argument, ty in types.items()]
            after = self.compiler.run(effect, state, *values)
            for predicate in predicates:
                compiled = self.compiler.run(predicate, after.value)
                both = dataclasses.replace(compiled, needs=(*after.needs, *compiled.needs))
                case = Case(f"{predicate.__name__} after {name}", both, self.compiler, self.reader)
                self.goals.append((name, composed(predicate, effect), types, case))
        for name, f in functions.items():
            types = arguments_of(f)
            values = [self.compiler.symbolic(type_of(ty), argument) for argument, ty in types.items()]
            self.cases.append((name.split()[0], f, types, self.case(f, state, *values)))

    def case(self, f: Callable[..., Any], *values: Any) -> Case:
        """One function to be compared."""
        return Case(f.__name__, self.compiler.run(f, *values), self.compiler, self.reader)

    def disagreements(
        self,
        state: Any,
        proposed: Mapping[str, tuple[Any, ...]],
        draw: Samples,
        universe: Mapping[str, Iterable[Any]],
        goals: int,
    ) -> list[str]:
        """What Python and the translation say differently of a state, for the proposed arguments or for others."""
        found = []
        base = environment({"s": (self.subject, state)}, self.opaque, universe)
        for name, python, types, case in [*self.cases, *draw.rng.sample(self.goals, goals)]:
            if name in proposed and draw.rng.random() < 0.7:
                values = dict(zip(types, proposed[name], strict=True))
            else:
                values = {argument: draw.value(ty) for argument, ty in types.items()}
            self.universe.update(universe)
            for argument, ty in types.items():
                for sort, atom in atoms_in(ty, values[argument]):
                    if sort in universe and atom not in self.universe[sort]:
                        self.universe[sort] = (*self.universe[sort], atom)
            env = {**base, **environment({a: (ty, values[a]) for a, ty in types.items()}, (), ())}
            difference = case.disagreement(sample(python, {"s": state, **values}, env))
            if difference:
                found.append(difference)
        return found


def atoms_in(annotation: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """Identifiers and other atoms of which an argument is made, each with its sort."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if isinstance(annotation, typing.NewType):
        yield annotation.__name__, value
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        for key in value:
            yield from atoms_in(args[0], key)
    elif origin in (tuple, frozenset) and args[1:] in ((), (Ellipsis,)):
        for element in value:
            yield from atoms_in(args[0], element)


def arguments_of(f: Callable[..., Any]) -> dict[str, object]:
    """The types of the parameters after the state."""
    return dict(list(hints(f).items())[1:])


def composed(outer: Callable[..., Any], inner: Callable[..., Any]) -> Callable[..., Any]:
    """outer ∘ inner."""
    return lambda *args: outer(strict(inner(*args)))


@contextmanager
def eager_quantifiers(modules: Iterable[ModuleType]) -> Iterator[None]:
    """While this lasts, `all` and `any` in these modules look at every element, as definedness asks."""
    for module in modules:
        vars(module)["all"] = lambda xs: builtins.all(list(xs))
        vars(module)["any"] = lambda xs: builtins.any(list(xs))
    try:
        yield
    finally:
        for module in modules:
            del vars(module)["all"], vars(module)["any"]


def with_one_field(record: Any, draw: Samples) -> Any:
    """A record with one field replaced by something of its type."""
    name, ty = draw.rng.choice(list(fields(type(record)).items()))
    return dataclasses.replace(record, **{name: draw.value(ty)})
