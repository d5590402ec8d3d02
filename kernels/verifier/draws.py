"""The sampler's draw as an exact integer: the text of `vosti.spec.sampling.choose` over weights that are not known.

The text goes through candidates, adds up their weights, and returns the first one that passes a test. The contract says
what the sums come to, of any number of candidates (`running`), and that is shown: it is 0 for none, and an iteration of
the text makes of the sum for t candidates the one for t + 1. So the test of candidate t, if none was returned before,
is that which the text makes of `running(t)`. What is known of the candidate that is returned is that it passes its
test, and that the one before it, if there is one, does not. Where no candidate passes, the text raises, and nothing is
claimed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vosti.kernels.verifier.canonical import assigned, recompiled
from vosti.kernels.verifier.expressions import FUNCTIONS, Decided
from vosti.kernels.verifier.integers import Cond, Int, choose, disj, equal, integer, neg
from vosti.kernels.verifier.queries import Context, Prover
from vosti.spec import sampling


@dataclass(frozen=True, eq=False)
class Exact:
    """An integer of the text."""

    value: Int

    def __add__(self, other: Exact) -> Exact:
        return Exact(self.value + other.value)

    def __radd__(self, other: int) -> Exact:
        return Exact(self.value + other)

    def __mul__(self, other: Exact) -> Exact:
        return Exact(self.value * other.value)

    def __rshift__(self, count: int) -> Exact:
        return Exact(self.value // 2**count)

    def __gt__(self, other: Exact) -> Cond:
        return self.value > other.value


@dataclass(frozen=True, eq=False)
class Candidates:
    """Tokens from 0 to count − 1 with their weights."""

    prover: Prover
    count: Int
    share: Callable[[Int], Int]
    running: Callable[[Int], Int]
    """The sum of the weights of the first ones."""

    def total(self) -> Exact:
        """sum(share for _, share in candidates)."""
        return Exact(self.running(self.count))

    def first(self, body: Callable[..., tuple[Cond, Exact, Exact]], state: int) -> Exact:
        """What `for token, share in candidates: …` returns.

        Raises:
            RefusedError: if its sums are not shown to be the running ones.
        """

        def iteration(token: Int) -> tuple[Cond, Exact, Exact]:
            return body((Exact(token), Exact(self.share(token))), Exact(self.running(token)))

        place, context = self.prover.ranged("candidate", self.count), Context(self.prover)
        begins = equal(self.running(integer(0)), state)
        context.prove(begins, "The sum for no candidate is not what the text begins with")
        goal = equal(iteration(place)[2].value, self.running(place + 1))
        context.prove(goal, "The sums are not those that the text makes")
        found = self.prover.ranged("returned", self.count)
        passes, value, _ = iteration(found)
        self.prover.state(found, passes, disj(equal(found, 0), neg(iteration(found - 1)[0])))
        return value


class _Searches(ast.NodeTransformer):
    """sum(…) of candidates, and a loop over them that returns at the end of an iteration if a test is passed."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """sum(share for _, share in candidates) → candidates.total()."""
        if ast.unparse(node) != "sum((share for _, share in candidates))":
            return self.generic_visit(node)
        return ast.parse("candidates.total()", mode="eval").body

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        """for … in candidates: …; if test: return value → return candidates.first(the body as a function, state)."""
        *updates, last = node.body
        (state,) = assigned(updates)
        assert isinstance(last, ast.If)
        (returned,) = last.body
        assert isinstance(returned, ast.Return)
        assert last.orelse == node.orelse == []
        text = f"def __body__(candidate, {state}):\n    {ast.unparse(node.target)} = candidate"
        (body,) = ast.parse(text).body
        assert isinstance(body, ast.FunctionDef)
        answer = ast.Tuple([last.test, returned.value, ast.Name(state, ast.Load())], ast.Load())  # type: ignore[list-item]
        body.body += [*updates, ast.Return(answer)]
        return [body, *ast.parse(f"return {ast.unparse(node.iter)}.first(__body__, {state})").body]


_choose = recompiled(sampling.choose, _Searches(), {})

cut_ends: Callable[..., Cond] = recompiled(sampling.cut_ends, Decided(), FUNCTIONS)
"""`sampling.cut_ends`, of exact integers."""


def choice(
    prover: Prover, count: Int | int, share: Callable[[Int], Int], running: Callable[[Int], Int], bits: Int
) -> Int:
    """`sampling.choose`, from all tokens below a count; `bits` holds 64 bits as a signed integer."""
    number = choose(bits >= 0, bits, bits + 2**64)
    found: Any = _choose(Candidates(prover, integer(count), share, running), Exact(number))
    chosen: Int = found.value
    return chosen
