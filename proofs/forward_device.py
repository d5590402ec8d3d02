"""What the device's launch plan computes, by the contracts of its kernels.

The plan (`vosti.impl.backends.cuda.plan`) is run on terms, launch by launch. What a launch leaves is read from its
kernel's contract (`vosti.kernels.contract`) and from nowhere else: the text of each of its outputs is evaluated, the
row programs it names being those of `vosti.spec.numerics`, over terms; for each head by itself, and for all columns at
once. A contract speaks of row i; what it says of integers is compared, as it is written, with the functions of
`vosti.proofs.forward_rows`, which prove it of every batch:

| text of a contract | stands for |
| --- | --- |
| `tokens[i]`, `positions[i]` | h[p] and p of the row |
| `row_map[i]` | the row of the batch whose logits are wanted |
| `slots[i]` | the slot of the row's own position |
| `starts[b] + i` | a row of the batch, every live row being one |
| `lengths[b] - counts[b] + i` | its position |
| `tables[b, j // PAGE] * PAGE + j % PAGE` | the slot of position j of its sequence |

A buffer of bf16 holds rounded numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from inspect import getmembers, getsource, isfunction
from itertools import product
from math import prod
from types import CodeType
from typing import Any

from vosti.impl.backends.cuda.plan import BF16, FP32, I32, METADATA, ROW_MAP, SCRATCH, DevicePlan, KernelLaunch
from vosti.impl.models.plan import KVShape, Rows, Source
from vosti.kernels.catalogue import KERNELS
from vosti.kernels.contract import Buffer, Contract, Output, cdiv, size
from vosti.proofs import forward_rows
from vosti.proofs.forward_plan import CACHE, ROW, Held, Run, Whole
from vosti.proofs.forward_terms import EVERY, Array, Matrix, Refused, Terms, Vector, joined, width
from vosti.spec.numerics import activations, norms, projections, rotary

PROGRAMS = (projections, norms, rotary, activations)
"""Where the row programs stand that contracts name."""

KEPT = ("keys", "values")
"""What contracts call the cache of a layer."""

FUNCTIONS: Mapping[str, Any] = {"__builtins__": {}, "cdiv": cdiv, "min": min, "max": max}

SEQUENCE, KEY, PAGE = Whole("b"), Whole("j"), Whole("PAGE")
"""A sequence, a position, the page size."""

# What `forward_rows` says of integers, it says of texts, too.
ROW_OF_SEQUENCE: Any = forward_rows.row_of(SEQUENCE, ROW, Whole("starts"))  # type: ignore[arg-type]
POSITION: Any = forward_rows.position_of(SEQUENCE, ROW, Whole("counts"), Whole("lengths"))  # type: ignore[arg-type]
SLOT: Any = forward_rows.slot_of(SEQUENCE, KEY, Whole("tables"), PAGE)  # type: ignore[arg-type]
IS_ROW = getsource(forward_rows.is_row).rpartition("return ")[2].strip()
HAS_SLOT = getsource(forward_rows.has_slot).rpartition("return ")[2].strip()


@cache
def code_of(text: str) -> CodeType:
    """A contract's text, compiled."""
    return compile(text, "contract", "eval")


def evaluated(text: str, names: Mapping[str, Any]) -> Any:
    """The value of a contract's text. Raises `Refused` if it has none, as where a launch is not given what it names."""
    try:
        # The texts are the project's own, never a user's.
        return eval(code_of(text), {**FUNCTIONS, **names})
    except (AttributeError, IndexError, NameError, TypeError, ValueError) as error:
        raise Refused(f"{text} has no value: {error}") from None


@dataclass(frozen=True)
class RowView:
    """A buffer of rows, as a launch may read it."""

    name: str
    value: Array
    row: Whole
    """The launch's own, as its contract has it."""

    def __getitem__(self, key: tuple[Any, ...]) -> Array:
        index, *rest = key
        if index != self.row:
            raise Refused(f"it reads {self.name} in row {index}, which is not its own, {self.row}")
        return self.value[tuple(rest)]


class DeviceRun(Run):
    """A part of a device's plan on its way through its launches."""

    def __init__(self, part: DevicePlan, first: int, before: Mapping[str, Held], terms: Terms) -> None:
        super().__init__(before, terms)
        self.part = part
        self.buffers = {buffer.name: buffer for buffer in part.buffers}
        self.elements = {buffer.name: buffer.element for buffer in part.buffers}
        self.elements |= {**dict.fromkeys(CACHE, BF16), **dict.fromkeys(SCRATCH, FP32), **dict.fromkeys(METADATA, I32)}
        self.parameters = {parameter.name: terms.parameter(parameter) for parameter in part.parameters}
        self.parameters |= {alias: self.parameters[name] for alias, name in part.tied if name in self.parameters}
        self.split: tuple[KernelLaunch, Mapping[str, Any]] | None = None
        """The last launch over splits of keys, and what it was given."""

        self.words: Mapping[str, Any] = {
            **{name: partial(one, terms) for module in PROGRAMS for name, one in getmembers(module, isfunction)},
            "join": terms.join,
            "grouped": lambda queries, heads: (queries, heads),
            "cache": lambda keys, values: (keys, values),
            "attention": lambda queries, cached, window, scale, head_dim: terms.attention(
                queries[0].flat, *cached, KVShape(queries[1], head_dim), scale, window
            ),
            "visible_splits": self.visible,
        }
        self.follow(part.launches, first)

    def launch(self, at: int, launch: KernelLaunch) -> Mapping[str, Vector]:
        """Run one launch."""
        contract, sizes = contract_of(launch.operation), sizes_of(launch)
        buffers = {one.name: one for one in contract.parameters if isinstance(one, Buffer)}
        self.check(launch, contract, buffers, sizes)
        names = {**self.words, **sizes, **dict(launch.reals), "i": ROW, "b": SEQUENCE}
        if launch.operation == "attention_merge":
            names |= self.of_split(launch, contract)
        names |= {role: self.parameter(name, buffers[role], sizes) for role, name in launch.parameters}
        names |= {role: self.view(launch, name, buffers[role], sizes) for role, name in launch.reads}
        for name, text in contract.definitions:
            if all(one in names for one in code_of(text).co_names):
                names[name] = evaluated(text, names)
        if launch.operation == "attention_split":
            self.split = launch, names
            return {name: () for _, name in launch.writes}
        outputs = [one for one in contract.outputs if self.is_written(launch, one, buffers[one.buffer], sizes)]
        return dict(self.written(launch, one, buffers[one.buffer], names) for one in outputs)

    # ------------------------------------------------------------ what it is given

    def check(
        self, launch: KernelLaunch, contract: Contract, buffers: Mapping[str, Buffer], sizes: Mapping[str, Any]
    ) -> None:
        """Refuse sizes and buffers that are not what the contract needs, and buffers that overlap where they may not.

        Premises on tiles and on numbers of rows are left to the launcher.
        """
        for premise in contract.premises:
            if known(premise, sizes) and not evaluated(premise, sizes):
                raise Refused(f"its contract needs {premise}")
        allowed = {(written, read) for written, read, when in contract.in_place if evaluated(when, sizes)}
        for role, name in (*launch.reads, *launch.writes):
            element, buffer = self.elements.get(name), buffers[role]
            if element is None or (role in KEPT, role in SCRATCH) != (name in CACHE, name in SCRATCH):
                raise Refused(f"its {role} are {name}, which is no buffer for that")
            if element not in (buffer.element, buffer.or_element):
                raise Refused(f"{name} is of {element}, and {role} of {buffer.element}")
        for role, name in launch.writes:
            if name in METADATA or sum(name == one for _, one in launch.writes) > 1:
                raise Refused(f"it overwrites {name}")
            if any(read == name and (role, other) not in allowed for other, read in launch.reads):
                raise Refused(f"it overwrites {name}, which it reads")

    def view(self, launch: KernelLaunch, name: str, buffer: Buffer, sizes: Mapping[str, Any]) -> Any:
        """What the name of a buffer that the launch reads stands for in its contract."""
        if buffer.element == I32:
            return Whole(name)
        value = self.read(name, launch)
        if name in (*CACHE, *SCRATCH):
            return value
        row = Whole(ROW_MAP)[ROW] if launch.rows is Rows.SELECTED else row_of(launch)
        return RowView(name, Array.of(value, axes_of(buffer, sizes)[1:]), row)

    def parameter(self, name: str, buffer: Buffer, sizes: Mapping[str, Any]) -> Array | Matrix:
        """A parameter or table, of the sizes that the contract gives it."""
        if name in self.part.tables:
            return Matrix(self.terms, (Source(name, (1, *axes_of(buffer, sizes)[1:])),))
        found = self.parameters[name]
        lengths = axes_of(buffer, sizes)
        if len(lengths) != len(found.shape) or any(map(lambda n, m: n not in (None, m), lengths, found.shape)):
            raise Refused(f"{name} is {list(found.shape)}, and {buffer.name} {list(buffer.shape)}")
        return found

    def of_split(self, launch: KernelLaunch, contract: Contract) -> Mapping[str, Any]:
        """What a merge's contract says of the launch before it: of the same sizes, and it left all of the states."""
        if self.split is None or {one for one in launch.reads if one[0] in SCRATCH} != set(self.split[0].writes):
            raise Refused("it merges states that no one launch has left")
        before, names = self.split
        if before.sizes != launch.sizes:
            raise Refused("it merges states of other sizes")
        return {one.name: names[one.name] for one in contract.context if one.name in names}

    # ------------------------------------------------------------ what it leaves

    def is_written(self, launch: KernelLaunch, output: Output, buffer: Buffer, sizes: Mapping[str, Any]) -> bool:
        """Whether numbers are written, of every row that has any: by the launch's sizes, or for each row's part."""
        if buffer.element == I32 or known(output.when, sizes):
            return buffer.element != I32 and bool(evaluated(output.when, sizes))
        if output.when != (HAS_SLOT if row_of(launch) == ROW else IS_ROW) or output.stated != "True":
            raise Refused(f"its {output.buffer} are written where {output.when}")
        return True

    def written(
        self, launch: KernelLaunch, output: Output, buffer: Buffer, names: Mapping[str, Any]
    ) -> tuple[str, Vector]:
        """Where an output goes, and what it holds of a row, head after head."""
        target = dict(launch.writes).get(output.buffer)
        if target is None:
            raise Refused(f"nothing takes its {output.buffer}")
        row = evaluated(output.cell[0], names)
        if row != (Whole("slots")[ROW] if target in CACHE else row_of(launch)):
            raise Refused(f"its {output.buffer} are written in row {row}, which is not its own")
        *heads, column = output.cell[1:]
        _, *lengths, columns = axes_of(buffer, names)
        found = []
        for indices in product(*map(range, lengths)):
            value = evaluated(output.value, {**names, **dict(zip(heads, indices, strict=True)), column: EVERY})
            if not isinstance(value, Array) or value.shape != (columns,):
                raise Refused(f"its {output.buffer} are not {columns} numbers")
            found.append(value.flat)
        vector, kept = joined(*found), self.buffers.get(target)
        if kept and (kept.rows is Rows.TOKENS, prod(kept.shape)) != (launch.rows is Rows.TOKENS, width(vector)):
            raise Refused(
                f"its {output.buffer}, {width(vector)} numbers in rows of {launch.rows.value}, do not fit {target}"
            )
        return target, self.terms.rounded(vector) if self.elements[target] == BF16 else vector

    def visible(self, position: object, window: int, slot: Callable[[Whole], Whole], length: object) -> int | None:
        """What a row sees: the window, if position and slots are those that `forward_rows` speaks of."""
        if position != POSITION:
            raise Refused(f"it takes the row to be at another position, {position}")
        if slot(KEY) != SLOT or length != Whole("lengths")[SEQUENCE]:
            raise Refused(f"it takes keys to be in other slots, {slot(KEY)}")
        return window or None


def known(text: str, sizes: Mapping[str, Any]) -> bool:
    """Whether sizes alone decide a contract's text."""
    return all(isinstance(sizes.get(name), int) for name in code_of(text).co_names)


def row_of(launch: KernelLaunch) -> Whole:
    """The row that a contract speaks of: row i of the launch, or row i of sequence b."""
    return ROW_OF_SEQUENCE if launch.operation.startswith("attention") else ROW


@cache
def contract_of(operation: str) -> Contract:
    """The contract of the kernels that a table may choose for an operation. Raises `Refused` if they differ."""
    contracts = [KERNELS[name].contract for name in kernel_names(operation)]
    said = {tuple((one.buffer, one.cell, one.value, one.when) for one in contract.outputs) for contract in contracts}
    if len(said) != 1:
        raise Refused(f"of {operation}, contracts say {len(said)} different things")
    return contracts[0]


def kernel_names(operation: str) -> tuple[str, ...]:
    """The kernels that a table may choose for an operation."""
    base = "linear" if operation == "head" else operation
    return tuple(name for name in (base, f"{base}_stream") if name in KERNELS)


def sizes_of(launch: KernelLaunch) -> Mapping[str, Any]:
    """The compile-time parameters of a launch, but for its tile's: its sizes, and what it is given or not.

    Raises `Refused` if the two contradict each other.
    """
    given = {role for roles in (launch.reads, launch.parameters, launch.reals) for role, _ in roles}
    sizes = {name.upper(): value for name, value in launch.sizes}
    for name, role in (("RESIDUAL", "y"), ("MAPPED", "row_map"), ("SCALED", "scale"), ("CAPPED", "cap")):
        if sizes.setdefault(name, int(role in given)) != (role in given):
            raise Refused(f"its sizes say {name} = {sizes[name]}, and what it is given {int(role in given)}")
    return {**sizes, "PAGE": PAGE}


def axes_of(buffer: Buffer, sizes: Mapping[str, Any]) -> tuple[Any, ...]:
    """The lengths of a buffer's axes; None where sizes leave it open: how many rows, tokens or positions there are."""
    return tuple(size(axis, sizes) if known(axis, sizes) else None for axis in buffer.shape)
