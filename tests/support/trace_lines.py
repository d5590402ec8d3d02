"""Traces as lines of bytes: edited, chained anew, and refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vosti.refinement.audit import audit
from vosti.refinement.entries import line_digest
from vosti.refinement.errors import (
    BadTrace,
)

Lines = list[bytes]


def rechained(lines: Lines) -> Lines:
    """The lines with every `prev` made to fit."""
    fitting: Lines = []
    previous = "0" * 64
    for line in lines:
        fitting.append(re.sub(rb'"prev":"[0-9a-f]*"', b'"prev":"' + previous.encode() + b'"', line, count=1))
        previous = line_digest(fitting[-1])
    return fitting


def put(path: Path, lines: Lines) -> Path:
    """Write lines."""
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def refusal(path: Path, head: str | None = None) -> BadTrace:
    """How an audit refuses a trace."""
    with pytest.raises(BadTrace) as caught:
        audit([path], head)
    return caught.value
