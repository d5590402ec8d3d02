"""Records of probes: what is written is what is read; an edited one, and one about something else, is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from vosti.kernels.probe.findings import Finding
from vosti.kernels.probe.record import FOLDER, Record, RecordError, Store, Subject, decode, default_store, encode

SUBJECT = Subject.of("NVIDIA H100", "sm_90", "580.1", "triton 3.6.0")
GOOD = Finding("chain", "bf16 16x64x16 warps=4", ("mma",), 1000, 0, 7)
RECORD = Record(SUBJECT, "2.11.0", 0, "2026-01-31", "ab" * 32, (GOOD, replace(GOOD, rule="two lanes", classes=())))


def test_what_is_written_is_read() -> None:
    """The whole record, with what readers want to see."""
    text = encode(RECORD)

    assert RECORD == decode(text)
    assert ([], RECORD.digest) == (json.loads(text)["failed"], json.loads(text)["digest"])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"different": 3}, "3 of 1000 elements differ"),
        ({"control": 0}, "its control was not found, so that the data show nothing"),
        ({"compared": 0}, "nothing was compared"),
    ],
)
def test_one_form_that_fails_fails_the_rule(change: dict[str, int], problem: str | None) -> None:
    """Whether elements differ, the control was not found, or nothing was compared."""
    bad = replace(GOOD, **change)
    record = replace(RECORD, findings=(*RECORD.findings, bad))

    assert problem == bad.problem
    assert (("chain",) if problem else ()) == record.failed
    assert record == decode(encode(record))


def test_the_digest_is_of_what_was_found() -> None:
    """Another day gives the same digest, another finding another."""
    assert RECORD.digest == replace(RECORD, date="2027-01-01").digest
    for other in (
        replace(RECORD, seed=1),
        replace(RECORD, findings=RECORD.findings[:1]),
        replace(RECORD, subject=replace(SUBJECT, driver="580.2")),
    ):
        assert RECORD.digest != other.digest


def test_rules_that_nothing_was_found_about_are_named() -> None:
    """A record that leaves one out does not speak for it."""
    assert ("empty total",) == RECORD.lacking(["two lanes", "empty total", "chain"])


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"subject": 3}', encode(RECORD).replace('"control": 7', '"control": 8')]
)
def test_what_is_no_record_is_refused(text: str) -> None:
    """Something else, and a record that was edited; the message says how to make one."""
    with pytest.raises(RecordError, match="make one with vosti probe"):
        decode(text)


def test_a_store_finds_only_what_is_about_the_subject(tmp_path: Path) -> None:
    """Another GPU, driver, compiler or text of the probes has none; a file under a wrong name is refused."""
    store = Store(tmp_path / "probes")
    assert store.record(SUBJECT) is None
    path = store.keep(RECORD)

    assert RECORD == store.record(SUBJECT)
    for name in ("gpu", "architecture", "driver", "compiler", "sources"):
        assert store.record(replace(SUBJECT, **{name: "another"})) is None
    other = replace(SUBJECT, gpu="NVIDIA H800")
    path.rename(path.with_name(other.file))
    with pytest.raises(RecordError, match="another GPU"):
        store.record(other)


def test_where_records_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the folder that the environment names, or in the user's cache."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert Store(tmp_path) == default_store()
    monkeypatch.delenv(FOLDER)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Store(tmp_path / "vosti" / "probes") == default_store()
