"""Verdicts as JUnit test cases, which continuous-integration servers show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from vosti.impl.cli.files import write_text

if TYPE_CHECKING:
    from vosti.refinement.audit import Verdict

Suite = ElementTree.Element


@dataclass(frozen=True)
class Case:
    """One verdict."""

    group: str
    """What it is about."""

    name: str
    """What was asked of it."""

    failure: str | None = None
    """What was found instead; None if it is as it should be."""

    seconds: float | None = None


def suite(name: str, cases: Iterable[Case]) -> Suite:
    """A test suite of some verdicts."""
    element = ElementTree.Element("testsuite", name=name)
    for case in cases:
        attributes = {"classname": _legal(case.group), "name": _legal(case.name)}
        if case.seconds is not None:
            attributes["time"] = f"{case.seconds:.3f}"
        found = ElementTree.SubElement(element, "testcase", attributes)
        if case.failure is not None:
            lines = _legal(case.failure)
            ElementTree.SubElement(found, "failure", message=lines.partition("\n")[0]).text = lines
    return element


def write_junit(path: Path | None, suites: Iterable[Suite]) -> None:
    """Write suites as one file, with their counts; whole or not at all."""
    if path is None:
        return
    root = ElementTree.Element("testsuites")
    root.extend(suites)
    for element in (*root, root):
        element.set("tests", str(len(list(element.iter("testcase")))))
        element.set("failures", str(len(list(element.iter("failure")))))
        element.set("errors", "0")
    ElementTree.indent(root)
    write_text(path, f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n')


def audited(verdict: Verdict) -> Iterator[Case]:
    """The verdicts of an audit: of each trace, of each function that was observed, and of the views together."""
    for summary in verdict.traces:
        failure = None if summary.violation is None else str(summary.violation)
        yield Case("audit", f"{Path(summary.trace).name}: every step is a step of the specification", failure)
    failure = None if verdict.views is None else str(verdict.views)
    yield Case("audit", "views are prefix-comparable (Definition 2.1)", failure)


def required(missing: Iterable[str]) -> Iterator[Case]:
    """Each requirement that was not met."""
    for requirement in missing:
        yield Case("required", requirement, "required, and not met")


def _legal(text: str) -> str:
    """The text without characters that XML has not."""
    return re.sub(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]", "\N{REPLACEMENT CHARACTER}", text)
