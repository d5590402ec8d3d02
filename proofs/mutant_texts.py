"""Mutants: the specification, or the page pool, with one thing taken away or one classic mistake put in.

A mutant is other text for some functions. Made by rule are

- every conjunct of every guard, left out;
- every update of every effect, frozen: a field that `replace` would set keeps its value;
- every filter of an effect's comprehensions, left out;
- every conjunct of Inv, and every invariant of the pool, left out: it is true of everything.

The mistakes that serving systems are known for are written down one by one, as a text that is replaced by another
(`vosti.proofs.mutant_mistakes`).
"""

from __future__ import annotations

import ast
import copy
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vosti.proofs.book import Replaced

GUARD = "guard conjunct"
EFFECT = "effect update"
INVARIANT = "invariant conjunct"
CLASSIC = "classic mistake"
KINDS = (GUARD, EFFECT, INVARIANT, CLASSIC)

Edit = Callable[[ast.FunctionDef], None]


@dataclass(frozen=True)
class Mutant:
    """Other text for some functions."""

    kind: str
    """One of `KINDS`."""

    subjects: tuple[str, ...]
    """The actions, transitions or invariants that it concerns; where a helper is changed, all that use it."""

    change: str
    """What was changed, in a line."""

    replaced: Replaced
    """Qualified name → the function's other text."""

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"{self.subjects[0]}: {self.change}"


class StaleMistake(ValueError):
    """A mistake no longer fits the text that it is made in: it replaces what stands there exactly once."""


def functions(module: types.ModuleType) -> dict[str, ast.FunctionDef]:
    """The functions at the top of a module, by name."""
    tree = ast.parse(inspect.getsource(module))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def used(texts: Mapping[str, ast.FunctionDef], name: str) -> list[str]:
    """A function, and those of the same module that it calls, directly or not, in the order in which they come up."""
    found, pending = list[str](), [name]
    while pending:
        current = pending.pop(0)
        if current in texts and current not in found:
            found.append(current)
            pending += [n.id for n in ast.walk(texts[current]) if isinstance(n, ast.Name)]
    return found


def changed(text: ast.FunctionDef, edit: Edit) -> ast.FunctionDef:
    """A copy of a function, edited."""
    other = copy.deepcopy(text)
    edit(other)
    return ast.fix_missing_locations(other)


# ---------------------------------------------------------------- by rule


def without_conjunct(text: ast.FunctionDef, *, alone: bool) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The function without each conjunct in turn: of its early refusals, and of what it returns.

    Args:
        text: a predicate of the subset.
        alone: whether a single condition that it returns is a conjunct, too.
    """
    for number, statement in enumerate(text.body):
        if isinstance(statement, ast.If):
            yield from _refusals(text, number, statement.test)
        elif isinstance(statement, ast.Return) and statement.value is not None:
            yield from _conjuncts(text, number, statement.value, alone)


def _refusals(text: ast.FunctionDef, number: int, test: ast.expr) -> Iterator[tuple[str, ast.FunctionDef]]:
    """`if a or b: return False` without a, and without b; of `not lo <= x < hi`, without either end."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
    for i, part in enumerate(parts):
        match part:
            case ast.UnaryOp(
                op=ast.Not(), operand=ast.Compare(left=left, ops=[low, high], comparators=[middle, right])
            ):
                halves: list[ast.expr] = [
                    ast.Compare(left=middle, ops=[high], comparators=[right]),
                    ast.Compare(left=left, ops=[low], comparators=[middle]),
                ]
                for half in halves:
                    kept: ast.expr = ast.UnaryOp(op=ast.Not(), operand=half)
                    rest = [*parts[:i], kept, *parts[i + 1 :]]
                    yield f"only {ast.unparse(half)}", changed(text, _with_test(number, rest))
            case _:
                rest = [*parts[:i], *parts[i + 1 :]]
                yield f"without the refusal if {ast.unparse(part)}", changed(text, _with_test(number, rest))


def _with_test(number: int, parts: list[ast.expr]) -> Edit:
    def edit(other: ast.FunctionDef) -> None:
        statement = other.body[number]
        assert isinstance(statement, ast.If)
        if parts:
            statement.test = parts[0] if len(parts) == 1 else ast.BoolOp(op=ast.Or(), values=list(parts))
        else:
            del other.body[number]

    return edit


def _conjuncts(
    text: ast.FunctionDef, number: int, value: ast.expr, alone: bool
) -> Iterator[tuple[str, ast.FunctionDef]]:
    """What is returned, without each operand of each `and` that stands under nothing but `and` and `or`."""

    def visit(node: ast.expr, path: tuple[int, ...], conjunct: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
        if isinstance(node, ast.BoolOp):
            for i, part in enumerate(node.values):
                yield from visit(part, (*path, i), isinstance(node.op, ast.And))
        if conjunct:
            yield ast.unparse(node), path

    for what, path in visit(value, (), alone and not isinstance(value, ast.BoolOp)):
        yield f"without {what}", changed(text, _with_true(number, path))


def _with_true(number: int, path: tuple[int, ...]) -> Edit:
    def edit(other: ast.FunctionDef) -> None:
        statement = other.body[number]
        assert isinstance(statement, ast.Return)
        if not path:
            statement.value = ast.Constant(True)
            return
        node: Any = statement.value
        for i in path[:-1]:
            node = node.values[i]
        node.values[path[-1]] = ast.Constant(True)

    return edit


def without_update(text: ast.FunctionDef) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The function without each update of each `replace`, and without each filter of each comprehension."""
    nodes = list(ast.walk(text))
    for number, node in enumerate(nodes):
        match node:
            case ast.Call(func=ast.Name(id="replace"), keywords=keywords):
                for i, keyword in enumerate(keywords):
                    yield f"frozen: {ast.unparse(keyword)}", changed(text, _without(number, "keywords", i))
            case ast.comprehension(ifs=ifs):
                for i, condition in enumerate(ifs):
                    yield f"also where not {ast.unparse(condition)}", changed(text, _without(number, "ifs", i))


def _without(number: int, field: str, i: int) -> Edit:
    def edit(other: ast.FunctionDef) -> None:
        del getattr(list(ast.walk(other))[number], field)[i]

    return edit


def always_true(text: ast.FunctionDef) -> ast.FunctionDef:
    """A predicate that holds of everything."""

    def edit(other: ast.FunctionDef) -> None:
        other.body = [ast.Return(ast.Constant(True))]

    return changed(text, edit)


# ---------------------------------------------------------------- one by one


def mistaken(module: types.ModuleType, function: str, old: str, new: str) -> Replaced:
    """A function of a module with another text in one place.

    Raises:
        StaleMistake: if the old text does not stand in the function exactly once.
    """
    source = inspect.getsource(getattr(module, function))
    if source.count(old) != 1:
        raise StaleMistake(f"{function} has {source.count(old)} times the text {old!r}; it should be there once.")
    (node,) = ast.parse(source.replace(old, new)).body
    assert isinstance(node, ast.FunctionDef)
    return {f"{module.__name__}.{function}": node}


# ---------------------------------------------------------------- running them


def executed(module: types.ModuleType, replaced: Replaced) -> Mapping[str, Any]:
    """The names of a module in which some functions have other texts: the same classes, and functions that call each
    other as those of the module do.
    """
    tree = ast.parse(inspect.getsource(module))
    for number, node in enumerate(tree.body):
        if isinstance(node, ast.FunctionDef) and (other := replaced.get(f"{module.__name__}.{node.name}")):
            tree.body[number] = copy.deepcopy(other)
    name = f"{module.__name__}, mutated"
    made = types.ModuleType(name)
    # Dataclasses look up the module that they are made in; the module itself is looked up by nobody afterwards.
    sys.modules[name] = made
    try:
        exec(compile(ast.fix_missing_locations(tree), f"<{name}>", "exec"), vars(made))
    finally:
        del sys.modules[name]
    return vars(made)
