"""The device's launch plan: a forward as launches of the kernels of `vosti.kernels`, in order, as data.

`vosti.impl.backends.cuda.lowering` makes it from a family's plan; `vosti.proofs.forward` proves that it computes what
the family's plan does. Nothing here knows a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from vosti.impl.models.plan import KVShape, Parameter, Rows

Dimensions = tuple[tuple[str, int], ...]
"""Sizes of an operation by name, as the tables of `vosti.kernels.tables` are keyed."""

Roles = tuple[tuple[str, str], ...]
"""(name in the kernel's contract, name of the buffer or parameter)."""

BF16, FP32, I32 = "bf16", "fp32", "i32"
"""Element types, as contracts name them."""

ROW_METADATA = ("tokens", "positions", "slots")
"""Integers per row of the batch."""

SEQUENCE_METADATA = ("starts", "counts", "lengths")
"""Integers per sequence."""

ROW_MAP = "row_map"
"""Per wanted row of logits: which row of the batch it is."""

TABLES = "tables"
"""Page ids per sequence, [width]."""

METADATA = (*ROW_METADATA, *SEQUENCE_METADATA, ROW_MAP, TABLES)
"""What the host writes before each forward, all int32."""

SCRATCH = ("maxima", "totals", "outputs")
"""Where the states of splits wait for their merge."""


class Form(Enum):
    """How attention is launched. Both forms compute one row program."""

    EXTEND = "extend"
    """One launch; any number of rows per sequence."""

    SPLIT = "split"
    """A launch over splits of the keys, and a merge; few rows per sequence."""


@dataclass(frozen=True)
class DeviceBuffer:
    """An array with one entry per row."""

    name: str
    element: str
    shape: tuple[int, ...]
    """Of one row's entry."""

    rows: Rows
    """`TOKENS`: rows of the batch. `LOGITS`: wanted rows of logits."""


@dataclass(frozen=True)
class KernelLaunch:
    """One launch of one kernel over all its rows."""

    operation: str
    """As tables name it."""

    sizes: Dimensions
    """With the operation, the key of a table's entry."""

    reads: Roles
    writes: Roles
    """A buffer in both is updated in place."""

    parameters: Roles = ()
    reals: tuple[tuple[str, float], ...] = ()
    rows: Rows = Rows.TOKENS
    """As in a family's plan: `SELECTED` reads rows of the batch through the row map, and writes wanted rows."""

    layer: int | None = None
    covers: tuple[int, ...] = ()
    """Which launches of the family's plan it computes."""

    def size(self, name: str) -> int:
        """One of the sizes."""
        return dict(self.sizes)[name]


@dataclass(frozen=True)
class DevicePlan:
    """The launches of one forward, and what they name."""

    form: Form
    buffers: tuple[DeviceBuffer, ...]
    launches: tuple[KernelLaunch, ...]
    parameters: tuple[Parameter, ...]
    """As the device stores them: linear weights [outputs, inputs], those of a gated layer with the two weights' rows in
    turn.
    """

    tables: tuple[str, ...]
    tied: tuple[tuple[str, str], ...]
    """(alias, parameter): the same tensor."""

    kv_shapes: tuple[KVShape, ...]


def cache_names(layer: int) -> tuple[str, str]:
    """The names of a layer's keys and values in the pool."""
    return f"keys.{layer}", f"values.{layer}"


def plan_problems(plan: DevicePlan) -> list[str]:
    """What is wrong with the names in a device's plan; empty for a sound one.

    Names that nothing declares, uses or writes, reads before writes, buffers that a launch reads and overwrites where
    its kernel may not.
    """
    problems: list[str] = []
    declared = {buffer.name: buffer.rows for buffer in plan.buffers}
    caches = [name for layer in range(len(plan.kv_shapes)) for name in cache_names(layer)]
    written = set(METADATA)
    for number, launch in enumerate(plan.launches):
        where = f"launch {number} ({launch.operation})"
        for role, name in launch.reads:
            if name not in written:
                problems.append(f"{where} reads {name} before it is written")
            if name in declared and declared[name] is not _rows_read(launch):
                problems.append(f"{where} reads {name} in rows of another kind")
            if (role, name) not in _updated(launch) and name in [other for _, other in launch.writes]:
                problems.append(f"{where} overwrites {name}, which it reads")
        for _, name in launch.writes:
            if name in declared and declared[name] is not _rows_written(launch):
                problems.append(f"{where} writes {name} in rows of another kind")
            if name not in declared and name not in caches and name not in SCRATCH:
                problems.append(f"{where} writes {name}, which nothing declares")
            written.add(name)
    known = {parameter.name for parameter in plan.parameters} | set(plan.tables) | {alias for alias, _ in plan.tied}
    used = {name for launch in plan.launches for _, name in launch.parameters} | {name for _, name in plan.tied}
    problems += [f"parameter {name} is unknown" for name in sorted(used - known)]
    problems += [f"parameter {name} is unused" for name in sorted(known - used)]
    problems += [f"buffer {name} is never written" for name in sorted(set(declared) - written)]
    return problems


IN_PLACE = {"rms_norm": {("x", "total_out"), ("y", "total_out")}, "logits": {("x", "out")}}
"""By operation, the pairs of a role that is read and one that is written which may be one buffer."""


def _updated(launch: KernelLaunch) -> Iterator[tuple[str, str]]:
    """(role, buffer) of what the launch may read and overwrite; with a row map, nothing."""
    if launch.rows is Rows.SELECTED:
        return
    writes = {(role, name) for role, name in launch.writes}
    for read, write in IN_PLACE.get(launch.operation, set()):
        yield from ((role, name) for role, name in launch.reads if role == read and (write, name) in writes)


def _rows_read(launch: KernelLaunch) -> Rows:
    return Rows.LOGITS if launch.rows is Rows.LOGITS else Rows.TOKENS


def _rows_written(launch: KernelLaunch) -> Rows:
    return Rows.TOKENS if launch.rows is Rows.TOKENS else Rows.LOGITS
