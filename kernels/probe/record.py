"""What a probe of a GPU found, written down, and kept where the engine looks before it uses such a GPU."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vosti.kernels.errors import KernelError
from vosti.kernels.probe.findings import Finding

FOLDER = "VOSTI_PROBES"
"""Environment variable: where records are kept, if not under the user's cache."""

_KERNELS = Path(__file__).parents[1]

_SOURCES = (
    *sorted(Path(__file__).parent.glob("*.py")),
    *sorted(_KERNELS.glob("*.py")),
    *sorted(_KERNELS.glob("tiles/*.json")),
    _KERNELS / "verifier" / "rules.py",
)


class RecordError(KernelError):
    """A file is no record of a probe; the message says which, and how to make one."""


@dataclass(frozen=True)
class Subject:
    """What a record is about: it holds for no other."""

    gpu: str
    """Name, as the driver gives it."""

    architecture: str
    """Compute capability, as tables name it: sm_90."""

    driver: str
    compiler: str
    """Triton, with its version."""

    sources: str
    """Digest of the probes, and of what they are about: the rules, the kernels, the tables of tiles."""

    @classmethod
    def of(cls, gpu: str, architecture: str, driver: str, compiler: str) -> Subject:
        """With the probes, rules, kernels and tables as they are now."""
        return cls(gpu, architecture, driver, compiler, sources_digest())

    @property
    def file(self) -> str:
        """The name of the file of its record."""
        named = "\n".join(asdict(self).values())
        return f"{self.architecture}-{hashlib.sha256(named.encode()).hexdigest()[:32]}.json"


@dataclass(frozen=True)
class Record:
    """What was found."""

    subject: Subject
    torch: str
    """Its version: it makes the data."""

    seed: int
    date: str
    """In UTC, as in 2026-01-31."""

    table: str
    """Digest of the table whose tiles were tried."""

    findings: tuple[Finding, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """The rules that did not pass in every form, sorted."""
        return tuple(sorted({finding.rule for finding in self.findings if finding.problem is not None}))

    @property
    def digest(self) -> str:
        """SHA-256 of all but the date: a probe that finds the same again gives the same."""
        return hashlib.sha256(json.dumps({**asdict(self), "date": ""}, sort_keys=True).encode()).hexdigest()

    def lacking(self, rules: Iterable[str]) -> tuple[str, ...]:
        """Which of some rules nothing was found about, sorted."""
        return tuple(sorted(set(rules) - {finding.rule for finding in self.findings}))


def encode(record: Record) -> str:
    """As JSON; what is derived is there for readers."""
    findings = [{**asdict(finding), "problem": finding.problem} for finding in record.findings]
    document = {**asdict(record), "findings": findings, "failed": record.failed, "digest": record.digest}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def decode(text: str) -> Record:
    """From JSON. Raises `RecordError` if it is no record, or one that was edited."""
    try:
        document = json.loads(text)
        record = Record(
            subject=Subject(**document["subject"]),
            findings=tuple(_finding(one) for one in document["findings"]),
            **{name: document[name] for name in ("torch", "seed", "date", "table")},
        )
        digest = document["digest"]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecordError(f"This is no record of a probe ({error!r}): make one with vosti probe.") from error
    if digest != record.digest:
        raise RecordError("This record of a probe does not have the digest that it names: make one with vosti probe.")
    return record


def _finding(document: Mapping[str, Any]) -> Finding:
    fields = {name: value for name, value in document.items() if name != "problem"}
    return Finding(**{**fields, "classes": tuple(fields["classes"])})


def sources_digest() -> str:
    """SHA-256 of the text of the probes, the rules, the kernels and the tables."""
    return hashlib.sha256("\0".join(path.read_text() for path in _SOURCES).encode()).hexdigest()


@dataclass(frozen=True)
class Store:
    """Records in a folder, a file for each GPU, driver, compiler and text of the probes and kernels."""

    folder: Path

    def record(self, subject: Subject) -> Record | None:
        """The one about this very subject; None if there is none. Raises `RecordError` for a file that is none."""
        path = self.folder / subject.file
        if not path.exists():
            return None
        try:
            found = decode(path.read_text())
        except RecordError as error:
            raise RecordError(f"{path}: {error}") from error
        if found.subject != subject:
            raise RecordError(f"{path} is the record of another GPU, driver or compiler: make one with vosti probe.")
        return found

    def keep(self, record: Record) -> Path:
        """Keep a record in place of the one before it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / record.subject.file
        # Somebody may be reading it: a file is whole or not there.
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(encode(record))
        temporary.replace(path)
        return path


def default_store() -> Store:
    """The store that `FOLDER` names, or the one in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Store(Path(os.environ.get(FOLDER) or cache / "vosti" / "probes"))
