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

from vosti.kernels.verifier.errors import RefusedError, located
from vosti.kernels.verifier.integers import (
    TRUE,
    Cond,
    Int,
    choose,
    conj,
    equal,
    integer,
    neg,
)
from vosti.kernels.verifier.ir import INTEGER_WIDTHS, Block, Kernel, Op, Type, Value
from vosti.kernels.verifier.meanings import (
    BITCASTS,
    DIVISIONS,
    EXACT_CASTS,
    INTEGERS,
    MOVES,
    SHIFTS,
    BlockOf,
    advanced,
    always,
    constantly,
    dot,
    integer_test,
    joined,
    loaded,
    logic,
    moved,
    selected,
    upper_half,
)
from vosti.kernels.verifier.queries import Prover
from vosti.kernels.verifier.tensors import Described, Lane, Pointer, Tensor, as_term
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

Iterations: TypeAlias = tuple[tuple[Int, Int], ...]
"""Of the loops around an operation, outermost first: the number of the iteration from 0, and the loop's variable."""


@dataclass(frozen=True)
class Access:
    """A load or a store."""

    op: Op
    shape: tuple[int, ...]
    pointer: Callable[[Index], Pointer]
    mask: Callable[[Index], Cond]
    path: tuple[Cond, ...]
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
    path: tuple[Cond, ...]


class Loop:
    """A loop of the kernel, in an environment: a `Fold`."""

    def __init__(self, machine: Machine, op: Op, environment: Environment, path: tuple[Cond, ...]) -> None:
        self.machine, self.op, self.environment, self.path = machine, op, environment, path
        self.name = op.regions[0].arguments[0].name
        self.low, self.high, step = (environment[v.number].int(()) for v in op.operands[:3])
        if step.constant is None or step.constant < 1:
            raise RefusedError("the step of a loop is not a positive constant")
        self.step = step.constant
        self._bodies: dict[Int, tuple[Environment, Op]] = {}
        self._moves: dict[tuple[int, Index], Int | None] = {}
        self._moving: dict[tuple[int, Index], tuple[Int, Lane]] = {}
        """Of cells whose move is sought: an iteration, and what stands for the cell at its start."""

    def initial(self, cell: int, place: Index) -> Term:
        """The cell before the first iteration."""
        return self._initial(cell).term(place)

    def _initial(self, cell: int) -> Tensor:
        return self.environment[self.op.operands[3 + cell].number]

    def after(self, cell: int, place: Index, index: Int) -> Term:
        """The cell after the iteration whose variable is `index`."""
        environment, last = self.body(index)
        return environment[last.operands[cell].number].term(place)

    def body(self, index: Int, note: bool = False, path: tuple[Cond, ...] = ()) -> tuple[Environment, Op]:
        """The values of an iteration, and its terminator."""
        if index not in self._bodies:
            block = self.op.regions[0]
            inner = dict(self.environment)
            inner[block.arguments[0].number] = Tensor(block.arguments[0].type, lambda _: index)
            for cell, argument in enumerate(block.arguments[1:]):
                inner[argument.number] = Tensor(argument.type, self._carried(cell, argument, index))
            self._bodies[index] = inner, self.machine.block(block, inner, path, note)
        return self._bodies[index]

    def _carried(self, cell: int, argument: Value, index: Int) -> Callable[[Index], Lane]:
        if argument.type.is_float:
            return lambda place: State(self, cell, place, element=argument.type.element, op=self.op)
        return lambda place: self._closed(cell, place, index)

    def _closed(self, cell: int, place: Index, index: Int) -> Lane:
        """A carried integer or pointer that moves by the same amount in each iteration, or a carried word."""
        asked, unmoved = self._moving.get((cell, place), (None, None))
        if asked is index and unmoved is not None:
            return unmoved
        move = self.move(cell, place)
        if move is None:
            return State(self, cell, place, element=self.op.results[cell].type.element, op=self.op)
        start, times = self._initial(cell)[place], (index - self.low) // self.step
        if isinstance(start, Pointer):
            return Pointer(start.buffer, start.offset + times * move)
        return self._initial(cell).int(place) + times * move

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
        start = self._initial(cell)[place]
        pointer = isinstance(start, Pointer)
        self._moving[cell, place] = index, Pointer(start.buffer, now) if isinstance(start, Pointer) else now
        environment, last = self.body(index)
        after = environment[last.operands[cell].number][place]
        if isinstance(after, Term) and not pointer:
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

    def run(self, path: tuple[Cond, ...]) -> None:
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
        self.block(self.kernel.body, environment, path, True)

    def _parameter(self, value: Value, source: str) -> Callable[[Index], Lane]:
        if source in self.described:
            return lambda _: self.described[source]
        if value.type.is_pointer:
            return lambda _: Pointer(source, _ZERO)
        if value.type.is_integer:
            return lambda _: self.integers[source]
        return lambda _: Argument(source, element=value.type.element)

    def block(self, block: Block, environment: Environment, path: tuple[Cond, ...], note: bool) -> Op:
        """Evaluate the operations of a block into the environment; with `note`, take down what must hold."""
        for op in block.ops[:-1]:
            try:
                self._op(op, environment, path, note)
            except RefusedError as error:
                raise located(error, op) from None
        return block.terminator

    def _op(self, op: Op, environment: Environment, path: tuple[Cond, ...], note: bool) -> None:
        operands = tuple(environment[value.number] for value in op.operands)
        if op.name == "scf.for":
            self._for(op, environment, path, note)
        elif op.name == "scf.if":
            self._if(op, environment, path, note)
        elif op.name in ("tt.store", "tt.load", "tt.descriptor_load", "tt.descriptor_store"):
            self._memory(op, operands, environment, path, note)
        elif op.name == "tt.split":
            for half, value in enumerate(op.results):
                place = integer(half)
                environment[value.number] = Tensor(value.type, lambda p, h=place: operands[0][(*p, h)])  # type: ignore[misc]
        else:
            lane = self._lane(op, operands)
            result = Tensor(op.result.type, lane)
            environment[op.result.number] = result
            if note:
                self._note(op, operands, result, path)

    # ------------------------------------------------------------ single lanes

    def _lane(self, op: Op, operands: tuple[Tensor, ...]) -> Callable[[Index], Lane]:
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
        if name in MOVES:
            return moved(op, operands[0])
        if name == "tt.join":
            pair = operands
            return lambda place: joined(pair, place)
        if name == "tt.addptr":
            base, offset = operands
            return lambda place: advanced(base.pointer(place), offset.int(place))
        if name == "tt.dot":
            return dot(op, *operands)
        if name == "tt.reduce":
            return self._reduce(op, operands[0])
        if name == "tt.scan":
            return self._prefix_sums(op, operands[0])
        return lambda place: self._elementwise(op, operands, place)

    def _elementwise(self, op: Op, operands: tuple[Tensor, ...], place: Index) -> Lane:
        name, type_ = op.name, op.result.type
        lanes = tuple(operand[place if operand.type.shape else ()] for operand in operands)
        if name == "arith.select":
            return selected(op, lanes, type_)
        if name == "arith.cmpf":
            left, right = (as_term(lane, operands[0].type.element) for lane in lanes)
            return Test(op.word("predicate"), left, right, op)
        if name == "arith.cmpi":
            return integer_test(op, lanes, operands[0].type.element)
        if type_.is_boolean:
            return logic(op, lanes)
        if all(isinstance(lane, Int) for lane in lanes) and (name in INTEGERS or name == "tt.mulhiui"):
            return self._integer(op, lanes)
        if (name in EXACT_CASTS and isinstance(lanes[0], Int)) or (name in BITCASTS and type_ == operands[0].type):
            return lanes[0]
        if name == "arith.extui" and isinstance(lanes[0], Cond):
            return choose(lanes[0], 1, 0)
        if name == "arith.extui" and isinstance(lanes[0], Test | Joined):
            return Truth(lanes[0], element=type_.element, op=op)
        terms = tuple(as_term(lane, operand.type.element) for lane, operand in zip(lanes, operands, strict=True))
        spelled = op.word("symbol") if name == "tt.extern_elementwise" else name.partition(".")[2]
        if operands[0].type.element != type_.element and type_.is_integer:
            spelled = f"{spelled}:{type_.element}"
        return Apply(spelled, terms, element=type_.element, op=op)

    def _integer(self, op: Op, lanes: tuple[Lane, ...]) -> Int:
        x, y = lanes
        assert isinstance(x, Int)
        assert isinstance(y, Int)
        if op.name == "tt.mulhiui":
            return upper_half(x, y, 1 << INTEGER_WIDTHS[op.result.type.element])
        return INTEGERS[op.name](x, y)

    def _reduce(self, op: Op, operand: Tensor) -> Callable[[Index], Lane]:
        axis, name, type_ = op.integer("axis"), _combining(op), operand.type
        length = type_.shape[axis]

        def lane(place: Index) -> Lane:
            def body(k: Int) -> Lane:
                return operand[(*place[:axis], k, *place[axis:])]

            if length == 1:
                return body(_ZERO)
            if type_.is_integer and isinstance(body(self.prover.ranged("lane", length)), Int):
                exact = partial(_line, operand, place[:axis], place[axis:])
                if name == "addi" and self.sum_of:
                    return self.sum_of(length, exact)(integer(length))
                return self._extreme(name, length, exact)
            return Reduce(name, length, lambda k: as_term(body(k), type_.element), element=type_.element, op=op)

        return lane

    def _extreme(self, name: str, length: int, body: Callable[[Int], Int]) -> Int:
        """The largest or smallest of exact integers: bounded by the first and the last, and equal to one of them."""
        if name not in ("maxsi", "minsi"):
            raise RefusedError(f"a reduction of integers by {name} is not understood")
        found, witness = self.prover.fresh("extreme"), self.prover.ranged("witness", length)
        at_least = (lambda k: found >= body(k)) if name == "maxsi" else (lambda k: found <= body(k))
        self.prover.state(found, at_least(_ZERO), at_least(integer(length - 1)), equal(found, body(witness)))
        return found

    def _prefix_sums(self, op: Op, operand: Tensor) -> Callable[[Index], Lane]:
        """Of each lane, the sum of words or integers up to it."""
        axis, name, type_ = op.integer("axis"), _combining(op), op.result.type
        if name != "addi" or op.integer("reverse") or type_.is_boolean:
            raise RefusedError(f"a scan by {name}{' in reverse' * op.integer('reverse')} is not understood")
        sums: dict[Index, Callable[[Int], Int]] = {}

        def lane(place: Index) -> Lane:
            before, after = place[:axis], place[axis + 1 :]
            if self.sum_of and isinstance(operand[place], Int):
                if (*before, *after) not in sums:
                    exact = partial(_line, operand, before, after)
                    sums[(*before, *after)] = self.sum_of(type_.shape[axis], exact)
                return sums[(*before, *after)](place[axis] + 1)
            return Sum(place[axis] + 1, lambda k: operand.term((*before, k, *after)), element=type_.element, op=op)

        return lane

    # ------------------------------------------------------------ what must hold

    def _note(self, op: Op, operands: tuple[Tensor, ...], result: Tensor, path: tuple[Cond, ...]) -> None:
        type_ = result.type
        if not type_.is_integer or type_.is_boolean or type_.kind is not type_.kind.NUMBER:
            return

        def take(holds: Callable[[Index], Cond]) -> None:
            self.steps.append(Step(op, type_.shape, holds, path))

        if op.name in INTEGERS or op.name in ("arith.trunci", "tt.reduce", "tt.scan", "tt.mulhiui"):
            half = 1 << (INTEGER_WIDTHS[type_.element] - 1)

            def fits(place: Index) -> Cond:
                value = result[place]
                return conj(value >= -half, value < half) if isinstance(value, Int) else TRUE

            take(fits)
        if op.name in DIVISIONS:
            take(lambda place: conj(operands[0].int(place) >= 0, operands[1].int(place) > 0))
        if op.name == "arith.extui" and not operands[0].type.is_boolean:
            take(lambda place: lane >= 0 if isinstance(lane := operands[0][place], Int) else TRUE)
        if op.name in SHIFTS:
            width = INTEGER_WIDTHS[type_.element]
            take(lambda place: conj(operands[1].int(place) >= 0, operands[1].int(place) < width))

    # ------------------------------------------------------------ memory

    def _memory(
        self,
        op: Op,
        operands: tuple[Tensor, ...],
        environment: Environment,
        path: tuple[Cond, ...],
        note: bool,
    ) -> None:
        stores = op.name in ("tt.store", "tt.descriptor_store")
        access: Access
        if op.name.startswith("tt.descriptor"):
            described = operands[0][()]
            assert isinstance(described, Described)
            block = BlockOf(described, operands[1:-1] if stores else operands[1:])
            value, shape = (operands[-1] if stores else None), op.operands[0].type.shape
            access = Access(op, shape, block.pointer, block.mask, path, self._iterations, value, block.index)
        else:
            masks = operands[2:] if stores else operands[1:2]
            value, shape = (operands[1] if stores else None), operands[0].type.shape
            mask = masks[0].cond if masks else always
            access = Access(op, shape, operands[0].pointer, mask, path, self._iterations, value)
        if note:
            self.accesses.append(access)
        if stores:
            return
        type_ = op.result.type
        if op.name.startswith("tt.descriptor"):
            zero = Constant(0, element=type_.element, op=op)
            other: Callable[[Index], Lane] = constantly(zero)
        else:
            other = operands[2].__getitem__ if len(operands) > 2 else self._undefined(op)
        environment[op.result.number] = Tensor(
            type_, lambda place: loaded(op, access.pointer(place), access.mask(place), other, place, self.words)
        )

    def _undefined(self, op: Op) -> Callable[[Index], Lane]:
        """What a masked load yields without a value for masked lanes: nothing that anything is equal to."""
        type_ = op.result.type
        if type_.is_integer:
            return lambda _: self.prover.fresh("undefined")
        return lambda _: Argument(f"undefined at {op.location}", element=type_.element, op=op)

    # ------------------------------------------------------------ control

    def _for(self, op: Op, environment: Environment, path: tuple[Cond, ...], note: bool) -> None:
        loop = Loop(self, op, environment, path)
        for cell, value in enumerate(op.results):
            environment[value.number] = Tensor(value.type, _result(loop, cell, value.type))
        if note:
            number, index, takes_place = loop.iteration()
            variable = op.regions[0].arguments[0].type
            half = 1 << (INTEGER_WIDTHS[variable.element] - 1)
            # The variable is advanced once more after the last iteration.
            self.steps.append(Step(op, (), lambda _: index + loop.step < half, (*path, takes_place)))
            outer, self._iterations = self._iterations, (*self._iterations, (number, index))
            loop.body(index, True, (*path, takes_place))
            self._iterations = outer

    def _if(self, op: Op, environment: Environment, path: tuple[Cond, ...], note: bool) -> None:
        test = environment[op.operands[0].number].cond(())
        sides = []
        for block, one in zip(op.regions, (test, neg(test)), strict=True):
            inner = dict(environment)
            last = self.block(block, inner, (*path, one), note)
            sides.append([inner[value.number] for value in last.operands])
        for value, yes, no in zip(op.results, *sides, strict=True):
            environment[value.number] = Tensor(
                value.type,
                lambda p, y=yes, n=no, t=value.type: selected(op, (test, y[p], n[p]), t),  # type: ignore[misc]
            )


def _line(operand: Tensor, before: Index, after: Index, lane: Int) -> Int:
    """A lane along one axis."""
    return operand.int((*before, lane, *after))


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


def _result(loop: Loop, cell: int, type_: Type) -> Callable[[Index], Lane]:
    def lane(place: Index) -> Lane:
        if not (type_.is_float or (type_.is_integer and loop.move(cell, place) is None)):
            raise RefusedError("what a loop leaves of an integer, a condition or a pointer is not understood")
        return Result(loop, cell, place, element=type_.element, op=loop.op)

    return lane
