"""Certificates made in several processes at once, each of which is `python -m vosti.kernels.verifier.workers FOLDER`.

A worker reads cases, a line of JSON for each, and answers each by a line: null if its certificate is kept now, or why
there is none. (The standard library's pools of processes import the caller's main module anew: a script that loads a
model without a guard for that would run again in each of them.)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from vosti.kernels.catalogue import KERNELS, SAMPLER, Instance
from vosti.kernels.tile import Tile
from vosti.kernels.verifier.entries import Case
from vosti.kernels.verifier.errors import RefusedError, VerifierError


def certify_in_processes(cases: Sequence[Case], folder: Path, jobs: int) -> Iterator[Case]:
    """Make the certificates of cases of this project's kernels, and keep them in a folder; yields each that is done.

    Raises:
        RefusedError: with the worker's words, for the first case that has none.
        VerifierError: if a worker dies.
    """
    # The same modules are found, wherever this process found its own.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", __name__, str(folder)]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(jobs)
    ]
    idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def certified(case: Case) -> Case:
        worker = idle.get()
        try:
            _ask(worker, case)
        finally:
            idle.put(worker)
        return case

    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield from pool.map(certified, cases)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.kill()
                worker.communicate()


def _ask(worker: subprocess.Popen[str], case: Case) -> None:
    """Have a worker make a certificate."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        print(_line(case), file=worker.stdin, flush=True)
        answer = worker.stdout.readline()
    except BrokenPipeError:
        answer = ""
    if not answer:
        raise VerifierError(
            f"The process that proved {case.name} died, perhaps for want of memory: make certificates with "
            "vosti certify --jobs 1."
        )
    problem = json.loads(answer)
    if problem is not None:
        raise RefusedError(problem)


def _line(case: Case) -> str:
    one = case.instance
    tile = [one.tile.blocks, one.tile.warps, one.tile.stages]
    return json.dumps([case.architecture, case.kernel, dict(one.constants), tile, dict(one.elements)])


def _case(line: str) -> Case:
    architecture, kernel, constants, (blocks, warps, stages), elements = json.loads(line)
    tile = Tile(tuple((name, size) for name, size in blocks), warps, stages)
    return Case(Instance({**KERNELS, **SAMPLER}[kernel], constants, tile, elements), architecture)


def main(folder: Path) -> None:
    """Make certificates until there is no further line."""
    from vosti.kernels.verifier.certify import Store

    store = Store(folder)
    for line in sys.stdin:
        case, problem = _case(line), None
        try:
            store.make(case)
        except VerifierError as error:
            problem = str(error)
        print(json.dumps(problem), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
