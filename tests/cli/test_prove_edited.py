"""`vosti prove` of a project in which one line is wrong: not proved, and a run that shows what breaks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = "from vosti.impl.cli import main; import vosti.spec; print(vosti.spec.__file__); main()"


def proved(tmp_path: Path, file: str, old: str, new: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `vosti prove` on a copy of the project, edited."""
    for folder in ("spec", "impl", "refinement", "kernels", "proofs"):
        ignored = shutil.ignore_patterns("__pycache__", "checkpoints", "tiles")
        shutil.copytree(ROOT / folder, tmp_path / "vosti" / folder, ignore=ignored)
    path = tmp_path / "vosti" / file
    text = path.read_text()
    assert 1 == text.count(old)
    path.write_text(text.replace(old, new))
    command = [sys.executable, "-c", PROGRAM, "prove", *arguments, "--solver", "z3", "--jobs", "1", "--fresh"]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )


@pytest.mark.parametrize(
    ("file", "old", "new", "arguments", "unproved", "refuted"),
    [
        (
            "spec/actions.py",
            " and all(child.parent != page_id for child in s.pages.values())",
            "",
            ("spec", "--action", "evict"),
            "not proved: inductive/evict: parents_precede: z3 says ",
            "Refuted by a run of the specification:\n",
        ),
        (
            "impl/pool.py",
            "return page_id in pool.idle and pool.pages[page_id].children == 0",
            "return page_id in pool.idle",
            ("refinement", "--action", "evict"),
            "not proved: pool_refinement/evict",
            "Refuted by a run of the page pool:\n",
        ),
    ],
    ids=["specification", "page pool"],
)
def test_eviction_of_a_parent_is_not_proved(
    tmp_path: Path, file: str, old: str, new: str, arguments: tuple[str, ...], unproved: str, refuted: str
) -> None:
    """Evict without the leaf condition: the obligation is named, and a run breaks the invariant."""
    ended = proved(tmp_path, file, old, new, *arguments)

    assert (1, "") == (ended.returncode, ended.stderr)
    assert ended.stdout.startswith(str(tmp_path))
    assert unproved in ended.stdout
    assert refuted in ended.stdout
    assert "evict" in ended.stdout.partition(refuted)[2]
    assert "Not proved: " in ended.stdout.splitlines()[-1]
