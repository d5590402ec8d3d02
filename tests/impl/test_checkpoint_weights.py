"""Loading parameters: each exactly once, tied or not, with nothing missing and nothing left over."""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint_files import (
    TINY_CONFIG,
    TINY_SHAPES,
    Tensors,
    bundled_config,
    file_bytes,
    index_bytes,
    layout,
    tiny_tensors,
    write_folder,
)
from forwards import CHECKPOINTS
from vosti.impl.errors import CheckpointError, EngineError, UnsupportedModelError
from vosti.impl.models.model import Model
from vosti.impl.models.plan import Parameter, Plan, Source
from vosti.impl.models.safetensors import find_tensors
from vosti.impl.models.tensors import CheckpointTensors, read_bytes

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
GATE = "model.layers.0.mlp.gate_proj.weight"


def _load(folder: Path, tensors: Tensors, **config: Any) -> Model:
    files = {"model.safetensors": file_bytes(*layout(tensors))}
    return Model.load(write_folder(folder, {**TINY_CONFIG, **config}, files))


def _values(tensors: Tensors, name: str) -> torch.Tensor:
    """The tensor in float32."""
    dtypes = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
    dtype, shape, data = tensors[name]
    return torch.frombuffer(bytearray(data), dtype=dtypes[dtype]).view(shape).float()


def test_every_tensor_reaches_its_place(tmp_path: Path) -> None:
    """Fused parameters are stacks of their tensors, transposed, widened exactly, in the order that the plan says."""
    tensors = tiny_tensors()
    found = _load(tmp_path, tensors).parameters
    prefix = "model.layers.0."

    def stacked(*names: str) -> torch.Tensor:
        return torch.cat([_values(tensors, f"{prefix}{name}.weight") for name in names])

    expected = {
        "embedding": _values(tensors, EMBEDDING),
        "head": _values(tensors, EMBEDDING).t(),
        "layers.0.attention_norm": stacked("input_layernorm"),
        "layers.0.qkv": stacked("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj").t(),
        "layers.0.output": stacked("self_attn.o_proj").t(),
        "layers.0.mlp_norm": stacked("post_attention_layernorm"),
        "layers.0.gate_and_up": stacked("mlp.gate_proj", "mlp.up_proj").t(),
        "layers.0.down": stacked("mlp.down_proj").t(),
        "final_norm": _values(tensors, "model.norm.weight"),
    }
    assert set(expected) | {"cosines.full", "sines.full"} == set(found)
    for name, values in expected.items():
        assert torch.float32 == found[name].dtype
        assert torch.equal(values, found[name]), name


def test_norms_of_heads_are_repeated_per_head() -> None:
    """Gemma's query and key norms become one parameter with a row per head."""
    model = Model.load(CHECKPOINTS / "tiny-gemma3")
    stored = find_tensors(CHECKPOINTS / "tiny-gemma3")
    rows = [
        read_bytes(stored[f"model.layers.3.self_attn.{name}.weight"]).view(torch.bfloat16).float()
        for name in ("q_norm", "k_norm")
    ]

    assert torch.equal(torch.stack([rows[0]] * 4 + [rows[1]] * 2), model.parameters["layers.3.query_key_norm"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_widening_is_exact(tmp_path: Path, dtype: torch.dtype) -> None:
    """Every finite number of each dtype, subnormals included, arrives as the same number."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int64).to(torch.int16)
    numbers = (bits.view(dtype) if dtype != torch.float32 else bits.view(torch.bfloat16).float()).nan_to_num()
    names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    tensors = tiny_tensors()
    data = numbers.contiguous().view(torch.uint8).numpy().tobytes()
    tensors[EMBEDDING] = (names[dtype], (16384, 4), data)

    found = _load(tmp_path, tensors, vocab_size=16384).parameters["embedding"]

    assert numbers.double().tolist() == found.flatten().double().tolist()


def test_how_a_checkpoint_is_cut_does_not_matter(tmp_path: Path) -> None:
    """A sharded checkpoint has the parameters and the digest of the single file, in any order of its tensors."""
    tensors = tiny_tensors()
    single = _load(tmp_path / "single", tensors)
    shards: dict[str, Tensors] = {"x.safetensors": {}, "y.safetensors": {}, "z.safetensors": {}}
    for number, name in enumerate(reversed(tensors)):
        shards[list(shards)[number % 3]][name] = tensors[name]
    files = {file: file_bytes(*layout(part)) for file, part in shards.items()}
    files["model.safetensors.index.json"] = index_bytes({name: file for file in shards for name in shards[file]})
    sharded = Model.load(write_folder(tmp_path / "sharded", TINY_CONFIG, files))

    assert single.weights_identity == sharded.weights_identity
    assert all(torch.equal(single.parameters[name], sharded.parameters[name]) for name in single.parameters)


@pytest.mark.parametrize("name", TINY_SHAPES)
def test_one_changed_bit_changes_the_digest(tmp_path: Path, name: str) -> None:
    """The digest covers every tensor."""
    tensors = tiny_tensors()
    dtype, shape, data = tensors[name]
    changed = {**tensors, name: (dtype, shape, bytes([data[0] ^ 1]) + data[1:])}

    assert _load(tmp_path / "a", tensors).weights_identity != _load(tmp_path / "b", changed).weights_identity


@pytest.mark.parametrize("name", TINY_SHAPES)
def test_a_missing_tensor_is_refused(tmp_path: Path, name: str) -> None:
    """No parameter is left at a value that nobody gave it."""
    tensors = tiny_tensors()
    del tensors[name]

    with pytest.raises(CheckpointError, match=f"tensor '{name}' is missing from the checkpoint"):
        _load(tmp_path, tensors)


def test_several_missing_tensors_are_counted(tmp_path: Path) -> None:
    """A checkpoint with fewer layers than its config says: the error names the first tensor and counts the others."""
    with pytest.raises(CheckpointError, match=r"tensor 'model\.layers\.1\.[a-z_]+\.weight' and 8 more are missing"):
        _load(tmp_path, tiny_tensors(), num_hidden_layers=2)


def test_a_tensor_that_nobody_uses_is_refused(tmp_path: Path) -> None:
    """A leftover, such as a bias that this architecture does not add, is an error."""
    tensors = tiny_tensors()
    tensors["model.layers.0.self_attn.q_proj.bias"] = ("BF16", (4,), bytes(8))

    with pytest.raises(CheckpointError, match=r"'model\.layers\.0\.self_attn\.q_proj\.bias' is not used"):
        _load(tmp_path, tensors)


def test_a_tensor_of_another_shape_is_refused(tmp_path: Path) -> None:
    """A transposed matrix has as many elements, and is refused all the same."""
    tensors = tiny_tensors()
    dtype, shape, data = tensors[GATE]
    tensors[GATE] = (dtype, shape[::-1], data)

    with pytest.raises(
        CheckpointError, match=r"gate_proj.weight' has shape \(4, 6\), but config.json makes it \(6, 4\)"
    ):
        _load(tmp_path, tensors)


@pytest.mark.parametrize(("dtype", "size"), [("F64", 8), ("I8", 1), ("F8_E4M3", 1)])
def test_a_parameter_of_another_dtype_is_refused(tmp_path: Path, dtype: str, size: int) -> None:
    """Quantised and wider parameters are not silently converted."""
    tensors = tiny_tensors()
    tensors[GATE] = (dtype, (6, 4), bytes(24 * size))

    with pytest.raises(UnsupportedModelError, match=f"gate_proj.weight' has dtype {dtype}"):
        _load(tmp_path, tensors)


# ---------------------------------------------------------------- tied heads


def test_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    """Tied, and no head in the file: the head is the embedding, transposed, and takes no memory."""
    found = _load(tmp_path, tiny_tensors()).parameters

    assert found["head"].data_ptr() == found["embedding"].data_ptr()
    assert torch.equal(found["embedding"].t(), found["head"])


def test_an_equal_head_beside_a_tied_one_is_accepted(tmp_path: Path) -> None:
    """Tied, and the head stands in the file as well, bit for bit the embedding: neither values nor digest change."""
    tensors = tiny_tensors()
    plain = _load(tmp_path / "a", tensors)

    doubled = _load(tmp_path / "b", {**tensors, HEAD: tensors[EMBEDDING]})

    assert plain.weights_identity == doubled.weights_identity
    assert torch.equal(plain.parameters["head"], doubled.parameters["head"])


def test_a_different_head_beside_a_tied_one_is_refused(tmp_path: Path) -> None:
    """Tied, and the head in the file differs in one bit, in shape or in dtype: which one is meant is not guessed."""
    tensors = tiny_tensors()
    dtype, shape, data = tensors[EMBEDDING]
    for head in (
        (dtype, shape, data[:-1] + bytes([data[-1] ^ 1])),
        (dtype, shape[::-1], data),
        ("F16", shape, data),
    ):
        with pytest.raises(CheckpointError, match=r"lm_head\.weight"):
            _load(tmp_path, {**tensors, HEAD: head})


def test_a_head_of_its_own_is_loaded(tmp_path: Path) -> None:
    """Not tied: the head is the file's, and takes part in the digest."""
    tensors = {**tiny_tensors(), HEAD: ("BF16", (8, 4), bytes(range(64)))}

    model = _load(tmp_path / "a", tensors, tie_word_embeddings=False)

    assert torch.equal(_values(tensors, HEAD).t(), model.parameters["head"])
    assert _load(tmp_path / "b", tiny_tensors()).weights_identity != model.weights_identity


@pytest.mark.parametrize("tied", [{"tie_word_embeddings": False}, {"tie_word_embeddings": None}])
def test_a_head_that_is_neither_tied_nor_there_is_refused(tmp_path: Path, tied: dict[str, Any]) -> None:
    """Not tied (the default of this architecture), and no head in the file."""
    with pytest.raises(CheckpointError, match=r"'lm_head\.weight' is missing"):
        _load(tmp_path, tiny_tensors(), **tied)


# ---------------------------------------------------------------- the text half of a larger model

NESTED_PREFIXES = [("language_model.model.", "vision_tower."), ("model.language_model.", "model.vision_tower.")]
"""How the two generations of transformers name the tensors of the two halves."""


def _nested(folder: Path, prefix: str, other: str, outer: dict[str, Any], **inner: Any) -> Path:
    """The bundled Gemma as the text half of a larger checkpoint."""
    stored = find_tensors(CHECKPOINTS / "tiny-gemma3")
    tensors: Tensors = {
        prefix + name.removeprefix("model."): (t.dtype, t.shape, read_bytes(t).numpy().tobytes())
        for name, t in stored.items()
    }
    tensors[other + "embeddings.weight"] = ("F32", (2, 2), bytes(16))
    text = {key: value for key, value in bundled_config("tiny-gemma3").items() if key != "architectures"}
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": {key: value for key, value in {**text, **inner}.items() if value is not None},
        "vision_config": {"hidden_size": 2},
        **outer,
    }
    return write_folder(folder, config, {"model.safetensors": file_bytes(*layout(tensors))})


@pytest.mark.parametrize(("prefix", "other"), NESTED_PREFIXES)
def test_the_text_half_is_the_same_model(tmp_path: Path, prefix: str, other: str) -> None:
    """Nested in a larger checkpoint, the same weights and config give the same parameters and the same digests."""
    plain = Model.load(CHECKPOINTS / "tiny-gemma3")

    nested = Model.load(_nested(tmp_path, prefix, other, {}))

    assert (plain.weights_identity, plain.config_digest) == (nested.weights_identity, nested.config_digest)
    assert (1,) == nested.config.eos_ids
    assert all(torch.equal(plain.parameters[name], nested.parameters[name]) for name in plain.parameters)


def test_a_tie_flag_is_read_where_it_stands(tmp_path: Path) -> None:
    """In the text half, outside it, or in neither place (tied by default); contradicting flags are refused."""
    prefix, other = NESTED_PREFIXES[0]
    for number, (outer, inner) in enumerate([({}, True), ({"tie_word_embeddings": True}, None), ({}, None)]):
        folder = _nested(tmp_path / str(number), prefix, other, outer, tie_word_embeddings=inner)
        assert Model.load(folder).config.tied_head
    for number, (outer, inner) in enumerate([({}, False), ({"tie_word_embeddings": False}, None)]):
        folder = _nested(tmp_path / f"untied{number}", prefix, other, outer, tie_word_embeddings=inner)
        with pytest.raises(CheckpointError, match=r"lm_head\.weight' is missing"):
            Model.load(folder)
    folder = _nested(tmp_path / "both", prefix, other, {"tie_word_embeddings": False}, tie_word_embeddings=True)
    with pytest.raises(CheckpointError, match="tie_word_embeddings differs"):
        Model.load(folder)


def test_one_tensor_under_two_names_is_refused(tmp_path: Path) -> None:
    """A checkpoint that holds a tensor in the spelling of both generations."""
    folder = _nested(tmp_path, *NESTED_PREFIXES[0], {})
    stored = find_tensors(folder)
    tensors: Tensors = {name: (t.dtype, t.shape, read_bytes(t).numpy().tobytes()) for name, t in stored.items()}
    tensors["model.language_model.norm.weight"] = tensors["language_model.model.norm.weight"]
    (folder / "model.safetensors").write_bytes(file_bytes(*layout(tensors)))

    with pytest.raises(CheckpointError, match="are the same one"):
        Model.load(folder)


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    """The data is measured as it is read, too."""
    folder = write_folder(tmp_path)
    stored = find_tensors(folder)["model.norm.weight"]
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-3])

    with pytest.raises(EngineError, match=r"'model\.norm\.weight' ends beyond the end"):
        read_bytes(stored)


# ---------------------------------------------------------------- how a backend keeps its parameters


def _as_a_device_would(plan: Plan) -> list[Parameter]:
    return [
        replace(parameter, transposed=False, interleaved=parameter.name.endswith("gate_and_up"))
        for parameter in plan.parameters
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layout_decides_how_parameters_are_kept(tmp_path: Path, dtype: torch.dtype) -> None:
    """Stacks as the checkpoint stores them, the rows of gate and up in turn; the tables as ever; no tied alias."""
    tensors = tiny_tensors()
    folder = write_folder(tmp_path, files={"model.safetensors": file_bytes(*layout(tensors))})
    prefix = "model.layers.0."
    gate, up = (_values(tensors, f"{prefix}mlp.{name}_proj.weight") for name in ("gate", "up"))
    qkv = [_values(tensors, f"{prefix}self_attn.{name}_proj.weight") for name in "qkv"]

    plain = Model.load(folder)
    model = Model.load(folder, layout=_as_a_device_would, dtype=dtype)

    found = model.parameters
    assert plain.weights_identity == model.weights_identity
    in_turn = torch.stack([row for pair in zip(gate, up, strict=True) for row in pair])
    assert torch.equal(in_turn.to(dtype), found["layers.0.gate_and_up"])
    assert torch.equal(torch.cat(qkv).to(dtype), found["layers.0.qkv"])
    assert set(plain.parameters) - {"head"} == set(found)
    assert all(torch.equal(plain.parameters[name], found[name]) for name in model.plan.tables)
    assert {dtype} == {found[name].dtype for name in set(found) - set(model.plan.tables)}


class _OneAtATime(CheckpointTensors):
    """Refuses to read a tensor while the one before it is still in memory."""

    last: weakref.ref[torch.Tensor] | None = None

    def read(self, source: Source, device: torch.device) -> torch.Tensor:
        assert self.last is None or self.last() is None, f"{source.name} was read too early"
        tensor = super().read(source, device)
        self.last = weakref.ref(tensor)
        return tensor


class _Hoarding(_OneAtATime):
    """Keeps every tensor."""

    def read(self, source: Source, device: torch.device) -> torch.Tensor:
        self.hoard = (getattr(self, "hoard", None), super().read(source, device))
        return self.hoard[1]


def test_tensors_are_in_memory_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model on a device needs no more of the host than its largest tensor."""
    folder = write_folder(tmp_path)
    monkeypatch.setattr("vosti.impl.models.model.CheckpointTensors", _OneAtATime)
    assert Model.load(folder).parameters

    monkeypatch.setattr("vosti.impl.models.model.CheckpointTensors", _Hoarding)
    with pytest.raises(AssertionError, match="was read too early"):
        Model.load(folder)


def test_a_layout_that_leaves_a_tensor_out_is_refused(tmp_path: Path) -> None:
    """The checkpoint's tensors are those of the layout, all of them."""
    folder = write_folder(tmp_path)

    with pytest.raises(CheckpointError, match=r"'model\.norm\.weight' is not used"):
        Model.load(folder, layout=lambda plan: plan.parameters[:-1])
