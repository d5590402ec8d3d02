"""From a family's launch plan to the device's: which launches one kernel computes together.

| launches of the family's plan | kernel |
| --- | --- |
| embedding, scaled_embedding | embedding |
| linear into queries, keys and values | linear |
| [norms of the heads of queries and keys, and of values], rotate by its angles, store | rotary_store |
| attention | attention, or attention_split and attention_merge |
| norms, with and without residual | rms_norm |
| linear and activation of a gated layer | gate_up |
| linear into logits | head |
| [soft cap of logits] | logits, which also flags what is not finite |
| any other linear | linear |

What fits no row of the table is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

from vosti.impl.backends.cuda.plan import (
    BF16,
    FP32,
    I32,
    ROW_MAP,
    SCRATCH,
    SEQUENCE_METADATA,
    TABLES,
    DeviceBuffer,
    DevicePlan,
    Form,
    KernelLaunch,
    Roles,
    cache_names,
)
from vosti.impl.errors import UnsupportedModelError
from vosti.impl.models.plan import LOGITS, Launch, Operation, Plan, Rows

NORMS: Mapping[Operation, tuple[int, bool]] = {
    Operation.RMS_NORM: (0, False),
    Operation.RMS_NORM_UNIT_OFFSET: (1, False),
    Operation.RESIDUAL_RMS_NORM: (0, True),
    Operation.RESIDUAL_RMS_NORM_UNIT_OFFSET: (1, True),
    Operation.SCALED_RESIDUAL_RMS_NORM: (0, True),
}
"""Whether a norm has the unit offset, and whether it adds a residual."""

ACTIVATIONS: Mapping[Operation, int] = {Operation.SILU_MUL: 0, Operation.GELU_TANH_MUL: 1}
"""The kernel's number of an activation."""

FLAG_BLOCKS = 4
"""Flags of one head of one row of attention."""


def lower(plan: Plan, form: Form, *, logit_block: int) -> DevicePlan:
    """The device's plan with attention in one form.

    Args:
        plan: a family's plan.
        form: of attention.
        logit_block: how many logits of a row share one flag.

    Raises:
        UnsupportedModelError: if some launch is computed by no kernel.
    """
    lowering = _Lowering(plan, form, logit_block)
    while lowering.at < len(plan.launches):
        lowering.step()
    lowering.flag_logits()
    interleaved = {launch.parameters[0][1] for launch in lowering.launches if launch.operation == "gate_up"}
    parameters = (
        replace(
            parameter,
            sources=parameter.sources[:2] if parameter.name in lowering.shared else parameter.sources,
            transposed=False,
            interleaved=parameter.name in interleaved,
        )
        for parameter in plan.parameters
    )
    return DevicePlan(
        form=form,
        buffers=tuple(lowering.buffers.values()),
        launches=tuple(lowering.launches),
        parameters=tuple(parameters),
        tables=plan.tables,
        tied=plan.tied,
        kv_shapes=plan.kv_shapes,
    )


class _Lowering:
    """A device's plan in the making; `at` is the next launch of the family's plan."""

    def __init__(self, plan: Plan, form: Form, logit_block: int) -> None:
        self.plan = plan
        self.form = form
        self.logit_block = logit_block
        self.at = 0
        self.launches: list[KernelLaunch] = []
        self.buffers: dict[str, DeviceBuffer] = {}
        self.sizes = {buffer.name: buffer.shape for buffer in plan.buffers}
        self.renamed: dict[str, str] = {}
        """Buffers of the family's plan that now stand under another name."""

        self.angles: dict[tuple[str, ...], int] = {}
        """Of the buffers of angles, the launch that looks them up."""

        self.sources = {parameter.name: parameter.sources for parameter in plan.parameters}
        self.shared: set[str] = set()
        """Weights of queries, keys and values whose values are the keys' projection: it is stored once."""

        self.caps: list[tuple[int, float]] = []

    # ------------------------------------------------------------ helpers

    def refuse(self, launch: Launch, why: str) -> UnsupportedModelError:
        """The error for a launch that no kernel computes."""
        number = self.plan.launches.index(launch)
        return UnsupportedModelError(
            f"No kernel computes launch {number} of the plan ({launch.operation.value}): {why}."
        )

    def expect(self, offset: int, operation: Operation, why: str) -> Launch:
        """The launch at an offset from the current one, which must be of the given operation."""
        at = self.at + offset
        if at >= len(self.plan.launches) or self.plan.launches[at].operation is not operation:
            raise self.refuse(self.plan.launches[self.at], why)
        return self.plan.launches[at]

    def follows(self, offset: int, *operations: Operation) -> bool:
        """Whether the launch at an offset from the current one is of one of the operations."""
        at = self.at + offset
        return at < len(self.plan.launches) and self.plan.launches[at].operation in operations

    def width(self, *names: str) -> int:
        """Numbers in one row's entries of some buffers of the family's plan."""
        return sum(prod(self.sizes[name]) for name in names)

    def read(self, name: str) -> str:
        """Where a buffer of the family's plan now stands."""
        return self.renamed.get(name, name)

    def declare(self, name: str, width: int, *, rows: Rows = Rows.TOKENS, element: str = BF16) -> str:
        """A buffer of the device."""
        self.buffers[name] = DeviceBuffer(name, element, (width,), rows)
        return name

    def emit(self, launch: KernelLaunch, covered: int) -> None:
        """Add a launch that covers the next launches of the family's plan, and step over them."""
        covers = tuple(range(self.at, self.at + covered))
        self.launches.append(replace(launch, covers=(*launch.covers, *covers)))
        self.at += covered

    # ------------------------------------------------------------ rules

    def step(self) -> None:
        """Lower the current launch, and those that its kernel computes with it."""
        launch = self.plan.launches[self.at]
        if launch.operation not in RULES:
            raise self.refuse(launch, "there is no kernel for this operation")
        RULES[launch.operation](self, launch)

    def embedding(self, launch: Launch) -> None:
        """A row of the table, scaled or not."""
        (out,), scaled = launch.outputs, launch.operation is Operation.SCALED_EMBEDDING
        width = self.width(out)
        self.emit(
            KernelLaunch(
                "embedding",
                (("width", width), ("scaled", int(scaled))),
                reads=(("tokens", launch.inputs[0]),),
                writes=(("out", self.declare(out, width)),),
                parameters=(("table", launch.parameters[0]),),
                reals=(("scale", launch.constants[0]),) if scaled else (),
            ),
            1,
        )

    def look_up(self, launch: Launch) -> None:
        """Angles are looked up where they are used."""
        self.angles[launch.outputs] = self.at
        self.at += 1

    def norm(self, launch: Launch) -> None:
        """A norm of rows. What it would overwrite it writes elsewhere, but for the residual stream."""
        unit_offset, residual = NORMS[launch.operation]
        inputs = [self.read(name) for name in launch.inputs]
        *totals, out = launch.outputs
        rows = Rows.TOKENS if launch.rows is Rows.TOKENS else Rows.LOGITS
        width = self.width(out)
        target = f"{out}.normed" if out in inputs else out
        writes = [("out", self.declare(target, width, rows=rows))]
        for total in totals:
            writes.append(("total_out", self.declare(total, width, rows=rows)))
            self.renamed.pop(total, None)
        self.renamed[out] = target
        self.emit(
            KernelLaunch(
                "rms_norm",
                (("width", width), ("unit_offset", unit_offset)),
                reads=(
                    ("x", inputs[0]),
                    *((("y", inputs[1]),) if residual else ()),
                    *((("row_map", ROW_MAP),) if launch.rows is Rows.SELECTED else ()),
                ),
                writes=tuple(writes),
                parameters=tuple(zip(("weight", "scale"), launch.parameters, strict=False)),
                reals=(("epsilon", launch.constants[0]),),
                rows=launch.rows,
            ),
            1,
        )

    def linear(self, launch: Launch) -> None:
        """A linear layer: of queries, keys and values, of a gated layer, of logits, or alone."""
        k, n = self.width(*launch.inputs), self.width(*launch.outputs)
        reads, weight = (("x", self.read(launch.inputs[0])),), (("weight", launch.parameters[0]),)
        if launch.rows is Rows.LOGITS:
            out = self.declare(launch.outputs[0], n, rows=Rows.LOGITS, element=FP32)
            self.emit(KernelLaunch("head", (("n", n), ("k", k)), reads, (("out", out),), weight, rows=Rows.LOGITS), 1)
        elif self.follows(1, *ACTIVATIONS):
            activation = self.plan.launches[self.at + 1]
            if activation.inputs != launch.outputs:
                raise self.refuse(activation, "it does not read the linear layer before it")
            (out,) = activation.outputs
            sizes = (("n", self.width(out)), ("k", k), ("activation", ACTIVATIONS[activation.operation]))
            self.emit(KernelLaunch("gate_up", sizes, reads, (("out", self.declare(out, self.width(out))),), weight), 2)
            self.renamed.pop(out, None)
        elif len(launch.outputs) == 2:
            sources = self.sources[launch.parameters[0]]
            if len(sources) == 3 and sources[1] == sources[2]:
                self.shared.add(launch.parameters[0])
                n -= self.width(launch.outputs[1])
            joint = self.declare("+".join(launch.outputs), n)
            self.emit(KernelLaunch("linear", (("n", n), ("k", k)), reads, (("out", joint),), weight), 1)
            self.rotary_store(launch, joint)
        else:
            (out,) = launch.outputs
            self.emit(KernelLaunch("linear", (("n", n), ("k", k)), reads, (("out", self.declare(out, n)),), weight), 1)
            self.renamed.pop(out, None)

    def rotary_store(self, linear: Launch, joint: str) -> None:
        """[Norms of heads,] rotation and store, after the linear layer that yields `joint`."""
        queries_keys, values = linear.outputs
        norm, normed = 0, 0
        constants: tuple[tuple[str, float], ...] = ()
        weights: Roles = ()
        if self.follows(0, Operation.RMS_NORM, Operation.RMS_NORM_UNIT_OFFSET):
            launch = self.plan.launches[self.at]
            if launch.inputs != (queries_keys,) or launch.outputs != (queries_keys,):
                raise self.refuse(launch, "it stands before a rotation, and is no norm of its heads in place")
            norm = 1 + NORMS[launch.operation][0]
            weights = (("norm_weight", launch.parameters[0]),)
            constants = (("epsilon", launch.constants[0]),)
            normed = 1
        value_norm = int(self.follows(normed, Operation.UNWEIGHTED_RMS_NORM))
        if value_norm:
            launch = self.plan.launches[self.at + normed]
            same = not constants or launch.constants == (constants[0][1],)
            if launch.inputs != (values,) or launch.outputs != (values,) or not same:
                raise self.refuse(launch, "it is no norm of the values in place with the epsilon of the heads")
            constants = (("epsilon", launch.constants[0]),)
            normed += 1
        rotate = self.expect(normed, Operation.ROTATE, "no rotation follows")
        store = self.expect(normed + 1, Operation.STORE, "no store follows")
        looked_up = self.angles.get(rotate.inputs[1:])
        if looked_up is None or rotate.inputs[0] != queries_keys:
            raise self.refuse(rotate, "it does not rotate the heads before it by angles that are looked up")
        queries, keys = rotate.outputs
        layer = store.layer
        if store.inputs != (keys, values) or layer is None:
            raise self.refuse(store, "it does not store the rotated keys and the values beside them")
        kv = self.plan.kv_shapes[layer]
        heads = self.width(queries) // kv.head_dim
        cosines, sines = self.plan.launches[looked_up].parameters
        cached_keys, cached_values = cache_names(layer)
        self.emit(
            KernelLaunch(
                "rotary_store",
                (
                    ("heads", heads),
                    ("kv_heads", kv.heads),
                    ("head_dim", kv.head_dim),
                    ("norm", norm),
                    ("value_norm", value_norm),
                    ("shared", int(linear.parameters[0] in self.shared)),
                ),
                reads=(("qkv", joint), ("positions", "positions"), ("slots", "slots")),
                writes=(
                    ("queries", self.declare(queries, self.width(queries))),
                    ("keys", cached_keys),
                    ("values", cached_values),
                    ("flags", self.declare(f"kv_flags.{kv.heads}", kv.heads, element=I32)),
                ),
                parameters=(("cosines", cosines), ("sines", sines), *weights),
                reals=constants,
                layer=layer,
                covers=(looked_up,),
            ),
            normed + 2,
        )

    def attention(self, launch: Launch) -> None:
        """Attention over what the layer's slots hold."""
        (queries,), (out,), layer = launch.inputs, launch.outputs, launch.layer
        if layer is None:
            raise self.refuse(launch, "it names no layer")
        kv = self.plan.kv_shapes[layer]
        heads = self.width(queries) // kv.head_dim
        sizes = (("heads", heads), ("kv_heads", kv.heads), ("head_dim", kv.head_dim), ("window", launch.window or 0))
        flags = self.declare(f"attention_flags.{heads}", heads * FLAG_BLOCKS, element=I32)
        sequences = tuple((name, name) for name in SEQUENCE_METADATA)
        pages = (("keys", cache_names(layer)[0]), ("values", cache_names(layer)[1]), (TABLES, TABLES))
        scratch = tuple((name, name) for name in SCRATCH)
        results = (("out", self.declare(out, self.width(out))), ("flags", flags))
        asked = (("queries", self.read(queries)), *pages, *sequences)
        scale = (("scale", launch.constants[0]),)
        if self.form is Form.EXTEND:
            self.emit(KernelLaunch("attention", sizes, asked, results, reals=scale, layer=layer), 1)
        else:
            self.emit(KernelLaunch("attention_split", sizes, asked, scratch, reals=scale, layer=layer), 1)
            merged = KernelLaunch("attention_merge", sizes, (*scratch, *sequences), results, layer=layer)
            self.launches.append(replace(merged, covers=self.launches[-1].covers))

    def softcap(self, launch: Launch) -> None:
        """The soft cap on logits: part of the launch that flags them."""
        if launch.inputs != (LOGITS,) or launch.outputs != (LOGITS,) or launch.rows is not Rows.LOGITS or self.caps:
            raise self.refuse(launch, "only logits have a soft cap, and only one")
        self.caps.append((self.at, launch.constants[0]))
        self.at += 1

    def unpaired(self, launch: Launch) -> None:
        """A launch that only makes sense behind another one."""
        raise self.refuse(launch, "it does not follow what its kernel computes with it")

    def flag_logits(self) -> None:
        """The last launch: flags, and the soft cap if there is one."""
        width = self.width(LOGITS)
        flags = self.declare("logit_flags", -(-width // self.logit_block), rows=Rows.LOGITS, element=I32)
        self.launches.append(
            KernelLaunch(
                "logits",
                (("width", width), ("capped", len(self.caps))),
                reads=(("x", LOGITS),),
                writes=(("out", LOGITS), ("flags", flags)),
                reals=tuple(("cap", cap) for _, cap in self.caps),
                rows=Rows.LOGITS,
                covers=tuple(at for at, _ in self.caps),
            )
        )


RULES: Mapping[Operation, Callable[[_Lowering, Launch], None]] = {
    Operation.EMBEDDING: _Lowering.embedding,
    Operation.SCALED_EMBEDDING: _Lowering.embedding,
    Operation.ANGLES: _Lowering.look_up,
    Operation.LINEAR: _Lowering.linear,
    Operation.ROTATE: _Lowering.unpaired,
    Operation.STORE: _Lowering.unpaired,
    Operation.ATTENTION: _Lowering.attention,
    Operation.SILU_MUL: _Lowering.unpaired,
    Operation.GELU_TANH_MUL: _Lowering.unpaired,
    Operation.SOFTCAP: _Lowering.softcap,
} | dict.fromkeys(NORMS, _Lowering.norm)
"""How each operation of a family's plan is lowered."""
