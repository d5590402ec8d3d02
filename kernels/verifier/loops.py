"""Loops of a kernel against a loop of a row program, by their absolute index."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from vosti.kernels.verifier import rules
from vosti.kernels.verifier.errors import RefusedError, located
from vosti.kernels.verifier.integers import Int, disj, equal, integer, least, most, substituted, the_symbol
from vosti.kernels.verifier.queries import Context, Prover
from vosti.kernels.verifier.terms import Fold, Index, Result, State

if TYPE_CHECKING:
    from vosti.kernels.verifier.match import Matcher


def entered(prover: Prover, fold: Fold, context: Context) -> tuple[Int, Context]:
    """An arbitrary iteration, and the context in which it takes place."""
    index = fold.low + fold.step * prover.fresh(fold.name, 0)
    return index, context.given(index < fold.high)


def iterations(fold: Fold, index: Int) -> tuple[Int, Int]:
    """The number of the iteration with this index, and how many there are."""
    return (index - fold.low) // fold.step, (fold.high - fold.low + fold.step - 1) // fold.step


def same_cell(cell: State | Result, fold: Fold, number: int, place: Index, context: Context) -> bool:
    """Whether it is that cell of that loop."""
    if cell.fold is not fold or cell.cell != number:
        return False
    return all(a is b or context.holds(equal(a, b)) for a, b in zip(cell.place, place, strict=True))


class Alignment:
    """Kernel loops, one behind the other, that together run a loop of the row program.

    Index by index: an iteration within the row program's range computes what the row program computes there; one
    outside leaves the cells alone. Cells are paired on demand, from those that are asked for; each pair is assumed
    at the start of an iteration and shown at its end (induction over the index).
    """

    def __init__(self, matcher: Matcher, kernel: Result, program: Result, context: Context) -> None:
        self._matcher, self.context = matcher, context
        self.program = program.fold
        self.parts = [kernel.fold]
        """The kernel's loops, the last one first."""

        self.pairs: dict[tuple[int, int, Index], tuple[int, Index]] = {}
        """Of each cell of a part that was shown, or is being shown, the program's cell."""

        self._iterations: dict[int, tuple[Int, Context, tuple[Context, ...]]] = {}
        if kernel.fold is program.fold:
            return
        start = matcher.head(self.program.initial(program.cell, program.place), context)
        before = matcher.head(kernel.fold.initial(kernel.cell, kernel.place), context)
        while isinstance(before, Result) and not isinstance(start, Result):
            self.parts.append(before.fold)
            before = matcher.head(before.fold.initial(before.cell, before.place), context)
        self._check_ranges()

    def concerns(self, kernel: State | Result, program: State | Result) -> bool:
        """Whether the cells are of a part and the program's loop; after the last iteration, of the last part."""
        parts = self.parts if isinstance(kernel, State) else self.parts[:1]
        return program.fold is self.program and any(kernel.fold is part for part in parts)

    def _check_ranges(self) -> None:
        """The parts are adjacent, and together cover the program's range."""
        low, high = self.program.low, self.program.high
        empty = high <= low

        def within(index: Int) -> Int:
            return least(most(index, low), high)

        order = self.parts[::-1]
        name = order[0].name
        if any(part.step != 1 for part in order) or self.program.step != 1:
            raise self._error(order[0], f"Loop {name} does not advance by 1.")
        self._prove(disj(order[0].low <= low, empty), order[0], f"Loop {name} starts after the row program's loop")
        for part, after in pairwise(order):
            self._matcher.use(rules.CUT)
            end = most(part.low, part.high)
            goal = disj(equal(within(end), within(after.low)), empty)
            self._prove(goal, after, f"Loop {name} leaves out or repeats iterations between its parts")
        last = order[-1]
        ends = disj(most(last.low, last.high) >= high, empty)
        self._prove(ends, last, f"Loop {name} ends before the row program's loop")

    def _prove(self, goal: object, part: Fold, claim: str) -> None:
        try:
            self.context.prove(goal, claim)  # type: ignore[arg-type]
        except RefusedError as error:
            raise self._error(part, str(error)) from None

    def _error(self, part: Fold, text: str) -> RefusedError:
        return located(RefusedError(text), part.op) if part.op else RefusedError(text)

    def _iteration(self, number: int) -> tuple[Int, Context, tuple[Context, ...]]:
        """An arbitrary iteration of a part, within the program's range; and before or after it, if there is such."""
        if number not in self._iterations:
            part, program = self.parts[number], self.program
            index, inside = entered(self._matcher.prover, part, self.context)
            outside: tuple[Context, ...] = ()
            if part is not program:
                outside = inside.given(index < program.low), inside.given(index >= program.high)
                inside = inside.given(program.low <= index, index < program.high)
            self._iterations[number] = index, inside, tuple(one for one in outside if not one.contradictory)
        return self._iterations[number]

    def require(self, fold: Fold, cell: int, place: Index, program_cell: int, program_place: Index) -> None:
        """Show that a cell of a part is a cell of the program's loop, at every index."""
        from vosti.kernels.verifier.match import MismatchError

        matcher = self._matcher
        number = next(i for i, part in enumerate(self.parts) if part is fold)
        key, pair = (number, cell, place), (program_cell, program_place)
        if key in self.pairs:
            if self.pairs[key] != pair:
                raise MismatchError(f"Cell {cell} of loop {fold.name} would have to be two cells of the row program.")
            return
        self.pairs[key] = pair
        matcher.use(rules.INDUCTION)
        before = fold.initial(cell, place)
        if number + 1 < len(self.parts):
            earlier = matcher.head(before, self.context)
            if not (isinstance(earlier, Result) and earlier.fold is self.parts[number + 1]):
                raise MismatchError(f"A part of loop {fold.name} does not start from the part before it.", earlier)
            self.require(earlier.fold, earlier.cell, earlier.place, program_cell, program_place)
        else:
            matcher.match(before, self.program.initial(program_cell, program_place), self.context)
        index, inside, outside = self._iteration(number)
        other = {the_symbol(iterations(fold, index)[0]): integer(0)}
        if any(substituted(one, other) is not one for one in (*place, *program_place)):
            raise MismatchError(f"Cell {cell} of loop {fold.name} is read at a place that changes with the iteration.")
        for context in outside:
            if not matcher.keeps(fold, cell, place, index, context):
                after = matcher.head(fold.after(cell, place, index), context)
                claim = f"An iteration of loop {fold.name} that the row program leaves out changes cell {cell}."
                raise MismatchError(claim, after, after)
            matcher.use(rules.IDENTITY)
        if not inside.contradictory:
            after = self.program.after(program_cell, program_place, index)
            matcher.match(fold.after(cell, place, index), after, inside)
