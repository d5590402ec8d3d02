"""The must-fail control: transformers under the same comparisons differs."""

import json
from pathlib import Path

import pytest

from command_line import vosti
from vosti.impl.bundled import BUNDLED, find_checkpoint
from vosti.impl.determinism.protocol import Ask, Settings
from vosti.impl.determinism.subjects import Choice, open_subject

AXES = {"tiny-gemma3": "chunk,prefill-decode", "tiny-llama3": "batch,chunk,prefill-decode,prefix"}
"""By model. The batches of one will do: they start a process."""


@pytest.mark.parametrize("model", BUNDLED)
def test_transformers_fails(model: str, tmp_path: Path) -> None:
    """Batches padded to the left, slices of a prompt, a growing cache and a reused one change bits; the report says
    where.
    """
    result = tmp_path / "result.json"
    arguments = ("--engine", "transformers", "--axes", AXES[model], "--report", tmp_path, "--json", result)
    ended = vosti("determinism", model, *arguments)
    page, found = (tmp_path / "report.html").read_text(), json.loads(result.read_text())["axes"]

    assert 1 == ended.code, ended.out + ended.err
    assert set(AXES[model].split(",")) == set(found)
    red = [cell for cell in found.values() if cell["verdict"] == "mismatch"]
    assert len(red) >= 1  # how many depends on the processor
    assert all(cell["first_divergence"]["divergence"]["differing"] > 0 for cell in red)
    assert "ulps apart" in ended.out
    assert "Not shown: transformers with" in ended.out
    assert len(red) == page.count("<svg") == page.count('<td class="number mismatch">')
    assert "<circle" in page


def test_weights_can_be_made_up(tmp_path: Path) -> None:
    """A config alone will do; equal seeds make equal models, others make others."""
    shape = tmp_path / "shape.json"
    shape.write_text((find_checkpoint("tiny-llama3") / "config.json").read_text())

    def row(seed: int) -> bytes:
        subject = open_subject(Choice("transformers", str(shape), "cpu", seed))
        with subject.open(Settings(token_budget=8, max_seqs=1, page_size=4, pages=4)) as arm:
            return arm.serve([Ask("a", (0, 5, 7))])[0].rows[0]

    assert row(1) == row(1) != row(2)
