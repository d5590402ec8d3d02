"""Suites of `vosti determinism` on one GPU, several at once, in a given time: prints what became of each, last.

    python3 run_determinism.py FOLDER SECONDS --in-turn JOB... --beside JOB... [--lanes N]

A JOB is SUITE:MODEL with dummy weights, and perhaps `:axes=A,B`, `:engine=transformers`, `:seconds=N`. The jobs in turn
are those that fill the GPU: the next one starts when few pairs of the one before are left, so that the GPU works while
it loads. The jobs beside them, which mostly wait for Python and small launches, run in N lanes. Each is a process of
its own, begins only if the GPU has room for it, and is stopped when the time is up: results are kept in FOLDER case by
case, and a later call takes what is missing. Weights are made on the GPU: loading takes no memory of the host.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from vosti.impl.bundled import find_checkpoint
from vosti.impl.models.families import load_config

VOSTI = (sys.executable, "-c", "import sys; from vosti.impl.cli import main; sys.exit(main())", "determinism")

POOL = 768 * 64
"""Slots of the suites' largest pool."""

CARD = 134.0
"""GB that all processes may take together, of an H200's 150."""

BESIDE = 6.0
"""GB that a process takes beside weights and pool: buffers of a forward of 32,768 rows, and the driver's own."""

FEW = 24
"""Pairs that are left of a job in turn when the next one starts: of the longest prompts, most of a minute."""

POLL = 0.5
"""Seconds between two looks."""

NEWS = 60.0
"""Seconds between two accounts of what runs."""

VERDICTS = (0, 1, 2)
"""Exit codes with which `vosti determinism` says something of pairs."""

FRESH = ("batch/fresh", "restart/")
"""Cases that load the model again in another process begin so."""


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

    def file(self, folder: Path) -> Path:
        """Its results, which it may share with jobs of other axes."""
        return folder / f"{self.model}-dummy-0.{self.engine}.{self.suite}.ndjson"

    def command(self, folder: Path) -> list[str]:
        """What runs it."""
        options = ["--backend", "cuda", "--dummy-weights", "0", "--engine", self.engine, "--suite", self.suite]
        options += ["--unsafe-unverified"] if self.engine == "vosti" else []  # proofs are made elsewhere; W says so
        return [*VOSTI, self.model, *options, "--report", str(folder), *(["--axes", self.axes] if self.axes else [])]


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
        """The cases of these axes (all if empty) that are not done, with their pairs; None if nobody knows."""
        if not self.lines:
            return None
        header, done = self.lines[0], {line["case"] for line in self.lines[1:]}
        wanted = axes.split(",") if axes else set(header["axes"].values())
        counts = header["counts"].items()
        return [(case, count) for case, count in counts if case not in done and header["axes"][case] in wanted]

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


@dataclass
class Running:
    """A process that runs a job."""

    job: Job
    process: subprocess.Popen[bytes]
    since: float


@dataclass
class Jobs:
    """All processes, and what they may still take."""

    folder: Path
    begin: float = field(default_factory=time.monotonic)
    running: list[Running] = field(default_factory=list)

    def missing(self, job: Job) -> list[tuple[str, int]] | None:
        """The cases of a job that are not done."""
        return Progress.of(job.file(self.folder)).missing(job.axes)

    def need(self, job: Job) -> float:
        """GB that a job takes at most from now on."""
        missing = self.missing(job)
        again = missing is None or any(case.startswith(FRESH) for case, _ in missing)
        return size(job.model) * (2 if again else 1) + BESIDE

    def may_start(self, job: Job) -> bool:
        """Whether there is room, and nobody writes to the job's file."""
        busy = {running.job.file(self.folder) for running in self.running}
        taken = sum(self.need(running.job) for running in self.running)
        return job.file(self.folder) not in busy and taken + self.need(job) <= CARD

    def start(self, job: Job) -> None:
        """Start a job, unless nothing of it is missing."""
        if self.missing(job) == []:
            self.say("done before", job)
            return
        log = self.log(job)
        log.parent.mkdir(exist_ok=True)
        # One thread each: the processes share the host's cores.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with log.open("ab") as file:
            process = subprocess.Popen(
                job.command(self.folder), stdout=file, stderr=file, env=environment, start_new_session=True
            )
        self.running.append(Running(job, process, time.monotonic()))
        self.say("started", job)

    def log(self, job: Job) -> Path:
        """Where a job's output goes."""
        return self.folder / "logs" / f"{job.name.replace(' ', '_')}.log"

    def look(self) -> None:
        """Let go of those that ended, and stop those whose time is up."""
        for running in list(self.running):
            if running.process.poll() is not None:
                self.running.remove(running)
                self.say(f"ended with {running.process.returncode}", running.job)
                if running.process.returncode not in VERDICTS:
                    print(*self.log(running.job).read_text(errors="replace").splitlines()[-5:], sep="\n")
            elif time.monotonic() - running.since > running.job.seconds:
                self.stop(running)

    def stop(self, running: Running) -> None:
        """End a process, and those that it started."""
        os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait()
        self.running.remove(running)
        self.say("stopped", running.job)

    def say(self, what: str, job: Job) -> None:
        """Print a line."""
        missing = self.missing(job)
        left = "?" if missing is None else sum(count for _, count in missing)
        print(f"{time.monotonic() - self.begin:5.0f} s  {what}: {job.name}, {left} pairs left", flush=True)

    def few_left(self, jobs: Sequence[Job]) -> bool:
        """Whether of those that run, of these jobs, at most one is left, and little of it."""
        active = [running.job for running in self.running if running.job in jobs]
        if not active:
            return True
        missing = self.missing(active[0])
        return len(active) == 1 and missing is not None and sum(count for _, count in missing) <= FEW


def run(jobs: Jobs, in_turn: Sequence[Job], beside: Sequence[Job], lanes: int, seconds: float) -> None:
    """Run the jobs until all have ended, or the time is up."""
    waiting, others, told = list(in_turn), list(beside), jobs.begin
    while time.monotonic() - jobs.begin < seconds and (waiting or others or jobs.running):
        jobs.look()
        if waiting and jobs.few_left(in_turn) and jobs.may_start(waiting[0]):
            jobs.start(waiting.pop(0))
        if others and sum(running.job in beside for running in jobs.running) < lanes:
            able = next((job for job in others if jobs.may_start(job)), None)
            if able is not None:
                others.remove(able)
                jobs.start(able)
        if time.monotonic() - told > NEWS:
            told += NEWS
            for running in jobs.running:
                jobs.say("runs", running.job)
        time.sleep(POLL)
    for running in list(jobs.running):
        jobs.stop(running)
    for job in (*waiting, *others):
        jobs.say("not begun", job)


def report(folder: Path) -> bool:
    """Print a table of all results in the folder; return whether no pair differs and none compares nothing."""
    good = True
    for path in sorted(folder.glob("*.ndjson")):
        progress = Progress.of(path)
        if not progress.lines:
            continue
        counts = dict(progress.counts())
        total = sum(counts.values(), Counter())
        seconds = sum(line["seconds"] for line in progress.lines[1:])
        print(
            f"\n{path.stem}, W {progress.lines[0]['fingerprint'][:16]}: {total['match']} of {total['all']} equal, "
            f"{total['mismatch']} differ, {total['invalid']} compare nothing, {seconds:.0f} s in cases"
        )
        print("  " + ", ".join(f"{axis} {count['match']}/{count['all']}" for axis, count in counts.items()))
        good &= not (total["mismatch"] or total["invalid"]) or ".vosti." not in path.name
    return good


def main() -> int:
    """Run the jobs, write the reports, and print the table. Exit code 1 if a pair of this engine is not equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--in-turn", nargs="*", type=Job.parse, default=[])
    parser.add_argument("--beside", nargs="*", type=Job.parse, default=[])
    parser.add_argument("--lanes", type=int, default=2)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    run(Jobs(given.folder), given.in_turn, given.beside, given.lanes, given.seconds)
    subprocess.run([*VOSTI, "--report", str(given.folder)], stdout=subprocess.DEVNULL, check=False)
    return 0 if report(given.folder) else 1


if __name__ == "__main__":
    sys.exit(main())
