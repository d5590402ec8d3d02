"""What may be wrong with a device's plan: of two layers, in the form `EXTEND`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from forward_plans import changed, other
from vosti.impl.backends.cuda.plan import DeviceBuffer, DevicePlan
from vosti.impl.models.plan import Rows


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
    spare = replace(plan, buffers=(*plan.buffers, DeviceBuffer("spare", "bf16", (256,), Rows.TOKENS)))
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
    return changed(plan, at, sizes=other(plan.launches[at].sizes, window=0))


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
    return changed(plan, at, sizes=other(plan.launches[at].sizes, kv_heads=1))


def contradiction(plan: DevicePlan) -> DevicePlan:
    """A cap in the sizes of the logits, and none to apply."""
    at = place(plan, "logits")
    return changed(plan, at, sizes=other(plan.launches[at].sizes, capped=1))


def not_rounded(plan: DevicePlan) -> DevicePlan:
    """A buffer of float32 between kernels that take bf16."""
    buffers = tuple(replace(one, element="fp32") if one.name == "update" else one for one in plan.buffers)
    return replace(plan, buffers=buffers)


def flags_elsewhere(plan: DevicePlan) -> DevicePlan:
    """Flags over the residual stream, which the launch does not read."""
    at = place(plan, "rotary_store")
    return changed(plan, at, writes=other(plan.launches[at].writes, flags="residual"))


def flags_over_lengths(plan: DevicePlan) -> DevicePlan:
    """Flags over the lengths of sequences, integers both."""
    at = place(plan, "rotary_store")
    return changed(plan, at, writes=other(plan.launches[at].writes, flags="lengths"))


def norm_over_its_input(plan: DevicePlan) -> DevicePlan:
    """A norm over what its kernel still reads; the next launch finds it there."""
    at = place(plan, "rms_norm", 1)
    moved = changed(plan, at, writes=other(plan.launches[at].writes, out="update"))
    return changed(moved, at + 1, reads=(("x", "update"),))


def two_in_one_buffer(plan: DevicePlan) -> DevicePlan:
    """The last sum, which nobody reads, over the norm."""
    at = place(plan, "rms_norm", -1)
    return changed(plan, at, writes=other(plan.launches[at].writes, total_out="last_normed"))


def rows_of_another_kind(plan: DevicePlan) -> DevicePlan:
    """Wanted rows in a buffer for rows of the batch; the head finds them there."""
    at = place(plan, "rms_norm", -1)
    moved = changed(plan, at, writes=other(plan.launches[at].writes, out="normed"))
    return changed(moved, place(plan, "head"), reads=(("x", "normed"),))


def small_buffer(plan: DevicePlan) -> DevicePlan:
    """A buffer with room for fewer numbers than are put there, and taken from there."""
    return replace(
        plan, buffers=tuple(replace(one, shape=(8,)) if one.name == "activated" else one for one in plan.buffers)
    )


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
    flags_over_lengths: r"launch 3 \(rotary_store\): it overwrites lengths$",
    norm_over_its_input: r"launch 6 \(rms_norm\): it overwrites update, which it reads",
    two_in_one_buffer: r"launch 17 \(rms_norm\): it overwrites last_normed$",
    rows_of_another_kind: r"launch 17 \(rms_norm\): its out, \d+ numbers in rows of selected, do not fit normed",
    small_buffer: r"launch 7 \(gate_up\): its out, \d+ numbers in rows of tokens, do not fit activated",
}
"""What is done to a plan of two layers, and why it is refused."""
