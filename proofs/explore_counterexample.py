"""What an exploration finds when something is wrong, as text that says how to get there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any

from vosti.refinement.explain import explain, shown
from vosti.spec.determinism import Record
from vosti.spec.invariants import Conjunct
from vosti.spec.sampling import SamplerState
from vosti.spec.state import State
from vosti.spec.step import RULES, Action

INVARIANT = "Inv"
OUTPUT = "Theorem 4.1"
DETERMINISM = "Definition 2.1"
DEFINEDNESS = "nothing raises"
REFINEMENT = "an engine's step is a step of the specification"
PROGRESS = "progress"


@dataclass(frozen=True)
class Run:
    """A run from the state before any request, within some bounds."""

    bounds: str
    """The bounds' name."""

    start: State = field(repr=False)
    """The state before any request."""

    actions: tuple[Action, ...]

    steps: tuple[int, ...] = ()
    """Of a run of the engine: how many actions each step has. Of a run of the specification alone: ()."""

    def __str__(self) -> str:
        """The actions, one a line."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        numbered = enumerate(self.actions, start=1)
        for step, count in enumerate(self.steps):
            yield f"  step {step}:"
            yield from (f"  {number:2}. {described(action)}" for number, action in islice(numbered, count))
        yield from (f"  {number:2}. {described(action)}" for number, action in numbered)


@dataclass(frozen=True)
class Counterexample:
    """A shortest run that contradicts a theorem."""

    theorem: str
    """`INVARIANT`, `OUTPUT`, `DETERMINISM`, `DEFINEDNESS`, `REFINEMENT` or `PROGRESS`."""

    broken: str
    """What is false: the name of a conjunct, of a guard, or of a check."""

    where: str
    """Of what it is false: a request, page, block, slot, or action."""

    expected: str
    actual: str
    run: Run

    other: Run | None = None
    """Of Definition 2.1: the run that it contradicts."""

    def __str__(self) -> str:
        """The run, action by action, and what is wrong at its end."""
        lines = [f"{self.theorem}: {self.broken} is false of {self.where}", f"expected  {self.expected}"]
        lines += [f"actual    {self.actual}", f"after these actions (bounds: {self.run.bounds}):", str(self.run)]
        if self.other is not None:
            lines += [f"where these lead to something else (bounds: {self.other.bounds}):", str(self.other)]
        return "\n".join(lines)


def described(action: Action) -> str:
    """An action as a call: its name, and its arguments by name."""
    arguments = ", ".join(f"{part.name}={_argument(getattr(action, part.name))}" for part in fields(action))
    return f"{name_of(action)}({arguments})"


def name_of(action: Action) -> str:
    """An action's name."""
    return RULES[type(action)].effect.__name__


def _argument(value: object) -> str:
    match value:
        case SamplerState(seed=seed, index=index, temperature=temperature):
            return f"(temperature {temperature}, seed {seed}, index {index})"
        case Record(logits=logits, token=token):
            return f"(token {token}, {shown(logits)})"
        case _:
            return shown(value)


KINDS = {
    "state": (),
    "request": ("request",),
    "block": ("request", "block"),
    "page": ("page",),
    "slot": ("page", "slot"),
}
"""Kind of object (`vosti.spec.invariants.Conjunct.kind`) → what its parts are."""


def broken_conjunct(s: State, conjunct: Conjunct, x: tuple[Any, ...], run: Run) -> Counterexample:
    """Inv is false in s, where the run leads: `conjunct` of x."""
    named = ", ".join(f"{name} {part}" for name, part in zip(KINDS[conjunct.kind], x, strict=True))
    expected, actual = explain(conjunct.local, s, *x)
    return Counterexample(INVARIANT, conjunct.name, named or "the state", expected, actual, run)


def raised(error: Exception, name: str, where: str, run: Run) -> Counterexample:
    """Something raised an error instead of answering."""
    return Counterexample(DEFINEDNESS, name, where, "an answer", f"{type(error).__name__}: {error}", run)
