"""Every check has a name, a sentence, a place in the documentation, and a fault that it finds."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

from event_faults import CANDIDATE_FAULTS, FAULTS, FULL_FAULTS, PAGE_EDITS, REQUEST_EDITS, REREAD_FAULTS
from vosti.refinement.checks import CHECKS
from vosti.spec.events import PageView
from vosti.spec.invariants import CONJUNCTS
from vosti.spec.state import Request

ROOT = Path(__file__).parents[2]

IMPLIED = {
    "compute_guard": "of a live row it follows from the conditions on rows, which come first",
    "row_writes_private": "a position that is not cached lies in a private page (Inv); tests/spec/test_control.py",
    "row_writes_alone": "a private page has one holder (Inv); tests/spec/test_control.py",
    "prefix_comparable": "logits and tokens are functions, so views agree; tests/refinement/test_views.py",
    "ends_alike": "finiteness is a function of bits, so views end alike; tests/refinement/test_views.py",
    **{
        conjunct.name: "Inv follows from the guards, as is proved; tests/refinement/test_touched.py"
        for conjunct in CONJUNCTS
        if conjunct.name != "values_are_canonical"
    },
}
"""Checks that no run reaches unless an earlier check is broken, with the reason, and where they are tested."""


def test_every_check_finds_a_fault() -> None:
    """Each check is the first to find some fault of the tables, or is implied by others for a reason that is given."""
    found = {fault.check for fault in (*FAULTS, *FULL_FAULTS, *REREAD_FAULTS, *CANDIDATE_FAULTS)}

    assert set(CHECKS) == found | set(IMPLIED)
    assert set() == found & set(IMPLIED)


def test_every_field_of_a_snapshot_is_compared() -> None:
    """There is a check, and a fault that it finds, for each field of a request and of a page."""
    assert [field.name for field in fields(Request)] == list(REQUEST_EDITS)
    assert {field.name for field in fields(PageView)} == set(PAGE_EDITS) | {"indexed"}


def test_every_check_has_a_sentence() -> None:
    """What a check asks is said in one sentence."""
    for name, sentence in CHECKS.items():
        assert sentence.endswith("."), name
        assert "\n" not in sentence, name
        assert name not in sentence, name


def test_every_refutation_names_a_check() -> None:
    """The names that the checker's source gives to `refute` are those of the list."""
    named = set()
    for path in (ROOT / "refinement").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr="refute"), args=[ast.Constant(value=name), *_]):
                    named.add(name)

    assert named
    assert set() == named - set(CHECKS)


def test_the_documentation_lists_every_check() -> None:
    """docs/trace-format.md has a row for each check, and no other."""
    text = (ROOT / "docs" / "trace-format.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \|", text.partition("## Checks")[2], flags=re.MULTILINE)

    assert sorted(CHECKS) == sorted(listed)
