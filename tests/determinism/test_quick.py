"""`vosti determinism --suite quick` on both bundled checkpoints: this engine passes."""

import json
import re
from pathlib import Path

import pytest

from command_line import vosti, vosti_without
from vosti.impl.bundled import BUNDLED
from vosti.impl.determinism.suites import axis_names


@pytest.mark.parametrize("model", BUNDLED)
def test_all_pairs_are_equal(model: str, tmp_path: Path) -> None:
    """At least 200 pairs, in every axis of the suite; the report shows them and needs nothing from outside."""
    result, verdicts, reports = tmp_path / "result.json", tmp_path / "verdicts.xml", tmp_path / "reports"
    ended = vosti("determinism", model, "--report", reports, "--json", result, "--junit", verdicts)
    found = json.loads(result.read_text())
    page, text = (reports / "report.html").read_text(), (reports / "report.md").read_text()

    assert (0, "") == (ended.code, ended.err), ended.out
    assert ("pass", found["total"]) == (found["verdict"], found["matched"])
    assert found["total"] >= 200
    assert axis_names("quick") == tuple(sorted(found["axes"], key=axis_names("quick").index))
    assert all(cell["first_divergence"] is None for cell in found["axes"].values())
    assert f'tests="{len(found["axes"])}" failures="0"' in verdicts.read_text()
    assert f"all {found['total']:,} pairs" in ended.out or f"all {found['total']} pairs" in ended.out
    assert f"| **all** | **{found['total']}/{found['total']}** |" in text
    assert found["fingerprint"] in page
    assert None is re.search(r"https?://|src=|<link|@import|<script", page)
    assert 'class="number mismatch"' not in page

    (reports / "begun.ndjson").touch()  # as a run leaves it that was stopped before its first line
    again = vosti("determinism", "--report", reports)
    assert (0, page) == (again.code, (reports / "report.html").read_text()), again.out + again.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tiny-llama3", "--axes", "nonsense"), "has no axis 'nonsense'"),
        (("tiny-llama3", "--engine", "nonsense"), "There is no engine 'nonsense'"),
        (("tiny-llama3", "--backend", "nonsense"), "There is no backend 'nonsense'"),
        (("nowhere",), "nowhere"),
        (("tiny-llama3", "--engine", "vllm"), "vLLM is not installed"),
        ((), "Give a MODEL"),
        (("--report", "nowhere"), "Give a MODEL"),
    ],
)
def test_bad_input_is_refused(arguments: tuple[str, ...], message: str) -> None:
    """In a sentence, before anything runs."""
    ended = vosti("determinism", *arguments)

    assert 2 == ended.code
    assert message in ended.err
    assert 1 == len(ended.err.strip().splitlines())


def test_a_run_without_time_is_incomplete(tmp_path: Path) -> None:
    """Nothing was compared, and nothing passes; results are there to be continued."""
    ended = vosti("determinism", "tiny-llama3", "--axes", "padding", "--seconds", "0", "--report", tmp_path)

    assert 2 == ended.code
    assert "incomplete" in ended.out
    assert "0 of 10 pairs are equal, 0 differ, 10 compare nothing or were not run" in ended.out
    assert 0 == vosti("determinism", "tiny-llama3", "--axes", "padding", "--report", tmp_path).code


def test_without_the_extra_there_is_no_page(tmp_path: Path) -> None:
    """The results and the Markdown are written all the same, and a sentence says what is missing."""
    arguments = ("determinism", "tiny-llama3", "--axes", "padding", "--report", tmp_path)
    ended = vosti_without(("jinja2", "svg"), *arguments)

    assert 0 == ended.code, ended.err
    assert "pip install 'vosti[report]'" in ended.err
    assert {"report.md", "tiny-llama3.vosti.quick.ndjson"} == {path.name for path in tmp_path.iterdir()}
