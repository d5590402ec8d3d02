"""What a plan computes, as terms: a check that lowering lost nothing.

A family's plan and the device's are run on symbols, each by its own rules: every buffer holds a term over the
operations of the family's plans, equal terms having equal numbers. The two plans compute the same if the terms of the
logits, and of each layer's keys and values, are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from vosti.impl.backends.cuda.plan import SCRATCH, DevicePlan, KernelLaunch, cache_names
from vosti.impl.models.plan import LOGITS, Launch, Operation, Parameter, Plan, Rows

NORM = {
    (0, False): Operation.RMS_NORM,
    (1, False): Operation.RMS_NORM_UNIT_OFFSET,
    (0, True): Operation.RESIDUAL_RMS_NORM,
    (1, True): Operation.RESIDUAL_RMS_NORM_UNIT_OFFSET,
}
ACTIVATION = (Operation.SILU_MUL, Operation.GELU_TANH_MUL)


@dataclass
class Terms:
    """Terms by number: equal ones have one number, so that sharing costs nothing."""

    numbers: dict[tuple[object, ...], int] = field(default_factory=dict)
    stacks: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Of terms that are several results side by side: (term, columns) of each."""

    def make(self, *parts: object) -> int:
        """The number of the term with these parts; terms among them stand as their numbers."""
        return self.numbers.setdefault(parts, len(self.numbers))

    def apply(
        self,
        operation: Operation,
        inputs: tuple[int, ...],
        parameters: tuple[str, ...] = (),
        constants: tuple[float, ...] = (),
        *more: object,
    ) -> int:
        """An operation of the family's plans, applied."""
        return self.make(operation.value, inputs, parameters, constants, *more)

    def linear(self, x: int, parameter: Parameter) -> int:
        """A linear layer: side by side, one for each source of its weight."""
        results = [(self.make("linear", x, source.name), source.shape[0]) for source in parameter.sources]
        return self.stack(tuple(results))

    def stack(self, results: tuple[tuple[int, int], ...]) -> int:
        """Several results side by side."""
        number = self.make("stack", results)
        self.stacks[number] = results
        return number

    def part(self, whole: int, first: int, end: int) -> int:
        """The columns from `first` to `end` − 1 of a row."""
        column, chosen = 0, []
        for result in self.stacks.get(whole, ()):
            if first <= column and column + result[1] <= end:
                chosen.append(result)
            column += result[1]
        if sum(columns for _, columns in chosen) == end - first:
            return self.stack(tuple(chosen))
        return self.make("part", whole, first, end)


Memory = dict[str, int]
"""The term that each buffer holds; of the pool, `cache_names` hold what the forward's rows store."""


def meaning_of_plan(plan: Plan, terms: Terms) -> Memory:
    """What a family's plan leaves behind."""
    widths = {buffer.name: prod(buffer.shape) for buffer in plan.buffers}
    weights = named(plan)
    memory: Memory = {}
    for launch in plan.launches:
        inputs = tuple(_input(launch, name, memory, terms) for name in launch.inputs)
        if launch.operation is Operation.STORE:
            assert launch.layer is not None
            memory.update(zip(cache_names(launch.layer), inputs, strict=True))
            continue
        more: tuple[object, ...] = ()
        if launch.operation is Operation.ATTENTION:
            assert launch.layer is not None
            more = (launch.window, *(memory[name] for name in cache_names(launch.layer)))
        if launch.operation in RESIDUAL or launch.operation is Operation.ANGLES:
            # Several results.
            for number, name in enumerate(launch.outputs):
                memory[name] = terms.apply(
                    launch.operation, inputs, launch.parameters, launch.constants, *more, "result", number
                )
            continue
        if launch.operation is Operation.LINEAR:
            result = terms.linear(inputs[0], weights[launch.parameters[0]])
        else:
            result = terms.apply(launch.operation, inputs, launch.parameters, launch.constants, *more)
        _divide(terms, memory, result, launch.outputs, [widths[name] for name in launch.outputs])
    return memory


def named(plan: Plan | DevicePlan) -> dict[str, Parameter]:
    """A plan's parameters by name, aliases among them."""
    found = {parameter.name: parameter for parameter in plan.parameters}
    return found | {alias: found[name] for alias, name in plan.tied}


RESIDUAL = (
    Operation.RESIDUAL_RMS_NORM,
    Operation.RESIDUAL_RMS_NORM_UNIT_OFFSET,
    Operation.SCALED_RESIDUAL_RMS_NORM,
)


def _input(launch: Launch, name: str, memory: Mapping[str, int], terms: Terms) -> int:
    held = memory[name] if name in memory else terms.make("input", name)
    return terms.make("selected", held) if launch.rows is Rows.SELECTED else held


def _divide(terms: Terms, memory: Memory, result: int, names: tuple[str, ...], widths: list[int]) -> None:
    """Hand the columns of one result to several buffers in order."""
    if len(names) == 1:
        memory[names[0]] = result
        return
    first = 0
    for name, width in zip(names, widths, strict=True):
        memory[name] = terms.part(result, first, first + width)
        first += width


def meaning_of_device_plan(plan: DevicePlan, terms: Terms) -> Memory:
    """What the device's plan leaves behind, by what the contracts of its kernels say."""
    memory: Memory = {}
    weights = named(plan)
    for launch in plan.launches:
        if launch.operation in LINEARS:
            x = _read(launch, "x", memory, terms)
            result = terms.linear(x, weights[_parameters(launch, "weight")[0]])
            if launch.operation == "gate_up":
                result = terms.apply(ACTIVATION[launch.size("activation")], (result,))
            _write(launch, memory, out=result)
        else:
            KERNELS[launch.operation](launch, memory, terms)
    return memory


LINEARS = ("linear", "head", "gate_up")
"""Kernels that compute linear layers."""


def meaning_problems(plan: Plan, device: DevicePlan) -> list[str]:
    """Where the device's plan computes something else than the family's; empty if nowhere."""
    terms = Terms()
    expected, actual = meaning_of_plan(plan, terms), meaning_of_device_plan(device, terms)
    caches = [name for layer in range(len(plan.kv_shapes)) for name in cache_names(layer)]
    problems = [
        f"{name} is not what the plan computes" for name in (LOGITS, *caches) if expected[name] != actual.get(name)
    ]
    covered = {at for launch in device.launches for at in launch.covers}
    return problems + [
        f"launch {at} ({plan.launches[at].operation.value}) of the plan is computed by no kernel"
        for at in sorted(set(range(len(plan.launches))) - covered)
    ]


# ------------------------------------------------------------ kernels


def _read(launch: KernelLaunch, role: str, memory: Mapping[str, int], terms: Terms) -> int:
    name = dict(launch.reads).get(role, f"no {role}")
    held = memory[name] if name in memory else terms.make("input", name)
    return terms.make("selected", held) if launch.rows is Rows.SELECTED else held


def _parameters(launch: KernelLaunch, *roles: str) -> tuple[str, ...]:
    return tuple(dict(launch.parameters).get(role, f"no {role}") for role in roles)


def _reals(launch: KernelLaunch) -> tuple[float, ...]:
    return tuple(value for _, value in launch.reals)


def _write(launch: KernelLaunch, memory: Memory, **values: int) -> None:
    writes = dict(launch.writes)
    memory.update((writes[role], value) for role, value in values.items())


def _embedding(launch: KernelLaunch, memory: Memory, terms: Terms) -> None:
    operation = Operation.SCALED_EMBEDDING if launch.size("scaled") else Operation.EMBEDDING
    tokens = (_read(launch, "tokens", memory, terms),)
    _write(launch, memory, out=terms.apply(operation, tokens, _parameters(launch, "table"), _reals(launch)))


def _rms_norm(launch: KernelLaunch, memory: Memory, terms: Terms) -> None:
    residual, scaled = "y" in dict(launch.reads), "scale" in dict(launch.parameters)
    operation = NORM[launch.size("unit_offset"), residual]
    if scaled and operation is Operation.RESIDUAL_RMS_NORM:
        operation = Operation.SCALED_RESIDUAL_RMS_NORM
    inputs = tuple(_read(launch, role, memory, terms) for role in (("x", "y") if residual else ("x",)))
    parameters = _parameters(launch, "weight", *(("scale",) if scaled else ()))
    arguments = operation, inputs, parameters, _reals(launch)
    if residual:
        total, out = (terms.apply(*arguments, "result", number) for number in range(2))
        _write(launch, memory, total_out=total, out=out)
    else:
        _write(launch, memory, out=terms.apply(*arguments))


def _rotary_store(launch: KernelLaunch, memory: Memory, terms: Terms) -> None:
    heads, kv_heads, head_dim = (launch.size(name) for name in ("heads", "kv_heads", "head_dim"))
    joint = _read(launch, "qkv", memory, terms)
    queries_end, rotated_end = heads * head_dim, (heads + kv_heads) * head_dim
    rotated = terms.part(joint, 0, rotated_end)
    first = queries_end if launch.size("shared") else rotated_end
    values = terms.part(joint, first, first + kv_heads * head_dim)
    if launch.size("norm"):
        operation = NORM[launch.size("norm") - 1, False]
        rotated = terms.apply(operation, (rotated,), _parameters(launch, "norm_weight"), _reals(launch))
    if launch.size("value_norm"):
        values = terms.apply(Operation.UNWEIGHTED_RMS_NORM, (values,), (), _reals(launch))
    positions = (_read(launch, "positions", memory, terms),)
    tables = _parameters(launch, "cosines", "sines")
    angles = tuple(terms.apply(Operation.ANGLES, positions, tables, (), "result", number) for number in range(2))
    turned = terms.apply(Operation.ROTATE, (rotated, *angles))
    _write(
        launch,
        memory,
        queries=terms.part(turned, 0, queries_end),
        keys=terms.part(turned, queries_end, rotated_end),
        values=values,
    )


def _attention_term(launch: KernelLaunch, memory: Memory, terms: Terms) -> int:
    queries, keys, values = (_read(launch, role, memory, terms) for role in ("queries", "keys", "values"))
    window = launch.size("window") or None
    return terms.apply(Operation.ATTENTION, (queries,), (), _reals(launch), window, keys, values)


def _attention(launch: KernelLaunch, memory: Memory, terms: Terms) -> None:
    _write(launch, memory, out=_attention_term(launch, memory, terms))


def _attention_split(launch: KernelLaunch, memory: Memory, terms: Terms) -> None:
    states = terms.make("states", launch.sizes, _attention_term(launch, memory, terms))
    _write(launch, memory, **dict.fromkeys(SCRATCH, states))


def _attention_merge(launch: KernelLaunch, memory: Memory, terms: Terms) -> None:
    states = {_read(launch, role, memory, terms) for role in SCRATCH}
    # The states of a split of these very sizes, or nothing that can be merged.
    found = [
        parts for parts, number in terms.numbers.items() if number in states and parts[:2] == ("states", launch.sizes)
    ]
    merged = found[0][2] if len(states) == len(found) == 1 else terms.make("merged", tuple(sorted(states)))
    assert isinstance(merged, int)
    _write(launch, memory, out=merged)


def _logits(launch: KernelLaunch, memory: Memory, terms: Terms) -> None:
    logits = _read(launch, "x", memory, terms)
    capped = terms.apply(Operation.SOFTCAP, (logits,), (), _reals(launch)) if launch.size("capped") else logits
    _write(launch, memory, out=capped)


KERNELS = {
    "attention": _attention,
    "attention_merge": _attention_merge,
    "attention_split": _attention_split,
    "embedding": _embedding,
    "logits": _logits,
    "rms_norm": _rms_norm,
    "rotary_store": _rotary_store,
}
"""What each other kernel leaves behind."""
