"""What the proof of a forward says of launches and terms: words only, of what is found and judged elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from vosti.impl.backends.cuda.plan import DevicePlan
from vosti.impl.models.plan import Plan
from vosti.proofs.forward_device import DeviceRun
from vosti.proofs.forward_plan import ModelRun, Run
from vosti.proofs.forward_terms import Matrix, Piece, Terms, joined

LEAVES = ("stored", "handed over")


def shown(terms: Terms, value: object, depth: int = 2) -> str:
    """A value in words, so deep."""
    if isinstance(value, Piece):
        name, *parts = terms.parts[value.term]
        if name in LEAVES:
            return str(parts[0])
        if name == "bf16":
            return f"bf16({shown(terms, parts[0], depth)})"
        return f"{name}({', '.join(shown(terms, part, depth - 1) for part in parts) if depth else '…'})"
    if isinstance(value, tuple):
        found = [shown(terms, part, depth) for part in value if part not in LEAVES]
        return " | ".join(found if len(found) < 4 else [*found[:2], "…"])
    return " | ".join(one.name for one in value.sources) if isinstance(value, Matrix) else str(value)


def difference(terms: Terms, found: object, expected: object) -> str:
    """Where two different values first differ."""
    one, other = found, expected
    if isinstance(one, Piece) and isinstance(other, Piece) and one[1:] == other[1:]:
        one, other = terms.parts[one.term], terms.parts[other.term]
    if type(one) is type(other) is tuple and len(one) == len(other):
        unlike = [pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]]
        if unlike and not isinstance(unlike[0][0], str):
            return difference(terms, *unlike[0])
    return f"{shown(terms, found)} stands where {shown(terms, expected)} belongs"


def astray(model: ModelRun, device: DeviceRun, known: int, plan: DevicePlan) -> str | None:
    """The first launch of the device that leaves what the model's plan never does.

    Terms from number `known` on were made by no launch of the model's plan.
    """
    writes = {step.number: step.writes for step in model.steps}
    for step in device.steps:
        same = {name: value for at in plan.launches[step.number].covers for name, value in writes.get(at, {}).items()}
        for name, value in step.writes.items():
            expected = same.get(name, joined(*same.values()))
            if value != expected and (name in same or any(piece.term >= known for piece in value)):
                what = difference(model.terms, value, expected) if expected else shown(model.terms, value)
                return f"launch {step.number} ({step.name}) leaves something else in {name}: {what}"
    return None


def unsaid(plan: Plan, device: DevicePlan) -> Iterator[str]:
    """Launches of the model's plan that no launch of the device's says it computes, and what it says of others."""
    said = {number for launch in device.launches for number in launch.covers}
    for number in sorted(said ^ set(range(len(plan.launches)))):
        what = "is there none" if number in said else "no launch says that it computes it"
        yield f"the device's plan, {device.form.value}: of launch {number} of the model's plan {what}"


def lines(run: Run, leaves: tuple[str, ...]) -> Iterator[str]:
    """The launches: of each buffer that one reads, who wrote it last; and so of what is left to whoever comes next."""

    def by(name: str, writer: int | None) -> str:
        return f"{name} of {'the layer before' if writer is None else f'launch {writer}'}"

    for step in run.steps:
        reads = ", ".join(by(*read) for read in step.reads)
        yield f"launch {step.number}, {step.name}: reads {reads or 'the batch'}"
    yield f"leaves {', '.join(by(name, run.held[name].writer) for name in leaves if name in run.held)}"
