"""JUnit files: every verdict is a test case, and the file is whole or not there."""

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from command_line import SMALL, rechained, vosti
from vosti.impl.cli.junit import Case, suite, write_junit


def cases(path: Path) -> dict[str, str | None]:
    """The file's test cases by name, each with what is wrong."""
    found = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        failure = case.find("failure")
        found[str(case.get("name"))] = None if failure is None else failure.get("message")
    return found


def test_suites_are_counted(tmp_path: Path) -> None:
    """The numbers of tests and failures stand with each suite, and with all of them."""
    path = tmp_path / "x.xml"
    write_junit(path, [suite("one", [Case("a", "b"), Case("a", "c", "first\nsecond", 1.5)]), suite("other", [])])
    root = ElementTree.parse(path).getroot()

    assert ("2", "1") == (root.get("tests"), root.get("failures"))
    assert [("one", "2"), ("other", "0")] == [(part.get("name"), part.get("tests")) for part in root]
    assert ["first"] == [failure.get("message") for failure in root.iter("failure")]
    assert ["first\nsecond"] == [failure.text for failure in root.iter("failure")]
    assert [None, "1.500"] == [case.get("time") for case in root.iter("testcase")]


def test_a_character_that_xml_has_not_is_replaced(tmp_path: Path) -> None:
    """A name with a control character does not make a file that nobody can read."""
    path = tmp_path / "x.xml"
    write_junit(path, [suite("one", [Case("a", "b\x00c", "d\x1b")])])

    assert {"b�c": "d�"} == cases(path)


def test_a_file_that_cannot_be_finished_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks sees the old file or the new one."""
    path = tmp_path / "x.xml"
    path.write_text("old")

    def interrupted(mask: int) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "umask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_junit(path, [suite("one", [Case("a", "b")])])

    assert "old" == path.read_text()
    assert [path] == list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of the short workload. Tests do not change it."""
    path = tmp_path_factory.mktemp("traces") / "short.trace"
    assert 0 == vosti("record", "tiny-llama3", *SMALL, "-o", path).code
    return path


def test_an_audit_has_a_case_for_each_trace(trace: Path, tmp_path: Path) -> None:
    """A trace that refines passes; one in which an action is missing fails, and so does the command."""
    forged, path = tmp_path / "forged.trace", tmp_path / "x.xml"
    lines = trace.read_text().splitlines()
    forged.write_text(rechained([line.replace(',["allocate","first",3]]', "]", 1) for line in lines]))
    ended = vosti("audit", trace, forged, "--junit", path)
    found = cases(path)

    assert 1 == ended.code
    assert [
        "short.trace: every step is a step of the specification",
        "forged.trace: every step is a step of the specification",
        "views are prefix-comparable (Definition 2.1)",
    ] == list(found)
    assert [None, True, None] == [wrong if wrong is None else bool(wrong) for wrong in found.values()]


def test_a_requirement_that_is_not_met_is_a_failure(trace: Path, tmp_path: Path) -> None:
    """It is a case of its own, since everything else is as it should be."""
    path = tmp_path / "x.xml"
    ended = vosti("audit", trace, "--junit", path, "--require", "failures>=1")

    assert 2 == ended.code
    assert {"failures>=1 (there are 0)": "required, and not met"} == {
        name: wrong for name, wrong in cases(path).items() if wrong
    }


@pytest.mark.parametrize("command", [["check"], ["audit", "x"], ["prove"]])
def test_a_place_where_nothing_can_be_written_is_refused(command: list[str], tmp_path: Path) -> None:
    """Before any work is done."""
    ended = vosti(*command, "--junit", tmp_path / "no" / "x.xml")

    assert 2 == ended.code
    assert "cannot be written: there is no folder" in ended.err
