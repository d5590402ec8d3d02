"""The forward: along its launch plan, a model's logits are Forward of the history, and its slots hold f_KV.

Let W be a model on a backend, and a batch satisfy the specification's `forward_ok` in a state with Inv, so that every
slot of an earlier position that a row reads holds f_KV of its history (`vosti.proofs.canonical_output`). If each kernel
keeps its contract, then after the launches of the plan, whatever the batch,

    the slot of a live row with history h at position p holds    f_KV(W, h, p), in every layer
    row k of the logits is    Forward(W, h[: p + 1]), h and p being those of the row that the row map names

which are the two contracts that the engine's proof assumes: `kernel_kv` and `kernel_logits` of `vosti.spec.reference`.

*Definition.* Forward(W, h) and f_KV(W, h, p) are the terms that the model's plan makes (`vosti.proofs.forward_plan`).
They depend on h[: p + 1] alone, for their leaves do.

*Proof.* By induction over the launches: after each, every buffer holds, of every live row, the term that the model's
plan says, and so does every slot that some live row reads, once its layer is stored.

1. The CPU backend runs the model's plan itself: each launch reads what an earlier one has written, in the rows that it
   says, and attention comes after the store of its layer.
2. The device's plan is run by the contracts of its kernels (`vosti.proofs.forward_device`), in both forms of attention.
   Each of its launches reads what the launches of the model's plan read that it computes, leaves what they leave, and
   nothing is left out. Here roundings to bf16 are left out of account: the model's plan has none.
3. With roundings, which stand where the device keeps a buffer, both forms leave the same terms: so W has one Forward,
   and a position that one form computed may be read by the other.
4. Of all batches at once: rows, positions and slots are those that the contracts speak of, and every slot that a row
   reads holds its own history's position (`vosti.proofs.forward_rows`).

Steps 1 to 3 are a computation for one plan, launch by launch over all its layers, and exact: a term is an operation
applied to terms, nothing is known of operations, and nothing is tried on numbers. Step 4 is proved by the solvers for
any number of rows, sequences and pages, any page size and layer. What is left is that kernels keep their contracts
(`vosti.kernels.verifier`), and the premises of the contracts: `PREMISES` of `vosti.proofs.forward_premises` says of
each where it is seen to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vosti.impl.backends.cuda.lowering import lower
from vosti.impl.backends.cuda.plan import DevicePlan, Form
from vosti.impl.models.plan import Operation, Plan
from vosti.proofs.forward_device import run_device_plan
from vosti.proofs.forward_plan import Run, Step, run_plan
from vosti.proofs.forward_terms import Terms, holds, joined, width


@dataclass(frozen=True)
class Part:
    """One step of the proof for one plan."""

    name: str
    launches: tuple[str, ...]
    """Of each launch: what it reads, who wrote that last, and what it computes."""

    problem: str | None
    """Why it is not shown; the first reason."""


def device_plans(plan: Plan) -> dict[Form, DevicePlan]:
    """What the cuda backend runs, in both forms of attention."""
    # How many logits share a flag, which the tables say, no value depends on.
    return {form: lower(plan, form, logit_block=1) for form in Form}


def prove_plan(plan: Plan, devices: Mapping[Form, DevicePlan] | None = None) -> list[Part]:
    """Steps 1 to 3 for a model's plan and the device's, which are lowered from it unless given."""
    terms = Terms()
    model = run_plan(plan, terms)
    parts = [Part("the model's plan, as the CPU backend runs it", _lines(model), model.problem)]
    if model.problem is not None:
        return parts
    chosen = devices or device_plans(plan)
    for form, device in chosen.items():
        run = run_device_plan(device, terms, rounding=False)
        parts.append(Part(f"the device's plan, {form.value}", _lines(run), deviation(model, run, terms)))
    if all(part.problem is None for part in parts):
        runs = {form: run_device_plan(device, terms, rounding=True) for form, device in chosen.items()}
        parts.append(Part("both forms of attention, roundings included", (), difference(runs, terms)))
    return parts


def _lines(run: Run) -> tuple[str, ...]:
    """The launches in words."""
    found = []
    for step in run.steps:
        reads = ", ".join(f"{read.buffer} of launch {read.writer}" for read in step.reads)
        layer = "" if step.layer is None else f" of layer {step.layer}"
        computes = "" if step.covers == (step.number,) else f"; computes {_numbers(step.covers)} of the model's plan"
        found.append(f"launch {step.number}, {step.name}{layer}: reads {reads or 'the batch'}{computes}")
    return tuple(found)


def _numbers(covers: tuple[int, ...]) -> str:
    return f"launch{'es' if len(covers) != 1 else ''} {', '.join(map(str, covers)) or 'none'}"


# ---------------------------------------------------------------- the device's plan and the model's


def deviation(model: Run, device: Run, terms: Terms) -> str | None:
    """The first launch at which the device's plan leaves the model's, or what it leaves out."""
    by: dict[int, list[Step]] = {step.number: [] for step in model.steps}
    for step in device.steps:
        for number in step.covers:
            by.get(number, []).append(step)
    missing = _missing(model, by)
    if device.problem is None:
        for number, steps in by.items():
            if not steps:
                return f"launch {number} ({model.steps[number].name}) of the model's plan is computed by no launch"
    for step in device.steps:
        for reason in (*_deviations(model, device, step, terms), *missing.get(step.number, ())):
            return f"launch {step.number} ({step.name}): {reason}"
    if device.problem is not None:
        return device.problem
    for layer, cache in model.caches.items():
        if device.caches.get(layer) != cache:
            return f"layer {layer} keeps other keys and values than the model's plan says"
    return None if device.logits == model.logits else "the logits are not those of the model's plan"


def _deviations(model: Run, device: Run, step: Step, terms: Terms) -> Iterator[str]:
    """What a launch reads, and leaves, that the launches which it computes do not."""
    if not step.covers and not step.writes:
        return  # it raises flags, and leaves no number
    unknown = [number for number in step.covers if number >= len(model.steps)]
    if unknown:
        yield f"the model's plan has no launch {unknown[0]}"
        return
    covered = [model.steps[number] for number in step.covers]
    what = _numbers(step.covers)
    kept = {name: one.writes[name] for one in covered for name in one.writes if one.name == Operation.STORE.value}
    read = [one.value for launch in covered for one in launch.reads]
    left = [value for launch in covered for value in (*launch.writes.values(), joined(*launch.writes.values()))]
    for one in step.reads:
        if one.value not in read and not any(joined(a, b) == one.value for a in read for b in read):
            writer = device.steps[one.writer].name
            yield f"it reads {one.buffer} as launch {one.writer} ({writer}) left it, and {what} of the model's plan not"
    for name, value in step.writes.items():
        if value not in left:
            same = [one.writes[name] for one in covered if name in one.writes]
            like = next((other for other in (*same, *left) if width(other) == width(value)), None)
            why = "" if like is None else f": {terms.difference(value, like)}"
            yield f"what it leaves in {name} is not what {what} of the model's plan leaves{why}"
    for name, value in step.writes.items():
        if name in kept and value != kept[name]:
            yield f"it stores something else in {name}: {terms.difference(value, kept[name])}"


def _missing(model: Run, by: Mapping[int, list[Step]]) -> dict[int, list[str]]:
    """Of the device's launches, results of those that it is the last to compute, that others read and nobody leaves."""
    found: dict[int, list[str]] = {}
    inside = {number: {step.number for step in steps} for number, steps in by.items()}
    for reader in model.steps:
        for read in reader.reads:
            steps = by[read.writer]
            if not steps or inside[reader.number] <= inside[read.writer]:
                continue  # who computes the reader has computed this with it
            if not any(holds(value, read.value) for step in steps for value in step.writes.values()):
                reason = f"it leaves no {read.buffer}, which launch {reader.number} of the model's plan reads"
                found.setdefault(steps[-1].number, []).append(reason)
    return found


def difference(rounded: Mapping[Form, Run], terms: Terms) -> str | None:
    """Where the forms of attention leave different terms."""
    (first, one), *others = rounded.items()
    for form, other in others:
        for run, what in ((one, first), (other, form)):
            if run.problem is not None:
                return f"{what.value}: {run.problem}"
        for layer, cache in one.caches.items():
            for name in ("keys", "values"):
                found, expected = getattr(other.caches[layer], name), getattr(cache, name)
                if found != expected:
                    return f"{form.value}: {name} of layer {layer}: {terms.difference(found, expected)}"
        if one.logits != other.logits:
            return f"{form.value}: the logits: {terms.difference(other.logits, one.logits)}"
    return None
