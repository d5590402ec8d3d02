"""The must-fail control: transformers under the same comparisons differs."""

from pathlib import Path

import pytest

from command_line import vosti
from vosti.impl.bundled import BUNDLED


@pytest.mark.parametrize("model", BUNDLED)
def test_transformers_fails(model: str, tmp_path: Path) -> None:
    """Batches padded to the left, slices of a prompt and a reused cache change bits; the report says where."""
    axes = ("--axes", "batch,chunk,prefill-decode,prefix") if model == "tiny-llama3" else ("--axes", "batch,chunk")
    ended = vosti("determinism", model, "--engine", "transformers", *axes, "--report", tmp_path)
    page = (tmp_path / "report.html").read_text()

    assert 1 == ended.code, ended.out + ended.err
    assert "batch: " in ended.out
    assert "ulps apart" in ended.out
    assert "Not shown: transformers with" in ended.out
    assert "mismatch" in ended.out
    assert '<td class="number mismatch">' in page
    assert "<circle" in page
