"""The expressions of a contract over exact integers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import CodeType

from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.integers import Cond, Int, choose, conj, disj, equal, integer, least, most, neg, truth


def names_in(text: str) -> set[str]:
    """The names that an expression mentions, its own arguments excepted."""
    tree = ast.parse(text, mode="eval")
    own = {one.arg for node in ast.walk(tree) if isinstance(node, ast.Lambda) for one in node.args.args}
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - own


def evaluated(text: str, scope: Mapping[str, object]) -> object:
    """The value of an expression, whose comparisons, `and`, `or`, `not`, `if` and `in` are those of terms.

    Raises:
        RefusedError: if it is not understood.
    """
    # The expressions are a contract's, which is as much a program as the kernel beside it.
    try:
        return eval(_compiled(text), {"__builtins__": {}, **FUNCTIONS, **scope})
    except (AttributeError, NameError, TypeError, KeyError, IndexError) as error:
        raise RefusedError(f"The contract's expression {text!r} is not understood: {error}.") from error


def number(text: str, scope: Mapping[str, object]) -> Int:
    """An expression that is an integer."""
    value = evaluated(text, scope)
    if not isinstance(value, int | Int):
        raise RefusedError(f"The contract's expression {text!r} is no integer.")
    return integer(value)


def condition(text: str, scope: Mapping[str, object]) -> Cond:
    """An expression that is a condition."""
    return _truth(evaluated(text, scope))


def _truth(value: object) -> Cond:
    if isinstance(value, Cond):
        return value
    if isinstance(value, bool | int):
        return truth(bool(value))
    if isinstance(value, Int) and value.constant is not None:
        return truth(bool(value.constant))
    raise TypeError(f"{value} is no condition")


def _compare(operator: str, left: object, right: object) -> object:
    if operator in ("in", "not in"):
        found = disj(*(_truth(_compare("==", left, one)) for one in right))  # type: ignore[attr-defined]
        return neg(found) if operator == "not in" else found
    if not (isinstance(left, int | Int) and isinstance(right, int | Int)):
        raise TypeError("a comparison of what is no integer")
    a, b = integer(left), integer(right)
    if operator in ("==", "!="):
        return equal(a, b) if operator == "==" else neg(equal(a, b))
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]


def _either(test: object, yes: Callable[[], object], no: Callable[[], object]) -> object:
    one = _truth(test)
    if one.value is not None:
        return yes() if one.value else no()
    left, right = yes(), no()
    if isinstance(left, int | Int) and isinstance(right, int | Int):
        return choose(one, left, right)
    raise TypeError("a choice between what are no integers depends on a parameter")


def _all(*parts: Callable[[], object]) -> Cond:
    found: list[Cond] = []
    for part in parts:
        found.append(_truth(part()))
        if found[-1].value is False:
            break
    return conj(*found)


def _any(*parts: Callable[[], object]) -> Cond:
    return disj(*(_truth(part()) for part in parts))


def _cdiv(x: Int | int, y: Int | int) -> Int:
    return (integer(x) + y - 1) // integer(y)


FUNCTIONS: Mapping[str, object] = {
    "cdiv": _cdiv,
    "min": least,
    "max": most,
    "__compare__": _compare,
    "__either__": _either,
    "__all__": _all,
    "__any__": _any,
    "__not__": lambda one: neg(_truth(one)),
}
"""What the names in an expression of exact integers mean, and what `Decided` makes of it."""


class Decided(ast.NodeTransformer):
    """What Python decides by truth values, as calls of `FUNCTIONS`."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """a < b <= c."""
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        pairs = [
            _call("__compare__", ast.Constant(_OPERATORS[type(operator)]), left, right)
            for operator, left, right in zip(node.ops, sides, sides[1:], strict=False)
        ]
        return pairs[0] if len(pairs) == 1 else _call("__all__", *map(_later, pairs))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """a and b, a or b."""
        self.generic_visit(node)
        return _call("__all__" if isinstance(node.op, ast.And) else "__any__", *map(_later, node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """not a."""
        self.generic_visit(node)
        return _call("__not__", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """a if b else c."""
        self.generic_visit(node)
        return _call("__either__", node.test, _later(node.body), _later(node.orelse))


_OPERATORS: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.In: "in",
    ast.NotIn: "not in",
}


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _later(node: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), node)


@cache
def _compiled(text: str) -> CodeType:
    return compile(ast.fix_missing_locations(Decided().visit(ast.parse(text, mode="eval"))), text, "eval")


def free_names(texts: Iterable[str], known: Iterable[str]) -> list[str]:
    """The names in some expressions that are neither known nor functions, sorted."""
    return sorted(set().union(*map(names_in, texts)) - set(known) - set(FUNCTIONS))
