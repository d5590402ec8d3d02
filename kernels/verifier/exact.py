"""Sums of exact integers over lanes, by what they come to.

How many lanes there are is known, but a sum of them is not written out. A contract names functions F that sums may come
to (`Contract.sums`); nothing rests on the names. A sum is F(n) for the lanes below n if F(0) = 0 and an arbitrary lane
l is F(l + 1) − F(l), for all launches that meet the premises: the solver shows both. That covers running sums (a scan),
sums, and the number of lanes at which a condition holds. What is added up are numbers modulo a power of 2, in any
order, so that what matters is that the result fits its type, which is an obligation like that of every operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.integers import Cond, Int, equal, integer, rewritten, truth
from vosti.kernels.verifier.queries import Context

Upto = Callable[[Int], Int]
"""From n to the sum of the lanes below n."""


def resolved(value: Int, context: Context) -> Int:
    """The same number, with every choice taken that the context decides."""

    def known(one: Cond) -> Cond | None:
        decided = context.decide(one)
        return None if decided is None else truth(decided)

    found = rewritten(value, lambda _: None, known, {})
    assert isinstance(found, Int)
    return found


def sum_of(length: int, lane: Callable[[Int], Int], named: Sequence[Upto], context: Context) -> Upto:
    """What the sums of the first lanes come to.

    Raises:
        RefusedError: if that is none of the functions that the contract names.
    """
    index = context.prover.ranged("lane", length)
    value = resolved(lane(index), context)
    for upto in named:
        first, step = (resolved(one, context) for one in (upto(integer(0)), upto(index + 1) - upto(index)))
        if context.holds(equal(first, 0)) and context.holds(equal(value, step)):
            if context.given(equal(value, step)).contradictory:
                raise RefusedError("what the contract says of a sum of integers contradicts itself")
            return lambda n, found=upto: resolved(found(n), context)  # type: ignore[misc]
    raise RefusedError(f"a sum of integers is not shown to be one that the contract names: of {value}")
