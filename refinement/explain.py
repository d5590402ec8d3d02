"""Which part of a predicate is false, and why: the reason that a failure report shows.

The predicates of the specification are short functions in a small subset of Python (`vosti.spec`): assignments to
names, `if` with an early `return`, and one boolean expression at the end. This module runs such a function's source a
second time, statement by statement, and descends into the expression as far as one of its parts is to blame. It
decides nothing: whether a predicate holds is what the predicate itself says.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import lru_cache
from reprlib import Repr
from typing import Any

SHORT = Repr()
SHORT.maxtuple = SHORT.maxlist = SHORT.maxset = SHORT.maxfrozenset = 8
SHORT.maxdict = 4
SHORT.maxstring = SHORT.maxother = 120


def explain(predicate: Callable[..., bool], *args: object) -> tuple[str, str]:
    """The part of `predicate(*args)` that is false, and what was found in its place.

    Args:
        predicate: a function of the specification, false for `args`.
        args: its arguments.

    Returns:
        The part's source text, and the values of both sides if it is a comparison. Where the source cannot be had or
        the function lies outside the subset, the first sentence of its docstring.
    """
    try:
        names: dict[str, Any] = {**predicate.__globals__, **inspect.signature(predicate).bind(*args).arguments}
        names["self"] = getattr(predicate, "__self__", None)
        return _blame_statements(_body(predicate), names)
    except Exception:  # whatever goes wrong here, the predicate is false all the same, and that is what is reported
        return first_sentence(predicate), "it does not hold"


def first_sentence(function: Callable[..., object]) -> str:
    """The first sentence of a function's docstring, on one line."""
    text = " ".join((function.__doc__ or function.__name__).split())
    return text.partition(". ")[0].removesuffix(".")


def shown(value: object) -> str:
    """A value, shortened to what a report has room for."""
    return SHORT.repr(value)


@lru_cache(maxsize=256)
def _body(predicate: Callable[..., bool]) -> list[ast.stmt]:
    function = ast.parse(textwrap.dedent(inspect.getsource(predicate))).body[0]
    assert isinstance(function, ast.FunctionDef)
    return function.body


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "<predicate>", "eval"), names)


def _blame_statements(body: list[ast.stmt], names: dict[str, Any]) -> tuple[str, str]:
    for statement in body:
        match statement:
            case ast.Expr(value=ast.Constant()):
                continue
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                names[name] = _value(value, names)
            case ast.If(test=test, body=[ast.Return(value=ast.Constant(value=False))]) if _value(test, names):
                return _blame_true(test, names)
            case ast.If(test=test, body=inner, orelse=other):
                chosen = inner if _value(test, names) else other
                if chosen:
                    return _blame_statements(chosen, names)
            case ast.Return(value=ast.expr() as value):
                return _blame(value, names)
            case _:
                raise ValueError(f"{ast.unparse(statement)} is not in the subset")
    raise ValueError("the predicate returns nothing")


def _blame_true(node: ast.expr, names: dict[str, Any]) -> tuple[str, str]:
    """The part of a true expression that should be false."""
    match node:
        case ast.BoolOp(op=ast.Or(), values=values):
            return _blame_true(next(value for value in values if _value(value, names)), names)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _blame(operand, names)
        case ast.Compare(left=left, ops=[ast.NotIn()], comparators=[right]):
            return _blame(ast.Compare(left, [ast.In()], [right]), names)
        case _:
            return f"not ({ast.unparse(node)})", _sides(node, names)


def _blame(node: ast.expr, names: dict[str, Any]) -> tuple[str, str]:
    """The part of a false expression that should be true."""
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return _blame(next(value for value in values if not _value(value, names)), names)
        case ast.IfExp(test=test, body=body, orelse=other):
            return _blame(body if _value(test, names) else other, names)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _blame_true(operand, names)
        case _:
            return ast.unparse(node), _sides(node, names)


def _sides(node: ast.expr, names: dict[str, Any]) -> str:
    """The values on both sides of each comparison in an expression that is not a constant itself."""
    match node:
        case ast.Compare(left=left, comparators=comparators):
            terms = [term for term in (left, *comparators) if not isinstance(term, ast.Constant)]
            return ", ".join(f"{ast.unparse(term)} is {shown(_value(term, names))}" for term in terms)
        case ast.BoolOp(values=values):
            return "; ".join(_sides(value, names) for value in values)
        case _:
            return f"{ast.unparse(node)} is {shown(_value(node, names))}"
