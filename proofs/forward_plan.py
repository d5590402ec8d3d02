"""What a model's launch plan computes: the definition of Forward and f_KV, and what a backend that runs it leaves.

A family's plan (`vosti.impl.models.plan`) is run on terms, launch by launch, as the CPU backend runs it on numbers:
through the same dispatch to the row programs (`vosti.impl.backends.programs`). After each launch a buffer holds, of
every live row, one term (`vosti.proofs.forward_terms`): a function of the row's history h and position p. So

    f_KV(W, h, p)    = the terms that the stores of all layers keep, of h and p
    Forward(W, h)    = the term of the logits, of h and |h| − 1

by the plan's own text. Both depend on h[: p + 1] alone: the leaves of a term are h[p], p and what all rows share; and
attention, the only operation that looks at other positions, takes keys and values of the positions j ≤ p, each of which
is a term of h and j.

That attention finds these keys and values is two things: the layer's store has been launched, which is seen here, and
the slots that it reads hold positions 0 to p of its own row's history, each written before or by this very store, which
is `vosti.proofs.forward_rows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from vosti.impl.backends.cuda.plan import cache_names
from vosti.impl.backends.programs import PROGRAMS
from vosti.impl.models.plan import LOGITS, POSITIONS, TOKEN_IDS, Launch, Operation, Parameter, Plan, Rows
from vosti.proofs.forward_terms import Array, Cache, Columns, Matrix, Refused, Terms, Vector, parts_of

TOKEN, POSITION = "h[p]", "p"
"""What the inputs of a plan hold of a row: its history's token at its position, and the position."""


@dataclass(frozen=True)
class Held:
    """What a buffer holds of every live row."""

    value: Vector
    writer: int
    """The launch that wrote it last."""

    rows: Rows
    """`TOKENS`: of rows of the batch. `LOGITS`: of wanted rows."""


@dataclass(frozen=True)
class Read:
    """A buffer that a launch reads, and the launch that wrote it last."""

    buffer: str
    value: Vector
    writer: int


@dataclass(frozen=True)
class Step:
    """One launch: what it read, and what it left."""

    number: int
    name: str
    layer: int | None
    reads: tuple[Read, ...]
    writes: Mapping[str, Vector]
    """By buffer; what a row's slot holds, under the names of `cache_names`."""

    covers: tuple[int, ...]
    """The launches of the family's plan that it computes."""


@dataclass
class Run:
    """A plan's launches, one after the other, until the last or the first of which nothing can be concluded."""

    steps: list[Step] = field(default_factory=list)
    caches: dict[int, Cache] = field(default_factory=dict)
    """Of each layer, the key and the value of each position, this forward's included."""

    logits: Vector | None = None
    problem: str | None = None


def parameters_of(
    parameters: tuple[Parameter, ...], tied: tuple[tuple[str, str], ...], terms: Terms
) -> dict[str, Array | Matrix | Columns]:
    """A plan's parameters by name, aliases among them."""
    found = {parameter.name: terms.parameter(parameter) for parameter in parameters}
    return found | {alias: found[name] for alias, name in tied if name in found}


class _Family:
    """A family's plan on its way through its launches."""

    def __init__(self, plan: Plan, terms: Terms) -> None:
        self.plan = plan
        self.terms = terms
        self.shapes = {buffer.name: buffer.shape for buffer in plan.buffers}
        self.held: dict[str, Held] = {}
        self.parameters = parameters_of(plan.parameters, (), terms)
        for alias, name in plan.tied:
            table = self.parameters[name]
            self.parameters[alias] = table.T if isinstance(table, Matrix) else table
        widths = {kind: shape[-1] for kind, shape in self.shapes.items()}
        self.tables = {
            name: terms.table(name, widths[output])
            for launch in plan.launches
            if launch.operation is Operation.ANGLES
            for name, output in zip(launch.parameters, launch.outputs, strict=True)
        }
        self.run = Run()

    def read(self, launch: Launch, name: str) -> Held:
        """What an input holds, of the rows that the launch reads."""
        if name not in self.held:
            raise Refused(f"it reads {name}, which no launch has written")
        held = self.held[name]
        wanted = Rows.LOGITS if launch.rows is Rows.LOGITS else Rows.TOKENS
        if held.rows is not wanted:
            raise Refused(f"it reads rows of {wanted.value}, and {name} has rows of {held.rows.value}")
        return held

    def launch(self, number: int, launch: Launch) -> Step:
        """Run one launch."""
        names = [name for name in launch.inputs if name not in (TOKEN_IDS, POSITIONS)]
        reads = tuple(Read(name, held.value, held.writer) for name in names for held in [self.read(launch, name)])
        if launch.operation is Operation.STORE:
            writes = self.store(launch, reads)
        elif launch.operation is Operation.ATTENTION:
            writes = self.divided(launch, (self.attention(launch, reads),))
            reads += tuple(Read(name, self.held[name].value, self.held[name].writer) for name in self.cached(launch))
        else:
            writes = self.divided(launch, self.results(launch))
        rows = Rows.TOKENS if launch.rows is Rows.TOKENS else Rows.LOGITS
        self.held.update((name, Held(value, number, rows)) for name, value in writes.items())
        return Step(number, launch.operation.value, launch.layer, reads, writes, (number,))

    def results(self, launch: Launch) -> tuple[Vector, ...]:
        """What the row program makes of the inputs."""
        indices = {TOKEN_IDS: TOKEN, POSITIONS: POSITION}
        inputs = [
            indices[name] if name in indices else Array.of(self.held[name].value, self.shapes[name])
            for name in launch.inputs
        ]
        parameters = [self.tables[name] if name in self.tables else self.parameters[name] for name in launch.parameters]
        # The dispatch is written for tensors; what it does with them, it does with terms.
        results = PROGRAMS[launch.operation](self.terms, launch, inputs, parameters)  # type: ignore[arg-type]
        return tuple(self.terms.flat(one) for one in results)  # type: ignore[arg-type]

    def divided(self, launch: Launch, results: tuple[Vector, ...]) -> dict[str, Vector]:
        """The results by output, the columns of a single one divided among several."""
        widths = [prod(self.shapes[name]) for name in launch.outputs]
        parts = tuple(parts_of(results[0], widths)) if len(results) < len(widths) else results
        for name, columns, part in zip(launch.outputs, widths, parts, strict=True):
            if sum(piece.end - piece.first for piece in part) != columns:
                raise Refused(f"its result does not fit {name} of {columns} numbers")
        return dict(zip(launch.outputs, parts, strict=True))

    def store(self, launch: Launch, reads: tuple[Read, ...]) -> dict[str, Vector]:
        """Keep key and value in the row's slot."""
        if launch.layer is None or launch.layer in self.run.caches:
            raise Refused(f"it stores layer {launch.layer} a second time, or none")
        keys, values = (read.value for read in reads)
        self.run.caches[launch.layer] = Cache(keys, values)
        return dict(zip(cache_names(launch.layer), (keys, values), strict=True))

    def cached(self, launch: Launch) -> tuple[str, str]:
        """The layer's keys and values. Raises `Refused` if this forward's are not among them yet."""
        if launch.layer is None or launch.layer not in self.run.caches:
            raise Refused(f"it attends to layer {launch.layer} before this forward's keys are stored there")
        return cache_names(launch.layer)

    def attention(self, launch: Launch, reads: tuple[Read, ...]) -> Vector:
        """Attention over the layer's positions up to the row's own."""
        (queries,), (scale,) = reads, launch.constants
        keys, values = (self.held[name].value for name in self.cached(launch))
        assert launch.layer is not None
        kv = self.plan.kv_shapes[launch.layer]
        return self.terms.flat(self.terms.attention(queries.value, Cache(keys, values), kv, scale, launch.window))


def run_plan(plan: Plan, terms: Terms) -> Run:
    """A family's plan, run on terms."""
    family = _Family(plan, terms)
    for number, launch in enumerate(plan.launches):
        try:
            family.run.steps.append(family.launch(number, launch))
        except Refused as refused:
            family.run.problem = f"launch {number} ({launch.operation.value}): {refused}"
            return family.run
    logits = family.held.get(LOGITS)
    if logits is None or logits.rows is not Rows.LOGITS:
        family.run.problem = "no launch writes the logits of the wanted rows"
    elif sorted(family.run.caches) != list(range(len(plan.kv_shapes))):
        family.run.problem = f"of {len(plan.kv_shapes)} layers, {len(family.run.caches)} are stored"
    else:
        family.run.logits = logits.value
    return family.run
