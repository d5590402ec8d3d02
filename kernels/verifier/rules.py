"""The numerical rules: all that a proof may use of numbers beside "the same operations of the same terms".

Nothing is reassociated, no real number is reasoned about, x + 0 and 0 · x stay what they are. What is not listed here
is refused. A certificate names the rules that its proof used, and a probe on the GPU backs each that is about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vosti.kernels.verifier.ir import FLOAT_WIDTHS, float_bits
from vosti.kernels.verifier.terms import Constant, number


@dataclass(frozen=True)
class Rule:
    """A fact about numbers."""

    name: str
    statement: str
    probed: bool = False
    """Whether it is a fact about a GPU, to be probed on each, or one of IEEE 754 and of the row programs."""


CHAIN = Rule(
    "chain",
    "A product of tensor cores with bf16 or fp16 factors and a float32 accumulator is one chain over k, in ascending "
    "groups of 16, whatever the tile and the instruction. Products that follow one another, each with the sum so far "
    "as its accumulator and each of a multiple of 16 factors, are the chain over all of their factors.",
    probed=True,
)
GROUP = 16
"""Factors of one group of a chain."""

CHAINED = frozenset({"bf16", "f16"})
"""Elements of the factors that `CHAIN` is about."""

MASKED_PRODUCT = Rule(
    "masked product",
    "A lane of a chain whose left factor is +0 has one effect, whatever its right factor, as long as that is finite: "
    "it leaves the sum's bits alone, but for a sum of −0, of which it makes +0.",
    probed=True,
)
FREE_MAXIMUM = Rule(
    "free maximum",
    "The maximum of some numbers is the same in every order, if none of them is NaN; of lanes that are all one number "
    "it is that number. (The sign of a zero that is a maximum may differ: in a row program it ends in an exponential.)",
    probed=True,
)
TWO_LANES = Rule(
    "two lanes",
    "A sum over an axis of length 2 is one addition, and addition is commutative: it has one result, whatever the "
    "layout.",
    probed=True,
)
CONVERSION = Rule(
    "conversion",
    "Widening bf16 or fp16 to float32 is exact; narrowing rounds to nearest, ties to even, in every instruction.",
    probed=True,
)
ZERO_EXPONENT = Rule(
    "zero exponent", "The exponential of +0 is that of −0, so that exp(+0 − x) is exp(−x).", probed=True
)
FUNCTION = Rule(
    "function",
    "exp, tanh and the roots of the target are functions: equal operands give equal results, in every lane, tile and "
    "kernel.",
    probed=True,
)
SELECTION = Rule(
    "selection",
    "A select yields the chosen operand, to the bit, whatever the other one is, were it NaN. Within what it chooses, a "
    "further select by the very same comparison chooses alike.",
)
CONSTANTS = Rule(
    "constants",
    "A sum or product of two constants, and the conversion of one, is the correctly rounded result; x · 1 is x.",
)
IDENTITY = Rule(
    "identity",
    "An iteration that selects the old value of a cell leaves it alone, so that it may run or be left out; a loop of "
    "such iterations, or of none, yields what it started from.",
)
CUT = Rule(
    "cut",
    "Loops that follow one another over adjacent ranges, each starting from the result of the one before, are one loop "
    "over the whole range.",
)
INDUCTION = Rule(
    "induction",
    "Two loops over one range yield equal cells if the cells start equal, and equal cells before an iteration make "
    "equal cells after it.",
)
EMPTY_TOTAL = Rule(
    "empty total",
    "The total of a running softmax that has seen a key is at least 1, or NaN: the weight of the largest score is "
    "exp(0) = 1, decays of what came before included, and no weight is negative. So where the total is 0, nothing was "
    "seen, and the state is still the initial one.",
    probed=True,
)
HANDED_OVER = Rule(
    "handed over", "An element of a buffer that an earlier launch wrote is what that launch's contract says of it."
)

WRAPPING_SUM = Rule(
    "wrapping sum",
    "Addition of words, which is addition modulo a power of 2, is associative and commutative, and 0 is its unit. So a "
    "sum of words has no order: lanes, iterations of a loop that adds to a cell, and parts may be added up in any "
    "grouping, and zeros left out; a scan yields the sums up to each lane. The sum over t < T of sums over l < L of "
    "g(t, l) is the sum over m < T · L of g(m div L, m mod L).",
)

TELESCOPED = Rule(
    "telescoped sum",
    "If F(0) is 0 and each lane l is F(l + 1) − F(l), exact integers all, the sum of the lanes below n is F(n): by "
    "induction over n. A result that fits its type is right in whatever order the lanes are added modulo a power of 2.",
)

SHOWN = Rule(
    "shown",
    "What was shown of a lane of a tensor that is stored, for arbitrary lanes, holds of each of its lanes.",
)

RULES: Mapping[str, Rule] = {rule.name: rule for rule in tuple(globals().values()) if isinstance(rule, Rule)}
"""All of them, by name."""

FUNCTIONS = frozenset({"exp", "exp2", "log", "log2", "sqrt", "rsqrt", "__nv_tanhf"})
"""Operations that `FUNCTION` is about."""

CONVERSIONS = frozenset({"extf", "truncf"})

_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "addf": lambda x, y: x + y,
    "subf": lambda x, y: x - y,
    "mulf": lambda x, y: x * y,
}

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "oeq": lambda x, y: x == y,
    "ogt": lambda x, y: x > y,
    "olt": lambda x, y: x < y,
    "oge": lambda x, y: x >= y,
    "ole": lambda x, y: x <= y,
}
"""Of constants."""

ONE = float_bits("f32", 1.0)


def finite(constant: Constant) -> bool:
    """Whether a constant is neither infinite nor NaN."""
    return abs(number(constant)) < float("inf")


def folded(name: str, constants: tuple[Constant, ...], element: str) -> Constant | None:
    """An operation of constants, by `CONSTANTS`, if it is one that is understood."""
    if element not in FLOAT_WIDTHS or not all(map(finite, constants)):
        return None
    values = [number(one) for one in constants]
    if name in CONVERSIONS and constants[0].element != "f64":
        # From binary64 to 16 bits it would be rounded twice.
        return Constant(float_bits(element, values[0]), element=element)
    if name in _ARITHMETIC and element == "f32":
        # binary64 has more than twice the digits of binary32: rounding twice is rounding once.
        exact = _ARITHMETIC[name](values[0], values[1])
        return Constant(float_bits("f32", exact), element="f32") if abs(exact) < 2.0**127 else None
    return None
