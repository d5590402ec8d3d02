"""`docs/trusted-base.md`: what it names is there, and no longer than it says; no part of the verifier is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vosti.impl.cli.statistics import code_lines

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "trusted-base.md").read_text()
ROWS = [line.split(" | ") for line in TEXT.splitlines() if re.match(r"\| `[\w/.]+", line)]

UNTRUSTED = {"__init__", "entries", "errors", "front", "interpret"}
"""Modules of the verifier that no proof rests on: lists of what there is to prove, and what tests the others."""


def files(text: str) -> list[Path]:
    """The files and folders that a text names."""
    return [ROOT / name for name in re.findall(r"`((?:\w+/)+(?:[\w.]+)?)`", text)]


def lines(path: Path) -> int:
    """Code lines of a file, or of all in a folder."""
    return sum(code_lines(one.read_text()) for one in (path.glob("*.py") if path.is_dir() else [path]))


def test_what_it_names_is_there() -> None:
    """Every file and folder."""
    named = files(TEXT)

    assert len(named) > 30
    assert [] == [str(path) for path in named if not path.exists()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_it_is_no_longer_than_said(row: list[str]) -> None:
    """And not much shorter, or the number says nothing."""
    said = int(row[1])
    found = sum(lines(path) for path in files(row[0]))

    assert 0.75 * said <= found <= said


def test_the_verifier_is_there_whole() -> None:
    """Each module is named, or is one that no proof rests on."""
    named = {path.stem for path in files("".join(row[0] for row in ROWS))}
    modules = {path.stem for path in (ROOT / "kernels" / "verifier").glob("*.py")}

    assert modules == UNTRUSTED | (named & modules)
    assert not UNTRUSTED & named


def test_the_forward_is_there_whole() -> None:
    """Each module of its proof is named; `forward_order` is about the specification, and in `docs/proof.md`."""
    modules = {path for path in (ROOT / "proofs").glob("forward*.py") if path.stem != "forward_order"}

    assert modules == {path for path in files(TEXT) if path.stem.startswith("forward") and path.parent.name == "proofs"}


def test_the_core_is_small() -> None:
    """Parser, evaluator, matcher and rules, and what composes the forward, together; and each file of the verifier."""
    *core, forward = (int(row[1]) for row in ROWS if re.search(r"/(?:parse|evaluate|match|forward)\.py", row[0]))

    assert 3 == len(core)
    assert f"at most {sum(core):,} lines" in TEXT
    assert f"at most {sum(core) + forward:,};" in TEXT
    assert sum(core) + forward <= 2500
    assert all(len(path.read_text().splitlines()) <= 600 for path in (ROOT / "kernels" / "verifier").glob("*.py"))


def test_the_rules_are_there_whole() -> None:
    """Those of the verifier, and which of them are about a GPU."""
    pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")
    from vosti.kernels.verifier.rules import RULES

    assert f"in words: {', '.join(sorted(RULES))}." in TEXT
    assert f"({', '.join(sorted(rule.name for rule in RULES.values() if rule.probed))})" in TEXT
