"""Streams of events for the tests of the refinement checker: made, checked, written, and edited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TypeVar

from event_walk import EventWalk, Habits
from event_worlds import HashWorld, World
from vosti.refinement.checker import Checker
from vosti.refinement.entries import Header
from vosti.refinement.violation import Refuted, Violation
from vosti.refinement.writer import TraceWriter
from vosti.spec.events import Event, PlanEvent, SettleEvent
from vosti.spec.state import RequestId, State
from vosti.spec.step import Action, effect

AnyEvent = TypeVar("AnyEvent", bound=Event)


@dataclass(frozen=True)
class Stream:
    """A run: its header and its events."""

    header: Header
    events: tuple[Event, ...]

    def violation(self, every: int = 64) -> Violation | None:
        """What a checker finds."""
        checker = Checker(self.header, every=every)
        try:
            for event in self.events:
                checker.feed(event)
            checker.finish()
        except Refuted as refuted:
            return refuted.violation
        return None

    @cached_property
    def states(self) -> tuple[State, ...]:
        """The state before each event. Needs a valid stream."""
        checker = Checker(self.header)
        states = []
        for event in self.events:
            states.append(checker.state)
            checker.feed(event)
        return tuple(states)

    def write(self, path: Path) -> str:
        """Write a trace; its head."""
        with TraceWriter(path, self.header) as writer:
            for event in self.events:
                writer.record(event)
        return writer.head

    def with_events(self, events: Iterable[Event]) -> Stream:
        """The same run with other events."""
        return replace(self, events=tuple(events))

    def with_event(self, i: int, *instead: Event) -> Stream:
        """The same run with other events in place of one."""
        return self.with_events((*self.events[:i], *instead, *self.events[i + 1 :]))


@lru_cache(maxsize=256)
def stream(seed: int, steps: int = 30, habits: Habits | None = None, world: World | None = None) -> Stream:
    """A valid stream."""
    walk = EventWalk(seed, habits or Habits(), world or HashWorld())
    return Stream(walk.header, tuple(walk.events(steps)))


OTHER = "0" * 32
"""A digest of nothing."""

NOBODY = RequestId("nobody")

Edit = Callable[[Stream], Stream | None]
"""Changes a stream in the first suitable place; None if there is none."""


@dataclass(frozen=True)
class Fault:
    """An edit, and the check that finds it."""

    name: str
    check: str
    edit: Edit


def at_event(kind: type[AnyEvent], change: Callable[[AnyEvent, State], Event | Sequence[Event] | None]) -> Edit:
    """Change the first event of a kind for which `change(event, state before)` has something to offer."""

    def edit(s: Stream) -> Stream | None:
        for i, (event, state) in enumerate(zip(s.events, s.states, strict=True)):
            if isinstance(event, kind):
                new = change(event, state)
                if new is not None:
                    return s.with_event(i, *(new if isinstance(new, Sequence) else (new,)))
        return None

    return edit


def at_action(kind: type[Action] | tuple[type[Action], ...], change: Callable[..., Sequence[Action] | None]) -> Edit:
    """Put other actions in place of the first one for which `change(action, state before)` has something to offer."""

    def edit(s: Stream) -> Stream | None:
        for i, (event, state) in enumerate(zip(s.events, s.states, strict=True)):
            if isinstance(event, PlanEvent | SettleEvent):
                for j, action in enumerate(event.actions):
                    new = change(action, state) if isinstance(action, kind) else None
                    if new is not None:
                        actions = (*event.actions[:j], *new, *event.actions[j + 1 :])
                        return s.with_event(i, replace(event, actions=actions))
                    state = effect(state, action)
        return None

    return edit
