"""Questions to the solver: whether a condition follows from others, for all values of the symbols.

A query states, beside its own conditions, what is known of everything that it mentions: the range of each symbol and of
each element of an integer buffer, the facts that were given for symbols, and the contract's premises on the elements,
instantiated. No query has a quantifier. What the solver cannot prove is not so: *gave up* counts as no.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.integers import (
    FALSE,
    TRUE,
    Atom,
    Cond,
    Int,
    Memo,
    alone,
    equal,
    fixed,
    integer,
    neg,
    rewritten,
    symbol,
    the_symbol,
)
from vosti.kernels.verifier.scripts import Scripts
from vosti.refinement.smt.solve import Answer, Refuter

LIMIT = 2_000_000
"""What Z3 may use for one obligation, in its own unit."""

FEW = 16
"""Values of a divisor that are gone through one by one."""

GUESS = 300_000
"""What it may use to decide a condition in passing, where "no" costs a case distinction and no proof."""

GLANCE = 10_000
"""What it may use to find out that an answer does not depend on such a divisor; else its values are gone through."""

SPREAD = 7919
"""A prime: to choose values that differ."""

Instances = Callable[[Atom, Iterable[Atom]], Iterable[Cond]]
"""For an element of a buffer, and those met before in a query: what is known of it and them."""


@dataclass
class Tally:
    """What a proof took."""

    scripts: list[str] = field(default_factory=list)
    """Those that were refuted: the proof consists of them, and another solver can repeat each."""

    queries: int = 0
    seconds: float = 0.0
    """In the solver."""


class Prover:
    """Proves conditions, and keeps count."""

    def __init__(self, instances: Instances = lambda met, before: ()) -> None:
        self.tally = Tally()
        self.instances = instances
        self._refuter = Refuter()
        self._numbers = count()
        self._facts: dict[Atom | Cond, tuple[Cond, ...]] = {}
        self._scripts = Scripts()
        self._fixed: dict[tuple[Atom, int], Memo] = {}
        self._choices: dict[Int | Cond | Atom, Atom | None] = {}

    def fresh(self, name: str, low: int | None = None, high: int | None = None) -> Int:
        """A new symbol."""
        return symbol(f"{name}!{next(self._numbers)}", low, high)

    def state(self, about: Int | Cond, *facts: Cond) -> None:
        """Give facts of a symbol; they hold wherever it occurs."""
        key = the_symbol(about) if isinstance(about, Int) else about
        self._facts[key] = (*self._facts.get(key, ()), *facts)

    def ranged(self, name: str, length: Int | int) -> Int:
        """A new symbol from 0 to length − 1."""
        most = integer(length).constant
        value = self.fresh(name, 0, None if most is None else most - 1)
        if most is None:
            self.state(value, value < length)
        return value

    # ------------------------------------------------------------ what is known

    def closure(self, conditions: Iterable[Int | Cond]) -> list[Cond]:
        """What is known of all that the conditions mention, and of what that mentions, and so on."""
        seen: set[Atom | Cond] = set()
        elements: list[Atom] = []
        found: dict[Cond, None] = {}
        pending: list[Int | Cond] = list(conditions)
        while pending:
            for part in self._scripts.parts(pending.pop()):
                if part in seen:
                    continue
                seen.add(part)
                facts = list(self._facts.get(part, ()))
                if isinstance(part, Atom) and part.kind == "element":
                    facts += self.instances(part, elements)
                    elements.append(part)
                pending += [fact for fact in facts if fact not in found]
                found.update(dict.fromkeys(facts))
        return list(found)

    # ------------------------------------------------------------ questions

    def refuted(self, conditions: Iterable[Cond], limit: int) -> tuple[Answer, Instance]:
        """Whether the conditions cannot hold together; if they can, an instance in which they do."""
        given = [one for one in conditions if one is not TRUE]
        if FALSE in given:
            return Answer.PROVED, Instance({}, {})
        atom = next(filter(None, map(self._few_values, given)), None)
        if atom is None:
            return self._asked(given, limit)
        answer, instance = self._asked(given, min(limit, GLANCE))
        if answer is not Answer.GAVE_UP:
            return answer, instance
        # A divisor or factor of few values on which it depends: one case for each, and one for all others.
        value, most = alone(atom), _few(atom)
        for v in range(1, most + 1):
            memo = self._fixed.setdefault((atom, v), {})
            case = [fixed(one, atom, v, memo) for one in given]
            answer, instance = self.refuted([*case, equal(value, v)], limit)
            if answer is not Answer.PROVED:
                return answer, instance
        return self._asked([*given, (value < 1) | (value > most)], limit)

    def _asked(self, given: list[Cond], limit: int) -> tuple[Answer, Instance]:
        assumed = [one for one in (*self.closure(given), *given) if one is not TRUE]
        if FALSE in assumed:
            return Answer.PROVED, Instance({}, {})
        script, names = self._scripts.script(assumed)
        verdict, values = self._refuter.refute(script, limit)
        self.tally.queries += 1
        self.tally.seconds += verdict.seconds
        if verdict.answer is Answer.PROVED:
            self.tally.scripts.append(script)
        return verdict.answer, Instance(values, names)

    def _few_values(self, part: Int | Cond | Atom) -> Atom | None:
        """A choice that something is divided by or multiplied with, one of whose sides is a small number."""
        if part not in self._choices:
            inner: Iterable[object] = part.atoms() if isinstance(part, Int) else part.parts
            found: list[Atom] = []
            if isinstance(part, Int):
                found = [atom for monomial, _ in part.terms if len(monomial) > 1 for atom in monomial]
            elif isinstance(part, Atom) and part.kind in ("div", "mod"):
                found = list(part.parts[1].atoms())  # type: ignore[attr-defined]
            own = (atom for atom in found if _few(atom))
            below = (self._few_values(one) for one in inner if isinstance(one, Cond | Int | Atom))
            self._choices[part] = next(own, None) or next(filter(None, below), None)
        return self._choices[part]


def _few(atom: Atom) -> int:
    """Of a choice: the larger of its sides that are numbers, if it is small; or 0."""
    if atom.kind != "ite":
        return 0
    most = max((part.constant or 0 for part in atom.parts[1:] if isinstance(part, Int)), default=0)
    return most if 1 <= most <= FEW else 0


class Instance:
    """Values of symbols, as the solver gives them; it saves asking what they refute.

    A symbol that the solver did not meet has some value of its range. If that breaks a fact that was not asked about,
    something provable is not asked for, and a case is distinguished in vain: nothing is proved by an instance.
    """

    def __init__(self, values: Mapping[str, str], names: Mapping[Atom, str]) -> None:
        self.values = values
        known = ((atom, values.get(name.strip("|"), "")) for atom, name in names.items())
        self._atoms = {atom: int(value) for atom, value in known if value.lstrip("-").isdigit()}
        self._known: dict[Cond, bool | None] = {}

    def __str__(self) -> str:
        shown = {atom: value for atom, value in self._atoms.items() if atom.kind == "symbol"}
        return ", ".join(sorted(f"{atom.name.partition('!')[0]} = {value}" for atom, value in shown.items()))

    def holds(self, one: Cond) -> bool | None:
        """Whether a condition holds in it; None if the instance has no value for some part."""
        if one not in self._known:
            self._known[one] = self._holds(one)
        return self._known[one]

    def _holds(self, one: Cond) -> bool | None:
        if one.value is not None or one.kind == "symbol":
            return one.value
        if one.kind in ("and", "or"):
            parts = {self.holds(part) for part in one.parts}  # type: ignore[arg-type]
            decisive = one.kind == "or"
            return decisive if decisive in parts else None if None in parts else not decisive
        if one.kind == "not":
            inner = self.holds(one.parts[0])  # type: ignore[arg-type]
            return None if inner is None else not inner
        total = self._value(one.parts[0])  # type: ignore[arg-type]
        return None if total is None else total <= 0 if one.kind == "le" else total == 0

    def _value(self, value: Int) -> int | None:
        total = 0
        for monomial, coefficient in value.terms:
            for atom in monomial:
                known = self._atom(atom)
                if known is None:
                    return None
                coefficient *= known
            total += coefficient
        return total

    def _atom(self, atom: Atom) -> int | None:
        if atom not in self._atoms and atom.kind in ("div", "mod", "ite"):
            parts = [
                self.holds(part) if isinstance(part, Cond) else self._value(part)  # type: ignore[arg-type]
                for part in atom.parts
            ]
            if None not in parts and atom.kind == "ite":
                self._atoms[atom] = int(parts[1] if parts[0] else parts[2])  # type: ignore[arg-type]
            elif None not in parts and parts[1]:
                self._atoms[atom] = parts[0] // parts[1] if atom.kind == "div" else parts[0] % parts[1]  # type: ignore[operator]
        elif atom not in self._atoms and atom.kind == "symbol" and atom.low is not None:
            span = SPREAD if atom.high is None else atom.high - atom.low + 1
            self._atoms[atom] = atom.low + atom.number * SPREAD % span
        return self._atoms.get(atom)


class Context:
    """Conditions that are assumed, and what was decided under them."""

    def __init__(self, prover: Prover, assumed: tuple[Cond, ...] = (), parent: Context | None = None) -> None:
        self.prover = prover
        self.assumed = assumed
        self._parent = parent
        self._decided: dict[Cond, bool | None] = {}
        self._memo: Memo = {}
        self._members = {one for part in assumed for one in (part.parts if part.kind == "and" else (part,))}
        self._contradictory: bool | None = None
        self._inner: dict[tuple[Cond, ...], Context] = {}
        new = assumed if parent is None else assumed[len(parent.assumed) :]
        known = parent._instances if parent else []
        self._instances: list[Instance] = [one for one in known if all(one.holds(part) for part in new)]

    def given(self, *conditions: Cond) -> Context:
        """With further conditions."""
        new = tuple(one for one in conditions if one is not TRUE and one not in self._members)
        if not new:
            return self
        if new not in self._inner:
            self._inner[new] = Context(self.prover, (*self.assumed, *new), self)
        return self._inner[new]

    def within(self, other: Context) -> bool:
        """Whether all that the other one assumes is assumed here."""
        return set(other.assumed) <= set(self.assumed)

    @property
    def contradictory(self) -> bool:
        """Whether nothing satisfies it."""
        if self._contradictory is None:
            self._contradictory = not self._instances and self._proves(FALSE, GUESS)
        return self._contradictory

    def simplified(self, part: Int) -> Int:
        """The same number, choices resolved where their condition is among those assumed."""
        value = rewritten(part, lambda _: None, self._member, self._memo)
        assert isinstance(value, Int)
        return value

    def _member(self, one: Cond) -> Cond | None:
        if one in self._members:
            return TRUE
        return FALSE if neg(one) in self._members else None

    def decide(self, one: Cond) -> bool | None:
        """Whether it holds, or fails, for all values; None if neither was found."""
        if one not in self._decided:
            known = rewritten(one, lambda _: None, self._member, self._memo)
            assert isinstance(known, Cond)
            value = known.value
            if value is None and self._parent is not None:
                value = self._parent._decided.get(one)
            if value is None:
                value = True if self._guess(known) else False if self._guess(neg(known)) else None
            self._decided[one] = value
        return self._decided[one]

    def _guess(self, goal: Cond) -> bool:
        return not any(one.holds(goal) is False for one in self._instances) and self._proves(goal, GUESS)

    def _proves(self, goal: Cond, limit: int) -> bool:
        answer, instance = self.prover.refuted((*self.assumed, neg(goal)), limit)
        if answer is Answer.NOT_PROVED:
            self._instances.append(instance)
        return answer is Answer.PROVED

    def holds(self, goal: Cond) -> bool:
        """Whether it follows."""
        return self.decide(goal) is True

    def prove(self, goal: Cond, claim: str) -> None:
        """Show that it follows.

        Raises:
            RefusedError: with an instance in which it does not, if the solver found one.
        """
        known = rewritten(goal, lambda _: None, self._member, self._memo)
        assert isinstance(known, Cond)
        if known is TRUE or self._decided.get(goal):
            return
        answer, found = self.prover.refuted((*self.assumed, neg(known)), LIMIT)
        if answer is Answer.PROVED:
            self._decided[goal] = True
            return
        if answer is Answer.GAVE_UP:
            raise RefusedError(f"{claim}: the solver gave up.")
        raise RefusedError(f"{claim}: not so" + (f", for instance with {found}." if str(found) else "."))
