"""`vosti prove forward`: which models, what is told of them, and what is refused."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from command_line import vosti, vosti_without
from vosti.proofs import forward, prove
from vosti.proofs.forward import Part
from vosti.refinement.smt.obligation import Obligation


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """One obligation about batches that is soon proved."""
    known = [Obligation("forward_rows/slots_differ", "(assert false)")]
    monkeypatch.setattr(prove, "obligations", lambda theorems: known)


def test_a_model_is_shown(tmp_path: Path) -> None:
    """A line for the model, a table of theorems, and both in the files."""
    found, verdicts = tmp_path / "x.json", tmp_path / "x.xml"
    ended = vosti("prove", "forward", "tiny-llama3", "--jobs", "1", "--fresh", "--json", found, "--junit", verdicts)
    told = json.loads(found.read_text())

    assert (0, "") == (ended.code, ended.err)
    assert ["tiny-llama3", "4", "1", "44", "36", "40", "yes"] == ended.out.splitlines()[1].split()
    assert "Proved: 1 obligation, each by z3 and by cvc5." == ended.out.splitlines()[-1]
    assert [None] * 3 == [part["problem"] for part in told["models"]["tiny-llama3"]]
    assert told["proved"]
    assert [[-1], [0, 1, 2], [3]] == [part["layers"] for part in told["models"]["tiny-llama3"]]
    assert ["forward.tiny-llama3"] * 3 + ["forward_rows.z3", "forward_rows.cvc5"] == [
        case.get("classname") for case in ElementTree.parse(verdicts).iter("testcase")
    ]


def test_launches_and_premises_are_listed() -> None:
    """With -v: who wrote what each launch reads, and where each premise is seen to."""
    ended = vosti("prove", "forward", "tiny-llama3", "--solver", "z3", "--jobs", "1", "--fresh", "-v")

    assert "tiny-llama3, layer 0 = ℓ, and 2 like it:\n  cpu: launch 3, linear: reads normed of the layer" in ended.out
    assert "  extend: launch 6, rms_norm: reads residual of the layer before, update of launch 5\n" in ended.out
    assert "attention needs 0 <= counts[b] <= lengths[b]: proved: counts_fit" in ended.out


def test_what_is_not_shown_is_a_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is told, and is a failure in the file."""
    monkeypatch.setattr(forward, "prove_plan", lambda plan, devices: [Part([3], problem="launch 36: why")])
    verdicts = tmp_path / "x.xml"
    ended = vosti("prove", "forward", "tiny-llama3", "--solver", "z3", "--jobs", "1", "--fresh", "--junit", verdicts)

    assert 1 == ended.code
    assert "not shown: tiny-llama3, layer 3: launch 36: why" in ended.out
    assert ["launch 36: why"] == [case.get("message") for case in ElementTree.parse(verdicts).iter("failure")]


def test_an_unknown_model_is_refused() -> None:
    """In one sentence, before anything is followed."""
    ended = vosti("prove", "forward", "no-such-model")

    assert 2 == ended.code
    assert "vosti: no-such-model does not exist; give a folder in the format of Hugging Face." == ended.err.strip()


@pytest.mark.parametrize("before", [("-v",), ("--solver", "z3", "--fresh"), ("--jobs=1", "-v")])
def test_options_may_come_before_the_second_word(before: tuple[str, ...]) -> None:
    """`vosti prove -v forward MODEL` is `vosti prove forward -v MODEL`."""
    first, usual = (vosti(*words, "no-such-model") for words in (("prove", *before, "forward"), ("prove", "forward")))

    assert usual == first


@pytest.mark.parametrize("before", [("spec",), ("--kernel", "linear"), ("--solver",), ("--jobs", "1", "explore")])
def test_what_comes_before_the_second_word_are_options(before: tuple[str, ...]) -> None:
    """Of `vosti prove forward`, each with its value; otherwise `forward` is not the command's second word."""
    ended = vosti("prove", *before, "forward")

    assert 2 == ended.code
    assert "'forward' is not one of" in ended.err


def test_it_needs_triton() -> None:
    """Where the kernels cannot be imported, what to install is said."""
    ended = vosti_without(("triton",), "prove", "forward", "tiny-llama3")

    assert 2 == ended.code
    assert "pip install 'vosti[gpu]'" in ended.err
