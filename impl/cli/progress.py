"""A progress bar on long work, where somebody is watching."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[float, float], None]
"""Takes how much is done, and of how much."""


def watched() -> bool:
    """Whether stderr is a terminal, and not one of a continuous-integration run."""
    return sys.stderr.isatty() and not os.environ.get("CI")


@contextmanager
def progress(what: str) -> Iterator[Advance]:
    """Show a bar on stderr while the block runs, if it is watched; it is gone afterwards."""
    if not watched():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
