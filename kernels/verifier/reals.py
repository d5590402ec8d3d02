"""The sampler's weights as terms: the text of `vosti.spec.sampling` over float64 numbers that are not known.

What the text leaves to Python is fixed here as it is on a GPU. Sums, differences, products and quotients of float64 are
rounded to nearest, as Python's are; a product is that of its operands in any order, and the compiler puts constants
second. ⌊x⌋ is a whole float64 number where the text multiplies it by one, and that number as a 64-bit integer
elsewhere. 2⁻ⁿ has the bits (1023 − n) · 2⁵², so that `math.ldexp(p, -n)` is a product. The text sees exponents from −17
to 0 alone, where n is at most 25 and a weight at most 2²⁴: nothing there is out of the range of these types.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vosti.kernels.verifier.canonical import recompiled
from vosti.kernels.verifier.integers import Int, Symbolic, integer
from vosti.kernels.verifier.ir import float_bits
from vosti.kernels.verifier.terms import Apply, Condition, Constant, Joined, Select, Sum, Term, Test, Whole
from vosti.spec import sampling


def _number(value: float) -> Constant:
    return Constant(float_bits("f64", value), element="f64")


def _whole(value: Int | int) -> Whole:
    return Whole(integer(value), element="i64")


@dataclass(frozen=True, eq=False)
class Real:
    """A float64 number."""

    term: Term
    single: Term | None = None
    """The float32 number that it is equal to, if it was one."""

    def __add__(self, other: Real | float) -> Real:
        return self._with("addf", other)

    def __sub__(self, other: Real | float) -> Real:
        return self._with("subf", other)

    def __rsub__(self, other: float) -> Real:
        return Real(_number(other))._with("subf", self)

    def __mul__(self, other: Real | float) -> Real:
        return self._with("mulf", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Real) -> Real:
        return self._with("divf", other)

    def __lt__(self, other: float) -> Test:
        return Test("olt", self.term, _number(other))

    def __gt__(self, other: Real) -> Test:
        return self._compared("ogt", other)

    def __eq__(self, other: object) -> Test:  # type: ignore[override]
        assert isinstance(other, Real)
        return self._compared("oeq", other)

    def _compared(self, predicate: str, other: Real) -> Test:
        assert self.single is not None
        assert other.single is not None
        return Test(predicate, self.single, other.single)

    def _with(self, name: str, other: Real | float) -> Real:
        second = other.term if isinstance(other, Real) else _number(other)
        return Real(Apply(name, (self.term, second), element="f64"))


@dataclass(frozen=True, eq=False)
class Floor:
    """⌊x⌋, or an integer made of it."""

    term: Term
    """As a 64-bit integer."""

    real: Term | None = None
    """As a float64 number."""

    def __mul__(self, other: float) -> Real | Floor:
        if isinstance(other, int):
            return Floor(Apply("muli", (self.term, _whole(other)), element="i64"))
        assert self.real is not None
        return Real(self.real) * other

    def __neg__(self) -> Floor:
        """As an exponent of 2, the only place where the text negates one: 2⁻ⁿ."""
        exponent = Apply("subi", (_whole(1023), self.term), element="i64")
        bits = Apply("shli", (exponent, _whole(52)), element="i64")
        return Floor(bits, Apply("bitcast", (bits,), element="f64"))

    def __ge__(self, other: Int) -> Test:
        return Test("sge", self.term, _whole(other))


class _Math:
    """What the text asks of `math`."""

    @staticmethod
    def floor(x: Real) -> Floor:
        """⌊x⌋."""
        whole = Apply("floor", (x.term,), element="f64")
        return Floor(Apply("fptosi:i64", (whole,), element="i64"), whole)

    @staticmethod
    def ldexp(x: Real, power: Floor) -> Real:
        """x · 2ⁿ."""
        assert power.real is not None
        return x * Real(power.real)


class _Choices(ast.NodeTransformer):
    """yes if test else no → __either__(test, yes, no); a or b, a and b → __joined__(name, a, b)."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Two conditions."""
        name = "or" if isinstance(node.op, ast.Or) else "and"
        parts = [self.visit(part) for part in node.values]
        return ast.Call(ast.Name("__joined__", ast.Load()), [ast.Constant(name), *parts], [])

    def visit_If(self, node: ast.If) -> ast.AST:
        """Of integers Python itself would decide whether they are one, by whether their terms are."""
        raise TypeError("a text decides in a statement")

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """A choice."""
        parts = [node.test, node.body, node.orelse]
        return ast.Call(ast.Name("__either__", ast.Load()), [self.visit(part) for part in parts], [])


def _symbolic(*tests: object) -> None:
    if not all(isinstance(one, Symbolic) for one in tests):
        raise TypeError("a text decides whether two integers are one")


def _either(test: Test, yes: Any, no: Any) -> Any:
    _symbolic(test)
    if isinstance(no, Real):
        return Real(Select(test, _number(yes), no.term, element="f64"))
    return Floor(Select(test, _whole(yes), no.term, element="i64"))


def _joined(name: str, first: Condition, second: Condition) -> Joined:
    _symbolic(first, second)
    return Joined(name, (first, second))


def _compiled(function: Callable[..., Any], **names: object) -> Callable[..., Any]:
    return recompiled(function, _Choices(), {"math": _Math, "__either__": _either, "__joined__": _joined, **names})


_exponential = _compiled(sampling.exponential)
_exponent = _compiled(sampling.exponent)
_weight = _compiled(sampling.weight, exponential=_exponential)
_through = _compiled(sampling.through)


def _single(logit: Term) -> Real:
    """A logit."""
    return Real(Apply("extf", (logit,), element="f64"), logit)


def kept_weight(logit: Term, best: Term, temperature: Term, min_p: Int) -> Term:
    """`sampling.weight` of a token, or 0 if it is not `sampling.probable`."""
    weight = _weight(_exponent(_single(logit), _single(best), Real(temperature)))
    return Select(sampling.probable(weight, min_p), weight.term, _whole(0), element="i64")  # type: ignore[arg-type]


def share_through(logit: Term, token: Int, end_logit: Term, end: Int, share: Int | int) -> Term:
    """A number, or 0 for a token that is not `sampling.through` an end."""
    test = _through(_single(logit), token, _single(end_logit), end)
    return Select(test, _whole(share), _whole(0), element="i64")


def total(count: Int | int, body: Callable[[Int], Term]) -> Term:
    """Σ body(k) for k < count."""
    return Sum(integer(count), body, element="i64")


def narrowed(x: Term) -> Term:
    """A 64-bit integer as one of 32 bits."""
    return Apply("trunci:i32", (x,), element="i32")


def refusal(best: Term) -> Term:
    """What becomes of a row with this largest logit: 0 if it is sampled, 2 if there is nothing to sample."""
    least = Constant(float_bits(best.element, float("-inf")), element=best.element)
    drawn, refused = (Whole(integer(one), element="i32") for one in (0, 2))
    return Select(Test("ogt", best, least), drawn, refused, element="i32")


WORDS = {one.__name__: one for one in (kept_weight, share_through, total, narrowed, refusal)}
"""What contracts say of the sampler."""
