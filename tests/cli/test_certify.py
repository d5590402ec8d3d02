"""`vosti certify`, of few kernels: what is printed and kept, and how it ends; the options that ask for certificates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from command_line import vosti
from vosti.impl.backends.cuda import opening
from vosti.impl.backends.cuda.certifier import Certifier
from vosti.impl.backends.cuda.opening import entries_of
from vosti.impl.bundled import find_checkpoint
from vosti.impl.options import Certification
from vosti.kernels.catalogue import FIXED, SAMPLER
from vosti.kernels.tables import Entry, Table, load
from vosti.kernels.verifier import certify as module
from vosti.kernels.verifier.certify import FOLDER, forms
from vosti.kernels.verifier.entries import Case
from vosti.kernels.verifier.errors import RefusedError


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the model, two of its kernels, and the one that weighs tokens, are all that it launches."""

    def entries(path: Path, table: Table) -> list[Entry]:
        return [entry for entry in entries_of(path, table) if entry.operation in ("embedding", "logits")]

    monkeypatch.setattr("vosti.impl.backends.cuda.opening.entries_of", entries)
    monkeypatch.setattr(module, "FIXED", [one for one in FIXED if one.kernel is SAMPLER["weights"]])


@pytest.mark.usefixtures("few")
def test_certificates_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept where it is said, by option or environment, and counted; the second time none is new."""
    ended = vosti("certify", "tiny-llama3", "--store", tmp_path / "kept", "--jobs", "1")

    assert (0, "") == (ended.code, ended.err)
    rows = ["kernel     forms  instructions", "embedding      1", "logits         1", "weights        1"]
    assert rows == ended.out.splitlines()[:4]
    assert f"3 certificates of tiny-llama3 on sm_90, by Triton {version()}, 3 of them new: {tmp_path}" in ended.out
    assert 3 == len(list((tmp_path / "kept").iterdir()))
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    assert ", 0 of them new: " in vosti("certify", "tiny-llama3", "--json", tmp_path / "x.json").out
    names_what_runs(json.loads((tmp_path / "x.json").read_text()), ended.out, tmp_path / "kept")


def names_what_runs(written: dict[str, Any], printed: str, folder: Path) -> None:
    """The digest is the one that W has, and of just those certificates that are kept."""
    certifier = Certifier("sm_90", Certification(certified_only=True))
    entries = opening.entries_of(find_checkpoint("tiny-llama3"), load("sm_90"))
    certifier.require(entries)

    assert certifier.digest(entries) == written["certificates"]
    assert printed.splitlines()[-1] == f"Their digest, in the configuration W: {written['certificates']}"
    kept = [json.loads(path.read_text()) for path in folder.iterdir()]
    assert {one["binding"]["cubin"] for one in kept} == {
        one["binding"]["cubin"] for one in written["binaries"].values()
    }
    assert "logits" in {name.split()[0] for name in written["binaries"]}


def version() -> str:
    """Triton's."""
    import triton

    return str(triton.__version__)


@pytest.mark.usefixtures("few")
def test_what_is_not_proved_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the kernel and its configuration; nothing is kept of it."""

    def refusing(case: Case) -> None:
        raise RefusedError("It computes something else.")

    monkeypatch.setattr(Case, "prove", refusing)
    ended = vosti("certify", "tiny-llama3", "--store", tmp_path, "--jobs", "1")

    assert (1, "") == (ended.code, ended.err)
    assert ended.out.startswith("not proved: embedding WIDTH=256 SCALED=0 ")
    assert "is not proved: It computes something else." in ended.out
    assert [] == list(tmp_path.iterdir())


@pytest.mark.usefixtures("few")
def test_proofs_need_a_solver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is none, the remedies are named."""
    monkeypatch.setattr(module, "SOLVER", "no_such_solver")
    ended = vosti("certify", "tiny-llama3", "--store", tmp_path)

    assert (2, "") == (ended.code, ended.out)
    assert "no certificate of embedding WIDTH=256" in ended.err
    assert "and 2 other forms in" in ended.err
    assert "pip install z3-solver" in ended.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("certify", "no-such-model"), "no-such-model does not exist"),
        (("certify", "tiny-llama3", "--architecture", "sm_10"), "There is no table for sm_10; there are tables for"),
        (("certify", "tiny-llama3", "--page-size", "0"), "0 is not in the range"),
        (("generate", "tiny-llama3", "-p", "x", "--certified-only", "--unsafe-unverified"), "exclude each other"),
        (("check", "tiny-llama3", "--certified-only", "--unsafe-unverified"), "exclude each other"),
        (("determinism", "tiny-llama3", "--certified-only", "--unsafe-unverified"), "exclude each other"),
    ],
)
def test_bad_input_is_refused(arguments: tuple[str, ...], said: str) -> None:
    """In one sentence, before any work."""
    ended = vosti(*arguments)

    assert (2, "") == (ended.code, ended.out)
    assert said in ended.err


def test_nothing_is_left_out_that_a_model_launches() -> None:
    """Every kernel of both forms of attention, of what is read back and of what weighs tokens; pages of all sizes that
    vosti itself uses.
    """
    from vosti.impl.cli.certify import cases_of

    cases = cases_of("tiny-gemma3", "sm_90", ())
    table = load("sm_90")

    assert {case.constants["PAGE"] for case in cases if "PAGE" in case.constants} == {1, 4, 8, 16, 64}
    in_table = {case.kernel for case in forms(entries_of(find_checkpoint("tiny-gemma3"), table), "sm_90")}
    fixed = {one.kernel.contract.kernel for one in FIXED}
    assert in_table | fixed == {case.kernel for case in cases}
    assert "weights" in fixed
    assert {"attention", "attention_split", "attention_merge", "digest", "digest_merge"} <= {
        case.kernel for case in cases
    }
