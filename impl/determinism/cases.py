"""A piece of a suite: one or a few engine runs, and the pairs of rows that they yield."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from vosti.impl.determinism.fresh import serve_fresh
from vosti.impl.determinism.prompts import Geometry
from vosti.impl.determinism.protocol import Answer, Ask, Settings, Subject
from vosti.impl.determinism.schedules import differences


@dataclass(frozen=True)
class Pair:
    """Two rows that must be equal: of logits, or of keys and values."""

    name: str
    """Unique within the suite."""

    request: str
    position: int
    """Of the row: of logits, they are those of the token after it."""

    left: bytes
    """Under the schedule that is tried."""

    right: bytes
    """Of the reference."""

    differs: tuple[str, ...]
    """What differed between the two schedules."""

    invalid: str | None = None
    """Why this compares nothing, if so."""

    left_token: int | None = None
    right_token: int | None = None
    """The tokens that were sampled from the rows, where sampling is compared, too."""

    same_history: bool = True
    """Whether the tokens before the row are the same in both runs; they differ only after an earlier mismatch."""

    numbers: bool = True
    """Whether the rows are float32 numbers; otherwise raw bytes."""


@dataclass(frozen=True)
class Case:
    """What is run and recorded as a whole."""

    axis: str
    name: str
    """Unique within the suite."""

    tokens: int
    """About how many tokens it computes: what it costs."""

    count: int
    """How many pairs it yields."""

    run: Callable[[Bench], Iterable[Pair]] = field(repr=False)

    def belongs_to(self, beginning: str) -> bool:
        """Whether it is of an axis, or its name begins so."""
        return beginning == self.axis or ("/" in beginning and self.name.startswith(beginning))


class Bench:
    """Opens engines for cases, and remembers references.

    A reference comes from a cold engine: no prefix cache, one request at a time, each prompt in one piece.
    """

    def __init__(self, subject: Subject, geometry: Geometry) -> None:
        self.subject = subject
        self.geometry = geometry
        self._configuration = subject.configuration()
        self._references: dict[tuple[object, ...], Answer] = {}
        self._companies: dict[tuple[Settings, tuple[Ask, ...]], list[Answer]] = {}

    def serve(self, settings: Settings, *calls: Sequence[Ask]) -> list[list[Answer]]:
        """The answers of an engine with these settings to some calls, one after the other."""
        with self.subject.open(settings) as arm:
            return [arm.serve(asks) for asks in calls]

    def serve_fresh(self, settings: Settings, asks: Sequence[Ask], *, cold: bool = False) -> list[Answer]:
        """The answers of an engine in a fresh process, perhaps with no compiled kernels.

        It takes the memory of the engine here, which has to be loaded again for what comes next.
        """
        self.subject.release()
        return serve_fresh(self.subject.fresh(), settings, asks, self._configuration, cold=cold)

    def companies(self, settings: Settings, groups: Iterable[tuple[Ask, ...]]) -> dict[tuple[Ask, ...], list[Answer]]:
        """The answers to groups of requests, each served together by an engine of its own; kept for the next time."""
        found = {}
        for group in groups:
            if (settings, group) not in self._companies:
                (self._companies[settings, group],) = self.serve(settings, group)
            found[group] = self._companies[settings, group]
        return found

    def references(self, asks: Iterable[Ask], settings: Settings | None = None) -> list[Answer]:
        """The answers of a cold engine, each request served alone; kept for the next time.

        Args:
            asks: what is asked; when it arrives, whether it is called off, and drafts do not matter.
            settings: of the engine; by default the suite's, with a budget for the longest prompt.
        """
        plain = [replace(ask, at=0, cancel_at=None, draft=None, observe=False) for ask in asks]
        cold = settings or self.geometry.settings(
            token_budget=max(self.geometry.token_budget, *(len(ask.prompt) + ask.max_tokens for ask in plain))
        )
        keys = [_key(ask, cold, chosen=settings is not None) for ask in plain]
        missing = {key: ask for key, ask in zip(keys, plain, strict=True) if key not in self._references}
        if missing:
            with self.subject.open(cold) as arm:
                for key, ask in missing.items():
                    (self._references[key],) = arm.serve([ask])
        return [self._references[key] for key in keys]


def _key(ask: Ask, settings: Settings, *, chosen: bool) -> tuple[object, ...]:
    return (ask.prompt, ask.max_tokens, ask.sampling, settings.keep_kv, settings if chosen else None)


def reason(answer: Answer, reference: Answer, index: int) -> str | None:
    """Why the rows of an output are no pair, whatever the axis: the reference is not cold, or has no such row."""
    if reference.hit_tokens:
        return f"the reference's engine found {reference.hit_tokens} tokens in a prefix cache"
    if index >= len(reference.rows):
        return f"the reference has {len(reference.rows)} rows"
    if index >= len(answer.rows):
        return f"the request ended ({answer.ended}) after {len(answer.rows)} rows"
    return None


def pairs(
    prefix: str,
    ask: Ask,
    answer: Answer,
    reference: Answer,
    invalid: str | None = None,
    *,
    rows: int | None = None,
    must_differ: bool = True,
) -> Iterator[Pair]:
    """One pair for each row of an answer.

    Args:
        prefix: begins the pairs' names.
        ask: what was asked.
        answer: of the engine under trial.
        reference: of the cold engine, to the same prompt.
        invalid: why the axis has no use for this answer, if so.
        rows: how many rows there must be; by default all that were asked for.
        must_differ: whether a pair is invalid if nothing differed between the two schedules.
    """
    for i in range(ask.max_tokens if rows is None else rows):
        missing = reason(answer, reference, i)
        differs = () if missing else differences(answer, reference, i)
        nothing = "the two schedules did not differ" if must_differ and not differs else None
        yield Pair(
            name=f"{prefix}/{ask.name}/{i}",
            request=ask.name,
            position=len(ask.prompt) - 1 + i,
            left=answer.rows[i] if i < len(answer.rows) else b"",
            right=reference.rows[i] if i < len(reference.rows) else b"",
            differs=differs,
            invalid=missing or invalid or nothing,
            left_token=answer.tokens[i] if i < len(answer.tokens) else None,
            right_token=reference.tokens[i] if i < len(reference.tokens) else None,
            same_history=answer.tokens[:i] == reference.tokens[:i],
        )


def tokens_of(*groups: Iterable[Ask]) -> int:
    """About how many tokens some requests cost."""
    return sum(len(ask.prompt) + ask.max_tokens for asks in groups for ask in asks)
