"""Jobs of `run_determinism.py`: what is run, what a file of results holds, and what memory a model takes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from vosti.impl.bundled import find_checkpoint
from vosti.impl.models.families import load_config

POOL = 768 * 64
"""Slots of the suites' largest pool."""

BESIDE = 6.0
"""GB that a process takes beside weights and pool: buffers of a forward of 32,768 rows, and the driver's own."""


@dataclass(frozen=True)
class Job:
    """A suite with a model."""

    suite: str
    model: str
    engine: str = "vosti"
    axes: str = ""
    seconds: float = float("inf")

    @classmethod
    def parse(cls, text: str) -> Job:
        """A job as the command line gives it."""
        suite, model, *rest = text.split(":")
        named: dict[str, Any] = dict(word.split("=", 1) for word in rest)
        if "seconds" in named:
            named["seconds"] = float(named["seconds"])
        return cls(suite, model, **named)

    @property
    def name(self) -> str:
        """What tables and logs call it."""
        return " ".join(filter(None, (self.model, self.suite, self.engine, self.axes)))

    @property
    def slug(self) -> str:
        """The name in file names."""
        return self.name.replace(" ", "_").replace("/", "_")

    @property
    def need(self) -> float:
        """GB that it takes at most: while a fresh process has the model, its own has let it go."""
        return size(self.model) + BESIDE

    def file(self, folder: Path) -> Path:
        """Its results, as `vosti determinism` names them."""
        return folder / f"{self.model}-dummy-0.{self.engine}.{self.suite}.ndjson"

    def arguments(self, folder: Path) -> list[str]:
        """Of `vosti determinism`."""
        options = ["--backend", "cuda", "--dummy-weights", "0", "--engine", self.engine, "--suite", self.suite]
        if self.engine == "vosti" and self.suite == "extended":
            options.append("--unsafe-unverified")  # with its pages of many sizes, proofs would take most of the time
        return [self.model, *options, "--report", str(folder), *(["--axes", self.axes] if self.axes else [])]

    def overlaps(self, other: Job) -> bool:
        """Whether some case may belong to both."""
        same = (self.suite, self.model, self.engine) == (other.suite, other.model, other.engine)
        mine, theirs = (job.axes.split(",") for job in (self, other))
        return same and any(a.startswith(b) or b.startswith(a) for a in mine for b in theirs)


@dataclass(frozen=True)
class Progress:
    """What a file of results holds."""

    lines: Sequence[dict[str, Any]] = ()

    @classmethod
    def of(cls, path: Path) -> Progress:
        """Of a file that may be missing, or be written to."""
        lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
        return cls([json.loads(line) for line in lines])

    def missing(self, axes: str) -> list[tuple[str, int]] | None:
        """The cases that are not done, with their pairs, of these axes or names that begin so; None if nobody knows."""
        if not self.lines:
            return None
        header, done = self.lines[0], {line["case"] for line in self.lines[1:]}
        wanted = axes.split(",") if axes else [""]
        counts = header["counts"].items()
        return [(case, count) for case, count in counts if case not in done and case.startswith(tuple(wanted))]

    def counts(self) -> Iterator[tuple[str, Counter[str]]]:
        """By axis, how many pairs there are in all, and of each state."""
        header = self.lines[0]
        found: dict[str, Counter[str]] = {axis: Counter() for axis in header["axes"].values()}
        for case, count in header["counts"].items():
            found[header["axes"][case]]["all"] += count
        for line in self.lines[1:]:
            found[header["axes"][line["case"]]].update(pair["state"] for pair in line["pairs"])
        yield from found.items()


@cache
def size(model: str) -> float:
    """GB of a model's weights and of the suites' largest pool."""
    config = load_config(find_checkpoint(model))
    weights = config.vocab_size * config.hidden_size * (1 if config.tied_head else 2)
    slot = 0
    for kind in config.layer_types:
        attention = config.attention[kind]
        queries, keys = config.heads * attention.head_dim, attention.kv_heads * attention.head_dim
        weights += config.hidden_size * (2 * queries + 2 * keys + 3 * config.intermediate_size)
        slot += 2 * keys
    return 2 * (weights + slot * POOL) / 1e9


def merge(part: Path, whole: Path) -> bool:
    """Add to the whole what only the part has; return whether both are of one configuration and suite."""
    found, kept = Progress.of(part).lines, Progress.of(whole).lines
    if found and kept and found[0] != kept[0]:
        return False
    if not found:
        return True
    done = {line["case"] for line in kept[1:]}
    added = [line for line in found[1:] if line["case"] not in done] if kept else found
    with whole.open("ab") as file:
        file.writelines(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in added)
    return True
