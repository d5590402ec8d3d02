"""Certificates are made once, kept, and never used for anything else than what they are about."""

from __future__ import annotations

import dataclasses
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
from vosti.kernels.verifier.binding import BindingError, encode
from vosti.kernels.verifier.certify import FOLDER, Store, UncertifiedError, certificates, certify, default_store
from vosti.kernels.verifier.entries import Case
from vosti.kernels.verifier.errors import RefusedError


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


def test_a_certificate_is_made_once(tmp_path: Path) -> None:
    """And found again, also where none may be made."""
    store = Store(tmp_path / "certificates")

    made = store.certificate(COPYING)
    (file,) = store.folder.iterdir()
    assert encode(made) == file.read_text()
    assert made == store.certificate(COPYING, certified_only=True)
    assert (("BLOCK", 32), ("WIDTH", 48)) == made.configuration
    assert "copying_kernel" == made.binding.kernel
    assert "buffers do not overlap, and begin at multiples of 16 bytes" == made.premises[0]


def test_without_a_certificate_nothing_runs_if_so_asked(tmp_path: Path) -> None:
    """The message names the kernel and what to do."""
    with pytest.raises(UncertifiedError, match=r"no certificate of kernel WIDTH=48 BLOCK=32 in .*; run once without"):
        Store(tmp_path).certificate(COPYING, certified_only=True)
    assert [] == list(tmp_path.iterdir())


def test_another_binary_needs_another_certificate(tmp_path: Path) -> None:
    """The typed IR is the same with other numbers of warps; the binary is not."""
    store = Store(tmp_path)
    first = store.certificate(COPYING)

    other = case_of(copying_kernel, warps=1)
    with pytest.raises(UncertifiedError):
        store.certificate(other, certified_only=True)
    second = store.certificate(other)
    assert first.binding.ir == second.binding.ir
    assert first.binding.cubin != second.binding.cubin
    assert 2 == len(list(tmp_path.iterdir()))


def test_an_edited_kernel_is_refused(tmp_path: Path) -> None:
    """One character changes what is stored: there is no certificate of it, and none can be made."""
    store, edited = Store(tmp_path), case_of(doubling_kernel)
    store.certificate(COPYING)

    with pytest.raises(UncertifiedError):
        store.certificate(edited, certified_only=True)
    with pytest.raises(RefusedError, match="computes something else than the row program"):
        store.certificate(edited)
    assert 1 == len(list(tmp_path.iterdir()))


@pytest.mark.parametrize("field", ["verifier", "contract"])
def test_a_stale_certificate_is_not_used(tmp_path: Path, field: str) -> None:
    """It is refused where none may be made, and replaced elsewhere."""
    store = Store(tmp_path)
    made = store.certificate(COPYING)
    (file,) = tmp_path.iterdir()
    file.write_text(encode(dataclasses.replace(made, **{field: "0" * 64})))

    with pytest.raises(BindingError, match=f"is about another {field}"):
        store.certificate(COPYING, certified_only=True)
    assert made == store.certificate(COPYING)
    assert encode(made) == file.read_text()


def test_a_broken_certificate_is_not_used(tmp_path: Path) -> None:
    """Nor one that is about another binary, put in the place of this one's."""
    store = Store(tmp_path)
    made, other = store.certificate(COPYING), store.certificate(case_of(copying_kernel, warps=1))
    path = store.path(COPYING, COPYING.instance.compiled(TARGETS["sm_90"]))

    for text, finding in ((encode(other), "another PTX and another machine code"), ("{}", "not the canonical form")):
        path.write_text(text)
        with pytest.raises(BindingError, match=finding):
            store.certificate(COPYING, certified_only=True)
    assert made == store.certificate(COPYING)


def test_a_proof_is_bound_to_what_it_is_about() -> None:
    """A binary of another kernel is no binary of this one."""
    other = case_of(doubling_kernel).instance.compiled(TARGETS["sm_90"])

    with pytest.raises(BindingError, match="was compiled from another IR than the one that is proved"):
        certify(COPYING, other)


def test_entries_are_certified_form_by_form(tmp_path: Path) -> None:
    """Each form of an entry; of digests nothing is claimed."""
    table, store = load("sm_90"), Store(tmp_path)
    entries = [table.entry("kv_store", kv_heads=2, head_dim=32), table.entry("digest_merge")]

    found = certificates(entries, "sm_90", store)
    assert len(list(instances(entries[0]))) == len(found)
    assert found == certificates(entries, "sm_90", store, certified_only=True)
    assert all("KV_HEADS=2" in name and "warps=" in name for name in found)


def test_where_certificates_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the folder that the environment names, or under the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(FOLDER, raising=False)
    assert tmp_path / "vosti" / "certificates" == default_store().folder
    monkeypatch.setenv(FOLDER, str(tmp_path / "other"))
    assert tmp_path / "other" == default_store().folder
