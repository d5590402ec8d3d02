"""What the project ships: every package of the five folders, the two checkpoints, and pinned tools."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOPS = ("spec", "impl", "refinement", "kernels", "proofs")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_is_listed() -> None:
    """A subpackage missing from pyproject.toml works in an editable install and is absent from the wheel."""
    listed = PROJECT["tool"]["setuptools"]["packages"]
    found = {
        "vosti." + ".".join(path.parent.relative_to(ROOT).parts)
        for top in TOPS
        for path in (ROOT / top).rglob("__init__.py")
    }

    assert sorted(found) == listed


@pytest.mark.parametrize("top", TOPS)
def test_modules_stand_in_packages(top: str) -> None:
    """A folder of modules without `__init__.py` would be importable here and absent from the wheel."""
    folders = {path.parent for path in (ROOT / top).rglob("*.py")}

    assert [] == sorted(str(folder) for folder in folders if not (folder / "__init__.py").exists())


@pytest.mark.parametrize("top", TOPS)
def test_type_checkers_see_the_import_names(top: str) -> None:
    """Each folder carries its types, and the link that gives type checkers its import name leads to it."""
    link = ROOT / ".pkg" / "vosti" / top

    assert (ROOT / top / "py.typed").exists()
    assert f"../../{top}" == os.readlink(link)
    assert ROOT / top == link.resolve()


@pytest.mark.parametrize("name", ["tiny-llama3", "tiny-gemma3"])
def test_checkpoints_are_shipped(name: str) -> None:
    """Every file of a bundled checkpoint is matched by the package data."""
    package = ROOT / "impl"
    shipped = {
        path
        for pattern in PROJECT["tool"]["setuptools"]["package-data"]["vosti.impl"]
        for path in package.glob(pattern)
    }
    folder = package / "checkpoints" / name
    wanted = {
        folder / file for file in ("config.json", "generation_config.json", "tokenizer.json", "model.safetensors")
    }

    assert wanted == set(folder.iterdir())
    assert wanted <= shipped


@pytest.mark.parametrize("top", TOPS)
def test_data_files_are_shipped(top: str) -> None:
    """Every file beside the modules, such as a workload, is matched by the package data."""
    patterns = PROJECT["tool"]["setuptools"]["package-data"].get(f"vosti.{top}", [])
    shipped = {path for pattern in patterns for path in (ROOT / top).glob(pattern)}
    found = {path for path in (ROOT / top).rglob("*") if path.is_file() and "__pycache__" not in path.parts}

    assert set() == {path for path in found - shipped if path.suffix != ".py" and path.name != "py.typed"}


def test_everything_installed_is_pinned() -> None:
    """Each requirement of each extra has one exact version in the constraints file, and no line names a place."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins = [re.fullmatch(r"([A-Za-z0-9._-]+)==[0-9][0-9a-z.]*", line) for line in lines]
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = PROJECT["project"]["dependencies"] + [requirement for extra in extras.values() for requirement in extra]

    assert None not in pins
    pinned = {pin.group(1).lower() for pin in pins if pin}
    assert len(lines) == len(pinned)
    assert set() == {re.split("[<>=]", requirement)[0] for requirement in wanted} - pinned


@pytest.mark.parametrize(("floor", "code"), [(1, 0), (10_000, 1)])
def test_a_run_that_lost_its_tests_is_not_green(floor: int, code: int) -> None:
    """`--at-least N` passes when N tests passed, and fails when fewer did."""
    test = "tests/test_packaging.py::test_everything_installed_is_pinned"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--at-least", str(floor), test]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert code == run.returncode, run.stdout + run.stderr
    assert (code == 1) == ("Only 1 tests passed" in run.stdout)


def test_one_thread() -> None:
    """Tests compare bits, so torch runs on one thread."""
    import torch

    assert 1 == torch.get_num_threads()
