"""On a GPU an engine that lets its memory go gives it back to the card: weights, pool and captured graphs."""

from __future__ import annotations

import pytest
import torch

from vosti.impl.determinism.protocol import Ask, Settings
from vosti.impl.determinism.subjects import Choice, open_subject

SMALL = 1 << 26
"""Bytes that may stay: less than any weight of an embedding."""


@pytest.mark.gpu
@pytest.mark.slow
def test_memory_is_given_back() -> None:
    """After forwards that were launched, captured and replayed; loaded again, the engine answers with the same bits."""
    subject = open_subject(Choice("vosti", "llama-3.2-1b", "cuda", dummy_weights=0, unsafe_unverified=True))
    ask = Ask("asked", tuple(range(2, 102)), max_tokens=8)
    rows = []
    for _ in range(2):
        with subject.open(Settings(token_budget=256, max_seqs=4, page_size=64, pages=768)) as arm:
            answers = [arm.serve([ask])[0] for _ in range(3)]
        del arm
        assert any(piece.replayed for piece in answers[-1].schedule.pieces or ())
        assert torch.cuda.memory_reserved() > 2 << 30
        subject.release()
        assert torch.cuda.memory_allocated() < SMALL
        assert torch.cuda.memory_reserved() < SMALL
        rows.append([answer.rows for answer in answers])

    assert rows[0] == rows[1]
