"""Tokens of a whole step, drawn together where logits lie on a GPU: a few launches, and one wait for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vosti.impl.backend import ForwardResult
from vosti.impl.persistent import replace
from vosti.impl.sampling import sample_rows
from vosti.impl.settling import LiveRecord
from vosti.spec.sampling import SamplerState


def drawn_together(
    result: ForwardResult, finite: Sequence[bool], rows: Sequence[tuple[LiveRecord, int]]
) -> Mapping[int, int]:
    """The tokens of the rows of logits that one may be drawn from, by number, as far as they are found together.

    A row that verifies a draft has its own sampler state: which one is known before the draft is judged.

    Args:
        result: of the forward.
        finite: whether each row of logits is finite.
        rows: whose each row of logits is, and at which position.
    """
    if result.largest is None and not result.logits.is_cuda:
        return {}
    largest = None if result.largest is None else result.largest.tolist()
    found: dict[int, int] = {}
    others: list[tuple[int, LiveRecord, SamplerState]] = []
    for number, (record, position) in enumerate(rows):
        ahead = position - (record.length - 1)
        if ahead < 0 or not finite[number]:
            continue
        if record.sampler.temperature == 0 and largest is not None:
            found[number] = largest[number]
        elif result.logits.is_cuda:
            others.append((number, record, replace(record.sampler, index=record.sampler.index + ahead)))
    if others:
        numbers = [number for number, _, _ in others]
        tokens = sample_rows(
            result.logits if len(numbers) == len(finite) else result.logits[numbers],
            [state for _, _, state in others],
            [record.history for _, record, _ in others],
            [len(record.prompt) for _, record, _ in others],
        )
        found.update(zip(numbers, tokens, strict=True))
    return found
