"""Kernels compiled and proved in several processes at once, each task of which is a call without arguments.

One process is started, `python -m vosti.kernels.workers JOBS`. It imports what the work needs and computes what the
compiler needs to know of itself, once, and then divides itself into as many as are asked for. (A caller that divided
itself would take its threads' locks and its hold on a GPU along; one that started each of them would wait for all their
imports; and the standard library's pools import the caller's main module anew: a script that loads a model without a
guard for that would run again in each process.)
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib.util import find_spec
from multiprocessing import get_context
from types import TracebackType
from typing import IO, Self

from vosti.kernels.errors import KernelError

Task = Callable[[], object]
"""Work that another process can do: functions and arguments are found there by name. What it returns is dropped."""

FEW = 3
"""Fewer tasks are done here: the other processes would take longer to start."""

MOST = 32
"""More processes would take more memory, and wait for the longest proof."""


class ProcessDiedError(KernelError):
    """A process died at work, or did not start."""

    def __init__(self) -> None:
        super().__init__(
            "A process that compiles and proves kernels died, perhaps for want of memory: there are as many of them as "
            "processors; vosti certify --jobs 1 makes certificates in one."
        )


class Workers:
    """Processes that are started when they are needed first, and ended with the block.

    Raises, out of `do`, what a task raises, if it is a `KernelError`; `KernelError` for anything else.
    """

    def __init__(self, jobs: int | None = None) -> None:
        """So many processes; as many as there are processors, and `MOST`, if None. With one, the caller's does all."""
        self._jobs = jobs or min(len(os.sched_getaffinity(0)), MOST)
        self._started: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._started is not None:
            # Whatever they still do is of no use.
            os.killpg(self._started.pid, signal.SIGKILL)
            self._started.communicate()
            self._started = None

    def do(self, tasks: Sequence[Task]) -> Iterator[None]:
        """Do all of the tasks, of which none may need another; yields as each is done, in order."""
        if self._jobs == 1 or (self._started is None and len(tasks) < FEW):
            for task in tasks:
                task()
                yield
            return
        request, awaited = pickle.dumps(list(tasks)), len(tasks)
        requests, answers = self._pipes()
        try:
            requests.write(request)
            requests.flush()
            while awaited:
                problem = pickle.load(answers)
                awaited -= 1
                if problem is not None:
                    raise problem
                yield
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
            raise ProcessDiedError from error
        finally:
            if awaited:
                # Nobody takes what they have yet to answer.
                self._end()

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._started is None:
            # The same modules are found, wherever this process found its own.
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            self._started = subprocess.Popen(
                [sys.executable, "-m", __name__, str(self._jobs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                # All of them are ended together, and none by a key that is pressed.
                start_new_session=True,
            )
        assert self._started.stdin is not None
        assert self._started.stdout is not None
        return self._started.stdin, self._started.stdout


def _done(task: Task) -> KernelError | None:
    """Do a task; what became of it."""
    try:
        task()
    except KernelError as error:
        return error
    except Exception as error:
        return KernelError(f"{type(error).__name__}: {error}")
    return None


def _prepare() -> None:
    """Import what proofs need, and have the compiler know its own digest, before there are several processes."""
    from vosti.kernels.catalogue import FIXED, TARGETS

    if find_spec("z3") is not None:
        import vosti.kernels.verifier.prove  # noqa: F401
    FIXED[0].kept(next(iter(TARGETS.values())))


def main(jobs: int) -> None:
    """Do what is asked for, list by list, and answer for each task, until nothing more comes."""
    # What a task prints is no answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _prepare()
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        while True:
            try:
                tasks: list[Task] = pickle.load(sys.stdin.buffer)
            except EOFError:
                break
            for problem in pool.map(_done, tasks):
                pickle.dump(problem, answers)
                answers.flush()


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except BrokenProcessPool:
        # The caller sees that no answer comes.
        sys.exit(1)
