"""One run, and the lines of its trace, for the tests of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from event_streams import Stream, stream
from event_walk import Habits
from trace_lines import Lines


@pytest.fixture(scope="module")
def run() -> Stream:
    """A run with a bit of everything."""
    return stream(3, 12, Habits(pages=9, sick=0.1))


@pytest.fixture
def lines(run: Stream, tmp_path: Path) -> Lines:
    """The lines of its trace, without newlines."""
    run.write(tmp_path / "original")
    return (tmp_path / "original").read_bytes().splitlines()
