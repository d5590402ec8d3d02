"""Loops and constants are matched for what they are, also where no kernel of ours would show a mistake."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from vosti.kernels.verifier import rules
from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.integers import Int, integer
from vosti.kernels.verifier.ir import Op, float_bits
from vosti.kernels.verifier.match import Matcher
from vosti.kernels.verifier.queries import Context, Prover
from vosti.kernels.verifier.terms import Apply, Constant, Index, Load, Result, State, Term


@dataclass(eq=False)
class Totals:
    """A loop of two cells: sums of x over the iterations so far, and their total.

    A kernel has one sum, of x[index]. The row program has a row of them, and adds x[lane] to each: its lane `index` is
    read where `reads` says so, else the lane 0 of a row that has x[index] added to each lane.
    """

    kernel: bool
    reads: bool
    low: Int
    high: Int
    name: str = "t"
    step: int = 1
    op: Op | None = None

    def initial(self, cell: int, place: Index) -> Term:
        """Nothing is added up."""
        return Constant(0, element="f32")

    def after(self, cell: int, place: Index, index: Int) -> Term:
        """One more is."""
        lane = () if self.kernel else (index,) if self.reads else (integer(0),)
        read = Load("x", place[0] if self.reads and place else index, element="f32")
        more = State(self, 0, lane, element="f32") if cell else read
        return Apply("addf", (State(self, cell, place, element="f32"), more), element="f32")


def test_a_cell_is_not_read_at_a_place_that_moves() -> None:
    """Before iteration t the kernel's sum is that of x[i] for i < t, and lane t of the row t · x[t]."""
    prover = Prover()

    def match(reads: bool) -> None:
        range_ = integer(0), integer(100)
        sides = Totals(True, False, *range_), Totals(False, reads, *range_)
        kernel, program = (Result(one, 1, (), element="f32") for one in sides)
        Matcher(prover).match(kernel, program, Context(prover))

    match(reads=False)
    with pytest.raises(RefusedError, match="at a place that changes with the iteration"):
        match(reads=True)


def test_what_is_rounded_twice_is_not_folded() -> None:
    """From binary64 to bf16, by way of binary32 or not: it makes a difference a little above a tie."""
    single, double = (Constant(float_bits(one, 1 + 2.0**-8 + 2.0**-30), element=one) for one in ("f32", "f64"))
    found = rules.folded("truncf", (single,), "bf16")

    assert found is not None
    assert found.bits == float_bits("bf16", 1.0)
    assert rules.folded("truncf", (double,), "bf16") is None
