"""Processes that compile and prove: what is done there and what here, what is raised, and that none is left."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from vosti.kernels.catalogue import KERNELS, TARGETS, Instance, instances
from vosti.kernels.devices import compile_ahead
from vosti.kernels.errors import KernelError, PremiseError
from vosti.kernels.launch import Kernel
from vosti.kernels.tables import load
from vosti.kernels.verifier.errors import FaultError
from vosti.kernels.workers import FEW, ProcessDiedError, Workers


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """Two processes, for all tests that leave them alive."""
    with Workers(2) as made:
        yield made


def note(folder: Path, name: str) -> None:
    """Leave a file that says which process was here."""
    print("this is no answer")
    (folder / name).write_text(str(os.getpid()))


def refuse(kind: type[Exception]) -> None:
    """Raise an error."""
    raise kind("for a reason")


def processes(folder: Path) -> dict[str, int]:
    """Which process did what."""
    return {path.name: int(path.read_text()) for path in folder.iterdir()}


def alive(process: int) -> bool:
    """Whether a process runs; one that ended may still be listed, until somebody has asked how."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_every_task_is_done_elsewhere(tmp_path: Path, workers: Workers) -> None:
    """Each once, by the same processes however often they are asked, and answers are counted one by one."""
    for names in ("abcdef", "ghi"):
        assert [None] * len(names) == list(workers.do([partial(note, tmp_path, name) for name in names]))

    found = processes(tmp_path)
    assert sorted(found) == list("abcdefghi")
    assert os.getpid() not in found.values()
    assert len(set(found.values())) <= 2


@pytest.mark.parametrize(("jobs", "count"), [(1, FEW), (2, FEW - 1)], ids=["one process", "few tasks"])
def test_what_is_not_worth_a_process_is_done_here(tmp_path: Path, jobs: int, count: int) -> None:
    """With one process, or few tasks."""
    with Workers(jobs) as here:
        list(here.do([partial(note, tmp_path, str(number)) for number in range(count)]))

    assert [os.getpid()] * count == list(processes(tmp_path).values())


def test_errors_come_back(tmp_path: Path, workers: Workers) -> None:
    """Those of the project as they are, with their words; others by name. The processes go on."""
    for kind, raised, words in (
        (PremiseError, PremiseError, "^for a reason$"),
        (ValueError, KernelError, "^ValueError: for a reason$"),
    ):
        with pytest.raises(raised, match=words):
            list(workers.do([partial(refuse, kind)]))
        list(workers.do([partial(note, tmp_path, kind.__name__)]))
    assert {"PremiseError", "ValueError"} == set(processes(tmp_path))


def test_a_fault_comes_back(workers: Workers) -> None:
    """With what it says of itself, once."""
    with pytest.raises(FaultError) as raised:
        list(workers.do([partial(refuse, FaultError)] * FEW))
    assert str(FaultError("for a reason")) == str(raised.value)


def test_an_error_leaves_no_answers_behind(tmp_path: Path) -> None:
    """What was to be done after the task that raised is given up; what is asked next is answered."""
    with Workers(2) as some:
        with pytest.raises(PremiseError):
            list(some.do([partial(refuse, PremiseError), *(partial(refuse, ValueError) for _ in range(FEW))]))
        assert [None] * FEW == list(some.do([partial(note, tmp_path, str(number)) for number in range(FEW)]))
    assert FEW == len(processes(tmp_path))


def test_a_process_that_dies_is_noticed(tmp_path: Path) -> None:
    """And nobody waits for its answer; no process is left."""
    with Workers(2) as some:
        list(some.do([partial(note, tmp_path, str(number)) for number in range(8)]))
        assert all(map(alive, processes(tmp_path).values()))
        with pytest.raises(ProcessDiedError, match=r"perhaps for want of memory: .*--jobs 1"):
            list(some.do([partial(os._exit, 1)]))

    assert not any(map(alive, processes(tmp_path).values()))


def test_kernels_travel_by_name() -> None:
    """Those of the catalogue arrive as they are; another of the same name is refused."""
    (instance,) = instances(load("sm_90").entry("embedding", width=256, scaled=0))
    assert pickle.loads(pickle.dumps(instance)) == instance

    other = Kernel(KERNELS["embedding"].function, KERNELS["embedding"].contract)
    with pytest.raises(pickle.PicklingError, match="embedding is no kernel of the catalogue"):
        pickle.dumps(Instance(other, instance.constants, instance.tile))


KEPT = """
from vosti.kernels.catalogue import TARGETS, instances
from vosti.kernels.devices import compile_ahead
from vosti.kernels.tables import load
from vosti.kernels.workers import Workers

(form,) = instances(load("sm_90").entry("embedding", width=256, scaled=0))
print(form.kept(TARGETS["sm_90"]))
compile_ahead([form], "sm_90", Workers(1))
print(form.kept(TARGETS["sm_90"]).asm["cubin"] == form.compiled(TARGETS["sm_90"]).asm["cubin"])
"""


def test_what_the_compiler_keeps_is_found(tmp_path: Path) -> None:
    """With an empty cache nothing is found, and nothing compiled; afterwards the binary is."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, check=True, env=environment)

    assert ["None", "True"] == run.stdout.splitlines()


def test_what_cannot_be_compiled_is_left_to_others() -> None:
    """Whoever needs it sees the compiler's own words."""
    (instance,) = instances(load("sm_90").entry("embedding", width=256, scaled=0))
    broken = Instance(instance.kernel, {**instance.constants, "WIDTH": "none"}, instance.tile)  # type: ignore[dict-item]

    compile_ahead([broken], "sm_90", Workers(1))
    with pytest.raises(Exception, match=r"."):
        broken.compiled(TARGETS["sm_90"])
