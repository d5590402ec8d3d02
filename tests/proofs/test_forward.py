"""The forward's proof: every model's plan is shown, and what is wrong with a plan is refused for its own reason.

`test_forward_induction` has what is wrong with one layer of many.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from vosti.impl.backends.cuda.lowering import lower
from vosti.impl.backends.cuda.plan import METADATA, DevicePlan, Form, KernelLaunch
from vosti.impl.bundled import BUNDLED, shape_names
from vosti.impl.models.plan import Operation

pytest.importorskip("triton", reason="contracts stand beside the kernels, which need Triton")

from faults_of_device_plans import FAULTS, no_window, place
from forward_plans import changed, family_plan, other, problem_of
from vosti.kernels.catalogue import KERNELS
from vosti.kernels.contract import Contract
from vosti.proofs import forward_device, forward_plan, forward_rows
from vosti.proofs.forward import device_plans, prove_plan
from vosti.proofs.forward_device import kernel_names
from vosti.proofs.forward_plan import FUSED
from vosti.proofs.forward_premises import FACTS, FOLLOWED, premises
from vosti.proofs.forward_terms import Refused


@pytest.mark.parametrize("name", [*BUNDLED, *shape_names()])
def test_every_model_is_shown(name: str) -> None:
    """A base, a step for each kind of layers, and an end, which together are about every layer once."""
    plan = family_plan(name)
    parts = prove_plan(plan)
    attention = [launch for launch in plan.launches if launch.operation is Operation.ATTENTION]
    kinds = {(one.window, kv) for one, kv in zip(attention[:-1], plan.kv_shapes[:-1], strict=True)}

    assert [] == [(part.layers, part.problem) for part in parts if part.problem is not None]
    assert list(range(-1, len(plan.kv_shapes))) == sorted(layer for part in parts for layer in part.layers)
    assert [-1] == parts[0].layers
    assert [len(plan.kv_shapes) - 1] == parts[-1].layers
    assert len(kinds) == len(parts) - 2


def test_launches_are_named_with_what_they_read() -> None:
    """Who wrote each buffer last, and what is handed over."""
    base, layer, end = prove_plan(family_plan("tiny-llama3"))

    assert ["extend: launch 1, rms_norm: reads residual of launch 0"] == [
        line for line in base.launches if line.startswith("extend: launch 1,")
    ]
    assert "extend: leaves residual of launch 0, normed of launch 1" in base.launches
    assert "extend: launch 2, linear: reads normed of the layer before" in layer.launches
    attended = "queries.full of launch 3, keys.ℓ of launch 3, values.ℓ of launch 3"
    assert f"extend: launch 4, attention: reads {attended}" in layer.launches
    assert "split: leaves keys.ℓ of launch 3, values.ℓ of launch 3, residual of launch 10, normed of launch 10" in (
        layer.launches
    )
    assert "cpu: leaves keys.ℓ of launch 35, values.ℓ of launch 35, logits of launch 43" in end.launches


# ---------------------------------------------------------------- a device's plan with a fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_refused_for_its_reason(fault: Callable[[DevicePlan], DevicePlan]) -> None:
    """The first launch that goes astray is named, with what it reads or leaves."""
    plan = (
        family_plan("tiny-gemma3", "sliding", "full")
        if fault is no_window
        else family_plan("tiny-llama3", "full", "full")
    )
    problem = problem_of(plan, fault(lower(plan, Form.EXTEND, logit_block=1)))

    assert problem is not None
    assert re.search(FAULTS[fault], problem), problem


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"maxima": "totals", "totals": "maxima"}, "it merges states that no one launch has left"),
        ({"starts": "counts"}, "its out are written in row (counts[b] + i), which is not its own"),
    ],
)
def test_a_merge_of_something_else_is_refused(names: dict[str, str], reason: str) -> None:
    """The states of the launch before it, each in its own place, and the rows of its sequences."""
    plan = family_plan("tiny-llama3", "full", "full")
    device = lower(plan, Form.SPLIT, logit_block=1)
    at = place(device, "attention_merge")
    problem = problem_of(plan, changed(device, at, reads=other(device.launches[at].reads, **names)))

    assert f"the device's plan, split: launch {at} (attention_merge): {reason}" == problem


def any_fault(launch: KernelLaunch) -> Iterator[tuple[str, KernelLaunch]]:
    """The launch with one thing wrong."""
    for name in ("unit_offset", "norm", "value_norm", "shared", "activation", "window", "scaled", "capped"):
        sizes = dict(launch.sizes)
        if name in sizes:
            yield name, replace(launch, sizes=tuple({**sizes, name: 1 - min(1, sizes[name])}.items()))
    for role, real in launch.reals:
        yield role, replace(launch, reals=((role, real * 2),))
    for role, parameter in launch.parameters:
        if parameter != "final_norm":
            yield role, replace(launch, parameters=other(launch.parameters, **{role: "final_norm"}))
    for role, buffer in launch.reads:
        if buffer not in METADATA or buffer == "row_map":
            yield role, replace(launch, reads=other(launch.reads, **{role: "normed.not"}))
    for role, _ in launch.writes:
        yield role, replace(launch, writes=other(launch.writes, **{role: "elsewhere"}))


@pytest.mark.parametrize("name", ["tiny-gemma3", "gemma-4-12b"])
@pytest.mark.parametrize("form", list(Form))
def test_any_fault_in_any_launch_is_refused(name: str, form: Form) -> None:
    """Another size, number, parameter or buffer, a launch left out, and two that change places.

    Of the second form, in launches that the first does not have.
    """
    family = family_plan(name, "sliding", "full", heads=2)
    plan = lower(family, form, logit_block=1)
    missed = []
    for at, launch in enumerate(plan.launches):
        if form is Form.SPLIT and not launch.operation.startswith("attention"):
            continue
        before, after = plan.launches[:at], plan.launches[at + 1 :]
        wrong = [(what, (*before, twin, *after)) for what, twin in any_fault(launch)]
        if launch.operation != "logits" or launch.size("capped"):
            wrong.append(("left out", before + after))
        if after and after[0].operation != "logits":
            wrong.append(("late", (*before, after[0], launch, *after[1:])))
        for what, launches in wrong:
            if problem_of(family, replace(plan, launches=launches)) is None:
                missed.append(f"{at} {launch.operation} {what}")

    assert [] == missed


def test_where_numbers_are_rounded_is_part_of_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were a result of `FUSED` rounded, the device of some family would leave something else: none is superfluous."""
    needed = set()
    for name in ("tiny-llama3", "tiny-gemma3", "qwen3-0.6b", "gemma-4-12b"):
        plan = family_plan(name, "full", "full", heads=2)
        for pair in FUSED:
            monkeypatch.setattr(forward_plan, "FUSED", FUSED - {pair})
            problem = problem_of(plan, lower(plan, Form.SPLIT, logit_block=1))
            needed |= {pair} if problem is not None else set()
            assert problem is None or "leaves something else" in problem

    assert FUSED == needed


# ---------------------------------------------------------------- a model's plan with a fault


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (Operation.EMBEDDING, "it reads residual, which no launch before it leaves to it"),
        (Operation.ANGLES, "it reads cosine.full, which no launch before it leaves to it"),
        (Operation.STORE, "it reads keys.ℓ, which holds no row of this forward yet"),
    ],
)
def test_a_model_plan_without_a_launch_is_refused(operation: Operation, reason: str) -> None:
    """What the first launch of an operation leaves is missed by the next one that reads it."""
    plan = family_plan("tiny-llama3", "full")
    at = [launch.operation for launch in plan.launches].index(operation)
    without = replace(plan, launches=plan.launches[:at] + plan.launches[at + 1 :])
    # What the device's plan says that it computes is counted in launches of the whole plan, and is not the point here.
    launches = lower(plan, Form.EXTEND, logit_block=1).launches
    every = replace(launches[0], covers=tuple(range(len(without.launches))))
    device = replace(
        lower(plan, Form.EXTEND, logit_block=1), launches=(every, *(replace(one, covers=()) for one in launches[1:]))
    )
    problem = problem_of(without, device)

    assert problem is not None
    assert problem.endswith(reason)


def test_a_model_plan_with_a_small_buffer_is_refused() -> None:
    """A result has as many numbers as the buffer that it is put into."""
    plan = family_plan("tiny-llama3", "full")
    buffers = tuple(replace(one, shape=(8,)) if one.name == "update" else one for one in plan.buffers)

    assert "the model's plan: launch 7 (linear): its results do not fit update" == problem_of(
        replace(plan, buffers=buffers), lower(plan, Form.EXTEND, logit_block=1)
    )


# ---------------------------------------------------------------- a contract with another text


@pytest.mark.parametrize(
    ("operation", "old", "new", "reason"),
    [
        ("attention", "lengths[b] - counts[b] + i", "lengths[b] - counts[b] + i + 1", "to be at another position"),
        ("attention", "j % PAGE", "(j + 1) % PAGE", "it takes keys to be in other slots"),
        (
            "attention",
            "queries[starts[b] + i",
            "queries[starts[b]",
            "it reads queries.full in row ",
        ),
        ("attention", "WINDOW, lambda", "0 if WINDOW else 7, lambda", "7 stands where None belongs"),
        ("attention", "queries[starts[b] + i", "queries[i", "it reads queries.full in row "),
        ("linear", "x[i, :]", "x[rows, :]", "has no value: name 'rows' is not defined"),
        ("gate_up", "weight[0::2, :]", "weight[1::2, :]", "up_proj.weight stands where model.layers.ℓ.mlp.gate_proj"),
        (
            "attention",
            "0 <= i < counts[b]",
            "0 < i < counts[b]",
            "its out are written where 0 <= b < sequences",
        ),
        ("rotary_store", "slots[i] >= 0", "slots[i] > 0", "its keys are written where 0 <= i < rows and slots[i] > 0"),
        ("rotary_store", "slots[i]", "positions[i]", "its keys are written in row positions[i], which is not its own"),
    ],
)
def test_a_contract_with_another_text_is_refused(
    operation: str, old: str, new: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a contract says is read from its text, index by index."""
    contract_of = forward_device.contract_of

    def edited(name: str) -> Contract:
        contract = contract_of(name)
        if name != operation:
            return contract
        outputs = (
            replace(
                one,
                value=one.value.replace(old, new),
                cell=tuple(part.replace(old, new) for part in one.cell),
                when=one.when if old == "slots[i]" else one.when.replace(old, new),
            )
            for one in contract.outputs
        )
        return replace(contract, outputs=tuple(outputs))

    monkeypatch.setattr(forward_device, "contract_of", edited)
    plan = family_plan("tiny-llama3", "full")
    problem = problem_of(plan, lower(plan, Form.EXTEND, logit_block=1))

    assert problem is not None
    assert reason in problem


def test_kernels_of_one_operation_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table may choose either of them, so an operation whose kernels promise different things is refused."""
    contract = KERNELS["linear_stream"].contract
    (output,) = contract.outputs
    twin = SimpleNamespace(contract=replace(contract, outputs=(replace(output, value="linear(x[i, :], weight)[j]"),)))
    monkeypatch.setattr(forward_device, "KERNELS", {**KERNELS, "linear_stream": twin})

    with pytest.raises(Refused, match="of linear, contracts say 2 different things"):
        forward_device.contract_of.__wrapped__("linear")


# ---------------------------------------------------------------- premises


def test_every_premise_has_its_place() -> None:
    """Each premise of each contract on a plan is seen to somewhere, and what is called proved is a statement."""
    used = {
        kernel
        for name in (*BUNDLED, *shape_names())
        for plan in device_plans(family_plan(name)).values()
        for launch in plan.launches
        for kernel in kernel_names(launch.operation)
    }
    claimed = {name for text in FACTS.values() for name in re.findall(r"proved: ([\w, ]+)", text)}

    assert set(FOLLOWED) == used
    assert [] == [(one.kernel, one.statement) for one in premises(used) if not one.place]
    assert [] == [name for names in claimed for name in names.split(", ") if not hasattr(forward_rows, name)]
