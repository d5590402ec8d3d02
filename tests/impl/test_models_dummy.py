"""Dummy weights: the numbers that their recipe says, and models that compute something with them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from checkpoint_files import bundled_config, write_folder
from forwards import alone, random_tokens
from vosti.impl.backends.cpu import CpuBackend
from vosti.impl.bundled import SHAPES
from vosti.impl.errors import CheckpointError
from vosti.impl.models import dummy
from vosti.impl.models.dummy import DummyTensors
from vosti.impl.models.model import Model
from vosti.impl.models.plan import Source

CPU = torch.device("cpu")


def _expected(seed: int, source: Source, row: int, column: int) -> float:
    """One number by the recipe, in Python's integers and numpy's float32."""

    def key(axis: str) -> int:
        text = f"vosti dummy weights 1 {seed} {source.name} {axis}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")

    def stirred(x: int) -> int:
        for _ in range(2):
            x = ((x ^ (x >> 16)) * 0x45D9F3B) % 2**32
        return x ^ (x >> 16)

    number = (stirred(stirred(row ^ key("rows")) ^ stirred(column ^ key("columns"))) >> 8) - 2**23
    deviation = source.shape[-1] ** -0.5 if len(source.shape) == 2 else 0.125
    exact = np.float32(number) * np.float32(deviation * 3**0.5 * 2.0**-23) + np.float32(source.centre)
    return torch.tensor(exact).bfloat16().item()


@pytest.mark.parametrize(
    "source",
    [Source("a.weight", (37, 24)), Source("b.weight", (512,), 1.0), Source("c", (1,), 1.0), Source("d", (3, 1))],
)
@pytest.mark.parametrize("seed", [0, 2**70])
def test_numbers_are_those_of_the_recipe(source: Source, seed: int) -> None:
    """Every number of a tensor, recomputed one by one."""
    found = DummyTensors(seed).read(source, CPU)

    assert (torch.bfloat16, source.shape) == (found.dtype, tuple(found.shape))
    table = found.view(-1, source.shape[-1]).tolist()
    assert [[_expected(seed, source, r, c) for c in range(len(row))] for r, row in enumerate(table)] == table


def test_numbers_do_not_depend_on_how_many_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces of a few rows, or of one, or whole."""
    source = Source("x", (50, 33))
    whole = DummyTensors(3).read(source, CPU)
    for chunk in (1, 33, 100, 1000):
        monkeypatch.setattr(dummy, "CHUNK", chunk)
        assert torch.equal(whole, DummyTensors(3).read(source, CPU))


def test_numbers_scatter_as_they_should() -> None:
    """Mean, deviation and range of a large tensor; no two rows or columns go together; seeds and names differ."""
    source = Source("x", (400, 1000))
    numbers = DummyTensors(0).read(source, CPU).double()

    assert abs(numbers.mean().item()) < 3e-4
    assert numbers.std().item() == pytest.approx(1000**-0.5, rel=0.01)
    assert numbers.abs().max().item() == pytest.approx((3 / 1000) ** 0.5, rel=0.01)
    for rows in (numbers, numbers.t()):
        alike = torch.corrcoef(rows) - torch.eye(len(rows), dtype=torch.float64)
        assert alike.abs().max().item() < 6 / rows.shape[1] ** 0.5
    for other in (DummyTensors(1).read(source, CPU), DummyTensors(0).read(Source("y", source.shape), CPU)):
        assert abs((numbers * other.double()).mean().item()) * 1000 < 0.01


SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_global_key_value_heads": 1,
    "head_dim": 16,
    "global_head_dim": 32,
    "query_pre_attn_scalar": 16,
    "vocab_size": 4096,
    "max_position_embeddings": 128,
    "eos_token_id": 1,
}
"""Sizes of a row; the number of layers is the known model's."""


@pytest.mark.parametrize("name", ["gemma-3-27b", "gemma-4-31b", "llama-3.1-8b", "mistral-7b-v0.1", "qwen3-8b"])
def test_a_model_of_dummy_weights_computes_something(tmp_path: Path, name: str) -> None:
    """Through all layers of each family, logits are finite, of the order of 1, and all their own.

    They differ from token to token, and change with one token of the prompt.
    """
    fields = json.loads((SHAPES / f"{name}.json").read_text())
    fields |= {key: SMALL[key] for key in SMALL if key in fields}
    backend = CpuBackend(Model.load(write_folder(tmp_path, fields, {"nothing": b""}), dummy_weights=0))
    (tokens,) = random_tokens([80], seed=1)
    changed = [*tokens[:20], (tokens[20] + 1) % 4096, *tokens[21:]]

    rows, others = alone(backend, [tokens]), alone(backend, [changed])

    last = torch.frombuffer(bytearray(rows[0, 79].logits), dtype=torch.float32)
    assert torch.isfinite(last).all()
    assert 0.2 < last.std().item() < 5
    assert len({rows[0, position].logits for position in range(80)}) == 80
    assert [p >= 20 for p in range(80)] == [rows[0, p].logits != others[0, p].logits for p in range(80)]


def test_a_config_alone_is_enough(tmp_path: Path) -> None:
    """A folder without weights, or the file itself, makes the model; W names recipe and seed."""
    folder = write_folder(tmp_path, bundled_config("tiny-llama3"), {"nothing": b""})

    for path in (folder, folder / "config.json"):
        first, second = (Model.load(path, dummy_weights=seed) for seed in (7, 8))

        assert "dummy weights, recipe 1, seed 7" == first.weights_identity == CpuBackend(first).fingerprint()["weights"]
        assert "dummy weights, recipe 1, seed 8" == second.weights_identity
        assert not torch.equal(first.parameters["layers.0.qkv"], second.parameters["layers.0.qkv"])
    with pytest.raises(CheckpointError, match=r"config\.json is not a folder"):
        Model.load(folder / "config.json")
