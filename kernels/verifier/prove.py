"""Proofs of kernels: from a contract and the typed IR of one configuration to obligations, each shown or refused.

Shown, for all launches that meet the premises:

1. integers: no operation leaves its type; nothing is divided by what may be 0, or if it may be negative.
2. bounds: every access lies within its buffer.
3. cells: every store goes to a cell of the contract, at its address, and from the one program, lane and iteration that
   the contract names; no two stores write one cell (so there is no race between writes).
4. coverage: every cell of the contract is written.
5. value: what is stored is the row program's result, of the row's logical inputs and of nothing else.
6. reads: what is read is not written by another program of the launch, nor by another lane, nor before; nothing that
   the contract does not name is written (frame).
7. premises: something meets them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from vosti.kernels.contract import ALIGNMENT, Buffer, Contract, Descriptor, Output
from vosti.kernels.contract import Access as Use
from vosti.kernels.verifier import ir, rules
from vosti.kernels.verifier.canonical import Terms, rounded
from vosti.kernels.verifier.errors import RefusedError, located
from vosti.kernels.verifier.evaluate import Access, Machine
from vosti.kernels.verifier.exact import sum_of
from vosti.kernels.verifier.expressions import condition, evaluated, number
from vosti.kernels.verifier.integers import (
    Cond,
    Int,
    anew,
    conj,
    disj,
    equal,
    integer,
    neg,
    substituted,
    the_symbol,
)
from vosti.kernels.verifier.match import Handed, Matcher, MismatchError
from vosti.kernels.verifier.queries import LIMIT, Context, Tally
from vosti.kernels.verifier.subject import Subject, inside
from vosti.kernels.verifier.tensors import as_term
from vosti.kernels.verifier.terms import Load, Said, Term
from vosti.kernels.verifier.vocabulary import Vocabulary
from vosti.refinement.smt.solve import Answer

_CONTRADICTION = "The premises contradict one another"


@dataclass
class Proof:
    """What was shown of one kernel at one configuration."""

    kernel: str
    constants: Mapping[str, int]
    digest: str
    """Of the typed IR."""

    obligations: Counter[str] = field(default_factory=Counter)
    """Shown, by kind."""

    rules: Counter[str] = field(default_factory=Counter)
    """Numerical rules used, by name."""

    model: Mapping[str, str] = field(default_factory=dict)
    """Values that meet the premises, in a launch that stores something."""

    tally: Tally = field(default_factory=Tally)
    seconds: float = 0.0
    """Time of the processor."""


@dataclass(frozen=True)
class Earlier:
    """A launch whose results the kernel reads: its contract, at the configuration that wrote them."""

    contract: Contract
    constants: Mapping[str, int]


@dataclass(frozen=True)
class _Store:
    """A store, at arbitrary coordinates."""

    access: Access
    output: Output
    coordinate: Mapping[str, Int]
    """x, y, z, l0, …, t0, …: the program, the lane and the iterations."""

    offset: Int
    reached: tuple[Cond, ...]
    """When it takes place."""


def prove(
    kernel: ir.Kernel,
    contract: Contract,
    constants: Mapping[str, int],
    elements: Mapping[str, str] | None = None,
    earlier: Sequence[Earlier] = (),
) -> Proof:
    """Show that a kernel does what its contract says.

    `elements` names the element types of buffers that differ from the contract's.

    Raises:
        RefusedError: for the first obligation that is not shown, naming operation and line.
    """
    start = time.process_time()
    with anew():
        proving = _Proving(kernel, contract, constants, elements or {}, earlier)
        proving.run()
    proving.proof.seconds = time.process_time() - start
    return proving.proof


class _Proving:
    def __init__(
        self,
        kernel: ir.Kernel,
        contract: Contract,
        constants: Mapping[str, int],
        elements: Mapping[str, str],
        earlier: Sequence[Earlier],
    ) -> None:
        contract.check_constants(constants)
        self.subject = Subject(contract, constants, elements)
        self.contract, self.kernel = contract, kernel
        self.prover = self.subject.prover
        self.base = Context(self.prover).given(*self.subject.premises)
        self.proof = Proof(contract.kernel, dict(constants), kernel.digest, tally=self.prover.tally)
        self.machine = Machine(
            kernel,
            self.prover,
            self.subject.programs,
            dict(zip("xyz", self.subject.extents, strict=True)),
            self.subject.integers,
            self.subject.described,
            {p.name for p in contract.parameters if isinstance(p, Buffer) and p.words},
            self._sum_of if contract.sums else None,
        )
        half = next((b.element for b in self.subject.buffers.values() if b.element in ("bf16", "f16")), "bf16")
        self.words = Vocabulary(Terms(self.prover, half), contract.own_programs)
        self.handed = {name: handed for one in earlier for name, handed in self._handed(one)}
        self.matcher = Matcher(self.prover, self.handed)
        self.matcher.shown = self._was_shown
        self._done: list[_Store] = []
        self._lanes: dict[tuple[int, int], Int] = {}
        uses = {p.name: p.access for p in contract.parameters if isinstance(p, Buffer | Descriptor)}
        self.written = {name for name, use in uses.items() if use is not Use.READ}
        self.updated = {name for name, use in uses.items() if use is Use.UPDATE}

    def run(self) -> None:
        """All obligations, in the order of the module's docstring, the premises first."""
        self._satisfiable(self.base, _CONTRADICTION)
        self._check_parameters()
        self.machine.run(())
        self._integers()
        self._bounds()
        stores = self._stores()
        for output in self.contract.outputs:
            own = [store for store in stores if store.output is output]
            if not own and self.subject.exists(output, self._arbitrary(output)).value is not False:
                raise RefusedError(f"Nothing is written to {output.buffer}.")
            for store in own:
                self._cell(store)
            self._distinct(own)
            self._covered(output, own)
        self._reads()
        for store in stores:
            self._value(store)
        self.proof.rules = self.matcher.used

    # ------------------------------------------------------------ helpers

    def _shown(self, kind: str, context: Context, goal: Cond, claim: str, op: ir.Op | None = None) -> None:
        try:
            context.prove(goal, claim)
        except RefusedError as error:
            raise (located(error, op) if op else error) from None
        self.proof.obligations[kind] += 1

    def _all_shown(self, kind: str, context: Context, goals: Sequence[tuple[Cond, str, ir.Op]]) -> None:
        """All at once, or one by one to name the first that is not so."""
        if context.holds(conj(*(goal for goal, _, _ in goals))):
            self.proof.obligations[kind] += len(goals)
            return
        for goal, claim, op in goals:
            self._shown(kind, context, goal, claim, op)

    def _satisfiable(self, context: Context, claim: str, op: ir.Op | None = None) -> None:
        answer, found = self.prover.refuted(context.assumed, LIMIT)
        if answer is not Answer.NOT_PROVED:
            error = RefusedError(f"{claim}.")
            raise located(error, op) if op else error
        self.proof.obligations["premises"] += 1
        self.proof.model = {name: value for name, value in found.values.items() if name in self.subject.scope}

    def _check_parameters(self) -> None:
        """The parameters are the contract's, and the compiler was promised no more than the launcher checks."""
        sources = list(dict.fromkeys(parameter.source for parameter in self.kernel.parameters))
        constants = self.contract.constants
        expected = [p.name for p in self.contract.parameters if p.name not in constants]
        if sources != expected:
            raise RefusedError(f"The kernel's parameters are {sources}, the contract's {expected}.")
        for parameter in self.kernel.parameters:
            if parameter.value.type.is_integer and parameter.divisibility != 1:
                raise RefusedError(
                    f"The compiler takes {parameter.source} to be a multiple of {parameter.divisibility}."
                )
            if parameter.value.type.is_pointer and ALIGNMENT % parameter.divisibility:
                raise RefusedError(f"The compiler takes {parameter.source} to be aligned to {parameter.divisibility}.")
            stored = self.subject.buffers.get(parameter.source)
            if stored and not parameter.value.type.is_integer and parameter.value.type.element != stored.element:
                raise RefusedError(
                    f"{parameter.source} is compiled for elements {parameter.value.type.element}, "
                    f"and the contract says {stored.element}."
                )

    def lanes(self, shape: tuple[int, ...]) -> tuple[Int, ...]:
        """An arbitrary lane."""
        place = []
        for axis, length in enumerate(shape):
            if (axis, length) not in self._lanes:
                lane = integer(0) if length == 1 else self.prover.ranged(f"lane{axis}", length)
                self._lanes[axis, length] = lane
            place.append(self._lanes[axis, length])
        return tuple(place)

    def _sum_of(self, length: int, lane: Callable[[Int], Int]) -> Callable[[Int], Int]:
        """What the sums of the first lanes come to: one of what the contract names."""
        scope = {**self.subject.scope, **self.subject.programs}
        self.matcher.use(rules.TELESCOPED)
        named = [lambda n, text=text: number(text, {**scope, "l": n}) for text in self.contract.sums]
        found = sum_of(length, lane, named, self.base)
        self.proof.obligations["sums"] += 1
        return found

    # ------------------------------------------------------------ integers and bounds

    def _integers(self) -> None:
        claim = "An integer leaves its type, or is not divided exactly"
        groups: dict[tuple[Cond, ...], list[tuple[Cond, str, ir.Op]]] = {}
        for step in self.machine.steps:
            try:
                holds = step.holds(self.lanes(step.shape))
            except RefusedError as error:
                raise located(error, step.op) from None
            groups.setdefault(step.path, []).append((holds, claim, step.op))
        for path, goals in groups.items():
            self._all_shown("integers", self.base.given(*path), goals)

    def _bounds(self) -> None:
        groups: dict[Context, list[tuple[Cond, str, ir.Op]]] = {}
        for access in self.machine.accesses:
            place = self.lanes(access.shape)
            try:
                pointer, mask = access.pointer(place), access.mask(place)
            except RefusedError as error:
                raise located(error, access.op) from None
            stored = self.subject.buffers.get(pointer.buffer)
            if stored is None:
                raise located(RefusedError(f"{pointer.buffer} is not in the contract"), access.op)
            goal = conj(pointer.offset >= 0, pointer.offset < stored.size)
            claim = f"An access to {pointer.buffer} is out of bounds"
            groups.setdefault(self.base.given(*access.path, mask), []).append((goal, claim, access.op))
        for context, goals in groups.items():
            self._all_shown("bounds", context, goals)

    # ------------------------------------------------------------ cells

    def _coordinate(self, access: Access) -> dict[str, Int]:
        coordinate = dict(self.subject.programs)
        coordinate |= {f"l{axis}": lane for axis, lane in enumerate(self.lanes(access.shape))}
        return coordinate | {f"t{depth}": count for depth, (count, _) in enumerate(access.iterations)}

    def _place(self, access: Access, output: Output) -> tuple[Int, ...]:
        """The index of the element that an arbitrary lane accesses."""
        lanes = self.lanes(access.shape)
        return access.index(lanes) if access.index else self.subject.place(output, access.pointer(lanes).offset)

    def _stores(self) -> list[_Store]:
        found, read = [], self._read()
        for access in self.machine.accesses:
            if access.value is None:
                continue
            place = self.lanes(access.shape)
            pointer = access.pointer(place)
            outputs = [output for output in self.contract.outputs if output.buffer == pointer.buffer]
            if len(outputs) != 1 or pointer.buffer not in self.written:
                raise located(RefusedError(f"The contract does not say what is written to {pointer.buffer}"), access.op)
            reached = (*access.path, access.mask(place))
            store = _Store(access, outputs[0], self._coordinate(access), pointer.offset, reached)
            context = self.base.given(*reached)
            self._satisfiable(context, "A store never takes place", access.op)
            if read:
                # What is said of them counts even where they decide nothing but the value.
                said = self.prover.closure((*context.assumed, *read))
                self._satisfiable(context.given(*said), _CONTRADICTION, access.op)
            found.append(store)
        return found

    def _read(self) -> list[Int]:
        """The integers that the kernel reads, at arbitrary lanes."""
        pointers = [one.pointer(self.lanes(one.shape)) for one in self.machine.accesses if one.value is None]
        return [element for one in pointers if (element := self.subject.element(one.buffer, one.offset)) is not None]

    def _cell(self, store: _Store) -> None:
        """The store goes to a cell, at its address, and the contract tells who writes it."""
        subject, output, op = self.subject, store.output, store.access.op
        context = self.base.given(*store.reached)
        scope = subject.named(output, self._place(store.access, output), store.coordinate)
        goals = [
            (subject.exists(output, scope), f"A store to {output.buffer} goes to no cell of the contract", op),
            (equal(store.offset, subject.offset(output, scope)), f"A store to {output.buffer} misses its cell", op),
        ]
        for name, text in self._writer(output, store):
            claim = f"A cell of {output.buffer} is written by another than the contract says ({name} is not {text})"
            goals.append((equal(number(text, scope), store.coordinate[name]), claim, op))
        self._all_shown("cells", context, goals)

    def _writer(self, output: Output, store: _Store) -> list[tuple[str, str]]:
        """Each coordinate of the writer, and what the contract says that it is."""
        axes = len(store.access.shape)
        if len(output.lanes) != axes or len(output.iterations) != len(store.access.iterations):
            raise located(
                RefusedError(f"The contract names other lanes or iterations of {output.buffer}"), store.access.op
            )
        return [
            *zip("xyz", output.program, strict=True),
            *((f"l{axis}", text) for axis, text in enumerate(output.lanes)),
            *((f"t{depth}", text) for depth, text in enumerate(output.iterations)),
        ]

    def _distinct(self, stores: list[_Store]) -> None:
        """No two stores, and no two names, write one cell."""
        for position, one in enumerate(stores):
            for other in stores[:position]:
                if one.access.shape != other.access.shape or one.access.iterations != other.access.iterations:
                    raise located(RefusedError("Two stores to one buffer have different lanes"), one.access.op)
                context = self.base.given(*one.reached, *other.reached)
                goal = neg(equal(one.offset, other.offset))
                self._shown("cells", context, goal, f"Two stores write one cell of {one.output.buffer}", one.access.op)
        output = stores[0].output if stores else None
        if output is None or all(name in output.cell for name in self.subject.names(output)):
            return
        left, right = self._arbitrary(output), self._arbitrary(output)
        same = [equal(a, b) for a, b in zip(*(self.subject.index(output, s) for s in (left, right)), strict=True)]
        context = self.base.given(*(self.subject.exists(output, scope) for scope in (left, right)), *same)
        for name in self.subject.names(output):
            goal = equal(left[name], right[name])  # type: ignore[arg-type]
            self._shown("cells", context, goal, f"One cell of {output.buffer} has two names")

    def _arbitrary(self, output: Output) -> dict[str, object]:
        """The scope of an arbitrary cell."""
        lengths = dict(zip(output.cell, self.subject.buffers[output.buffer].lengths, strict=True))
        scope = dict(self.subject.scope)
        for name in self.subject.names(output):
            scope[name] = self.prover.ranged(name, lengths[name]) if name in lengths else self.prover.fresh(name)
        return scope

    def _covered(self, output: Output, stores: list[_Store]) -> None:
        """An arbitrary cell is written, by the program, lane and iteration that the contract names."""
        if not stores:
            return
        scope = self._arbitrary(output)
        context = self.base.given(self.subject.exists(output, scope))
        if context.contradictory:
            raise RefusedError(f"The contract names no cell of {output.buffer}.")
        offset = self.subject.offset(output, scope)
        ways = []
        for store in stores:
            values, needed = {}, []
            for name, text in self._writer(output, store):
                own, value = store.coordinate[name], number(text, scope)
                if own.constant is not None:
                    continue
                values[the_symbol(own)] = value
                needed += [value >= 0]
                if name in "xyz":
                    needed.append(value < self.subject.extents["xyz".index(name)])
                elif name[0] == "l":
                    needed.append(value < store.access.shape[int(name[1:])])
            reached = [substituted(one, values) for one in (*store.reached, equal(store.offset, offset))]
            # The offset of the cell has no coordinates of a writer in it.
            ways.append(conj(*needed, *reached))  # type: ignore[arg-type]
        claim = f"A cell of {output.buffer} is not written"
        self._shown("coverage", context, disj(*ways), claim, stores[0].access.op)

    # ------------------------------------------------------------ reads

    def _reads(self) -> None:
        """What is read is not written by another program or lane, and not before it is read."""
        aliases: dict[str, set[str]] = {}
        for written, read, text in self.contract.in_place:
            if condition(text, self.subject.scope).value is not False:
                aliases.setdefault(read, set()).add(written)
        for number_, access in enumerate(self.machine.accesses):
            if access.value is not None:
                continue
            buffer = access.pointer(self.lanes(access.shape)).buffer
            for written in sorted({buffer, *aliases.get(buffer, ())} & self.written):
                if written == buffer and buffer not in self.updated:
                    raise located(RefusedError(f"{buffer} is read and written"), access.op)
                self._own(access, written, number_)

    def _own(self, access: Access, written: str, position: int) -> None:
        """An element that is read is written by the lane of the program that reads it, later, or by none.

        An element has one name, if any, as a cell that is written (`_distinct`): that of the lane that reads it.
        """
        for number_, other in enumerate(self.machine.accesses):
            if other.value is None or other.pointer(self.lanes(other.shape)).buffer != written:
                continue
            if number_ < position or access.iterations or other.iterations:
                raise located(RefusedError(f"{written} may be read after it is written"), access.op)
        offset, coordinate = access.pointer(self.lanes(access.shape)).offset, self._coordinate(access)
        for output in (one for one in self.contract.outputs if one.buffer == written):
            if len(output.lanes) != len(access.shape):
                raise located(RefusedError(f"{written} is read by other lanes than it is written by"), access.op)
            scope = self.subject.named(output, self.subject.place(output, offset), coordinate)
            index, lengths = self.subject.index(output, scope), self.subject.buffers[written].lengths
            cell = conj(equal(offset, self.subject.offset(output, scope)), inside(index, lengths))
            unwritten = neg(condition(output.when, scope))
            goals = [(cell, f"A load of what {written} holds misses the lane's cell")]
            if not all(name in output.cell for name in self.subject.names(output)):
                # Another name of the element may be that of a cell that is written.
                goals.append((neg(unwritten), f"What {written} holds is read by a lane that does not write it"))
            writer = [("program", name, text) for name, text in zip("xyz", output.program, strict=True)]
            writer += [("lane", f"l{axis}", text) for axis, text in enumerate(output.lanes)]
            for kind, name, text in writer:
                own = disj(unwritten, equal(number(text, scope), coordinate[name]))
                goals.append((own, f"A {kind} reads what another one writes to {written}"))
            context = self.base.given(*access.path, access.mask(self.lanes(access.shape)))
            self._all_shown("reads", context, [(*goal, access.op) for goal in goals])

    # ------------------------------------------------------------ values

    def _value(self, store: _Store) -> None:
        """What is stored is what the contract says."""
        output, op = store.output, store.access.op
        scope = self.subject.named(output, self._place(store.access, output), store.coordinate)
        context = self.base.given(*store.reached, condition(output.stated, scope))
        if context.contradictory:
            raise located(RefusedError(f"The contract says nothing of what is stored in {output.buffer}"), op)
        program = self._said(output, scope)
        assert store.access.value is not None
        try:
            self.matcher.match(store.access.value.term(self.lanes(store.access.shape)), program, context)
            self._first_iterations(context)
        except RefusedError as error:
            if isinstance(error, MismatchError):
                error.used_by(op)
            raise located(error, op) from None
        self.proof.obligations["value"] += 1
        self._done.append(store)

    def _said(self, output: Output, scope: Mapping[str, object], subject: Subject | None = None) -> Term:
        """What the contract says that a cell holds."""
        subject = subject or self.subject

        def stored(name: str, **cell: Int) -> Term:
            other, inner = _output(subject.contract, name), {**scope, **cell}
            term = self._said(other, inner, subject)
            return Said(name, subject.index(other, inner), term, element=term.element)

        names = {**self.words.words, **scope, "stored": stored}
        element = subject.buffers[output.buffer].element
        whole = element.startswith("i")
        value = as_term(evaluated(output.value, names), element if whole else "i32")  # type: ignore[arg-type]
        return value if whole else rounded(value, element)

    def _was_shown(self, kernel: Term, said: Said, context: Context) -> bool:
        """Whether the term is a lane of a store whose value was shown, at the cell that is meant."""
        for store in self._done:
            tensor, access = store.access.value, store.access
            if store.output.buffer != said.buffer or tensor is None or access.iterations:
                continue
            place = tensor.place(kernel)
            if place is None:
                continue
            offset = access.pointer(place).offset
            coordinate = {**self.subject.programs, **{f"l{axis}": lane for axis, lane in enumerate(place)}}
            scope = self.subject.named(store.output, self.subject.place(store.output, offset), coordinate)
            index = self.subject.index(store.output, scope)
            same = (equal(a, b) for a, b in zip(index, said.index, strict=True))
            reached = conj(*access.path, access.mask(place), condition(store.output.stated, scope))
            if context.holds(conj(reached, *same)):
                self.matcher.use(rules.SHOWN)
                return True
        return False

    def _first_iterations(self, context: Context) -> None:
        """A row program's first iteration, where its text treats it apart, is like any other."""
        while self.words.unbounded.loops:
            loop = self.words.unbounded.loops.pop()
            runs = context.given(loop.low < loop.high)
            for first, generic in zip(*loop.first(), strict=True):
                place = tuple(integer(0) if n == 1 else self.prover.ranged("lane", n) for n in first.shape)
                self.matcher.first_iteration(first.term(place), generic.term(place), runs)

    def _handed(self, earlier: Earlier) -> list[tuple[str, Handed]]:
        """What the buffers hold that an earlier launch wrote."""
        subject = Subject(earlier.contract, earlier.constants)
        subject.prover = self.prover
        subject.scope |= {name: one for name, one in self.subject.scope.items() if name in subject.scope}

        def of(output: Output) -> Handed:
            terms: dict[Load, Term] = {}

            def handed(load: Load, context: Context) -> Term:
                place = self.subject.place(output, load.offset)
                scope = {**subject.scope, **dict(zip(output.cell, place, strict=True))}
                goal = conj(
                    inside(place, self.subject.buffers[output.buffer].lengths),
                    condition(output.when, scope),
                    condition(output.stated, scope),
                )
                self._shown("reads", context, goal, f"{output.buffer} is read where nothing was written", load.op)
                if load not in terms:
                    terms[load] = self._said(output, scope, subject)
                return terms[load]

            return handed

        return [(output.buffer, of(output)) for output in earlier.contract.outputs]


def _output(contract: Contract, buffer: str) -> Output:
    return next(output for output in contract.outputs if output.buffer == buffer)
