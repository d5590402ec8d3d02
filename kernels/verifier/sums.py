"""Sums of words, which have no order, against the row program's sums.

The kernel's side is taken apart into summands: additions, sums over lanes, and loops whose every iteration adds to a
cell (`summands`). A summand of lanes and iterations is paired with a sum of the row program by one number for both,
which counts lanes fastest and the iterations of the outermost loop slowest: where that number is in the row program's
range, the terms are equal; beyond, the kernel's is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from vosti.kernels.verifier import rules
from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.integers import Int, disj, integer
from vosti.kernels.verifier.ir import INTEGER_WIDTHS
from vosti.kernels.verifier.loops import entered, iterations, same_cell
from vosti.kernels.verifier.queries import Context
from vosti.kernels.verifier.terms import Apply, Reduce, Result, State, Sum, Term, Whole

if TYPE_CHECKING:
    from vosti.kernels.verifier.match import Matcher


def of_words(term: Term) -> bool:
    """Whether it is a sum of integers."""
    adds = isinstance(term, Apply | Reduce) and term.name == "addi"
    return term.element in INTEGER_WIDTHS and (adds or isinstance(term, Sum | Result))


@dataclass(frozen=True)
class Summand:
    """A term that is added up over iterations and lanes."""

    term: Term
    context: Context
    """In which the indices are within their ranges."""

    loops: tuple[tuple[Int, Int], ...] = ()
    """Of each loop, outermost first: the number of the iteration, and how many there are."""

    lanes: tuple[tuple[Int, Int], ...] = ()
    """Of each axis: the lane, and how many there are."""


def match_sums(matcher: Matcher, kernel: Term, program: Term, context: Context) -> None:
    """Show that two sums of words are equal: each summand of the row program is one of the kernel's, and no other is.

    Raises:
        MismatchError: naming the operation of the kernel that deviates.
    """
    from vosti.kernels.verifier.match import MismatchError

    matcher.use(rules.WRAPPING_SUM)
    left = list(summands(matcher, Summand(kernel, context)))
    for wanted in summands(matcher, Summand(program, context)):
        first: RefusedError | None = None
        for one in left:
            error = matcher.attempt(partial(_match, matcher, one, wanted.term))
            if error is None:
                left.remove(one)
                break
            first = first or error
        else:
            raise first or MismatchError("The kernel leaves out a summand.", kernel, wanted.term)
    if left:
        raise MismatchError("The kernel adds what the row program does not.", left[0].term, program)


def summands(matcher: Matcher, one: Summand) -> Iterator[Summand]:
    """What a sum consists of. A `Sum` of the row program is taken as a whole."""
    term, context = matcher.head(one.term, one.context), one.context
    if isinstance(term, Whole) and term.value.constant == 0:
        return
    if not of_words(term) or isinstance(term, Sum):
        yield replace(one, term=term)
    elif isinstance(term, Apply):
        for argument in term.arguments:
            yield from summands(matcher, replace(one, term=argument))
    elif isinstance(term, Reduce):
        lane = matcher.prover.ranged("lane", term.length)
        lanes = (*one.lanes, (lane, integer(term.length)))
        yield from summands(matcher, replace(one, term=term.body(lane), lanes=lanes))
    elif isinstance(term, Result):
        yield from summands(matcher, replace(one, term=term.fold.initial(term.cell, term.place)))
        yield from _added(matcher, one, term, context)


def _added(matcher: Matcher, one: Summand, result: Result, context: Context) -> Iterator[Summand]:
    """What the iterations of a loop add to a cell."""
    from vosti.kernels.verifier.match import MismatchError

    fold, cell, place = result.fold, result.cell, result.place
    index, inside = entered(matcher.prover, fold, context)
    if inside.contradictory:
        return
    loops = (*one.loops, iterations(fold, index))
    after = fold.after(cell, place, index)
    parts = list(summands(matcher, replace(one, term=after, context=inside, loops=loops)))
    kept = [
        part
        for part in parts
        if isinstance(part.term, State)
        and same_cell(part.term, fold, cell, place, inside)
        and (part.loops, part.lanes) == (loops, one.lanes)
    ]
    if len(kept) != 1:
        raise MismatchError("An iteration does not add to the sum before it.", matcher.head(after, inside), result)
    yield from (part for part in parts if part is not kept[0])


def _match(matcher: Matcher, one: Summand, program: Term) -> None:
    """Show that a summand of the kernel is one of the row program."""
    from vosti.kernels.verifier.match import MismatchError

    ranges, kernel, context = (*one.loops, *one.lanes), one.term, one.context
    if not isinstance(program, Sum):
        if ranges or isinstance(kernel, Sum):
            raise MismatchError("The kernel adds up what the row program does not.", kernel, program)
        matcher.match(kernel, program, context)
        return
    if kernel.element != program.element or not (ranges or isinstance(kernel, Sum)):
        raise MismatchError("The kernel computes something else than the row program's sum of words.", kernel, program)
    if isinstance(kernel, Sum) and not ranges:
        matcher.integers(kernel.length, program.length, "A sum of another length", context, kernel, program)
        index = matcher.prover.ranged("k", program.length)
        matcher.match(kernel.body(index), program.body(index), context)
        return
    place, total = integer(0), integer(1)
    for number, (index, length) in enumerate(ranges):
        if number and length.constant is None:
            raise MismatchError("A loop within a loop has a length that is not known.", kernel, program)
        place, total = place * length + index, total * length
    enough = disj(program.length <= total, program.length <= 0)
    context.prove(enough, "The kernel adds up fewer terms than the row program")
    within = place < program.length

    def compare(case: Context) -> None:
        zero = Whole(integer(0), element=program.element)
        matcher.match(kernel, program.body(place) if case.holds(within) else zero, case)

    matcher.split(within, context, compare)
