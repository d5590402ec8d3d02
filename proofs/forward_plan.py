"""What a model's launch plan computes: the definition of Forward and f_KV, layer by layer.

A family's plan (`vosti.impl.models.plan`) is run on terms, launch by launch, as the CPU backend runs it on numbers:
through the same dispatch to the row programs (`vosti.impl.backends.programs`). After each launch a buffer holds, of
every live row, one term (`vosti.proofs.forward_terms`): a function of the row's history h and position p. So

    f_KV(W, h, p)    = the terms that the stores of all layers keep, of h and p
    Forward(W, h)    = the term of the logits, of h and |h| − 1

by the plan's own text. Both depend on h[: p + 1] alone: the leaves of a term are h[p], p and what all rows share; and
attention, the only operation that looks at other positions, takes keys and values of the positions j ≤ p, each of which
is a term of h and j.

Where W keeps numbers in bf16, every result is rounded, but for those of `FUSED`, which their readers take as they are,
angles and logits. Where W keeps them in float32, no result is: leave the roundings out.

That attention finds these keys and values is two things: the layer's store has been launched, which is seen here, and
the slots that it reads hold positions 0 to p of its own row's history, each written before or by this very store, which
is `vosti.proofs.forward_rows`.

A layer is run from what the layer before hands over, `CARRIED`: of these buffers nothing is known, and no other is
there, but for those that the launches before all layers have written and no layer writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

from vosti.impl.backends.programs import PROGRAMS
from vosti.impl.models.plan import POSITIONS, TOKEN_IDS, Launch, Operation, Plan, Rows, Source
from vosti.proofs.forward_terms import Array, Matrix, Refused, Terms, Vector, cut, joined, width

CARRIED = ("residual", "normed")
"""What a layer hands over to the next: the residual stream, and what of it the next layer reads."""

CACHE = ("keys.ℓ", "values.ℓ")
"""What a row's slot holds in the layer that is run, ℓ."""

FUSED = {
    *((Operation.LINEAR, activation) for activation in (Operation.SILU_MUL, Operation.GELU_TANH_MUL)),
    *((norm, Operation.ROTATE) for norm in (Operation.RMS_NORM, Operation.RMS_NORM_UNIT_OFFSET)),
    (Operation.RMS_NORM, Operation.UNWEIGHTED_RMS_NORM),
}
"""Neighbours in a plan of which the first one's results are not rounded; but what is stored is."""


def _written(sign: str) -> Callable[[Whole, object], Whole]:
    return lambda one, other: Whole(f"({one} {sign} {other})")


@dataclass(frozen=True)
class Whole:
    """An integer of the batch, or a buffer of them, as it is written."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __getitem__(self, index: object) -> Whole:
        return Whole(self.text + "".join(f"[{one}]" for one in (index if isinstance(index, tuple) else (index,))))

    __add__, __sub__, __mul__ = _written("+"), _written("-"), _written("*")
    __floordiv__, __mod__ = _written("//"), _written("%")


ROW = Whole("i")
"""A row of the batch."""

INDICES = {TOKEN_IDS: Whole("tokens")[ROW], POSITIONS: Whole("positions")[ROW]}
"""The inputs of a plan that are no buffers: h[p] and p of the row."""


@dataclass(frozen=True)
class Held:
    """What a buffer holds of every live row."""

    value: Vector
    writer: int | None
    """The launch that wrote it last; None if it was handed over."""

    rows: Rows = Rows.TOKENS
    """`TOKENS`: of rows of the batch. `LOGITS`: of wanted rows."""


@dataclass(frozen=True)
class Step:
    """One launch: what it read, by whom that was written last, and what it left."""

    number: int
    name: str
    reads: tuple[tuple[str, int | None], ...]
    writes: Mapping[str, Vector]


class Run:
    """Launches, one after the other, until the last or the first of which nothing can be concluded."""

    def __init__(self, before: Mapping[str, Held], terms: Terms) -> None:
        self.terms = terms
        self.before = before
        self.held = dict(before)
        self.steps: list[Step] = []
        self.problem: str | None = None

    def launch(self, at: int, launch: Any) -> Mapping[str, Vector]:
        """What a launch leaves. Raises `Refused`."""
        raise Refused("nobody knows what it does")

    def follow(self, launches: Sequence[Any], first: int) -> None:
        """Run the launches, the first of which has a number."""
        for at, launch in enumerate(launches):
            name = str(getattr(launch.operation, "value", launch.operation))
            self._reads: list[tuple[str, int | None]] = []
            try:
                writes = self.launch(at, launch)
                for buffer in writes.keys() & self.held.keys() & ({*CACHE, *self.before} - {*CARRIED}):
                    raise Refused(f"it overwrites {buffer}, which is still needed")
            except (Refused, KeyError) as refused:
                self.problem = f"launch {first + at} ({name}): {refused}"
                return
            rows = Rows.TOKENS if launch.rows is Rows.TOKENS else Rows.LOGITS
            self.held |= {buffer: Held(value, first + at, rows) for buffer, value in writes.items()}
            self.steps.append(Step(first + at, name, tuple(self._reads), writes))

    def read(self, name: str, launch: Any) -> Vector:
        """What an input holds, of the rows that the launch reads. Raises `Refused`."""
        if name not in self.held:
            found = "holds no row of this forward yet" if name in CACHE else "no launch before it leaves to it"
            raise Refused(f"it reads {name}, which {found}")
        held, wanted = self.held[name], Rows.LOGITS if launch.rows is Rows.LOGITS else Rows.TOKENS
        if held.rows is not wanted:
            raise Refused(f"it reads rows of {wanted.value}, and {name} has rows of {held.rows.value}")
        self._reads.append((name, held.writer))
        return held.value


class ModelRun(Run):
    """A part of a family's plan on its way through its launches."""

    def __init__(self, part: Plan, first: int, before: Mapping[str, Held], terms: Terms) -> None:
        super().__init__(before, terms)
        self.part = part
        self.shapes = {buffer.name: buffer.shape for buffer in part.buffers}
        self.shapes |= {name: (kv.heads, kv.head_dim) for kv in part.kv_shapes for name in CACHE}
        self.parameters: dict[str, Any] = {one.name: terms.parameter(one) for one in part.parameters}
        self.parameters |= {alias: self.parameters[name].T for alias, name in part.tied if name in self.parameters}
        for launch in part.launches:
            if launch.operation is Operation.ANGLES:
                for name, output in zip(launch.parameters, launch.outputs, strict=True):
                    self.parameters[name] = Matrix(terms, (Source(name, (1, self.shapes[output][-1])),))
        self.follow(part.launches, first)

    def launch(self, at: int, launch: Launch) -> Mapping[str, Vector]:
        """Run one launch; its results by output, the columns of a single one divided among several."""
        outputs = CACHE if launch.operation is Operation.STORE else launch.outputs
        results, widths = self.results(launch), [prod(self.shapes[name]) for name in outputs]
        if [width(one) for one in results] not in (widths, [sum(widths)]):
            raise Refused(f"its results do not fit {' and '.join(outputs)}")
        pairs = {(one.operation, other.operation) for one, other in pairwise(self.part.launches[at : at + 2])}
        row = joined(*results)
        if launch.operation is not Operation.ANGLES and launch.rows is not Rows.LOGITS and not pairs & FUSED:
            row = self.terms.rounded(row)
        return {name: cut(row, sum(widths[:n]), sum(widths[: n + 1])) for n, name in enumerate(outputs)}

    def results(self, launch: Launch) -> list[Vector]:
        """What the row program makes of the inputs; a store keeps them."""
        if launch.layer not in (0, None):
            raise Refused(f"it is of layer ℓ{launch.layer:+d}")
        vectors = {name: self.read(name, launch) for name in launch.inputs if name not in INDICES}
        if launch.operation is Operation.STORE:
            return list(vectors.values())
        if launch.operation is Operation.ATTENTION:
            keys, values = (self.read(name, launch) for name in CACHE)
            (kv,), (scale,), (queries,) = self.part.kv_shapes, launch.constants, vectors.values()
            return [self.terms.attention(queries, keys, values, kv, scale, launch.window).flat]
        inputs = [INDICES.get(name) or Array.of(vectors[name], self.shapes[name]) for name in launch.inputs]
        parameters = [self.parameters[name] for name in launch.parameters]
        # The dispatch is written for tensors; what it does with them, it does with terms.
        results = PROGRAMS[launch.operation](self.terms, launch, inputs, parameters)  # type: ignore[arg-type]
        return [one.flat for one in results]  # type: ignore[attr-defined]
