"""Launch plans: sound for both families, complete, and refused when they are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from forwards import CHECKPOINTS, NAMES
from vosti.impl.backends.programs import PROGRAMS
from vosti.impl.models.families import STYLES, load_config
from vosti.impl.models.layers import build_plan, parameter_shape
from vosti.impl.models.model import Model
from vosti.impl.models.plan import KVShape, Launch, Operation, Plan, Rows, plan_problems
from vosti.spec import numerics


def _plan(name: str, **changed: Any) -> Plan:
    config = replace(load_config(CHECKPOINTS / name), **changed)
    return build_plan(config, STYLES[config.family])


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The plan that the faulty ones are one step away from."""
    return _plan("tiny-gemma3")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("cap", [None, 30.0])
def test_plans_are_sound(name: str, tied: bool, cap: float | None) -> None:
    """Everything a launch reads was written, every parameter is used, every layer stored once and in order."""
    assert [] == plan_problems(_plan(name, tied_head=tied, final_softcap=cap))


@pytest.mark.parametrize("name", NAMES)
def test_parameters_have_the_shapes_that_the_plan_says(name: str) -> None:
    """What was loaded is what the plan names, in shape as well."""
    model = Model.load(CHECKPOINTS / name)

    for parameter in model.plan.parameters:
        assert parameter_shape(parameter) == tuple(model.parameters[parameter.name].shape)
    assert set(model.parameters) == (
        {parameter.name for parameter in model.plan.parameters}
        | set(model.plan.tables)
        | {alias for alias, _ in model.plan.tied}
    )


def test_llama_layers_in_order() -> None:
    """A Llama layer, launch by launch, as the architecture defines it."""
    launches = [launch for launch in _plan("tiny-llama3").launches if launch.rows is Rows.TOKENS]
    operations = [launch.operation.value for launch in launches]
    layer = [
        "linear",
        "rotate",
        "store",
        "attention",
        "linear",
        "residual_rms_norm",
        "linear",
        "silu_mul",
        "linear",
        "residual_rms_norm",
    ]

    assert ["embedding", "angles", "rms_norm", *(layer * 4)[:-1]] == operations


def test_gemma_layers_in_order(plan: Plan) -> None:
    """A Gemma layer has norms before and after attention and feed-forward, and of queries and keys."""
    first = [launch.operation.value for launch in plan.launches[:4]]
    layer = [launch.operation.value for launch in plan.launches[4:17]]

    assert ["scaled_embedding", "angles", "angles", "rms_norm_unit_offset"] == first
    assert [
        "linear",
        "rms_norm_unit_offset",
        "rotate",
        "store",
        "attention",
        "linear",
        "rms_norm_unit_offset",
        "residual_rms_norm_unit_offset",
        "linear",
        "gelu_tanh_mul",
        "linear",
        "rms_norm_unit_offset",
        "residual_rms_norm_unit_offset",
    ] == layer


def test_layer_types_have_their_own_window_and_angles(plan: Plan) -> None:
    """Sliding layers attend within the window with the local base frequency, full ones everywhere with the other."""
    attention = [launch for launch in plan.launches if launch.operation is Operation.ATTENTION]
    rotations = [launch.inputs for launch in plan.launches if launch.operation is Operation.ROTATE]

    assert [64] * 5 + [None] == [launch.window for launch in attention]
    assert [0.125] * 6 == [launch.constants[0] for launch in attention]
    assert [
        (f"queries_keys.{kind}", f"cosine.{kind}", f"sine.{kind}") for kind in ["sliding"] * 5 + ["full"]
    ] == rotations


def test_every_operation_is_a_row_program() -> None:
    """Operations are named as the row programs of the specification, and the backend runs each of them."""
    from vosti.spec.numerics import activations, attention, norms, projections, rotary

    names = set().union(*(vars(module) for module in (activations, attention, norms, projections, rotary)))

    assert numerics.__doc__
    assert {op for op in Operation if op.value not in names} == {Operation.STORE}
    assert set(PROGRAMS) == set(Operation) - {Operation.STORE, Operation.ATTENTION}


def _without(number: int) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, launches=plan.launches[:number] + plan.launches[number + 1 :])


def _swapped(plan: Plan) -> Plan:
    first, second = plan.launches[7], plan.launches[8]
    return replace(plan, launches=(*plan.launches[:7], second, first, *plan.launches[9:]))


def _first(change: Callable[[Launch], Launch]) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, launches=(change(plan.launches[0]), *plan.launches[1:]))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_without(0), "launch 2 (rms_norm_unit_offset) reads residual before it is written"),
        (_without(1), "launch 70 (rotate) reads cosine.full before it is written"),
        (_without(7), "launch 7 attends to layer 0 before its keys are stored"),
        (lambda plan: replace(plan, launches=plan.launches[:-1]), "no launch writes the logits"),
        (_swapped, "launch 7 attends to layer 0 before its keys are stored"),
        (
            lambda plan: replace(plan, kv_shapes=plan.kv_shapes[:1] * 7),
            "layers [0, 1, 2, 3, 4, 5] are stored, not each of 7 once, in order",
        ),
        (
            lambda plan: replace(plan, kv_shapes=(*plan.kv_shapes[:5], KVShape(2, 128))),
            "launch 72 stores keys.full of (2, 64) in layer 5 of (2, 128)",
        ),
        (lambda plan: replace(plan, buffers=plan.buffers[1:]), "buffer residual is not declared"),
        (lambda plan: replace(plan, buffers=plan.buffers * 2), "buffer residual is declared twice"),
        (lambda plan: replace(plan, parameters=plan.parameters[1:]), "parameter embedding is unknown"),
        (lambda plan: replace(plan, tables=(*plan.tables, "more")), "parameter more is unused"),
        (_first(lambda launch: replace(launch, rows=Rows.LOGITS)), "launch 0 (scaled_embedding) reads tokens"),
        (_first(lambda launch: replace(launch, rows=Rows.SELECTED)), "launch 3 (rms_norm_unit_offset) reads residual"),
    ],
)
def test_an_unsound_plan_is_found_out(plan: Plan, change: Callable[[Plan], Plan], problem: str) -> None:
    """A launch left out, two exchanged, or a name that nothing defines, is reported."""
    assert any(found.startswith(problem) for found in plan_problems(change(plan))), plan_problems(change(plan))
