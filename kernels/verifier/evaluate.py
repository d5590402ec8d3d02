"""From the tile IR to terms: what an arbitrary program writes, at an arbitrary lane, in an arbitrary iteration.

A tensor is a function from lanes to a term, an integer, a condition or a pointer. Nothing is unrolled and nothing is
sampled: lanes, program numbers and iterations are symbols. Integer arithmetic is exact, which holds as long as no
operation leaves its type; each operation that could is noted (`Machine.steps`), as is each access to memory
(`Machine.accesses`), and both are obligations (`vosti.kernels.verifier.prove`). Words, which wrap around, are terms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from vosti.kernels.verifier import meanings
from vosti.kernels.verifier.errors import RefusedError, located
from vosti.kernels.verifier.integers import TRUE, Cond, Int, choose, conj, equal, integer, neg
from vosti.kernels.verifier.ir import INTEGER_WIDTHS, Block, Kernel, Op, Value
from vosti.kernels.verifier.queries import Prover
from vosti.kernels.verifier.tensors import Described, Lane, LaneOf, Pointer, Tensor, as_term
from vosti.kernels.verifier.terms import (
    Apply,
    Argument,
    Constant,
    Index,
    Joined,
    Reduce,
    Result,
    State,
    Sum,
    Term,
    Test,
    Truth,
)

_ZERO = integer(0)

Environment: TypeAlias = dict[int, Tensor]
"""By the number of the value."""

Path: TypeAlias = tuple[Cond, ...]
"""The conditions under which an operation is reached."""

Iterations: TypeAlias = tuple[tuple[Int, Int], ...]
"""Of the loops around an operation, outermost first: the number of the iteration from 0, and the loop's variable."""


@dataclass(frozen=True)
class Access:
    """A load or a store."""

    op: Op
    shape: tuple[int, ...]
    pointer: Callable[[Index], Pointer]
    mask: Callable[[Index], Cond]
    path: Path
    iterations: Iterations
    value: Tensor | None = None
    """What is stored."""

    index: Callable[[Index], Index] | None = None
    """The index in the buffer, if a descriptor tells."""


@dataclass(frozen=True)
class Step:
    """An integer operation, and what must hold for it to be exact."""

    op: Op
    shape: tuple[int, ...]
    holds: Callable[[Index], Cond]
    path: Path


class Loop:
    """A loop of the kernel, in an environment: a `Fold`."""

    def __init__(self, machine: Machine, op: Op, environment: Environment) -> None:
        self.machine, self.op, self.environment = machine, op, environment
        self.name = op.regions[0].arguments[0].name
        self.low, self.high, step = (environment[v.number].int(()) for v in op.operands[:3])
        if step.constant is None or step.constant < 1:
            raise RefusedError("the step of a loop is not a positive constant")
        self.step = step.constant
        self._start = [environment[v.number] for v in op.operands[3:]]
        self._bodies: dict[Int, tuple[Environment, Op]] = {}
        self._moves: dict[tuple[int, Index], Int | None] = {}
        self._moving: dict[tuple[int, Index], tuple[Int, Lane]] = {}
        """Of cells whose move is sought: an iteration, and what stands for the cell at its start."""

    def initial(self, cell: int, place: Index) -> Term:
        """The cell before the first iteration."""
        return self._start[cell].term(place)

    def after(self, cell: int, place: Index, index: Int) -> Term:
        """The cell after the iteration whose variable is `index`."""
        environment, last = self.body(index)
        return environment[last.operands[cell].number].term(place)

    def result(self, cell: int, place: Index) -> Lane:
        """The cell after the last iteration."""
        type_ = self.op.results[cell].type
        if not (type_.is_float or (type_.is_integer and self.move(cell, place) is None)):
            raise RefusedError("what a loop leaves of an integer, a condition or a pointer is not understood")
        return Result(self, cell, place, element=type_.element, op=self.op)

    def body(self, index: Int, path: Path | None = None) -> tuple[Environment, Op]:
        """The values of an iteration, and its terminator."""
        if index not in self._bodies:
            (block,) = self.op.regions
            variable, *cells = block.arguments
            inner = {**self.environment, variable.number: Tensor(variable.type, lambda _: index)}
            for cell, argument in enumerate(cells):
                inner[argument.number] = Tensor(argument.type, partial(self._carried, cell, index))
            self._bodies[index] = inner, self.machine.block(block, inner, path)
        return self._bodies[index]

    def _carried(self, cell: int, index: Int, place: Index) -> Lane:
        """A cell at the start of an iteration: an integer or a pointer, which moves alike in each, in closed form."""
        asked, unmoved = self._moving.get((cell, place), (None, None))
        if asked is index and unmoved is not None:
            return unmoved
        type_, start = self.op.results[cell].type, self._start[cell]
        move = None if type_.is_float else self.move(cell, place)
        if move is None:
            return State(self, cell, place, element=type_.element, op=self.op)
        moved = (index - self.low) // self.step * move
        if type_.is_pointer:
            return start.pointer(place).advanced(moved)
        return start.int(place) + moved

    def move(self, cell: int, place: Index) -> Int | None:
        """By how much a carried integer or pointer moves in each iteration; None for a word."""
        key = cell, place
        if key not in self._moves:
            # Of two iterations nothing is known: what is not the same in all of them differs between these.
            moves = [] if key in self._moving else [self._moved(cell, place) for _ in range(2)]
            if not moves or moves[0] is not moves[1]:
                raise RefusedError("a carried integer does not move by the same amount in each iteration")
            self._moves[key] = moves[0]
        return self._moves[key]

    def _moved(self, cell: int, place: Index) -> Int | None:
        """The same, in one iteration. All else that the iteration starts from is what it is."""
        index, now = self.machine.prover.fresh("iteration"), self.machine.prover.fresh("carried")
        start = self._start[cell][place]
        self._moving[cell, place] = index, Pointer(start.buffer, now) if isinstance(start, Pointer) else now
        environment, last = self.body(index)
        after = environment[last.operands[cell].number][place]
        if isinstance(after, Term):
            return None
        if isinstance(start, Pointer) and isinstance(after, Pointer) and after.buffer == start.buffer:
            after = after.offset
        if not isinstance(after, Int):
            raise RefusedError("a carried pointer changes its buffer, or a carried condition depends on numbers")
        return after - now

    def iteration(self) -> tuple[Int, Int, Cond]:
        """An arbitrary iteration: its number, the loop's variable, and that it takes place."""
        number = self.machine.prover.fresh(self.name, 0)
        index = self.low + self.step * number
        return number, index, index < self.high


@dataclass
class Machine:
    """The evaluation of one kernel."""

    kernel: Kernel
    prover: Prover
    programs: Mapping[str, Int]
    """The program's numbers: x, y, z."""

    extents: Mapping[str, Int]
    """The lengths of the grid's axes."""

    integers: Mapping[str, Int]
    """Parameters that are integers, by their names in the source."""

    described: Mapping[str, Described]
    """Parameters that are descriptors."""

    words: Set[str] = frozenset()
    """Buffers whose integers are words."""

    sum_of: Callable[[int, Callable[[Int], Int]], Callable[[Int], Int]] | None = None
    """Of how many integers, and of each: what the sums of the first ones come to, if the contract says so."""

    accesses: list[Access] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    _iterations: Iterations = ()

    def run(self, path: Path) -> None:
        """Evaluate the kernel.

        Raises:
            RefusedError: for what is not understood, naming operation and line.
        """
        environment: Environment = {}
        seen: set[str] = set()
        for parameter in self.kernel.parameters:
            value, source = parameter.value, parameter.source
            lane = _of_descriptor if source in seen else self._parameter(value, source)
            environment[value.number] = Tensor(value.type, lane)
            seen.add(source)
        self.block(self.kernel.body, environment, path)

    def _parameter(self, value: Value, source: str) -> LaneOf:
        if source in self.described:
            return lambda _: self.described[source]
        if value.type.is_pointer:
            return lambda _: Pointer(source, _ZERO)
        if value.type.is_integer:
            return lambda _: self.integers[source]
        return lambda _: Argument(source, element=value.type.element)

    def block(self, block: Block, environment: Environment, path: Path | None) -> Op:
        """Evaluate the operations of a block into the environment; with a path, take down what must hold there."""
        for op in block.ops[:-1]:
            try:
                self._op(op, environment, path)
            except RefusedError as error:
                raise located(error, op) from None
        return block.terminator

    def _op(self, op: Op, environment: Environment, path: Path | None) -> None:
        operands = tuple(environment[value.number] for value in op.operands)
        if op.name == "scf.for":
            results = self._for(op, environment, path)
        elif op.name == "scf.if":
            results = self._if(op, operands[0].cond(()), environment, path)
        elif op.name in ("tt.store", "tt.load", "tt.descriptor_load", "tt.descriptor_store"):
            results = self._memory(op, operands, path)
        elif op.name == "tt.split":
            results = [partial(meanings.half_of, operands[0], half) for half in range(2)]
        else:
            results = [self._lane(op, operands)]
        for value, lane in zip(op.results, results, strict=True):
            environment[value.number] = Tensor(value.type, lane)
            if path is not None:
                self._note(op, operands, environment[value.number], path)

    # ------------------------------------------------------------ single lanes

    def _lane(self, op: Op, operands: tuple[Tensor, ...]) -> LaneOf:
        """How a lane of the result comes from lanes of the operands."""
        name, type_ = op.name, op.result.type
        if name == "arith.constant":
            value = op.integer("value")
            if type_.is_float:
                constant = Constant(value, element=type_.element, op=op)
                return lambda _: constant
            exact = integer(value)
            return (lambda _: equal(exact, 1)) if type_.is_boolean else (lambda _: exact)
        if name == "tt.get_program_id":
            return lambda _: self.programs[op.word("axis")]
        if name == "tt.get_num_programs":
            return lambda _: self.extents[op.word("axis")]
        if name == "tt.make_range":
            return lambda place: place[0] + op.integer("start")
        if name in meanings.MOVES:
            return meanings.moved(op, operands[0])
        if name == "tt.join":
            return partial(meanings.joined, operands)
        if name == "tt.addptr":
            return lambda place: operands[0].pointer(place).advanced(operands[1].int(place))
        if name == "tt.dot":
            left, right, start = operands
            return partial(meanings.dot, op, left, right, start)
        if name == "tt.reduce":
            return partial(self._reduce, op, operands[0], _combining(op))
        if name == "tt.scan":
            return self._prefix_sums(op, operands[0])
        return partial(_elementwise, op, operands)

    def _reduce(self, op: Op, operand: Tensor, name: str, place: Index) -> Lane:
        axis, type_ = op.integer("axis"), operand.type
        length = type_.shape[axis]

        def at(k: Int) -> Index:
            return (*place[:axis], k, *place[axis:])

        def exact(k: Int) -> Int:
            return operand.int(at(k))

        if length == 1:
            return operand[at(_ZERO)]
        if not type_.is_integer or not isinstance(operand[at(self.prover.ranged("lane", length))], Int):
            return Reduce(name, length, lambda k: operand.term(at(k)), element=type_.element, op=op)
        if name == "addi" and self.sum_of:
            return self.sum_of(length, exact)(integer(length))
        if name not in ("maxsi", "minsi"):
            raise RefusedError(f"a reduction of integers by {name} is not understood")
        # The largest or smallest: bounded by the first and the last, and equal to one of them.
        found, witness = self.prover.fresh("extreme"), self.prover.ranged("witness", length)
        bounds = [found >= exact(k) if name == "maxsi" else found <= exact(k) for k in (_ZERO, integer(length - 1))]
        self.prover.state(found, *bounds, equal(found, exact(witness)))
        return found

    def _prefix_sums(self, op: Op, operand: Tensor) -> LaneOf:
        """Of each lane, the sum of words or integers up to it."""
        axis, name, type_ = op.integer("axis"), _combining(op), op.result.type
        if name != "addi" or op.integer("reverse") or type_.is_boolean:
            raise RefusedError(f"a scan by {name}{' in reverse' * op.integer('reverse')} is not understood")
        sums: dict[Index, Callable[[Int], Int]] = {}

        def lane(place: Index) -> Lane:
            before, after = place[:axis], place[axis + 1 :]

            def at(k: Int) -> Index:
                return (*before, k, *after)

            if not self.sum_of or not isinstance(operand[place], Int):
                return Sum(place[axis] + 1, lambda k: operand.term(at(k)), element=type_.element, op=op)
            if (*before, *after) not in sums:
                sums[(*before, *after)] = self.sum_of(type_.shape[axis], lambda k: operand.int(at(k)))
            return sums[(*before, *after)](place[axis] + 1)

        return lane

    # ------------------------------------------------------------ what must hold

    def _note(self, op: Op, operands: tuple[Tensor, ...], result: Tensor, path: Path) -> None:
        """Take down what must hold for an operation on integers to be exact."""
        type_ = result.type
        if not type_.is_integer or type_.is_boolean:
            return
        width = INTEGER_WIDTHS[type_.element]
        half = 1 << (width - 1)

        def fits(place: Index) -> Cond:
            value = result[place]
            return conj(value >= -half, value < half) if isinstance(value, Int) else TRUE

        def positive(place: Index) -> Cond:
            value = operands[0][place]
            return value >= 0 if isinstance(value, Int) else TRUE

        def divides(place: Index) -> Cond:
            return conj(operands[0].int(place) >= 0, operands[1].int(place) > 0)

        def shifts(place: Index) -> Cond:
            return conj(operands[1].int(place) >= 0, operands[1].int(place) < width)

        for names, holds in (
            (meanings.EXACT, fits),
            ({"arith.extui"}, positive),
            (meanings.DIVISIONS, divides),
            (meanings.SHIFTS, shifts),
        ):
            if op.name in names:
                self.steps.append(Step(op, type_.shape, holds, path))

    # ------------------------------------------------------------ memory

    def _memory(self, op: Op, operands: tuple[Tensor, ...], path: Path | None) -> list[LaneOf]:
        first, *rest = operands
        index = None
        if op.name.startswith("tt.descriptor"):
            described = first[()]
            assert isinstance(described, Described)
            value = rest.pop() if op.name == "tt.descriptor_store" else None
            block = meanings.BlockOf(described, tuple(rest))
            pointer, mask, index = block.pointer, block.mask, block.index
        else:
            value = rest.pop(0) if op.name == "tt.store" else None
            pointer, mask = first.pointer, rest[0].cond if rest else meanings.always
        if path is not None:
            shape = op.operands[0].type.shape
            self.accesses.append(Access(op, shape, pointer, mask, path, self._iterations, value, index))
        if value is not None:
            return []
        given = rest[1].__getitem__ if index is None and len(rest) > 1 else partial(self._not_given, op)
        return [lambda place: meanings.loaded(op, pointer(place), mask(place), given, place, self.words)]

    def _not_given(self, op: Op, _: Index) -> Lane:
        """What a load yields where it reads nothing and no value is given: by itself, what nothing is equal to."""
        element = op.result.type.element
        if op.name == "tt.descriptor_load":
            return Constant(0, element=element, op=op)
        if op.result.type.is_integer:
            return self.prover.fresh("undefined")
        return Argument(f"undefined at {op.location}", element=element, op=op)

    # ------------------------------------------------------------ control

    def _for(self, op: Op, environment: Environment, path: Path | None) -> list[LaneOf]:
        loop = Loop(self, op, environment)
        if path is not None:
            number, index, takes_place = loop.iteration()
            half = 1 << (INTEGER_WIDTHS[op.operands[0].type.element] - 1)
            inside = (*path, takes_place)
            # The variable is advanced once more after the last iteration.
            self.steps.append(Step(op, (), lambda _: index + loop.step < half, inside))
            outer, self._iterations = self._iterations, (*self._iterations, (number, index))
            loop.body(index, inside)
            self._iterations = outer
        return [partial(loop.result, cell) for cell in range(len(op.results))]

    def _if(self, op: Op, test: Cond, environment: Environment, path: Path | None) -> list[LaneOf]:
        sides = []
        for block, one in zip(op.regions, (test, neg(test)), strict=True):
            inner = dict(environment)
            last = self.block(block, inner, None if path is None else (*path, one))
            sides.append([inner[value.number] for value in last.operands])
        return [partial(_either, op, test, yes, no) for yes, no in zip(*sides, strict=True)]


def _either(op: Op, test: Cond, yes: Tensor, no: Tensor, place: Index) -> Lane:
    return meanings.selected(op, (test, yes[place], no[place]), yes.type)


def _elementwise(op: Op, operands: tuple[Tensor, ...], place: Index) -> Lane:
    """One operation on the lanes of one place."""
    name, type_, source = op.name, op.result.type, operands[0].type.element
    lanes = tuple(operand[place if operand.type.shape else ()] for operand in operands)
    if name == "arith.select":
        return meanings.selected(op, lanes, type_)
    if name in ("arith.cmpf", "arith.cmpi"):
        return meanings.compared(op, lanes, source)
    if type_.is_boolean:
        return meanings.logic(op, lanes)
    match lanes:
        case (Int() as x, Int() as y) if name in meanings.INTEGERS:
            return meanings.INTEGERS[name](x, y)
        case (Int() as x, Int() as y) if name == "tt.mulhiui":
            return meanings.upper_half(x, y, 1 << INTEGER_WIDTHS[source])
        case (Int() as x,) if name in meanings.EXACT_CASTS:
            return x
        case (Cond() as x,) if name == "arith.extui":
            return choose(x, 1, 0)
        case (Test() | Joined() as x,) if name == "arith.extui":
            return Truth(x, element=type_.element, op=op)
        case (x,) if name in meanings.BITCASTS and type_ == operands[0].type:
            return x
    terms = tuple(as_term(lane, operand.type.element) for lane, operand in zip(lanes, operands, strict=True))
    spelled = op.word("symbol") if name == "tt.extern_elementwise" else name.partition(".")[2]
    if source != type_.element and type_.is_integer:
        spelled = f"{spelled}:{type_.element}"
    return Apply(spelled, terms, element=type_.element, op=op)


def _combining(op: Op) -> str:
    """The operation by which a reduction or a scan combines two lanes."""
    (block,) = op.regions
    combine = block.ops[0]
    of_lanes = len(combine.operands) == 2 and set(combine.operands) == set(block.arguments)
    if len(block.ops) != 2 or not of_lanes or block.terminator.operands != combine.results:
        raise RefusedError("a reduction is not one operation of the two lanes")
    return combine.name.partition(".")[2]


def _of_descriptor(_: Index) -> Lane:
    raise RefusedError("a descriptor's own shape or strides are used, which is not understood")
