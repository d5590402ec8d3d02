"""`docs/verify-your-kernel.md`: its code is proved, its mistakes are refused, and it says what is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from command_line import vosti
from vosti.kernels.verifier.binding import contract_digest
from vosti.kernels.verifier.entries import NothingToProveError, own_cases
from vosti.kernels.verifier.errors import RefusedError

TEXT = (Path(__file__).parents[2] / "docs" / "verify-your-kernel.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
CODE = "\n".join(text for language, text in BLOCKS if language == "python")
PRINTED, *REFUSALS = (text for language, text in BLOCKS if not language)
EDITS = [
    (r"mask=row < rows\)(?=\n)", "mask=row <= rows)"),
    (r"(?<!ops\.)tree_sum\(weights\)", "tl.sum(weights, 1, keep_dims=True)"),
]
"""Those of section 5, in order."""


def test_the_kernel_of_the_page_is_proved(tmp_path: Path) -> None:
    """With the counts that the page shows; times are the machine's own."""
    path = tmp_path / "softmax.py"
    path.write_text(CODE)

    result = vosti("prove", "kernels", path, "--jobs", "1")
    assert 0 == result.code, result.out
    said = [line.split()[:5] for line in PRINTED.splitlines() if re.match("softmax|all", line)]
    assert said == [line.split()[:5] for line in result.out.splitlines() if re.match("softmax|all", line)]
    assert "Proved: 4 kernels and configurations, by Z3." in result.out


@pytest.mark.parametrize("number", range(len(EDITS)))
def test_the_mistakes_of_the_page_are_refused(tmp_path: Path, number: int) -> None:
    """As the page says."""
    old, new = EDITS[number]
    path = tmp_path / "softmax.py"
    edited, count = re.subn(old, new, CODE)
    path.write_text(edited)

    result = vosti("prove", "kernels", path, "--jobs", "1")
    assert (1, 1) == (count, result.code), result.out
    assert f"`{new}`" in TEXT
    for line in REFUSALS[number].splitlines():
        assert line in result.out


def test_a_row_program_that_is_not_understood_is_refused(tmp_path: Path) -> None:
    """It can use the primitives, and nothing else."""
    path = tmp_path / "softmax.py"
    path.write_text(CODE.replace("ops.lane_max(x)", "ops.lane_mean(x)"))

    with pytest.raises(RefusedError, match="not understood: 'Terms' object has no attribute 'lane_mean'"):
        own_cases(path)[0].prove()


def test_a_row_program_is_part_of_the_contract(tmp_path: Path) -> None:
    """A certificate is not about a contract whose row program was changed."""
    paths = [tmp_path / "first.py", tmp_path / "second.py"]
    for path, code in zip(paths, (CODE, CODE.replace("ops.lane_max(x)", "ops.mul(ops.lane_max(x), 1.0)")), strict=True):
        path.write_text(code)
    first, again, second = (own_cases(path)[0].instance.kernel.contract for path in (paths[0], *paths))

    assert contract_digest(first) == contract_digest(again)
    assert contract_digest(first) != contract_digest(second)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("", "has no INSTANCES"),
        ("INSTANCES = (", "cannot be loaded: SyntaxError"),
        ("INSTANCES = [1]", r"INSTANCES has 1, and not Instance\("),
        ("INSTANCES = 1", r"INSTANCES has 1, and not Instance\("),
        (CODE + "\nINSTANCES = [Instance(Kernel(softmax_kernel, None), {}, Tile((), 4, 1))]", "has no .*Contract"),
        (CODE + "\nINSTANCES = [Instance(SOFTMAX, {}, Tile((), 4, 1))]", "softmax lacks BLOCK_M, WIDTH"),
    ],
)
def test_a_file_without_kernels_is_refused(tmp_path: Path, code: str, words: str) -> None:
    """It says what is missing."""
    path = tmp_path / "some.py"
    path.write_text(code)

    with pytest.raises(NothingToProveError, match=words):
        own_cases(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """By the command, in a sentence."""
    result = vosti("prove", "kernels", tmp_path / "nothing.py", "--jobs", "1")

    assert 2 == result.code
    assert "nothing.py cannot be loaded: FileNotFoundError" in result.err
