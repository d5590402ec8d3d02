"""The forward's induction: what is wrong with one layer in the middle of many is found in that layer, and refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from vosti.impl.backends.cuda.lowering import lower
from vosti.impl.backends.cuda.plan import DeviceBuffer, DevicePlan, Form
from vosti.impl.models.plan import Operation, Plan, Rows

pytest.importorskip("triton", reason="contracts stand beside the kernels, which need Triton")

from forward_plans import changed, family_plan, other
from vosti.proofs.forward import device_plans, prove_plan, seen_from

LAYERS = 12
AT = 7
"""The layer that something is wrong with."""

BEGIN = 2
"""Launches of the device before all layers."""

EACH = 8
"""Launches of the device in one layer, of the form `EXTEND`."""


def deep() -> Plan:
    """Layers that are alike."""
    return family_plan("tiny-llama3", *["full"] * LAYERS, heads=2)


def launch_of(plan: DevicePlan, operation: str, number: int = 0, layer: int = AT) -> int:
    """Where a launch of a layer stands: the first of an operation, or a later one."""
    first = BEGIN + layer * EACH
    found = [at for at in range(first, first + EACH) if plan.launches[at].operation == operation]
    return found[number]


def other_kind(plan: DevicePlan) -> DevicePlan:
    """One layer with a window."""
    at = launch_of(plan, "attention")
    return changed(plan, at, sizes=tuple((k, 64 if k == "window" else n) for k, n in plan.launches[at].sizes))


def weights_of_the_next(plan: DevicePlan) -> DevicePlan:
    """One layer with a weight of the next."""
    return changed(plan, launch_of(plan, "gate_up"), parameters=(("weight", f"layers.{AT + 1}.gate_and_up"),))


def weights_of_the_one_before(plan: DevicePlan) -> DevicePlan:
    """One layer with the projections of the one before."""
    return changed(plan, launch_of(plan, "linear"), parameters=(("weight", f"layers.{AT - 1}.qkv"),))


def norm_of_its_own(plan: DevicePlan) -> DevicePlan:
    """What the next layer reads is normed with this one's weights."""
    return changed(plan, launch_of(plan, "rms_norm", 1), parameters=(("weight", f"layers.{AT}.attention_norm"),))


def cache_of_the_one_before(plan: DevicePlan) -> DevicePlan:
    """One layer attends to the cache of the one before."""
    at = launch_of(plan, "attention")
    names = {"keys": f"keys.{AT - 1}", "values": f"values.{AT - 1}"}
    return changed(plan, at, reads=other(plan.launches[at].reads, **names))


def spoils_an_earlier_cache(plan: DevicePlan) -> DevicePlan:
    """One layer stores in the cache of a layer long before."""
    at = launch_of(plan, "rotary_store")
    return changed(plan, at, writes=other(plan.launches[at].writes, keys="keys.2", values="values.2"))


def left_out(plan: DevicePlan) -> DevicePlan:
    """One layer is not launched, and said to be computed."""
    first = BEGIN + AT * EACH
    covers = tuple(number for launch in plan.launches[first : first + EACH] for number in launch.covers)
    rest = replace(plan, launches=plan.launches[:first] + plan.launches[first + EACH :])
    return changed(rest, first - 1, covers=(*rest.launches[first - 1].covers, *covers))


def launched_twice(plan: DevicePlan) -> DevicePlan:
    """One layer is launched a second time."""
    first = BEGIN + AT * EACH
    return replace(plan, launches=plan.launches[: first + EACH] + plan.launches[first:])


def in_other_order(plan: DevicePlan) -> DevicePlan:
    """Two neighbours change places."""
    first, second, end = (BEGIN + (AT + n) * EACH for n in range(3))
    launches = plan.launches
    return replace(plan, launches=launches[:first] + launches[second:end] + launches[first:second] + launches[end:])


def reads_what_is_not_handed_over(plan: DevicePlan) -> DevicePlan:
    """One layer begins with what the one before has left of its feed-forward layer."""
    return changed(plan, launch_of(plan, "linear"), reads=(("x", "update"),))


def hands_over_elsewhere(plan: DevicePlan) -> DevicePlan:
    """One layer leaves its norm where the next does not look, which finds an older one."""
    spare = replace(plan, buffers=(*plan.buffers, DeviceBuffer("spare", "bf16", (256,), Rows.TOKENS)))
    at = launch_of(plan, "rms_norm", 1)
    return changed(spare, at, writes=other(plan.launches[at].writes, out="spare"))


def keeps_its_residual(plan: DevicePlan) -> DevicePlan:
    """One layer's sum goes elsewhere: the next finds an older residual stream, though this layer's norm is right."""
    spare = replace(plan, buffers=(*plan.buffers, DeviceBuffer("spare", "bf16", (256,), Rows.TOKENS)))
    at = launch_of(plan, "rms_norm", 1)
    return changed(spare, at, writes=other(plan.launches[at].writes, total_out="spare"))


FAULTS: dict[Callable[[DevicePlan], DevicePlan], tuple[list[list[int]], str]] = {
    other_kind: (
        [[AT]],
        r"launch 60 \(attention\) leaves something else in .*: 64 stands where None belongs",
    ),
    weights_of_the_next: ([[AT]], r"layers.ℓ\+1.mlp.gate_proj.weight stands where model.layers.ℓ.mlp.gate_proj.weight"),
    weights_of_the_one_before: ([[AT]], r"layers.ℓ-1.self_attn.q_proj.weight stands where model.layers.ℓ.self_attn"),
    norm_of_its_own: ([[AT]], r"layers.ℓ.input_layernorm.weight stands where model.layers.ℓ\+1.input_layernorm.weight"),
    cache_of_the_one_before: ([[AT]], r"launch 60 \(attention\): its keys are keys.ℓ-1, which is no buffer for that"),
    spoils_an_earlier_cache: (
        [[AT]],
        r"launch 59 \(rotary_store\): its keys are keys.ℓ-5, which is no buffer",
    ),
    left_out: ([[]], r"it has 11 of 12 layers"),
    launched_twice: ([[]], r"it has 13 of 12 layers"),
    in_other_order: ([[AT], [AT + 1]], r"launch 58 \(linear\) leaves something else in .*layers.ℓ\+1.self_attn.q_proj"),
    reads_what_is_not_handed_over: ([[AT]], r"launch 58 \(linear\): it reads update, which no launch before it leaves"),
    hands_over_elsewhere: ([[AT]], r"what is left in normed is not the model's"),
    keeps_its_residual: ([[AT]], r"what is left in residual is not the model's"),
}
"""What is done to one layer, the parts that are then not shown, and why the first is not."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_one_layer_of_many_is_refused(fault: Callable[[DevicePlan], DevicePlan]) -> None:
    """The layer is named, for its reason; the others remain one step, and shown."""
    plan = deep()
    parts = prove_plan(plan, {Form.EXTEND: fault(lower(plan, Form.EXTEND, logit_block=1))})
    wrong = [part for part in parts if part.problem is not None]
    layers, reason = FAULTS[fault]

    assert layers == [part.layers for part in wrong]
    assert re.search(reason, str(wrong[0].problem)), wrong[0].problem
    if layers != [[]]:
        others = [layer for layer in range(LAYERS - 1) if [layer] not in layers]
        assert [[-1], others, [LAYERS - 1]] == [part.layers for part in parts if part.problem is None]


def test_layers_that_are_alike_are_one_step() -> None:
    """However deep a model is, a base, a layer and an end are run."""
    for depth in (2, 5, 40):
        parts = prove_plan(family_plan("tiny-llama3", *["full"] * depth, heads=2))

        assert [[-1], [*range(depth - 1)], [depth - 1]] == [part.layers for part in parts]
        assert [None] * 3 == [part.problem for part in parts]


def test_a_layer_of_another_kind_is_a_step_of_its_own() -> None:
    """Where both plans have a sliding layer among full ones, it is shown, by itself."""
    kinds = ["sliding" if layer == AT else "full" for layer in range(LAYERS)]
    parts = prove_plan(family_plan("tiny-gemma3", *kinds, heads=2))

    assert [[-1], [*range(AT), *range(AT + 1, LAYERS - 1)], [AT], [LAYERS - 1]] == [part.layers for part in parts]
    assert [None] * 4 == [part.problem for part in parts]


def renamed(plan: Plan, names: dict[str, str]) -> Plan:
    """The model's plan with other parameters in the place of some."""
    launches = (
        replace(launch, parameters=tuple(names.get(name, name) for name in launch.parameters))
        for launch in plan.launches
    )
    return replace(plan, launches=tuple(launches))


def first_problem(plan: Plan) -> str:
    """Why a model's plan is refused, the device's being lowered from it."""
    return next((part.problem for part in prove_plan(plan, device_plans(plan)) if part.problem is not None), "")


def test_the_model_s_own_layers_have_their_own_weights() -> None:
    """A model's plan whose layers share a weight, exchange two, or load another's tensor is refused, in any case."""
    plan = deep()
    twice = renamed(plan, {"layers.7.down": "layers.8.down"})
    exchanged = renamed(plan, {"layers.7.down": "layers.8.down", "layers.8.down": "layers.7.down"})
    sources = {one.name: one.sources for one in plan.parameters}
    tensors = {"layers.7.down": sources["layers.3.down"]}
    loaded = replace(
        plan, parameters=tuple(replace(one, sources=tensors.get(one.name, one.sources)) for one in plan.parameters)
    )

    assert "the model's plan: 2 launches take layers.8.down" == first_problem(twice)
    assert "the model's plan: it takes layers.ℓ-1.down, which is another layer's" == first_problem(exchanged)
    assert "the model's plan: it takes model.layers.ℓ-4.mlp.down_proj.weight, which is another layer's" == (
        first_problem(loaded)
    )


@pytest.mark.parametrize("operation", [Operation.STORE, Operation.ATTENTION])
def test_the_model_s_own_layers_have_their_own_caches(operation: Operation) -> None:
    """A store or attention in the model's plan that names another layer is refused."""
    plan = deep()
    launches = tuple(
        replace(one, layer=AT - 1) if (one.operation, one.layer) == (operation, AT) else one for one in plan.launches
    )

    assert "it is of layer ℓ-1" in first_problem(replace(plan, launches=launches))


def test_a_model_without_one_of_its_layers_is_refused() -> None:
    """As many layers as caches."""
    plan = deep()

    assert "the model's plan: it has 12 layers, and 13 caches" == first_problem(
        replace(plan, kv_shapes=(*plan.kv_shapes, plan.kv_shapes[0]))
    )


def test_names_seen_from_a_layer_differ_where_names_do() -> None:
    """Seen from a layer, its own number is ℓ, others keep their distance, and no two names become one."""
    names = ["layers.3.qkv", "layers.13.qkv", "layers.1.qkv", "model.layers.3.x", "keys.3", "values.4", "keys.full"]
    names += ["layers.03.qkv", "layers.33.qkv", "keys.3x"]

    assert ("layers.ℓ.qkv", "layers.ℓ+10.qkv", "layers.ℓ-2.qkv", "model.layers.ℓ.x", "keys.ℓ", "values.ℓ+1") == (
        seen_from(3, tuple(names[:6]))
    )
    assert ("keys.full", "layers.03.qkv") == seen_from(3, ("keys.full", "layers.03.qkv"))
    assert all(len(names) == len(set(seen_from(layer, tuple(names)))) for layer in range(15))


def test_a_plan_may_not_call_a_layer_so_itself() -> None:
    """A launch that names its cache keys.ℓ, which no backend has, is refused."""
    plan = deep()
    device = lower(plan, Form.EXTEND, logit_block=1)
    at = launch_of(device, "attention")
    named = changed(device, at, reads=other(device.launches[at].reads, keys="keys.ℓ", values="values.ℓ"))

    assert ["ℓ is the name of a layer already"] == [part.problem for part in prove_plan(plan, {Form.EXTEND: named})]


def test_a_model_without_layers_is_refused() -> None:
    """There is nothing to begin or end with."""
    plan = deep()
    starts = [at for at, one in enumerate(plan.launches) if "layers.0.qkv" in one.parameters]
    none = replace(plan, launches=plan.launches[: starts[0]], kv_shapes=())

    assert "the model's plan: it has 0 layers, and 0 caches" == first_problem(none)


def test_what_a_kernel_does_not_take_is_refused() -> None:
    """A parameter in a role that the contract does not have."""
    plan = deep()
    device = lower(plan, Form.EXTEND, logit_block=1)
    at = launch_of(device, "gate_up")
    more = changed(device, at, parameters=(*device.launches[at].parameters, ("bias", f"layers.{AT}.down")))
    problems = {tuple(part.layers): part.problem for part in prove_plan(plan, {Form.EXTEND: more})}

    assert "the device's plan, extend: launch 63 (gate_up): 'bias'" == problems[AT,]
