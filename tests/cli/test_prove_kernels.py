"""`vosti prove kernels`: what it prints, writes and returns."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from command_line import vosti

EMBEDDING = ("prove", "kernels", "--kernel", "embedding", "--config", "tiny-llama3", "--jobs", "1")


def test_a_kernel_is_proved(tmp_path: Path) -> None:
    """A line for the kernel, the sentence, and the same as JSON and as JUnit."""
    files = tmp_path / "out.json", tmp_path / "out.xml"
    ended = vosti(*EMBEDDING, "--solver", "both", "--json", str(files[0]), "--junit", str(files[1]))

    assert 0 == ended.code, ended.err
    assert "Proved: 1 kernel and configuration, by Z3 and again by cvc5." in ended.out
    written = json.loads(files[0].read_text())["kernels"]
    assert written["proved"] is True
    assert ["embedding"] == [one["kernel"] for one in written["results"]]
    assert written["results"][0]["again"] == written["results"][0]["refuted"] > 0
    assert "0" == ElementTree.parse(files[1]).getroot().get("failures")


WRONG = """
import triton
import triton.language as tl

from vosti.kernels.catalogue import Instance
from vosti.kernels.contract import Access, Buffer, Constant, Contract, Integer, Output
from vosti.kernels.launch import Kernel
from vosti.kernels.tile import Tile


@triton.jit(do_not_specialize=["rows"])
def copy_kernel(x, out, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    tl.store(out + row * WIDTH + column, tl.load(x + (row // 2) * WIDTH + column))


COPY = Kernel(
    copy_kernel,
    Contract(
        kernel="copy",
        row_program="no arithmetic",
        parameters=(
            Buffer("x", "bf16", ("rows", "WIDTH")),
            Buffer("out", "bf16", ("rows", "WIDTH"), Access.WRITE),
            Integer("rows"),
            Constant("WIDTH"),
        ),
        grid=("rows", "1", "1"),
        premises=(),
        row_inputs=("x[i, :]",),
        outputs=(Output("out", ("i", "j"), "x[i, j]", program=("i", "0", "0"), lanes=("j",)),),
        conclusion="out is x.",
    ),
)
INSTANCES = [Instance(COPY, {"WIDTH": 32}, Tile((), 1, 1))]
"""


def test_a_kernel_of_ones_own_that_is_wrong_is_refused(tmp_path: Path) -> None:
    """Exit code 1, the obligation, the operation and its line; the kernel without the fault is proved."""
    wrong, right = tmp_path / "copy_rows.py", tmp_path / "copy_all_rows.py"
    wrong.write_text(WRONG)
    right.write_text(WRONG.replace("(row // 2)", "row"))
    refused, proved = (vosti("prove", "kernels", str(path)) for path in (wrong, right))

    assert 1 == refused.code, refused.err
    assert "The kernel reads another element of x: not so, for instance with" in refused.out
    assert "operation: tt.load at line copy_rows.py:15" in refused.out
    assert 0 == proved.code, proved.out


DYING = """
import multiprocessing
import os

from vosti.kernels.verifier import prove as proving

INSTANCES.append(Instance(COPY, {"WIDTH": 64}, Tile((), 1, 1)))
plain = proving.prove


def dies_at_64(kernel, contract, constants, *others):
    return os._exit(9) if constants["WIDTH"] == 64 else plain(kernel, contract, constants, *others)


if multiprocessing.parent_process() is not None:
    proving.prove = dies_at_64
"""


@pytest.mark.slow
def test_a_process_that_dies_leaves_its_kernel_unproved(tmp_path: Path) -> None:
    """As a solver that crashes does: exit code 1, the kernel is named, and the other one is proved."""
    path = tmp_path / "copies.py"
    path.write_text(WRONG.replace("(row // 2)", "row") + DYING)
    ended = vosti("prove", "kernels", path, "--jobs", "2")

    assert 1 == ended.code, ended.err
    assert "Not proved: 1 of 2 kernels and configurations." in ended.out
    assert "not proved: copy WIDTH=64\n  This is an internal fault of the verifier" in ended.out
    assert "its process died, in a solver or for want of memory" in ended.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["kernels", "--kernel", "softmax"], "No kernel is softmax at any configuration: the kernels are attention,"),
        (["kernels", "spec"], "With kernels go files of kernels, and no other parts: not spec."),
        (["kernels", "--mutants"], "Kernels are proved by themselves"),
        (["kernels", "no_such_file.py"], "no_such_file.py cannot be loaded"),
        (["spec", "--kernel", "linear"], "Such an option goes with kernels."),
    ],
)
def test_what_cannot_be_asked_for_is_refused(arguments: list[str], sentence: str) -> None:
    """With one sentence and exit code 2."""
    ended = vosti("prove", *arguments)

    assert 2 == ended.code
    assert sentence in ended.err
