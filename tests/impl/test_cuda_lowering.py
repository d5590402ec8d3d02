"""Lowering: what the device's plan is made of. What it computes is for `tests/proofs/test_forward.py` to say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import vosti.impl
from vosti.impl.backends.cuda.lowering import lower
from vosti.impl.backends.cuda.plan import Form, plan_problems
from vosti.impl.bundled import BUNDLED, find_checkpoint, shape_names
from vosti.impl.errors import UnsupportedModelError
from vosti.impl.models.families import STYLES, load_config
from vosti.impl.models.layers import build_plan
from vosti.impl.models.plan import Operation, Plan, Rows

BLOCK = 4096


def family_plan(name: str, layers: int | None = None) -> Plan:
    """The plan of a bundled model or shape, cut to its first layers if so many are asked for."""
    config = load_config(find_checkpoint(name))
    if layers is not None:
        kinds = config.layer_types[:layers]
        config = replace(
            config, layer_types=kinds, attention={kind: config.attention[kind] for kind in sorted(set(kinds))}
        )
    return build_plan(config, STYLES[config.family])


@pytest.mark.parametrize("name", [*BUNDLED, *shape_names()])
@pytest.mark.parametrize("form", list(Form))
def test_names_are_sound(name: str, form: Form) -> None:
    """Of every family, what a launch names is declared, and written before it is read."""
    assert [] == plan_problems(lower(family_plan(name), form, logit_block=BLOCK))


def test_a_layer_of_llama_is_nine_launches() -> None:
    """Split attention and its merge, and one launch each for what else a layer does."""
    plan = lower(family_plan("tiny-llama3"), Form.SPLIT, logit_block=BLOCK)
    layer = [
        "linear",
        "rotary_store",
        "attention_split",
        "attention_merge",
        "linear",
        "rms_norm",
        "gate_up",
        "linear",
        "rms_norm",
    ]

    assert ["embedding", "rms_norm", *layer * 4, "head", "logits"] == [launch.operation for launch in plan.launches]


def test_weights_are_kept_as_kernels_take_them() -> None:
    """Linear weights are not transposed, and the rows of gate and up alternate."""
    plan = lower(family_plan("tiny-gemma3"), Form.EXTEND, logit_block=BLOCK)
    gated = {parameter.name for parameter in plan.parameters if parameter.interleaved}

    assert not any(parameter.transposed for parameter in plan.parameters)
    assert {f"layers.{layer}.gate_and_up" for layer in range(6)} == gated


@pytest.mark.parametrize("name", ["gemma-4-12b", "gemma-4-31b"])
def test_values_that_are_keys_are_projected_once(name: str) -> None:
    """The full layers of Gemma 4 keep one projection of keys and values."""
    family = family_plan(name)
    plan = lower(family, Form.EXTEND, logit_block=BLOCK)
    full = {launch.layer for launch in plan.launches if launch.operation == "rotary_store" and launch.size("shared")}
    sources = {parameter.name: len(parameter.sources) for parameter in plan.parameters}

    assert {layer for layer, kv in enumerate(family.kv_shapes) if kv.head_dim == 512} == full
    assert all(sources[f"layers.{layer}.qkv"] == (2 if layer in full else 3) for layer in range(len(family.kv_shapes)))


# ------------------------------------------------------------ contracts


@pytest.mark.parametrize("name", ["tiny-gemma3", "llama-3.1-8b", "qwen3-8b"])
@pytest.mark.parametrize("form", list(Form))
def test_roles_are_those_of_the_contracts(name: str, form: Form) -> None:
    """Each launch names, of its kernel's contract, what it reads and what it writes, every buffer that it may not
    leave out, and sizes that have tiles.
    """
    pytest.importorskip("triton", reason="contracts stand beside the kernels, which need Triton")
    from vosti.kernels.catalogue import KERNELS
    from vosti.kernels.contract import Access, Buffer
    from vosti.kernels.tables import load

    optional = {"y", "row_map", "scale", "total_out", "norm_weight"}
    for launch in lower(family_plan(name), form, logit_block=BLOCK).launches:
        kernel = launch.operation.replace("head", "linear")
        buffers = {one.name: one.access for one in KERNELS[kernel].contract.parameters if isinstance(one, Buffer)}
        read = {role for role, _ in (*launch.reads, *launch.parameters)}
        written = {role for role, _ in launch.writes}

        assert {role for role, access in buffers.items() if access is Access.READ} - optional <= read
        assert {role for role, access in buffers.items() if access is not Access.READ} - optional <= written
        assert read | written <= set(buffers)
        assert not [role for role in read if buffers[role] is not Access.READ]
        assert load("sm_90").entry(launch.operation, **dict(launch.sizes)).choices


# ------------------------------------------------------------ twins


def test_a_buffer_that_is_read_and_overwritten_is_found() -> None:
    """A kernel that does not work in place must not be launched so."""
    plan = lower(family_plan("tiny-llama3"), Form.EXTEND, logit_block=BLOCK)
    at = next(i for i, launch in enumerate(plan.launches) if launch.operation == "gate_up")
    launch = replace(plan.launches[at], writes=(("out", "normed"),))
    twin = replace(plan, launches=(*plan.launches[:at], launch, *plan.launches[at + 1 :]))

    assert f"launch {at} (gate_up) overwrites normed, which it reads" in plan_problems(twin)


def test_rows_of_another_kind_are_found() -> None:
    """The head reads wanted rows only."""
    plan = lower(family_plan("tiny-llama3"), Form.EXTEND, logit_block=BLOCK)
    at = next(i for i, launch in enumerate(plan.launches) if launch.operation == "head")
    launch = replace(plan.launches[at], reads=(("x", "normed"),))
    twin = replace(plan, launches=(*plan.launches[:at], launch, *plan.launches[at + 1 :]))

    assert f"launch {at} (head) reads normed in rows of another kind" in plan_problems(twin)


# ------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        (Operation.STORE, "it does not follow what its kernel computes with it"),
        (Operation.SILU_MUL, "it does not follow what its kernel computes with it"),
        (Operation.SOFTCAP, "only logits have a soft cap"),
    ],
)
def test_what_has_no_kernel_is_refused_by_name(operation: Operation, why: str) -> None:
    """A launch where no kernel computes it is refused with its number and its operation."""
    plan = family_plan("tiny-llama3")
    stray = replace(plan.launches[0], operation=operation, rows=Rows.TOKENS)

    with pytest.raises(UnsupportedModelError, match=rf"launch 0 of the plan \({operation.value}\): {why}"):
        lower(replace(plan, launches=(stray, *plan.launches)), Form.EXTEND, logit_block=BLOCK)


def test_angles_of_nobody_are_refused() -> None:
    """A rotation by angles that no launch looks up."""
    plan = family_plan("tiny-llama3")
    launches = tuple(launch for launch in plan.launches if launch.operation is not Operation.ANGLES)

    with pytest.raises(UnsupportedModelError, match="angles that are looked up"):
        lower(replace(plan, launches=launches), Form.EXTEND, logit_block=BLOCK)


def test_shapes_are_found() -> None:
    """There are shapes to lower at all."""
    assert Path(vosti.impl.__file__).parent / "models" / "shapes" == find_checkpoint("llama-3.1-8b").parent
