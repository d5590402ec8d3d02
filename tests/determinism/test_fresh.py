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


def test_another_configuration_counts_nothing() -> None:
    """Whatever it answers; the error says in what W differs. (That an equal one counts, the quick suite shows.)"""
    ours = open_subject(CHOICE).configuration()

    with pytest.raises(FreshProcessError, match="has another W, which differs in backend, more"):
        serve_fresh(CHOICE.words(), SETTINGS, [ASK], {**ours, "backend": "another", "more": 1})


def test_one_that_fails_says_why() -> None:
    """With its last line, and there is none for an engine that cannot be named."""
    with pytest.raises(FreshProcessError, match=r"ended with code 1: .*nowhere"):
        serve_fresh(Choice("vosti", "nowhere", "cpu").words(), SETTINGS, [ASK], {})
    with pytest.raises(FreshProcessError, match="cannot be started in a process of its own"):
        serve_fresh((), SETTINGS, [ASK], {})
