"""The forward's proof: every model's plan is shown, and what is wrong with a plan is refused for its own reason.

`test_forward_induction` has what is wrong with one layer of many.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from vosti.impl.backends.cuda.lowering import lower
from vosti.impl.backends.cuda.plan import METADATA, DeviceBuffer, DevicePlan, Form, KernelLaunch
from vosti.impl.bundled import BUNDLED, shape_names
from vosti.impl.models.plan import Operation, Rows

pytest.importorskip("triton", reason="contracts stand beside the kernels, which need Triton")

from forward_plans import changed, family_plan, other, problem_of
from vosti.kernels.contract import Contract
from vosti.proofs import forward_device, forward_plan, forward_rows
from vosti.proofs.forward import device_plans, prove_plan
from vosti.proofs.forward_device import kernel_names
from vosti.proofs.forward_plan import FUSED
from vosti.proofs.forward_premises import FACTS, FOLLOWED, premises
from vosti.proofs.forward_terms import EVERY, Array, Refused, Terms, cut, joined, width
from vosti.proofs.forward_words import difference


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


def place(plan: DevicePlan, operation: str, number: int = 0) -> int:
    """Where a launch stands: the first of an operation, or a later one."""
    return [at for at, launch in enumerate(plan.launches) if launch.operation == operation][number]


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


def flags_elsewhere(plan: DevicePlan) -> DevicePlan:
    """Flags over the residual stream, which the launch does not read."""
    at = place(plan, "rotary_store")
    return changed(plan, at, writes=other(plan.launches[at].writes, flags="residual"))


FAULTS: dict[Callable[[DevicePlan], DevicePlan], str] = {
    swapped_buffer: r"launch 6 \(rms_norm\) leaves something else in residual: .*o_proj.* where residual belongs",
    another_buffer: r"launch 7 \(gate_up\) leaves something else in activated: add\(residual, .* stands where mul",
    no_row_gather: r"launch 17 \(rms_norm\): it reads residual in row i, which is not its own, row_map\[i\]",
    wrong_row_gather: r"launch 17 \(rms_norm\): it reads residual in row starts\[i\], which is not its own, row_map",
    early_row_gather: r"launch 18 \(head\): it reads rows of logits, and normed has rows of tokens",
    skipped_norm: r"of launch 8 of the model's plan no launch says that it computes it",
    skipped_head_norm: r"launch 6 \(rms_norm\) leaves something else in normed: 0.5 stands where 1e-05 belongs",
    stale_residual: r"launch 9 \(rms_norm\) leaves something else in residual: residual stands where bf16\(add",
    stale_layer: r"launch 12 \(attention\): its keys are keys.ℓ-1, which is no buffer for that",
    later_layer: r"launch 4 \(attention\): its keys are keys.ℓ\+1, which is no buffer for that",
    store_in_layer: r"launch 11 \(rotary_store\): its keys are keys.ℓ-1, which is no buffer for that",
    wrong_layer: r"layers.ℓ-1.self_attn.q_proj.weight stands where model.layers.ℓ.self_attn.q_proj.weight belongs",
    no_window: r"launch 4 \(attention\) leaves something else in context.sliding: None stands where \d+ belongs",
    keys_for_values: r"launch 4 \(attention\) leaves something else in context.full: .*v_proj.* stands where .*row",
    values_stored_as_keys: r"launch 3 \(rotary_store\) leaves something else in (keys|values).ℓ: ",
    store_after_attention: r"launch 11 \(attention\): it reads queries.full, which no launch before it leaves to it",
    covers_too_much: r"launch 8 \(rms_norm\) leaves something else in residual: .*attention.* stands where ",
    covers_nothing: r"of launch 23 of the model's plan no launch says that it computes it",
    in_place: r"launch 7 \(gate_up\): it overwrites normed, which it reads",
    metadata_overwritten: r"launch 7 \(gate_up\): lengths is of i32, and out of bf16",
    other_positions: r"launch 3 \(rotary_store\) leaves something else in .*: lengths\[i\] stands where positions\[i\]",
    other_slots: r"launch 3 \(rotary_store\): its keys are written in row tokens\[i\], which is not its own",
    other_width: r"launch 3 \(rotary_store\): 384 numbers stand where 320 belong",
    contradiction: r"launch 19 \(logits\): its sizes say CAPPED = 1, and what it is given 0",
    not_rounded: r"launch 5 \(linear\) leaves something else in update: chain.* stands where bf16\(chain.* belongs",
    flags_elsewhere: r"launch 3 \(rotary_store\): residual is of bf16, and flags of i32",
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
    problem = problem_of(plan, fault(lower(plan, Form.EXTEND, logit_block=1)))

    assert problem is not None
    assert re.search(FAULTS[fault], problem), problem


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
    """Another size, number, parameter or buffer, a launch left out, and two that change places."""
    family = family_plan(name, "sliding", "full", heads=2)
    plan = lower(family, form, logit_block=1)
    missed = []
    for at, launch in enumerate(plan.launches):
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
            replace(one, value=one.value.replace(old, new), cell=tuple(part.replace(old, new) for part in one.cell))
            for one in contract.outputs
        )
        return replace(contract, outputs=tuple(outputs))

    monkeypatch.setattr(forward_device, "contract_of", edited)
    plan = family_plan("tiny-llama3", "full")
    problem = problem_of(plan, lower(plan, Form.EXTEND, logit_block=1))

    assert problem is not None
    assert reason in problem


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
    x, y, z = (Array((), (terms.vector(4, "stored", name),)) for name in "xyz")

    assert terms.add(x, y) == terms.add(x, y)
    assert terms.add(x, y) != terms.add(y, x)
    assert terms.add(terms.add(x, y), z) != terms.add(x, terms.add(y, z))
    assert "y stands where x belongs" == difference(terms, terms.add(y, x).flat, terms.add(x, y).flat)


def test_a_rounding_is_of_each_number_and_of_no_rounded_one() -> None:
    """Rounded columns are columns of what is rounded; rounding a second time is nothing; and rounding is something."""
    terms = Terms()
    x, y = (terms.vector(4, "stored", name) for name in "xy")
    both = joined(x, y)

    assert cut(terms.rounded(both), 2, 6) == terms.rounded(cut(both, 2, 6))
    assert terms.rounded(terms.rounded(both)) == terms.rounded(both)
    assert x != terms.rounded(x) != terms.rounded(y)


def test_heads_are_cut_and_joined() -> None:
    """Heads are neighbouring columns, and halves of them what is joined in the same order only."""
    terms = Terms()
    whole = terms.vector(12, "stored", "x")
    heads = Array.of(whole, (3, 4))
    first, second = terms.halves(heads)

    assert whole == heads.flat
    assert cut(whole, 4, 8) == heads[1, EVERY].flat
    assert cut(whole, 8, 10) == Array.of(whole, (3, 2, 2))[2, 0, EVERY].flat
    assert heads.flat == terms.join(first, second).flat
    assert heads.flat != terms.join(second, first).flat
    assert 12 == width(terms.negate(heads).flat)
    assert whole == joined(cut(whole, 0, 5), cut(whole, 5, 12))


def test_what_does_not_fit_is_refused() -> None:
    """Other widths, other numbers of heads, and an index that is none."""
    terms = Terms()
    x, y = (Array((), (terms.vector(n, "stored", f"of {n}"),)) for n in (4, 5))
    heads = Array.of(x.flat, (2, 2))

    for attempt in (
        lambda: terms.add(x, y),
        lambda: Array.of(x.flat, (3,)),
        lambda: x[0, 1],
        lambda: heads[2, EVERY],
        lambda: heads[-1, EVERY],
        lambda: heads[EVERY, 0],
        lambda: terms.add(heads, Array.of(terms.vector(6, "stored", "z"), (3, 2))),
    ):
        with pytest.raises(Refused):
            attempt()
