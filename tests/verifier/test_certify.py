"""Certificates are made once, kept, and never used for anything else than what they are about."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

import triton
import triton.language as tl

from corpus import COPY
from vosti.kernels.catalogue import TARGETS, Instance, instances
from vosti.kernels.launch import Kernel
from vosti.kernels.tables import load
from vosti.kernels.tile import Tile
from vosti.kernels.verifier.binding import BindingError, Certificate, encode
from vosti.kernels.verifier.certify import (
    FOLDER,
    Store,
    UncertifiedError,
    certificates,
    certify,
    default_store,
    forms,
    full_name,
)
from vosti.kernels.verifier.entries import Case
from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.workers import FEW, Workers


@triton.jit
def copying_kernel(x, out, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows copied."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + row * WIDTH + column, tl.load(x + row * WIDTH + column, mask=column < WIDTH), mask=column < WIDTH)


@triton.jit
def doubling_kernel(x, out, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The same, with one character more."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(
        out + row * WIDTH + column, 2 * tl.load(x + row * WIDTH + column, mask=column < WIDTH), mask=column < WIDTH
    )


def case_of(function: object, warps: int = 4) -> Case:
    """A case of a kernel that is said to copy."""
    return Case(Instance(Kernel(function, COPY), {"WIDTH": 48, "BLOCK": 32}, Tile((), warps, 1)), "sm_90")


COPYING = case_of(copying_kernel)


def certificate(store: Store, case: Case = COPYING, *, certified_only: bool = False) -> Certificate:
    """The certificate of one case."""
    (found,) = certificates([case], store, Workers(1), certified_only=certified_only)
    return found


def test_a_certificate_is_made_once(tmp_path: Path) -> None:
    """And found again, also where none may be made."""
    store = Store(tmp_path / "certificates")

    made = certificate(store)
    (file,) = store.folder.iterdir()
    assert encode(made) == file.read_text()
    assert made == certificate(store, certified_only=True)
    assert (("BLOCK", 32), ("WIDTH", 48)) == made.configuration
    assert "copying_kernel" == made.binding.kernel
    assert "buffers do not overlap, and begin at multiples of 16 bytes" == made.premises[0]


def test_without_a_certificate_nothing_runs_if_so_asked(tmp_path: Path) -> None:
    """The message names the kernel and what to do."""
    with pytest.raises(
        UncertifiedError,
        match=r"no certificate of kernel WIDTH=48 BLOCK=32 warps=4 stages=1 in .*, and --certified-only forbids .*: "
        r"run once without it, or make certificates with vosti certify\.",
    ):
        certificate(Store(tmp_path), certified_only=True)
    assert [] == list(tmp_path.iterdir())


def test_another_binary_needs_another_certificate(tmp_path: Path) -> None:
    """The typed IR is the same with other numbers of warps; the binary is not."""
    store = Store(tmp_path)
    first = certificate(store)

    other = case_of(copying_kernel, warps=1)
    with pytest.raises(UncertifiedError):
        certificate(store, other, certified_only=True)
    second = certificate(store, other)
    assert first.binding.ir == second.binding.ir
    assert first.binding.cubin != second.binding.cubin
    assert 2 == len(list(tmp_path.iterdir()))


def test_an_edited_kernel_is_refused(tmp_path: Path) -> None:
    """One character changes what is stored: there is no certificate of it, and none can be made."""
    store, edited = Store(tmp_path), case_of(doubling_kernel)
    certificate(store)

    with pytest.raises(UncertifiedError):
        certificate(store, edited, certified_only=True)
    with pytest.raises(RefusedError, match=r"WIDTH=48 .* is not proved: .*something else than the row program"):
        certificate(store, edited)
    assert 1 == len(list(tmp_path.iterdir()))


@pytest.mark.parametrize("field", ["verifier", "contract"])
def test_a_stale_certificate_is_not_used(tmp_path: Path, field: str) -> None:
    """It is refused where none may be made, and replaced elsewhere."""
    store = Store(tmp_path)
    made = certificate(store)
    (file,) = tmp_path.iterdir()
    file.write_text(encode(dataclasses.replace(made, **{field: "0" * 64})))

    with pytest.raises(BindingError, match=f"is about another {field}; prove the kernel again"):
        certificate(store, certified_only=True)
    assert made == certificate(store)
    assert encode(made) == file.read_text()


def test_a_broken_certificate_is_not_used(tmp_path: Path) -> None:
    """Nor one that is about another binary, put in the place of this one's."""
    store = Store(tmp_path)
    made, other = certificate(store), certificate(store, case_of(copying_kernel, warps=1))
    path = store.path(COPYING, COPYING.instance.compiled(TARGETS["sm_90"]))

    for text, finding in ((encode(other), "another PTX and another machine code"), ("{}", "not the canonical form")):
        path.write_text(text)
        with pytest.raises(BindingError, match=finding):
            certificate(store, certified_only=True)
    assert made == certificate(store)


def test_a_proof_is_bound_to_what_it_is_about() -> None:
    """A binary of another kernel is no binary of this one."""
    other = case_of(doubling_kernel).instance.compiled(TARGETS["sm_90"])

    with pytest.raises(BindingError, match="was compiled from another IR than the one that is proved"):
        certify(COPYING, other)


def test_a_fault_of_the_verifier_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it raises is a refusal."""

    def failing(case: Case) -> None:
        raise IndexError("out of range")

    monkeypatch.setattr(Case, "prove", failing)
    with pytest.raises(RefusedError, match=r"is not proved: The verifier failed: IndexError: out of range"):
        certificate(Store(tmp_path))


def test_entries_are_certified_form_by_form(tmp_path: Path) -> None:
    """Each form of an entry, in two processes; found again by this one, which is told what is done."""
    table, store = load("sm_90"), Store(tmp_path)
    entry = table.entry("kv_store", kv_heads=2, head_dim=32)
    others = [table.entry("embedding", width=256, scaled=scaled) for scaled in (0, 1)]
    cases = forms([entry, *others], "sm_90")
    done: list[tuple[float, float]] = []

    with Workers(2) as workers:
        made = certificates(cases, store, workers, advance=lambda *numbers: done.append(numbers))

    assert FEW <= len(list(instances(entry))) + 2 == len(cases) == len(made)
    assert made == certificates(cases, store, Workers(1), certified_only=True)
    assert [(number, len(cases)) for number in (*range(len(cases) + 1), len(cases))] == done
    assert [("KV_HEADS", 2) in one.configuration for one in made] == [case.kernel == "kv_store" for case in cases]


def test_a_process_that_refuses_says_why(tmp_path: Path) -> None:
    """And of which form: here one whose premises nothing meets."""
    entry = load("sm_90").entry("embedding", width=256, scaled=1)
    (case,) = forms([dataclasses.replace(entry, dimensions=(("scaled", 2), ("width", 256)))], "sm_90")

    with Workers(2) as workers, pytest.raises(RefusedError, match=r"embedding WIDTH=256 SCALED=2 .* is not proved"):
        list(workers.do([partial(Store(tmp_path).make, case)] * FEW))


def test_attention_has_a_form_for_each_size_of_pages() -> None:
    """Those that are listed, and those that are asked for, each once; nothing else depends on it."""
    table = load("sm_90")
    entry = table.entry("attention", heads=8, kv_heads=2, head_dim=32, window=0)

    for entries in ([entry], [entry, table.entry("embedding", width=256, scaled=0), entry]):
        plain, paged = forms(entries, "sm_90"), forms(entries, "sm_90", (8, 16, 8))
        sizes = [case.constants["PAGE"] for case in paged if case.kernel == "attention"]
        assert sorted(sizes) == [8, 16, 64]
        assert {full_name(case) for case in plain} < {full_name(case) for case in paged}
        assert 1 == len(paged) - len(plain)


WITHOUT_SOLVER = """
import sys
sys.modules["z3"] = sys.modules["cvc5"] = None
import importlib.util
from pathlib import Path
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "z3" else found(name, package)
from vosti.kernels.tables import load
from vosti.kernels.verifier.certify import Store, UncertifiedError, certificates, forms
from vosti.kernels.workers import Workers
for scaled in (0, 1):
    try:
        print(len(certificates(forms([load("sm_90").entry("embedding", width=256, scaled=scaled)], "sm_90"),
                               Store(Path(sys.argv[1])), Workers())))
    except UncertifiedError as error:
        print(error)
"""


def test_kept_certificates_do_without_a_solver(tmp_path: Path) -> None:
    """Where neither solver is installed, what is kept is used; what is missing is refused, with the remedies."""
    (kept,) = forms([load("sm_90").entry("embedding", width=256, scaled=0)], "sm_90")
    certificate(Store(tmp_path), kept)

    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_SOLVER, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert 0 == run.returncode, run.stderr
    found, refusal = run.stdout.splitlines()
    assert "1" == found
    assert "no certificate of embedding WIDTH=256 SCALED=1" in refusal
    assert "z3 is not installed: pip install z3-solver" in refusal
    assert FOLDER in refusal


def test_where_certificates_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the folder that the environment names, or under the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(FOLDER, raising=False)
    assert tmp_path / "vosti" / "certificates" == default_store().folder
    monkeypatch.setenv(FOLDER, str(tmp_path / "other"))
    assert tmp_path / "other" == default_store().folder
