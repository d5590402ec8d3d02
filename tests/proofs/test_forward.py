"""The forward's proof: every model's plan is shown, and what is wrong with a plan is refused for its own reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from vosti.impl.backends.cuda.lowering import lower
from vosti.impl.backends.cuda.plan import METADATA, DeviceBuffer, DevicePlan, Form, KernelLaunch
from vosti.impl.bundled import BUNDLED, find_checkpoint, shape_names
from vosti.impl.models.families import STYLES, load_config
from vosti.impl.models.layers import build_plan
from vosti.impl.models.plan import Operation, Plan, Rows

pytest.importorskip("triton", reason="contracts stand beside the kernels, which need Triton")

from vosti.kernels.contract import Contract
from vosti.proofs import forward_device, forward_rows
from vosti.proofs.forward import deviation, device_plans, difference, prove_plan
from vosti.proofs.forward_device import kernel_names, run_device_plan
from vosti.proofs.forward_plan import run_plan
from vosti.proofs.forward_premises import FACTS, FOLLOWED, premises
from vosti.proofs.forward_terms import Array, Heads, Refused, Terms, cut, holds, joined, width


def family_plan(name: str, *kinds: str) -> Plan:
    """The plan of a bundled model or shape, or that of its kind with layers of other types."""
    config = load_config(find_checkpoint(name))
    if kinds:
        attention = {kind: config.attention[kind] for kind in config.attention if kind in kinds}
        config = replace(config, layer_types=kinds, attention=attention)  # type: ignore[arg-type]
    return build_plan(config, STYLES[config.family])


@pytest.mark.parametrize("name", [*BUNDLED, *shape_names()])
def test_every_model_is_shown(name: str) -> None:
    """Its plan, the device's in both forms, and that the forms agree, roundings included; launch by launch."""
    plan = family_plan(name)
    parts = prove_plan(plan)

    assert [] == [(part.name, part.problem) for part in parts if part.problem is not None]
    assert [
        "the model's plan, as the CPU backend runs it",
        "the device's plan, extend",
        "the device's plan, split",
        "both forms of attention, roundings included",
    ] == [part.name for part in parts]
    assert [len(plan.launches), *(len(device.launches) for device in device_plans(plan).values()), 0] == [
        len(part.launches) for part in parts
    ]


def test_launches_are_named_with_what_they_read() -> None:
    """Who wrote each buffer last, and which launches of the model's plan it computes."""
    extend = prove_plan(family_plan("tiny-llama3"))[1]

    assert "launch 1, rms_norm: reads residual of launch 0; computes launch 2 of the model's plan" in extend.launches
    assert (
        "launch 4, attention of layer 0: reads queries.full of launch 3, keys.0 of launch 3, values.0 of launch 3; "
        "computes launch 6 of the model's plan"
    ) in extend.launches


# ---------------------------------------------------------------- a device's plan with a fault


def changed(plan: DevicePlan, at: int, **fields: object) -> DevicePlan:
    """The plan with another launch in one place."""
    launch = replace(plan.launches[at], **fields)  # type: ignore[arg-type]
    return replace(plan, launches=(*plan.launches[:at], launch, *plan.launches[at + 1 :]))


def place(plan: DevicePlan, operation: str, number: int = 0) -> int:
    """Where a launch stands: the first of an operation, or a later one."""
    return [at for at, launch in enumerate(plan.launches) if launch.operation == operation][number]


def other(roles: tuple[tuple[str, str], ...], **names: str) -> tuple[tuple[str, str], ...]:
    """Roles with other buffers."""
    return tuple((role, names.get(role, name)) for role, name in roles)


def swapped_buffer(plan: DevicePlan) -> DevicePlan:
    """The residual stream and the update in each other's place."""
    at = place(plan, "rms_norm", 1)
    return changed(plan, at, reads=(("x", "update"), ("y", "residual")))


def another_buffer(plan: DevicePlan) -> DevicePlan:
    """A linear layer of something else."""
    at = place(plan, "gate_up")
    return changed(plan, at, reads=(("x", "residual"),))


def no_row_gather(plan: DevicePlan) -> DevicePlan:
    """The wanted rows from the first rows of the batch."""
    at = place(plan, "rms_norm", -1)
    return changed(plan, at, reads=tuple(one for one in plan.launches[at].reads if one[0] != "row_map"))


def wrong_row_gather(plan: DevicePlan) -> DevicePlan:
    """The wanted rows by other integers."""
    at = place(plan, "rms_norm", -1)
    return changed(plan, at, reads=other(plan.launches[at].reads, row_map="starts"))


def early_row_gather(plan: DevicePlan) -> DevicePlan:
    """The head reads rows of the batch."""
    return changed(plan, place(plan, "head"), reads=(("x", "normed"),))


def skipped_norm(plan: DevicePlan) -> DevicePlan:
    """No norm before the feed-forward layer."""
    at = place(plan, "rms_norm", 1)
    return replace(plan, launches=plan.launches[:at] + plan.launches[at + 1 :])


def skipped_head_norm(plan: DevicePlan) -> DevicePlan:
    """Rotary embedding of heads whose scale is another."""
    at = place(plan, "rms_norm", 1)
    return changed(plan, at, reals=(("epsilon", 0.5),))


def stale_residual(plan: DevicePlan) -> DevicePlan:
    """The sum goes elsewhere, so that the next norm reads an old one."""
    at = place(plan, "rms_norm", 1)
    spare = replace(plan, buffers=(*plan.buffers, DeviceBuffer("spare", "bf16", (64,), Rows.TOKENS)))
    return changed(spare, at, writes=other(plan.launches[at].writes, total_out="spare"))


def stale_layer(plan: DevicePlan) -> DevicePlan:
    """Attention of the second layer reads the first one's cache."""
    at = place(plan, "attention", 1)
    return changed(plan, at, reads=other(plan.launches[at].reads, keys="keys.0", values="values.0"))


def later_layer(plan: DevicePlan) -> DevicePlan:
    """Attention of the first layer reads the second one's cache."""
    at = place(plan, "attention")
    return changed(plan, at, reads=other(plan.launches[at].reads, keys="keys.1", values="values.1"))


def store_in_layer(plan: DevicePlan) -> DevicePlan:
    """The second layer stores over the first one."""
    at = place(plan, "rotary_store", 1)
    return changed(plan, at, writes=other(plan.launches[at].writes, keys="keys.0", values="values.0"))


def wrong_layer(plan: DevicePlan) -> DevicePlan:
    """The second layer's queries by the first one's weights."""
    at = place(plan, "rotary_store", 1) - 1
    return changed(plan, at, parameters=(("weight", "layers.0.qkv"),))


def no_window(plan: DevicePlan) -> DevicePlan:
    """A sliding layer that sees everything."""
    at = place(plan, "attention")
    sizes = tuple((name, 0 if name == "window" else size) for name, size in plan.launches[at].sizes)
    return changed(plan, at, sizes=sizes)


def keys_for_values(plan: DevicePlan) -> DevicePlan:
    """Attention with keys and values in each other's place."""
    at = place(plan, "attention")
    return changed(plan, at, reads=other(plan.launches[at].reads, keys="values.0", values="keys.0"))


def values_stored_as_keys(plan: DevicePlan) -> DevicePlan:
    """A store with keys and values in each other's place."""
    at = place(plan, "rotary_store")
    return changed(plan, at, writes=other(plan.launches[at].writes, keys="values.0", values="keys.0"))


def store_after_attention(plan: DevicePlan) -> DevicePlan:
    """The second layer's attention comes first, on queries that are there."""
    at = place(plan, "rotary_store", 1)
    store, attention = plan.launches[at : at + 2]
    return replace(plan, launches=(*plan.launches[:at], attention, store, *plan.launches[at + 2 :]))


def covers_too_much(plan: DevicePlan) -> DevicePlan:
    """The gated layer is said to compute the next one, too, which is left out."""
    at = place(plan, "gate_up")
    covers = (*plan.launches[at].covers, plan.launches[at + 1].covers[0])
    plan = changed(plan, at, covers=covers)
    return replace(plan, launches=plan.launches[: at + 1] + plan.launches[at + 2 :])


def covers_nothing(plan: DevicePlan) -> DevicePlan:
    """Nobody is said to compute the head."""
    return changed(plan, place(plan, "head"), covers=())


def in_place(plan: DevicePlan) -> DevicePlan:
    """A linear layer that overwrites what it reads."""
    at = place(plan, "gate_up")
    return changed(plan, at, writes=(("out", "normed"),))


def metadata_overwritten(plan: DevicePlan) -> DevicePlan:
    """A launch that overwrites the lengths of sequences."""
    at = place(plan, "gate_up")
    return changed(plan, at, writes=(("out", "lengths"),))


def other_positions(plan: DevicePlan) -> DevicePlan:
    """Angles of other positions than the row's."""
    at = place(plan, "rotary_store")
    return changed(plan, at, reads=other(plan.launches[at].reads, positions="lengths"))


def other_slots(plan: DevicePlan) -> DevicePlan:
    """Keys in other slots than the row's."""
    at = place(plan, "rotary_store")
    return changed(plan, at, reads=other(plan.launches[at].reads, slots="tokens"))


def other_width(plan: DevicePlan) -> DevicePlan:
    """Fewer heads than the weights make."""
    at = place(plan, "rotary_store")
    sizes = tuple((name, 1 if name == "kv_heads" else size) for name, size in plan.launches[at].sizes)
    return changed(plan, at, sizes=sizes)


def contradiction(plan: DevicePlan) -> DevicePlan:
    """A cap in the sizes of the logits, and none to apply."""
    at = place(plan, "logits")
    sizes = tuple((name, 1 if name == "capped" else size) for name, size in plan.launches[at].sizes)
    return changed(plan, at, sizes=sizes)


def not_rounded(plan: DevicePlan) -> DevicePlan:
    """A buffer of float32 between kernels that take bf16."""
    buffers = tuple(replace(one, element="fp32") if one.name == "update" else one for one in plan.buffers)
    return replace(plan, buffers=buffers)


FAULTS: dict[Callable[[DevicePlan], DevicePlan], str] = {
    swapped_buffer: r"launch 6 \(rms_norm\): what it leaves in residual is not what .* stands where .* belongs",
    another_buffer: r"launch 7 \(gate_up\): it reads residual as launch 6 \(rms_norm\) left it, and launches .* not",
    no_row_gather: r"launch 17 \(rms_norm\): it reads residual in another row than its own",
    wrong_row_gather: r"launch 17 \(rms_norm\): it reads residual in another row than its own",
    early_row_gather: r"launch 18 \(head\): it reads rows of logits, and normed has rows of tokens",
    skipped_norm: r"launch 8 \(residual_rms_norm\) of the model's plan is computed by no launch",
    skipped_head_norm: r"launch 6 \(rms_norm\): what it leaves in normed .*: 0.5 stands where 1e-05 belongs",
    stale_residual: r"launch 9 \(rms_norm\): it reads residual as launch 0 \(embedding\) left it, and launch 12",
    stale_layer: r"launch 12 \(attention\): it reads keys.0 as launch 3 \(rotary_store\) left it, and launch 16",
    later_layer: r"launch 4 \(attention\): it reads keys.1, which holds no row of this forward yet",
    store_in_layer: r"launch 11 \(rotary_store\): it stores keys.0 a second time",
    wrong_layer: r"model.layers.0.self_attn.q_proj.weight stands where model.layers.1.self_attn.q_proj.weight belongs",
    no_window: r"launch 4 \(attention\): what it leaves in context.sliding .*: None stands where \d+ belongs",
    keys_for_values: r"launch 4 \(attention\): what it leaves in context.full is not .* stands where .* belongs",
    values_stored_as_keys: r"launch 3 \(rotary_store\): it stores something else in (keys|values).0",
    store_after_attention: r"launch 11 \(attention\): it reads keys.1, which holds no row of this forward yet",
    covers_too_much: r"launch 7 \(gate_up\): it leaves no update, which launch 12 of the model's plan reads",
    covers_nothing: r"launch 23 \(linear\) of the model's plan is computed by no launch",
    in_place: r"launch 7 \(gate_up\): it overwrites normed, which it reads",
    metadata_overwritten: r"launch 7 \(gate_up\): it overwrites lengths",
    other_positions: r"launch 3 \(rotary_store\): what it leaves in queries.full is not",
    other_slots: r"launch 3 \(rotary_store\): its keys are written in another row than its own",
    other_width: r"launch 3 \(rotary_store\): ",
    contradiction: r"launch 19 \(logits\): its sizes say CAPPED = 1, and what it is given 0",
    not_rounded: r"launch 6 \(rms_norm\): update is of fp32, and y of bf16",
}
"""What is done to a plan of two layers, and why it is refused."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_refused_for_its_reason(fault: Callable[[DevicePlan], DevicePlan]) -> None:
    """The first launch that goes astray is named, with what it reads or leaves."""
    plan = (
        family_plan("tiny-gemma3", "sliding", "full")
        if fault is no_window
        else family_plan("tiny-llama3", "full", "full")
    )
    device = fault(lower(plan, Form.EXTEND, logit_block=1))
    *_, part = prove_plan(plan, {Form.EXTEND: device})

    assert part.problem is not None
    assert re.search(FAULTS[fault], part.problem), part.problem


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
        if not role.endswith("flags") and (launch.operation, role) != ("rms_norm", "total_out"):
            yield role, replace(launch, writes=other(launch.writes, **{role: "elsewhere"}))


@pytest.mark.parametrize("name", ["tiny-gemma3", "gemma-4-12b"])
@pytest.mark.parametrize("form", list(Form))
def test_any_fault_in_any_launch_is_refused(name: str, form: Form) -> None:
    """Another size, number, parameter or buffer, a launch left out, and two that change places."""
    terms, family = Terms(), family_plan(name, "sliding", "full")
    model, plan = run_plan(family, terms), lower(family, form, logit_block=1)
    missed = []
    for at, launch in enumerate(plan.launches):
        before, after = plan.launches[:at], plan.launches[at + 1 :]
        wrong = [(what, (*before, twin, *after)) for what, twin in any_fault(launch)]
        if launch.operation != "logits" or launch.size("capped"):
            wrong.append(("left out", before + after))
        if after and after[0].operation != "logits":
            wrong.append(("late", (*before, after[0], launch, *after[1:])))
        for what, launches in wrong:
            twin = replace(plan, launches=launches)
            if deviation(model, run_device_plan(twin, terms, rounding=False), terms) is None:
                missed.append(f"{at} {launch.operation} {what}")

    assert [] == missed


def test_a_rounding_that_only_one_form_has_is_found() -> None:
    """The forms are compared with roundings; one that is without differs in the first keys."""
    terms, plan = Terms(), family_plan("tiny-llama3", "full")
    runs = {
        form: run_device_plan(device, terms, rounding=form is Form.EXTEND)
        for form, device in device_plans(plan).items()
    }
    found = difference(runs, terms)

    assert found is not None
    assert found.startswith("split: keys of layer 0: ")


# ---------------------------------------------------------------- a model's plan with a fault


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (Operation.EMBEDDING, "it reads residual, which no launch has written"),
        (Operation.ANGLES, "it reads cosine.full, which no launch has written"),
        (Operation.STORE, "it attends to layer 0 before this forward's keys are stored there"),
    ],
)
def test_a_model_plan_without_a_launch_is_refused(operation: Operation, reason: str) -> None:
    """What the first launch of an operation leaves is missed by the next one that reads it."""
    plan = family_plan("tiny-llama3", "full")
    at = [launch.operation for launch in plan.launches].index(operation)
    (part,) = prove_plan(replace(plan, launches=plan.launches[:at] + plan.launches[at + 1 :]))

    assert part.problem is not None
    assert part.problem.endswith(reason)


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
            "it reads queries.full in another row than its own",
        ),
        ("attention", "WINDOW, lambda", "0 if WINDOW else 7, lambda", "7 stands where None belongs"),
        ("attention", "queries[starts[b] + i", "queries[i", "it reads queries.full in another row than its own"),
        ("linear", "x[i, :]", "x[rows, :]", "it is given no rows"),
        ("gate_up", "weight[0::2, :]", "weight[1::2, :]", "up_proj.weight stands where model.layers.0.mlp.gate_proj"),
        ("rotary_store", "slots[i]", "positions[i]", "its keys are written in another row than its own"),
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
            replace(one, value=one.value.replace(old, new), cell=tuple(part.replace(old, new) for part in one.cell))
            for one in contract.outputs
        )
        return replace(contract, outputs=tuple(outputs))

    monkeypatch.setattr(forward_device, "contract_of", edited)
    plan = family_plan("tiny-llama3", "full")
    problems = [part.problem for part in prove_plan(plan, {Form.EXTEND: lower(plan, Form.EXTEND, logit_block=1)})]

    assert problems[1] is not None
    assert reason in problems[1]


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


# ---------------------------------------------------------------- terms


def test_terms_are_equal_if_they_are_made_alike() -> None:
    """An operation's arguments have an order, and no sum is another in a different order."""
    terms = Terms()
    x, y, z = (Array((), (Heads(1, terms.vector(4, "stored", name)),)) for name in "xyz")

    assert terms.add(x, y) == terms.add(x, y)
    assert terms.add(x, y) != terms.add(y, x)
    assert terms.add(terms.add(x, y), z) != terms.add(x, terms.add(y, z))
    assert "y stands where x belongs" == terms.difference(terms.flat(terms.add(y, x)), terms.flat(terms.add(x, y)))


def test_heads_are_cut_and_joined() -> None:
    """What is made of neighbouring heads alike is one term; its heads are that term's columns."""
    terms = Terms()
    whole = terms.vector(12, "stored", "x")
    heads = Array.of(whole, (3, 4))
    first, second = terms.halves(heads)

    assert whole == terms.flat(heads)
    assert 1 == len(heads.heads)
    assert cut(whole, 4, 8) == terms.flat(Array((1,), heads.among(1, 2)))
    assert terms.flat(heads) == terms.flat(terms.join(first, second))
    assert terms.flat(heads) != terms.flat(terms.join(second, first))
    assert 12 == width(terms.flat(terms.negate(heads)))
    assert holds(whole, cut(whole, 3, 7))
    assert not holds(cut(whole, 0, 5), cut(whole, 3, 7))
    assert whole == joined(cut(whole, 0, 5), cut(whole, 5, 12))


def test_what_does_not_fit_is_refused() -> None:
    """Other widths, other numbers of heads, and an index that is none."""
    terms = Terms()
    x, y = (Array((), (Heads(1, terms.vector(n, "stored", f"of {n}")),)) for n in (4, 5))

    for attempt in (
        lambda: terms.add(x, y),
        lambda: Array.of(terms.flat(x), (3,)),
        lambda: x[0, 1],
        lambda: terms.add(Array.of(terms.flat(x), (2, 2)), Array.of(terms.vector(6, "stored", "z"), (3, 2))),
    ):
        with pytest.raises(Refused):
            attempt()
