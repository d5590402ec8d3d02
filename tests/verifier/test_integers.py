"""The normal form of integers and conditions has the values that Python's own arithmetic gives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vosti.kernels.verifier.integers import (
    Atom,
    Cond,
    Int,
    choose,
    conj,
    disj,
    equal,
    fixed,
    integer,
    least,
    most,
    neg,
    substituted,
    symbol,
    the_symbol,
)
from vosti.kernels.verifier.queries import Context, Prover
from vosti.kernels.verifier.scripts import Scripts
from vosti.refinement.smt.solve import Answer, Refuter

Values = dict[str, int]
Pair = tuple[Int, Callable[[Values], int]]
Test = tuple[Cond, Callable[[Values], bool]]

RANGES = {"lane": (0, 63), "tile": (0, 5), "rows": (-9, 9)}
SYMBOLS = {name: symbol(name, low, high) for name, (low, high) in RANGES.items()}
DIVISORS = (1, 2, 3, 4, 16, 64, 96)


def leaf(name: str) -> Pair:
    """A symbol, or a number."""
    return (
        (SYMBOLS[name], lambda values: values[name]) if name in SYMBOLS else (integer(int(name)), lambda _: int(name))
    )


def joined(operation: str, left: Pair, right: Pair, divisor: int) -> Pair:
    """An operation of two integers, as a term and in Python."""
    (a, f), (b, g) = left, right
    made: dict[str, Pair] = {
        "+": (a + b, lambda v: f(v) + g(v)),
        "-": (a - b, lambda v: f(v) - g(v)),
        "*": (a * b, lambda v: f(v) * g(v)),
        "//": (a // divisor, lambda v: f(v) // divisor),
        "%": (a % divisor, lambda v: f(v) % divisor),
        "min": (least(a, b), lambda v: min(f(v), g(v))),
        "max": (most(a, b), lambda v: max(f(v), g(v))),
        "?": (choose(a <= b, a, b + 1), lambda v: f(v) if f(v) <= g(v) else g(v) + 1),
        "scaled": (divisor * a + b, lambda v: divisor * f(v) + g(v)),
    }
    return made[operation]


OPERATIONS = ("+", "-", "*", "//", "%", "min", "max", "?", "scaled")
INTEGERS = st.recursive(
    st.sampled_from([*SYMBOLS, "0", "1", "-3", "64", "4096"]).map(leaf),
    lambda inner: st.builds(joined, st.sampled_from(OPERATIONS), inner, inner, st.sampled_from(DIVISORS)),
    max_leaves=8,
)
VALUES = st.fixed_dictionaries({name: st.integers(*bounds) for name, bounds in RANGES.items()})


def value(term: Int, values: Values) -> int | None:
    """What a term is when its symbols have values."""
    result = substituted(term, {the_symbol(SYMBOLS[name]): integer(number) for name, number in values.items()})
    assert isinstance(result, Int)
    return result.constant


@given(INTEGERS, VALUES)
def test_simplification_keeps_values(pair: Pair, values: Values) -> None:
    """Whatever is combined, divided and chosen: with numbers for the symbols, the term is Python's number."""
    term, meaning = pair

    assert meaning(values) == value(term, values)


@given(INTEGERS, INTEGERS, VALUES)
def test_conditions_keep_values(left: Pair, right: Pair, values: Values) -> None:
    """Comparisons, their negations and combinations."""
    (a, f), (b, g) = left, right
    x, y = f(values), g(values)
    tests: list[tuple[Cond, bool]] = [
        (a <= b, x <= y),
        (a < b, x < y),
        (equal(a, b), x == y),
        (neg(a <= b), x > y),
        (neg(equal(a, b)), x != y),
        (conj(a <= b, equal(a, b)), x == y),
        (disj(a < b, equal(a, b)), x <= y),
    ]
    symbols = {the_symbol(SYMBOLS[name]): integer(number) for name, number in values.items()}

    for one, expected in tests:
        assert expected is substituted(one, symbols).value  # type: ignore[union-attr]


@given(INTEGERS, VALUES)
def test_scripts_mean_the_same(pair: Pair, values: Values) -> None:
    """The solver finds the term's text to be Python's number, and no other."""
    term, meaning = pair
    given_values = [equal(SYMBOLS[name], number) for name, number in values.items()]

    def answer(goal: Cond) -> Answer:
        script, _ = Scripts().script([*given_values, neg(goal)])
        return Refuter().refute(script, 1_000_000)[0].answer

    number = meaning(values)
    assert Answer.PROVED is answer(equal(term, number))
    assert Answer.PROVED is not answer(equal(term, number + 1))


def test_equal_polynomials_are_one_object() -> None:
    """Addresses that differ in the order of their arithmetic are compared without a solver."""
    lane, tile = SYMBOLS["lane"], SYMBOLS["tile"]

    assert (tile * 64 + lane) * 128 is 128 * lane + tile * 8192
    assert (tile * 64 + lane) // 64 is tile
    assert (tile * 64 + lane) % 64 is lane
    assert (tile * 64 + lane) // 256 is tile // 4
    assert 64 * (tile * 7 // 64) + tile * 7 % 64 is tile * 7


def test_maxima_and_minima_are_one_object_however_they_are_spelled() -> None:
    """So that no solver has to find out that a value chosen by ≤ is the one chosen by <, or with the sides swapped."""
    a, b = SYMBOLS["lane"] * 2, SYMBOLS["lane"] + 7 * SYMBOLS["tile"]
    highest = [choose(a >= b, a, b), choose(a > b, a, b), choose(b >= a, b, a), choose(a < b, b, a), most(b, a)]
    lowest = [choose(a <= b, a, b), choose(a < b, a, b), choose(b <= a, b, a), choose(a > b, b, a), least(b, a)]

    assert {highest[0]} == set(highest)
    assert {lowest[0]} == set(lowest)
    assert highest[0] is not lowest[0]
    assert choose(a >= b, a, b + 1) is not highest[0]


def test_a_lane_out_of_its_range_is_not_assumed_away() -> None:
    """What holds within the range of a symbol is not simplified where the range is wider."""
    wide = symbol("wide", 0, 64)

    assert (SYMBOLS["tile"] * 64 + wide) // 64 is not SYMBOLS["tile"]


def test_few_values_are_gone_through() -> None:
    """A division by the smaller of something and 8 is decided, value by value."""
    prover = Prover()
    rows, tile = prover.fresh("rows", 1), prover.fresh("tile", 0)
    height = least(rows, 8)
    context = Context(prover).given(tile < 100)

    assert context.holds(tile // height <= tile)
    assert context.holds(equal(height * (tile // height) + tile % height, tile))
    assert not context.holds(tile // height < tile)
    assert fixed(tile % height < 3, the_symbol_of(height), 2, {}).value is True


def the_symbol_of(choice: Int) -> Atom:
    """The atom that a polynomial consists of."""
    return next(choice.atoms())


@pytest.mark.parametrize("limit", [1])
def test_giving_up_is_no_proof(limit: int) -> None:
    """A solver that may use nothing proves nothing."""
    prover = Prover()
    x, y = prover.fresh("x", 0), prover.fresh("y", 0)
    goal = x * y * y <= x * y * y * y + x

    assert Answer.PROVED is not prover.refuted([neg(goal)], limit)[0]
