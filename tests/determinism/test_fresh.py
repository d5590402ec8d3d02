"""An engine in a process of its own: what it answers counts only under the same configuration."""

from __future__ import annotations

import pytest

from vosti.impl.determinism.errors import FreshProcessError
from vosti.impl.determinism.fresh import serve_fresh
from vosti.impl.determinism.protocol import Ask, Settings
from vosti.impl.determinism.subjects import Choice, open_subject

SETTINGS = Settings(token_budget=8, max_seqs=1, page_size=4, pages=8)

ASK = Ask("asked", (1, 5, 9))

CHOICE = Choice("vosti", "tiny-llama3", "cpu")


def test_it_answers_as_the_engine_here() -> None:
    """In another process, and with the same bits; where W is not the same, nothing is compared."""
    subject = open_subject(CHOICE)
    ours = dict(subject.configuration())
    with subject.open(SETTINGS) as arm:
        (here,) = arm.serve([ASK])
    (there,) = serve_fresh(subject.fresh(), SETTINGS, [ASK], ours)

    assert here.rows == there.rows
    assert here.schedule.process != there.schedule.process
    with pytest.raises(FreshProcessError, match="has another W, which differs in backend, more"):
        serve_fresh(subject.fresh(), SETTINGS, [ASK], {**ours, "backend": "another", "more": 1})


def test_one_that_fails_says_why() -> None:
    """With its last line, and there is none for an engine that cannot be named."""
    with pytest.raises(FreshProcessError, match=r"ended with code 1: .*nowhere"):
        serve_fresh(Choice("vosti", "nowhere", "cpu").words(), SETTINGS, [ASK], {})
    with pytest.raises(FreshProcessError, match="cannot be started in a process of its own"):
        serve_fresh((), SETTINGS, [ASK], {})
