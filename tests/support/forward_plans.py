"""Plans to be proved, and plans with something else in them."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from vosti.impl.backends.cuda.plan import DevicePlan
from vosti.impl.bundled import find_checkpoint
from vosti.impl.models.families import STYLES, load_config
from vosti.impl.models.layers import build_plan
from vosti.impl.models.plan import Plan

T = TypeVar("T")


def family_plan(name: str, *kinds: str, heads: int | None = None) -> Plan:
    """The plan of a bundled model or shape, or of one like it with layers of other types, or with few heads."""
    config = load_config(find_checkpoint(name))
    if kinds:
        attention = {kind: config.attention[kind] for kind in config.attention if kind in kinds}
        config = replace(config, layer_types=kinds, attention=attention)  # type: ignore[arg-type]
    if heads is not None:
        single = {kind: replace(one, kv_heads=1) for kind, one in config.attention.items()}
        config = replace(config, heads=heads, attention=single)
    return build_plan(config, STYLES[config.family])


def problem_of(plan: Plan, device: DevicePlan) -> str | None:
    """The first reason why the device's plan is not shown to be the model's; None if it is."""
    from vosti.proofs.forward import prove_plan

    problems = [part.problem for part in prove_plan(plan, {device.form: device})]
    return next((problem for problem in problems if problem is not None), None)


def changed(plan: DevicePlan, at: int, **fields: object) -> DevicePlan:
    """The plan with another launch in one place."""
    launch = replace(plan.launches[at], **fields)  # type: ignore[arg-type]
    return replace(plan, launches=(*plan.launches[:at], launch, *plan.launches[at + 1 :]))


def other(pairs: tuple[tuple[str, T], ...], **values: T) -> tuple[tuple[str, T], ...]:
    """Roles with other buffers, or names with other sizes; what is not there is not added."""
    return tuple((name, values.get(name, value)) for name, value in pairs)
