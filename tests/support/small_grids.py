"""What programs do to memory in all small launches: which cell each writes and reads, and what is wrong with that.

Nothing here is the verifier's but the reading of typed IR: the contract's expressions are evaluated as Python, launches
are listed, and each is interpreted and looked at, cell by cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from types import CodeType
from typing import Any

import numpy as np

from vosti.kernels.contract import Buffer, Contract, Integer, Output, Real, cdiv, size
from vosti.kernels.errors import PremiseError
from vosti.kernels.verifier import interpret
from vosti.kernels.verifier.errors import place_of
from vosti.kernels.verifier.expressions import free_names
from vosti.kernels.verifier.interpret import Held, Lanes, Pointers
from vosti.kernels.verifier.ir import Block, Kernel, Op

OUTSIDE = "an access outside of a buffer"
FRAME = "a write outside of the promised cells"
WRITER = "a cell written by another than the contract names"
RACE = "a cell that two programs write"
TWICE = "a cell that two stores write"
UNWRITTEN = "a promised cell that is not written"
OTHERS = "a read of what another program writes"
LANE = "a read of what another lane writes"
AGAIN = "a read of what the program wrote before"
IDLE = "a store that takes place in no launch"


@dataclass(frozen=True)
class Found:
    """Something wrong."""

    kind: str
    buffer: str
    place: str = ""
    """Of the access, if one is to blame."""


Shown = Mapping[Found, str]
"""What is wrong in some small launch, and the first such launch."""


@dataclass(frozen=True)
class Bounds:
    """Which launches are small."""

    sizes: int = 3
    """The most that rows, slots and so on can be."""

    apart: Mapping[str, int] = field(default_factory=dict)
    """Sizes whose most is another."""

    contents: int = 5
    """How many numbers are tried in a buffer of integers, from the lowest on; from -1 on if it may hold any."""


# ---------------------------------------------------------------- launches


@dataclass(frozen=True)
class Table:
    """A buffer of integers, as expressions index it."""

    shape: tuple[int, ...]
    held: tuple[int, ...]

    def __getitem__(self, index: int | tuple[int, ...]) -> int:
        place = index if isinstance(index, tuple) else (index,)
        return self.held[offset_of(place, self.shape)]


def offset_of(place: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Where an element lies. Raises IndexError outside of the shape."""
    offset = 0
    for index, length in zip(place, shape, strict=True):
        if not 0 <= index < length:
            raise IndexError(place)
        offset = offset * length + index
    return offset


@dataclass(frozen=True)
class Launch:
    """Sizes, what buffers of integers hold, and which buffers are one."""

    values: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    tables: Mapping[str, Table]
    memory: Mapping[str, str]
    """Of each buffer, that in whose memory it lies: its own, or that of one which is updated in place."""

    def __str__(self) -> str:
        said = [f"{name} = {value}" for name, value in self.values.items()]
        said += [f"{name} = {list(table.held)}" for name, table in self.tables.items()]
        return ", ".join([*said, *(f"{name} is {other}" for name, other in self.memory.items() if name != other)])

    @property
    def scope(self) -> dict[str, Any]:
        """The names of expressions."""
        return {**self.values, **self.tables}


@cache
def _code(text: str) -> CodeType:
    return compile(text, "contract", "eval")


_FUNCTIONS = {"__builtins__": {}, "cdiv": cdiv, "min": min, "max": max}


def _worth(text: str, scope: Mapping[str, Any]) -> Any:
    # The texts are those of contracts in this repository.
    return eval(_code(text), _FUNCTIONS, scope)


def launches(contract: Contract, constants: Mapping[str, int], bounds: Bounds) -> Iterator[Launch]:
    """All small ones that meet the premises.

    Facts that define numbers of no launch (those of the contract's context) restrict nothing and are left out.
    """
    buffers = [one for one in contract.parameters if isinstance(one, Buffer)]
    lows = {one.name: int(one.low) for one in contract.parameters if isinstance(one, Integer)}
    known = {*lows, *constants, *contract.names}
    texts = [*contract.grid, *contract.premises, *(text for one in buffers for text in one.shape)]
    lows |= dict.fromkeys(free_names(texts, known), 0)
    ranges = [range(low, bounds.apart.get(name, bounds.sizes) + 1) for name, low in lows.items()]
    for sizes in product(*ranges):
        values = {**constants, **dict(zip(lows, sizes, strict=True))}
        try:
            contract.check_launch(values)
        except PremiseError:
            continue
        shapes = {one.name: tuple(size(text, values) for text in one.shape) for one in buffers}
        for tables in _tables(contract, buffers, values, shapes, bounds):
            own = {one.name: one.name for one in buffers}
            yield Launch(values, shapes, tables, own)
            for written, read, condition in contract.in_place:
                if _worth(condition, {**values, **tables}):
                    yield Launch(values, shapes, tables, {**own, read: written})


def _tables(
    contract: Contract,
    buffers: Iterable[Buffer],
    values: Mapping[str, int],
    shapes: Mapping[str, tuple[int, ...]],
    bounds: Bounds,
) -> Iterator[Mapping[str, Table]]:
    """All that buffers of integers may hold."""
    integers = [
        one for one in buffers if one.element.startswith("i") and not (one.words or one.access.value == "write")
    ]
    numbers = []
    for one in integers:
        low, high = (size(text, values) for text in one.within or ("-1", "2**31"))
        tried = range(low, min(high, low + bounds.contents))
        numbers.append(product(tried, repeat=int(np.prod(shapes[one.name]))))
    beyond = {one.name for one in contract.context}
    facts = [fact for fact in contract.facts if not beyond & set(_code(fact.holds).co_names)]
    longest = max((length for one in integers for length in shapes[one.name]), default=0)
    for held in product(*numbers):
        tables = {one.name: Table(shapes[one.name], some) for one, some in zip(integers, held, strict=True)}
        scope = {**values, **tables}
        if all(
            _holds(fact.holds, {**scope, **dict(zip(fact.names, place, strict=True))}, beyond=True)
            for fact in facts
            for place in product(range(longest), repeat=len(fact.names))
        ):
            yield tables


def _holds(text: str, scope: Mapping[str, Any], *, beyond: bool) -> bool:
    """Whether a condition holds; `beyond` where it speaks of elements that do not exist."""
    try:
        return bool(_worth(text, scope))
    except IndexError:
        return beyond


# ---------------------------------------------------------------- what programs do


@dataclass(frozen=True)
class Done:
    """An access of some lanes."""

    op: Op
    buffer: str
    program: tuple[int, int, int]
    iterations: tuple[int, ...]
    seen: Lanes
    """Which lanes do it."""

    offsets: Lanes
    """Of these, in order."""

    def each(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The element and the lane that touches it."""
        return zip(self.offsets.tolist(), map(tuple, np.argwhere(self.seen).tolist()), strict=True)


@dataclass(frozen=True)
class _Recorder(interpret._Program):
    """A program whose accesses are taken down, in order; what lies outside of a buffer is not touched."""

    names: Mapping[int, str]
    lengths: Mapping[str, int]
    done: list[Done]
    loops: list[list[Any]] = field(default_factory=list)
    """Of the loops that run, outermost first: the body, and the number of the iteration."""

    def block(self, block: Block, environment: dict[int, Held]) -> list[Held]:
        if self.loops and self.loops[-1][0] is block:
            self.loops[-1][1] += 1
        return super().block(block, environment)

    def loop(self, op: Op, operands: list[Held], environment: dict[int, Held]) -> list[Held]:
        self.loops.append([op.regions[0], -1])
        carried = super().loop(op, operands, environment)
        self.loops.pop()
        return carried

    def results(self, op: Op, operands: list[Held]) -> list[Held]:
        assert not op.name.startswith("tt.descriptor"), op
        if op.name == "tt.load":
            pointers, mask, *other = (*operands, None)[: max(2, len(operands))]
            inside = self.inside(op, pointers, mask, op.result.type.shape)
            return interpret._load(op, pointers, inside, *other)  # type: ignore[arg-type]
        if op.name == "tt.store":
            pointers, lanes, mask = (*operands, None)[:3]
            inside = self.inside(op, pointers, mask, op.operands[1].type.shape)
            assert isinstance(pointers, Pointers)
            assert isinstance(lanes, np.ndarray)
            held = interpret._stored(op.operands[1].type.element, lanes)
            pointers.buffer[np.broadcast_to(pointers.offsets, inside.shape)[inside]] = held[inside]
            return []
        return super().results(op, operands)

    def inside(self, op: Op, pointers: Held | None, mask: Held | None, shape: tuple[int, ...]) -> Lanes:
        """Which lanes touch an element that exists; all that are not masked are taken down."""
        assert isinstance(pointers, Pointers)
        seen: Lanes = np.broadcast_to(np.asarray(True if mask is None else mask), shape)
        offsets = np.broadcast_to(pointers.offsets, shape)
        name = self.names[id(pointers.buffer)]
        self.done.append(
            Done(
                op,
                name,
                (self.ids["x"], self.ids["y"], self.ids["z"]),
                tuple(count for _, count in self.loops),
                seen,
                offsets[seen],
            )
        )
        return np.asarray(seen & (offsets >= 0) & (offsets < self.lengths[name]))


_HELD = {"bf16": np.uint16, "fp32": np.float32, "i32": np.int32, "i64": np.int64}


def accesses(kernel: Kernel, contract: Contract, launch: Launch) -> list[Done]:
    """Of every program, one after another."""
    buffers = {one.name: one for one in contract.parameters if isinstance(one, Buffer)}
    lengths = {name: int(np.prod(launch.shapes[name])) for name in buffers}
    # One element more: what is masked is looked up, too.
    memory = {name: np.zeros(lengths[name] + 1, _HELD[one.element]) for name, one in buffers.items()}
    for name, table in launch.tables.items():
        memory[name][:-1] = table.held
    views = {name: memory[launch.memory[name]][:] for name in buffers}
    numbers = {one.name: 1.0 for one in contract.parameters if isinstance(one, Real)}
    arguments: dict[str, Any] = {**launch.values, **numbers, **views}
    environment = {
        one.value.number: interpret._argument(one.value.type, arguments[one.source]) for one in kernel.parameters
    }
    names = {id(view): name for name, view in views.items()}
    grid = contract.programs(launch.values)
    done: list[Done] = []
    with np.errstate(all="ignore"):
        for ids in product(*map(range, grid)):
            program = _Recorder(
                dict(zip("xyz", ids, strict=True)), dict(zip("xyz", grid, strict=True)), names, lengths, done
            )
            program.block(kernel.body, dict(environment))
    return done


# ---------------------------------------------------------------- what is wrong with it

_Writer = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""A program, a lane, and the iterations around the store."""


def shown(kernel: Kernel, contract: Contract, constants: Mapping[str, int], bounds: Bounds) -> Shown:
    """All that is wrong in any small launch."""
    found: dict[Found, str] = {}
    stores = {op: op for op in kernel.body.walk() if op.name == "tt.store"}
    for launch in launches(contract, constants, bounds):
        done = accesses(kernel, contract, launch)
        for one in done:
            if len(one.offsets):
                stores.pop(one.op, None)
        for wrong in _wrong(contract, launch, done):
            found.setdefault(wrong, str(launch))
    return {**found, **{Found(IDLE, "", place_of(op)): "any" for op in stores}}


def _wrong(contract: Contract, launch: Launch, done: list[Done]) -> Iterator[Found]:
    """What is wrong in one launch."""
    promised = {output.buffer: _promised(contract, output, launch) for output in contract.outputs}
    writes: dict[tuple[str, int], list[tuple[int, Done, tuple[int, ...]]]] = {}
    for time, one in enumerate(done):
        if ((one.offsets < 0) | (one.offsets >= np.prod(launch.shapes[one.buffer]))).any():
            yield Found(OUTSIDE, one.buffer, place_of(one.op))
        if one.op.name == "tt.store":
            for offset, lane in one.each():
                yield from _of_write(one, lane, promised.get(one.buffer, {}).get(offset))
                earlier = writes.setdefault((launch.memory[one.buffer], offset), [])
                for _, other, _ in earlier:
                    if other.program != one.program:
                        yield Found(RACE, one.buffer, place_of(one.op))
                    if other.program == one.program or other.op is not one.op:
                        yield Found(TWICE, one.buffer, place_of(one.op))
                earlier.append((time, one, lane))
    for buffer, cells in promised.items():
        if any((launch.memory[buffer], offset) not in writes for offset in cells):
            yield Found(UNWRITTEN, buffer)
    written = {memory for memory, _ in writes}
    for time, one in enumerate(done):
        memory = launch.memory[one.buffer]
        if one.op.name == "tt.load" and memory in written:
            for offset, lane in one.each():
                for when, other, its in writes.get((memory, offset), ()):
                    if other.program != one.program:
                        yield Found(OTHERS, other.buffer, place_of(one.op))
                    elif when < time:
                        yield Found(AGAIN, other.buffer, place_of(one.op))
                    elif its != lane:
                        yield Found(LANE, other.buffer, place_of(one.op))


def _of_write(one: Done, lane: tuple[int, ...], writers: set[_Writer] | None) -> Iterator[Found]:
    """What is wrong with a write of one lane, by itself."""
    if writers is None:
        yield Found(FRAME, one.buffer, place_of(one.op))
    elif (one.program, lane, one.iterations) not in writers:
        yield Found(WRITER, one.buffer, place_of(one.op))


def _together(texts: Iterable[str]) -> str:
    """The expression of a tuple."""
    return f"({''.join(f'{text}, ' for text in texts)})"


def _promised(contract: Contract, output: Output, launch: Launch) -> dict[int, set[_Writer]]:
    """The offsets of the cells that are to be written, and by which program, lane and iteration."""
    scope, shape = launch.scope, launch.shapes[output.buffer]
    own = [part for part in output.cell if part.isidentifier() and part not in scope]
    names = dict.fromkeys([*own, *(name for name, _ in output.names)])
    most = max(*contract.programs(launch.values), *(length for one in launch.shapes.values() for length in one))
    ranges = [range(shape[output.cell.index(name)] if name in own else most) for name in names]
    cell, *writer = map(_together, (output.cell, output.program, output.lanes, output.iterations))
    cells: dict[int, set[_Writer]] = {}
    for place in product(*ranges):
        inner = {**scope, **dict(zip(names, place, strict=True))}
        if not _holds(output.when, inner, beyond=False):
            continue
        try:
            offset = offset_of(_worth(cell, inner), shape)
        except IndexError:
            continue
        program, lanes, iterations = (_worth(text, inner) for text in writer)
        cells.setdefault(offset, set()).add((program, lanes, iterations))
    return cells


# ---------------------------------------------------------------- what the verifier finds

REASONS: Mapping[str, str] = {
    r"An access to (\w+) is out of bounds": OUTSIDE,
    r"A store to (\w+) goes to no cell of the contract": FRAME,
    r"A store to (\w+) misses its cell": FRAME,
    r"A cell of (\w+) is written by another than the contract says": WRITER,
    r"The contract names other lanes or iterations of (\w+)": WRITER,
    r"One cell of (\w+) has two names": RACE,
    r"Two stores write one cell of (\w+)": TWICE,
    r"A cell of (\w+) is not written": UNWRITTEN,
    r"Nothing is written to (\w+)": UNWRITTEN,
    r"(\w+) is read and written": OTHERS,
    r"A program reads what another one writes to (\w+)": OTHERS,
    r"What (\w+) holds is read by a lane that does not write it": OTHERS,
    r"A lane reads what another one writes to (\w+)": LANE,
    r"(\w+) may be read after it is written": AGAIN,
    r"A store never takes place()": IDLE,
}
"""What a refusal says that is about memory, and what shows it."""


def reason(refusal: str) -> Found | None:
    """What some small launch has to show, if a refusal is about memory."""
    for pattern, kind in REASONS.items():
        if said := re.match(pattern, refusal):
            place = re.search(r" at line ([^)]+)\)", refusal)
            return Found(kind, said[1], "" if kind in (UNWRITTEN, RACE) or place is None else place[1])
    return None


def objections(refusal: str | None, found: Shown) -> list[str]:
    """Where a verdict on memory and the small launches differ: it is a refusal, or None for a proof."""
    if refusal is None:
        return [f"It is proved, and has {one.kind} of {one.buffer} ({one.place}): {at}." for one, at in found.items()]
    wanted = reason(refusal)
    assert wanted is not None, refusal
    for one in found:
        if (one.kind, one.buffer) == (wanted.kind, wanted.buffer) and wanted.place in ("", one.place):
            return []
    return [f"It is refused, and no small launch shows {wanted.kind} of {wanted.buffer} ({wanted.place}): {refusal}"]
