"""What is to be run on a GPU, as far as it goes without one: the interpreter beside binaries, on their own typed IR."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from launches import Launch
from vosti.kernels.catalogue import KERNELS, SAMPLER, instances

PROGRAM = Path(__file__).parents[1] / "gpu" / "interpreter_check.py"


@pytest.fixture(scope="module")
def check() -> ModuleType:
    """The program."""
    specification = importlib.util.spec_from_file_location("interpreter_check", PROGRAM)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    # Its dataclasses look their module up.
    sys.modules["interpreter_check"] = module
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def launches(check: ModuleType) -> list[Launch]:
    """A linear layer, a norm, a copy and a few draws, done by the interpreter in the GPU's place."""
    forms = [form for one in check.entries() for form in instances(one)]
    chosen = {form.kernel.contract.kernel: form for form in forms}
    some = [chosen[name] for name in ("linear", "rms_norm", "kv_store")]
    found: list[Launch] = check.launches(some, dry_run=True)
    return found


def test_every_kernel_is_among_them(check: ModuleType) -> None:
    """Of the catalogue, in each form that its options make."""
    forms = [form for one in check.entries() for form in instances(one)]

    assert set(KERNELS) == {form.kernel.contract.kernel for form in forms}
    options = ("NORM", "VALUE_NORM", "SHARED", "RESIDUAL", "MAPPED", "UNIT_OFFSET", "ACTIVATION", "CAPPED", "PAGE")
    for name in options:
        assert len({form.constants[name] for form in forms if name in form.constants}) > 1, name


def test_what_is_the_same_passes_and_faults_are_found(check: ModuleType, launches: list[Launch]) -> None:
    """Every element has the same bits; each fault that is seeded into the IR shows."""
    rows, unread = check.check(launches)

    assert {} == unread
    launched = {"linear", "rms_norm", "kv_store", *SAMPLER}
    assert launched == {name for name, row in rows.items() if row.launches}
    for name in launched:
        row = rows[name]
        assert (row.elements, 0) == (row.same, row.problems)
        assert 0 < row.faults == row.found


def test_what_nobody_wrote_allows_a_difference_beside_it(check: ModuleType, launches: list[Launch]) -> None:
    """NaN on both sides is no difference; NaN on one side is."""
    launch = next(one for one in launches if one.kernel == "linear")
    key, nan = launch.pointers["out"], 0x7FC0
    one = launch.after[key].copy()
    one[5] += 1
    read = check.parse(launch.text)

    assert check.compare(replace(launch, after={key: one}), read, check.Row())
    one[0] = nan
    assert not check.compare(replace(launch, after={key: one}), read, check.Row())
    # Where nothing is written.
    blank = replace(
        launch, numbers={**launch.numbers, "rows": 5}, before={**launch.before, key: np.full_like(one, nan)}
    )
    alone = np.full_like(one, nan)
    alone[: 5 * 40] = launch.after[key][: 5 * 40]
    alone[7] += 1
    assert check.compare(replace(blank, after={key: alone}), read, check.Row())


@pytest.mark.parametrize(
    ("kernel", "steps", "problems"), [("kv_store", 1, 1), ("rms_norm", 1, 1), ("linear", 1, 0), ("linear", 40, 1)]
)
def test_what_differs_is_found(
    check: ModuleType, launches: list[Launch], kernel: str, steps: int, problems: int
) -> None:
    """One bit, where bits are asked for; else more than a unit of bf16."""
    launch = next(one for one in launches if one.kernel == kernel)
    key = launch.pointers["keys" if kernel == "kv_store" else "out"]
    after = launch.after[key].copy()
    after[np.argmax(after != launch.before[key])] += steps
    rows, _ = check.check([replace(launch, after={**launch.after, key: after})])

    assert problems == rows[kernel].problems
    assert 1 == rows[kernel].elements - rows[kernel].same
