"""The forward: along its launch plan, a model's logits are Forward of the history, and its slots hold f_KV.

Let W be a model on a backend, and a batch satisfy the specification's `forward_ok` in a state with Inv, so that every
slot of an earlier position that a row reads holds f_KV of its history (`vosti.proofs.canonical_output`). If each kernel
keeps its contract, then after the launches of the plan, whatever the batch,

    the slot of a live row with history h at position p holds    f_KV(W, h, p), in every layer
    row k of the logits is    Forward(W, h[: p + 1]), h and p being those of the row that the row map names

which are the two contracts that the engine's proof assumes: `kernel_kv` and `kernel_logits` of `vosti.spec.reference`.

*Definition.* Forward(W, h) and f_KV(W, h, p) are the terms that the model's plan makes, roundings included
(`vosti.proofs.forward_plan`). They depend on h[: p + 1] alone, for their leaves do.

*Proof.* By induction over layers, that after each the buffers that it hands over to the next (`CARRIED`) hold, of every
live row, what the model's plan says, and its slots the layer's part of f_KV.

1. *Base.* The launches before all layers leave what the model's plan leaves, in these buffers.
2. *Step.* So does a layer ℓ, whatever it was handed over, and its slots hold its part of f_KV. It is run from buffers
   of which nothing is known but that the device's hold what the model's do, and from no others; it has no weights,
   stored tensors and cache but its own (and the weights of the norm that layer ℓ + 1 reads); and ℓ is a letter. Layers
   that are alike once their own number is called ℓ are one step, so a model has as many as kinds of layers. That each
   of its layers is one of them, with its own weights and cache, is compared, layer by layer.
3. *End.* From the same, the last layer and what follows it leave its part of f_KV, and Forward in the logits.
4. *Of all batches at once*: rows, positions and slots are those that the contracts speak of, and every slot that a row
   reads holds its own history's position (`vosti.proofs.forward_rows`).

The CPU backend runs the model's plan itself: each launch reads what one before it has left, in the rows that it says,
and attention comes after the store of its layer. The device's plan is run by the contracts of its kernels
(`vosti.proofs.forward_device`), in both forms of attention; both leave W's one Forward, so a position that one form
computed may be read by the other.

Steps 1 to 3 are exact: a term is an operation applied to terms, nothing is known of operations, and nothing is tried on
numbers. Step 4 is proved by the solvers for any number of rows, sequences and pages, any page size and layer. What is
left is that kernels keep their contracts (`vosti.kernels.verifier`), and the premises of the contracts:
`vosti.proofs.forward_premises` says of each where it is seen to.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

from vosti.impl.backends.cuda.lowering import lower
from vosti.impl.backends.cuda.plan import DevicePlan, Form
from vosti.impl.models.plan import LOGITS, Plan, Rows
from vosti.proofs.forward_device import DeviceRun
from vosti.proofs.forward_plan import CACHE, CARRIED, Held, ModelRun, Run
from vosti.proofs.forward_terms import Terms, width
from vosti.proofs.forward_words import astray, lines, unsaid


@dataclass(frozen=True)
class Section:
    """The launches of a layer, in names as they are seen from it; or those before all layers, or from the last one on.

    Sections are equal if nothing but the layers' numbers differs.
    """

    model: Plan
    devices: tuple[DevicePlan, ...]
    leaves: tuple[str, ...]
    """Where something is found that matters afterwards."""


@dataclass
class Part:
    """One step of the proof: the base, a kind of layers, or the end."""

    layers: list[int]
    """The layers that it is about; −1 of the base."""

    launches: tuple[str, ...] = ()
    """Of each launch, of the model's plan and then of the device's: what it reads, and who wrote that last."""

    problem: str | None = None
    """Why it is not shown; the first reason."""


def device_plans(plan: Plan) -> dict[Form, DevicePlan]:
    """What the cuda backend runs, in both forms of attention."""
    # How many logits share a flag, which the tables say, no value depends on.
    return {form: lower(plan, form, logit_block=1) for form in Form}


def prove_plan(plan: Plan, devices: Mapping[Form, DevicePlan] | None = None) -> list[Part]:
    """Steps 1 to 3 for a model's plan and the device's, which are lowered from it unless given."""
    chosen = tuple((devices or device_plans(plan)).values())
    for problem in indivisible(plan, chosen):
        return [Part([], problem=problem)]
    terms, before = Terms(), dict[str, Held]()
    parts: dict[Section, Part] = {}
    for layer, spans in enumerate(zip(cuts(plan), *map(cuts, chosen), strict=True), -1):
        section = Section(
            part_of(plan, spans[0], layer),
            tuple(part_of(device, span, layer) for device, span in zip(chosen, spans[1:], strict=True)),
            CARRIED if layer < 0 else (*CACHE, LOGITS) if layer == len(plan.kv_shapes) - 1 else (*CACHE, *CARRIED),
        )
        if section not in parts:
            model = ModelRun(section.model, spans[0][0], before, terms)
            parts[section] = prove(section, model, [first for first, _ in spans[1:]], chosen)
            if layer < 0:
                given = {name: terms.vector(width(one.value), "handed over", name) for name, one in model.held.items()}
                before = model.held | {name: Held(given[name], None) for name in CARRIED if name in given}
        parts[section].layers.append(layer)
    return list(parts.values())


def prove(section: Section, model: ModelRun, firsts: list[int], plans: tuple[DevicePlan, ...]) -> Part:
    """One step: the device's launches, from what the model's were handed over, leave what the model's leave."""
    known = len(model.terms.parts)
    before = {name: held for name, held in model.before.items() if name in CARRIED}
    said = [f"cpu: {line}" for line in lines(model, section.leaves)]
    wrong = [f"the model's plan: {one}" for one in (*foreign(section.model), *unlike(model, model, section.leaves))]
    for part, first, plan in zip(section.devices, firsts, plans, strict=True):
        device, form = DeviceRun(part, first, before, model.terms), plan.form.value
        said += [f"{form}: {line}" for line in lines(device, section.leaves)]
        reasons = unlike(model, device, section.leaves)
        wrong += [f"the device's plan, {form}: {astray(model, device, known, plan) or one}" for one in reasons]
    return Part([], tuple(said), next(iter(wrong), None))


def unlike(model: Run, run: Run, leaves: tuple[str, ...]) -> Iterator[str]:
    """What launches do not leave, of all rows that have it, as the model's plan does."""
    if run.problem is not None:
        yield run.problem
    for name in leaves:
        found, right = run.held.get(name), model.held.get(name)
        rows = Rows.LOGITS if name == LOGITS else Rows.TOKENS
        if found is None or right is None or (found.value, found.rows) != (right.value, rows):
            yield f"what is left in {name} is not the model's, or not of all rows"


def foreign(model: Plan) -> Iterator[str]:
    """Parameters, or stored tensors, of another layer; but a layer ends with the norm that the next one reads."""
    for name in re.findall(r"[\w.]+ℓ(?!\+1\b)[-+]\d+[\w.]*", repr(model.parameters)):
        yield f"it takes {name}, which is another layer's"


# ---------------------------------------------------------------- plans, taken apart


P = TypeVar("P", Plan, DevicePlan)


def named(launch: Any) -> set[str]:
    """The parameters and tables that a launch takes."""
    return {one if isinstance(one, str) else one[1] for one in launch.parameters}


def cuts(plan: Plan | DevicePlan) -> list[tuple[int, int]]:
    """Where the launches before all layers, and each layer's, begin and end; those behind the last layer are its own.

    A layer begins with its weights of queries, keys and values.
    """
    starts = [at for at, launch in enumerate(plan.launches) if any(name.endswith(".qkv") for name in named(launch))]
    return list(pairwise((0, *starts, len(plan.launches))))


def indivisible(plan: Plan, devices: tuple[DevicePlan, ...]) -> Iterator[str]:
    """Why plans are not one after the other the same layers, each with parameters of its own."""
    layers = len(plan.kv_shapes)
    if not layers or len(cuts(plan)) - 1 != layers:
        yield f"the model's plan: it has {len(cuts(plan)) - 1} layers, and {layers} caches"
    if "ℓ" in repr((plan, devices)):
        yield "ℓ is the name of a layer already"
    taken = Counter(name for launch in plan.launches for name in named(launch) - set(plan.tables))
    yield from (f"the model's plan: {count} launches take {name}" for name, count in taken.items() if count > 1)
    for device in devices:
        if len(cuts(device)) - 1 != layers:
            yield f"the device's plan, {device.form.value}: it has {len(cuts(device)) - 1} of {layers} layers"
        yield from unsaid(plan, device)


def part_of(plan: P, span: tuple[int, int], layer: int) -> P:
    """Some launches of a plan, as a plan: with the parameters that they take, and the cache of their layer."""
    launches = plan.launches[slice(*span)]
    taken = {name for launch in launches for name in named(launch)}
    taken |= {name for alias, name in plan.tied if alias in taken}
    return replace(
        plan,
        launches=seen_from(layer, launches),
        parameters=seen_from(layer, tuple(one for one in plan.parameters if one.name in taken)),
        kv_shapes=plan.kv_shapes[layer : layer + 1] if layer >= 0 else (),
    )


def seen_from(layer: int, value: Any) -> Any:
    """A value with ℓ for a layer's number in all names, ℓ+1 for the next one's; and without numbers of launches."""
    if isinstance(value, str) and layer >= 0:
        name = r"\b(layers|keys|values)\.(0|[1-9]\d*)\b"
        return re.sub(name, lambda one: f"{one[1]}.ℓ{int(one[2]) - layer:+d}".removesuffix("+0"), value)
    if isinstance(value, tuple):
        return tuple(seen_from(layer, one) for one in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    own = {one.name: seen_from(layer, getattr(value, one.name)) for one in fields(value)}
    if own.get("layer") is not None:
        own["layer"] -= layer
    return replace(value, **({**own, "covers": ()} if "covers" in own else own))
