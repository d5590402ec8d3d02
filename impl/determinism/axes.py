"""What the extended axes are made of: an axis, what it needs of an engine, and the common shape of its cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from vosti.impl.determinism.cases import Bench, Case, Pair, pairs, tokens_of
from vosti.impl.determinism.prompts import Geometry, random_prompt
from vosti.impl.determinism.protocol import Ability, Answer, Ask, Settings, Subject


@dataclass(frozen=True)
class Stage:
    """What an axis builds its cases for."""

    subject: Subject
    geometry: Geometry
    quick: bool
    """Whether a small part of the axis will do."""

    @property
    def page(self) -> int:
        """Slots of a page."""
        return self.geometry.page_size

    def prompt(self, length: int, offset: int) -> tuple[int, ...]:
        """Random tokens; each axis takes offsets of its own."""
        return random_prompt(self.subject.vocabulary, length, offset)

    def settings(self, *, pages: int = 768, page_size: int | None = None, token_budget: int | None = None) -> Settings:
        """Settings without prefix cache, and with room for all."""
        return Settings(
            token_budget=token_budget or max(256, self.geometry.token_budget),
            max_seqs=32,
            page_size=page_size or self.page,
            pages=pages,
        )

    def some(self, full: Sequence[int], quick: Sequence[int]) -> Sequence[int]:
        """The one or the other, by how much is wanted."""
        return quick if self.quick else full


Witness = Callable[[Ask, Answer], str | None]
"""Why an answer is not what the axis is about, if so."""


@dataclass(frozen=True)
class Axis:
    """A way in which schedules may differ."""

    name: str
    about: str
    """In a sentence: what differs."""

    build: Callable[[Stage], Iterator[Case]]
    needs: frozenset[Ability] = frozenset()
    variant: str | None = None
    """The subject's `variants` that the axis tries, if it does."""

    def missing(self, subject: Subject) -> str | None:
        """Why the subject has no means to run it, if so."""
        absent = sorted(ability.value for ability in self.needs - subject.abilities)
        if absent:
            return f"the engine does not offer {', '.join(absent)}"
        if self.variant is not None and not subject.variants.get(self.variant):
            return f"the engine has no variants of {self.variant} here"
        return None


@dataclass(frozen=True)
class Scenario:
    """Calls to one engine; what they yield is compared with a cold engine's answers."""

    axis: str
    name: str
    settings: Settings
    calls: tuple[tuple[Ask, ...], ...]
    compared: frozenset[str] = field(default=frozenset())
    """Names of the requests that count; all if empty."""

    required: frozenset[str] = frozenset()
    """Of these words for what differed, each pair must have one."""

    witness: Witness = lambda ask, answer: None

    @property
    def asks(self) -> tuple[Ask, ...]:
        """The requests that count."""
        every = (ask for call in self.calls for ask in call)
        return tuple(ask for ask in every if not self.compared or ask.name in self.compared)

    def pairs(self, bench: Bench) -> Iterator[Pair]:
        """Serve, and compare every row."""
        served = bench.serve(self.settings, *self.calls)
        answers = {
            ask.name: answer
            for call, got in zip(self.calls, served, strict=True)
            for ask, answer in zip(call, got, strict=True)
        }
        for ask, reference in zip(self.asks, bench.references(self.asks), strict=True):
            answer = answers[ask.name]
            yield from self.judged(pairs(f"{self.axis}/{self.name}", ask, answer, reference, self.witness(ask, answer)))

    def judged(self, found: Iterable[Pair]) -> Iterator[Pair]:
        """The pairs, invalid where none of what is required differed."""
        for pair in found:
            lacking = self.required and not self.required & set(pair.differs) and pair.invalid is None
            reason = f"the schedules did not differ in {' or '.join(sorted(self.required))}"
            yield replace(pair, invalid=reason) if lacking else pair


def case(name: str, scenarios: Sequence[Scenario]) -> Case:
    """A case of some scenarios of one axis."""

    def run(bench: Bench) -> Iterator[Pair]:
        for scenario in scenarios:
            yield from scenario.pairs(bench)

    axis = scenarios[0].axis
    cost = sum(tokens_of(*scenario.calls, scenario.asks) for scenario in scenarios)
    count = sum(ask.max_tokens for scenario in scenarios for ask in scenario.asks)
    return Case(axis, f"{axis}/{name}", cost, count, run)
