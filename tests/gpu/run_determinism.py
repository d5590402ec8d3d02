"""Suites of `vosti determinism` on one GPU, several at once, in a given time: prints what became of each, last.

    python3 run_determinism.py FOLDER SECONDS --in-turn JOB... --beside JOB... [--lanes N]

A JOB is SUITE:MODEL with dummy weights, and perhaps `:axes=A,B` (or how names of their cases begin), `:seconds=N`,
`:engine=transformers`. The jobs in turn are those that fill the GPU: the next one starts when few pairs of the one
before are left, so that the GPU works while it loads. The jobs beside them, which mostly wait for Python and small
launches, run in N lanes. Each is a process of its own, begins only if the GPU has room for it, and is stopped when the
time is up: results are kept in FOLDER case by case, and a later call takes what is missing. Weights are made on the
GPU: loading takes no memory of the host.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from determinism_jobs import Job, Progress, merge

VOSTI = (sys.executable, "-c", "import sys; from vosti.impl.cli import main; sys.exit(main())", "determinism")

CARD = 142.0
"""GB that all processes may take together, of an H200's 150."""

ROOM = "there is no room for it"
"""Why a job waits that only needs memory."""

FEW = 24
"""Pairs that are left of a job in turn when the next one starts: of the longest prompts, most of a minute."""

LOADING = 2
"""Processes that may load and compile at the same time."""

POLL = 0.5
"""Seconds between two looks."""

NEWS = 60.0
"""Seconds between two accounts of what runs."""

VERDICTS = (0, 1, 2)
"""Exit codes with which `vosti determinism` says something of pairs."""


@dataclass
class Running:
    """A process that runs a job."""

    job: Job
    process: subprocess.Popen[bytes]
    since: float
    known: int = 0
    """Bytes of results that it was given."""


@dataclass
class Jobs:
    """All processes, and what they may still take."""

    folder: Path
    begin: float = field(default_factory=time.monotonic)
    running: list[Running] = field(default_factory=list)

    def part(self, job: Job) -> Path:
        """The folder of a job that runs: jobs of other axes may run beside it."""
        return self.folder / "parts" / job.slug

    def missing(self, job: Job) -> list[tuple[str, int]] | None:
        """The cases of a job that are not done."""
        files = (job.file(self.part(job)), job.file(self.folder))
        return Progress.of(next((file for file in files if file.is_file()), files[-1])).missing(job.axes)

    def obstacle(self, job: Job) -> str | None:
        """Why a job may not start now: another runs the same cases, others load and compile, or there is no room."""
        loading = [running.job.model for running in self.running if self.is_loading(running)]
        if any(job.overlaps(other.job) for other in self.running):
            return "another runs the same cases"
        if len(loading) >= LOADING or job.model in loading:
            return "others load"
        taken = sum(running.job.need for running in self.running)
        return ROOM if taken + job.need > CARD else None

    def is_loading(self, running: Running) -> bool:
        """Whether a process has not added anything to what it was given."""
        file = running.job.file(self.part(running.job))
        return (file.stat().st_size if file.is_file() else 0) <= running.known

    def start(self, job: Job) -> None:
        """Start a job, unless nothing of it is missing."""
        if self.missing(job) == []:
            self.say("done before", job)
            return
        part, log = self.part(job), self.log(job)
        part.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(exist_ok=True)
        whole = job.file(self.folder)
        if whole.is_file():
            shutil.copy(whole, part)
        # One thread each: the processes share the host's cores.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with log.open("ab") as file:
            process = subprocess.Popen(
                [*VOSTI, *job.arguments(part)], stdout=file, stderr=file, env=environment, start_new_session=True
            )
        known = whole.stat().st_size if whole.is_file() else 0
        self.running.append(Running(job, process, time.monotonic(), known))
        self.say("started", job)

    def log(self, job: Job) -> Path:
        """Where a job's output goes."""
        return self.folder / "logs" / f"{job.slug}.log"

    def look(self) -> None:
        """Let go of those that ended, and stop those whose time is up."""
        for running in list(self.running):
            if running.process.poll() is not None:
                self.end(running, f"ended with {running.process.returncode}")
                if running.process.returncode not in VERDICTS:
                    print(*self.log(running.job).read_text(errors="replace").splitlines()[-5:], sep="\n")
            elif time.monotonic() - running.since > running.job.seconds:
                self.stop(running)

    def stop(self, running: Running) -> None:
        """End a process, and those that it started."""
        os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait()
        self.end(running, "stopped")

    def end(self, running: Running, what: str) -> None:
        """Add what a process found to the results."""
        job = running.job
        self.running.remove(running)
        part, whole = job.file(self.part(job)), job.file(self.folder)
        if merge(part, whole):
            shutil.rmtree(self.part(job))
        else:
            what += f", and {part} is of another configuration or suite than {whole}"
        self.say(what, job)

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
    crowded: list[Job] = []
    while time.monotonic() - jobs.begin < seconds and (waiting or others or jobs.running):
        jobs.look()
        lane = sum(running.job in beside for running in jobs.running) < lanes
        # Who waits for room would wait for ever, if the next one in turn took what the last one leaves.
        crowded += [job for job in others if lane and job not in crowded and jobs.obstacle(job) == ROOM]
        served = not lane or not any(job in others for job in crowded)
        if waiting and served and jobs.few_left(in_turn) and jobs.obstacle(waiting[0]) is None:
            jobs.start(waiting.pop(0))
        able = next((job for job in others if jobs.obstacle(job) is None), None) if lane else None
        if able is not None:
            others.remove(able)
            jobs.start(able)
        if time.monotonic() - told > NEWS:
            told += NEWS
            for running in jobs.running:
                jobs.say("runs", running.job)
            for job in (*waiting[:1], *others):
                if why := jobs.obstacle(job):
                    jobs.say(f"waits, since {why}", job)
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
    jobs = Jobs(given.folder)
    for job in (*given.in_turn, *given.beside):
        if job.need > CARD:
            parser.error(f"{job.name} takes {job.need:.0f} of {CARD:.0f} GB.")
    run(jobs, given.in_turn, given.beside, given.lanes, given.seconds)
    subprocess.run([*VOSTI, "--report", str(given.folder)], stdout=subprocess.DEVNULL, check=False)
    return 0 if report(given.folder) else 1


if __name__ == "__main__":
    sys.exit(main())
