"""What differs between two schedules: the proof that a pair compares anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from vosti.impl.determinism.protocol import Answer, Piece, Schedule


def differences(left: Answer, right: Answer, index: int | None) -> tuple[str, ...]:
    """What differed between two runs of a request before a row of its logits was taken, in words.

    Args:
        left: of one run, with its index of that row among the answer's rows.
        right: of the other, likewise.
        index: which output's logits they are; None for logits of the prompt, for which both whole runs count.
    """
    return tuple(dict.fromkeys(_differences((left, index), (right, index))))


def differences_of_last(left: Answer, index: int, right: Answer) -> tuple[str, ...]:
    """The same where the reference has the row as its first output: a longer prompt instead of a longer answer."""
    return tuple(dict.fromkeys(_differences((left, index), (right, 0))))


def _differences(left: tuple[Answer, int | None], right: tuple[Answer, int | None]) -> Iterator[str]:
    a, b = left[0].schedule, right[0].schedule
    if a.process != b.process:
        yield "process"
    if a.settings.variant != b.settings.variant:
        yield "variant"
    if (left[0].hit_tokens or 0) != (right[0].hit_tokens or 0):
        yield "hits"
    if a.settings.page_size != b.settings.page_size:
        yield "page size"
    elif any(left != right for left, right in zip(a.pages or (), b.pages or (), strict=False)):
        yield "pages"  # where one table is longer, it only got further
    if a.pieces is None or b.pieces is None:
        yield from _asked(a, b)
    else:
        yield from _pieces(_before(a, left[1]), _before(b, right[1]))


def _before(schedule: Schedule, index: int | None) -> tuple[Piece, ...]:
    """The pieces up to the one that the row was taken from."""
    pieces = schedule.pieces or ()
    return pieces if index is None or index >= len(schedule.taken) else pieces[: schedule.taken[index]]


def _asked(a: Schedule, b: Schedule) -> Iterator[str]:
    """What differed in the asking, of an engine that does not show its schedules."""
    if a.asked_with != b.asked_with:
        yield "company, as asked"
    if a.settings.token_budget != b.settings.token_budget:
        yield "budget, as asked"


def _pieces(a: tuple[Piece, ...], b: tuple[Piece, ...]) -> Iterator[str]:
    cuts = [(piece.start, piece.stop) for piece in a] != [(piece.start, piece.stop) for piece in b]
    if cuts:
        yield "cuts"
    for what, value in _PROPERTIES.items():
        left, right = map(value, a), map(value, b)
        # Pieces that do not correspond are compared by what occurs in them at all.
        if (set(left) != set(right)) if cuts else (list(left) != list(right)):
            yield what


_PROPERTIES: dict[str, Callable[[Piece], object]] = {
    "company": lambda piece: piece.company,
    "packed rows": lambda piece: piece.live,
    "padding": lambda piece: piece.rows - piece.live,
    "drafts": lambda piece: piece.draft,
    "tiles": lambda piece: piece.tiles,
    "graphs": lambda piece: piece.replayed,
}
"""What a piece's forward held beside the piece, and how it ran."""


def contiguous(pieces: tuple[Piece, ...], budget: int) -> bool:
    """Whether the pieces follow each other without gap or overlap, none longer than the budget."""
    joined = all(before.stop == after.start for before, after in pairwise(pieces))
    return joined and all(piece.stop - piece.start <= budget for piece in pieces)
