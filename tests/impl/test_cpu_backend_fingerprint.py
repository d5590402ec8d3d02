"""The configuration W of the CPU backend: what may change a value, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from checkpoint_files import copy_bundled
from forwards import CHECKPOINTS
from vosti.impl.backends import fingerprint as module
from vosti.impl.backends.cpu import CpuBackend
from vosti.impl.backends.torch_ops import TorchOps
from vosti.impl.fingerprint import source_digest
from vosti.impl.models.model import Model


@pytest.fixture(scope="module")
def model() -> Model:
    """A bundled checkpoint."""
    return Model.load(CHECKPOINTS / "tiny-llama3")


def _changed(expected: dict[str, object], found: dict[str, object]) -> set[str]:
    assert expected.keys() == found.keys()
    return {name for name in expected if expected[name] != found[name]}


def test_it_is_plain_data_without_a_path(model: Model) -> None:
    """The fingerprint is JSON, names torch and processor, and knows neither folder nor pool."""
    backend = CpuBackend(model)
    before = backend.fingerprint()
    backend.allocate(7, 4)
    text = json.dumps(before)

    assert before == backend.fingerprint() == json.loads(text)
    assert str(CHECKPOINTS) not in text
    assert (torch.__version__, 1, "float32", 16) == tuple(before[n] for n in ("torch", "threads", "dtype", "row_tile"))


def test_the_caller_cannot_change_it(model: Model) -> None:
    """Each call gives a mapping of its own."""
    backend = CpuBackend(model)
    backend.fingerprint()["weights"] = "other"

    assert model.weights_identity == backend.fingerprint()["weights"]


def test_a_copy_elsewhere_has_the_same(model: Model, tmp_path: Path) -> None:
    """Where a checkpoint lies, how long its contexts may be, and what ends a sequence do not change values."""
    copy = copy_bundled("tiny-llama3", tmp_path / "copy", max_position_embeddings=64, eos_token_id=7)
    (copy / "generation_config.json").unlink()

    assert CpuBackend(model).fingerprint() == CpuBackend(Model.load(copy)).fingerprint()


def test_another_model_has_another(model: Model, tmp_path: Path) -> None:
    """Another epsilon changes config and plan; other weights change the weights."""
    base = CpuBackend(model).fingerprint()
    other = Model.load(copy_bundled("tiny-llama3", tmp_path / "other", rms_norm_eps=2e-5))

    assert {"config", "plan"} == _changed(base, CpuBackend(other).fingerprint())
    assert {"weights"} == _changed(base, CpuBackend(replace(model, weights_identity="0")).fingerprint())


def test_another_primitive_has_another(model: Model) -> None:
    """An opaque primitive with other bits, as another processor may have, changes the probe."""

    class Other(TorchOps):
        def exp(self, x: Tensor) -> Tensor:
            return torch.exp(x.double()).float()

    base = CpuBackend(model).fingerprint()

    assert {"primitives"} == _changed(base, CpuBackend(model, Other()).fingerprint())


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('"""Other words."""\ndef f(x):\n    # why\n    return x + 1\n', True),
        ("def f(x):\n    return x + 2\n", False),
        ("def f(x):\n    return 1 + x\n", False),
    ],
)
def test_words_are_no_part_of_a_row_program(text: str, same: bool, tmp_path: Path) -> None:
    """Docstrings and comments do not change the digest of the row programs' text; operations and their order do."""

    def digest(source: str) -> str:
        (tmp_path / "program.py").write_text(source)
        return source_digest([tmp_path / "program.py"])

    assert same == (digest('def f(x):\n    """Words."""\n    return x + 1\n') == digest(text))


def test_every_module_that_values_pass_through_is_digested(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change in any of the row programs, or in any module that runs them, changes the digest."""
    read: set[str] = set()
    sound = Path.read_text

    def recording(path: Path, *arguments: Any, **options: Any) -> str:
        read.add(path.stem)
        return sound(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", recording)
    module.programs_digest()

    row_programs = {"activations", "attention", "norms", "ops", "projections", "rotary"}
    assert row_programs | {"cpu", "lanes", "programs", "torch_ops"} == read
