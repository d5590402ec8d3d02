"""Mutants by rule: one small change of a module's syntax tree.

| operator | change |
| --- | --- |
| comparison | `<` and `<=`, `>` and `>=`, `==` and `!=`, `in` and `not in`, `is` and `is not` change places |
| constant | an integer, one more and one less; True and False |
| arithmetic | `+` and `-`, `//` and `*`, `%` and `//` change places |
| connective | `and` and `or` change places; `not x` becomes x |
| condition | of `if`, `while`, a conditional expression or a filter: negated |
| bound | a slice without its lower, or its upper end |
| choice | `min` and `max` change places |
| argument | the first two arguments of a call change places; one argument by name of `replace` is left out |
| element | one element of a tuple or list is left out |
| statement | an assignment to a field or an item, a call, `break`, `continue` or an early `return` is left out |

Assertions, annotations, messages of errors and docstrings are no behaviour, and stay.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

SWAPPED: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mult: ast.FloorDiv,
    ast.Mod: ast.FloorDiv,
    ast.And: ast.Or,
    ast.Or: ast.And,
}

Edit = Callable[[ast.AST], None]
"""Changes a node of a copy of the tree in place."""


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    module: str
    """Below `vosti.impl`."""

    function: str
    """Where the change is: the qualified name of a function."""

    operator: str
    change: str
    """The line as it was, and as it is; where a function has the same change twice, a number."""

    source: str
    """The module's text with the change."""

    @property
    def name(self) -> str:
        """What data files call it."""
        return f"{self.module}:{self.function}: {self.change}"

    @property
    def rank(self) -> str:
        """Its place in a fixed order that has nothing to do with where it stands."""
        return hashlib.sha256(self.name.encode()).hexdigest()


def mutants(module: str, source: str) -> list[Mutant]:
    """All mutants of a module."""
    found: list[Mutant] = []
    lines = source.splitlines()
    for function, text in _functions(ast.parse(source).body, ()):
        nodes, behaviour = list(ast.walk(text)), {id(node) for node in _behaviour(text.body)}
        seen: Counter[str] = Counter()
        for number, node in enumerate(nodes):
            if id(node) not in behaviour:
                continue
            for operator, edit in edits(node):
                other = copy.deepcopy(text)
                others = list(ast.walk(other))
                edit(others[number])
                change = f"{operator}: {_line(nodes, node)} -> {_line(others, others[number])}"
                seen[change] += 1
                if seen[change] > 1:
                    change += f" ({seen[change]})"
                found.append(Mutant(module, function, operator, change, _spliced(lines, text, other)))
    return found


def _functions(body: list[ast.stmt], path: tuple[str, ...]) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a module and the methods of its classes, protocols aside."""
    for node in body:
        match node:
            case ast.ClassDef(bases=bases) if any(isinstance(b, ast.Name) and b.id == "Protocol" for b in bases):
                continue
            case ast.ClassDef():
                yield from _functions(node.body, (*path, node.name))
            case ast.FunctionDef():
                yield ".".join((*path, node.name)), node


def _spliced(lines: list[str], text: ast.FunctionDef, other: ast.FunctionDef) -> str:
    """The module with a function's other text."""
    first = min(text.lineno, *(decorator.lineno for decorator in text.decorator_list), text.lineno)
    written = textwrap.indent(ast.unparse(ast.fix_missing_locations(other)), " " * text.col_offset)
    return "\n".join([*lines[: first - 1], written, *lines[text.end_lineno :], ""])


def _line(nodes: list[ast.AST], node: ast.AST) -> str:
    """The innermost expression or statement that shows a change of a node."""
    shown = node if isinstance(node, ast.expr | ast.stmt) else _owner(nodes, node)
    return ast.unparse(shown).splitlines()[0][:90]


def _owner(nodes: list[ast.AST], node: ast.AST) -> ast.AST:
    return next((n for n in nodes if any(child is node for child in ast.iter_child_nodes(n))), node)


def _behaviour(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes below some statements that are behaviour."""
    for node in body:
        match node:
            case ast.Assert() | ast.Raise() | ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                continue
            case ast.AnnAssign(value=value):
                yield from _behaviour([] if value is None else [value])
            case ast.FunctionDef(body=inner):
                yield from _behaviour(inner)
            case _:
                yield node
                yield from _behaviour(ast.iter_child_nodes(node))


def edits(node: ast.AST) -> Iterator[tuple[str, Edit]]:
    """The changes of one node, by operator."""
    match node:
        case ast.Compare(ops=ops):
            for i, _ in enumerate(ops):
                yield "comparison", _swap_in_list("ops", i)
        case ast.BinOp(op=op) if type(op) in SWAPPED:
            yield "arithmetic", _swap("op")
        case ast.AugAssign(op=op) if type(op) in SWAPPED:
            yield "arithmetic", _swap("op")
            yield "statement", _pass
        case ast.BoolOp():
            yield "connective", _swap("op")
        case ast.Constant(value=bool() as value):
            yield "constant", _set_value(not value)
        case ast.Constant(value=int() as value):
            yield "constant", _set_value(value + 1)
            yield "constant", _set_value(value - 1)
        case ast.Slice(lower=lower, upper=upper):
            if lower is not None:
                yield "bound", _set("lower")
            if upper is not None:
                yield "bound", _set("upper")
        case ast.Tuple(elts=elements, ctx=ast.Load()) | ast.List(elts=elements, ctx=ast.Load()) if len(elements) > 1:
            for i, _ in enumerate(elements):
                yield "element", _drop("elts", i)
        case ast.Call():
            yield from _call(node)
        case ast.If() | ast.While() | ast.IfExp():
            yield "condition", _negate("test")
        case ast.comprehension(ifs=ifs):
            for i, _ in enumerate(ifs):
                yield "condition", _drop("ifs", i)
        case ast.Expr(value=ast.Call()) | ast.Break() | ast.Continue():
            yield "statement", _pass
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Delete():
            yield "statement", _pass
        case ast.Return(value=None):
            yield "statement", _pass


def _call(node: ast.Call) -> Iterator[tuple[str, Edit]]:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in ("min", "max"):
        yield "choice", _rename("max" if name == "min" else "min")
    if len(node.args) > 1 and name not in ("min", "max", "isinstance") and not isinstance(node.args[0], ast.Starred):
        yield "argument", _exchange
    if name == "replace":
        for i, _ in enumerate(node.keywords):
            yield "argument", _drop("keywords", i)


def _swap(field: str) -> Edit:
    def edit(node: ast.AST) -> None:
        setattr(node, field, SWAPPED[type(getattr(node, field))]())

    return edit


def _swap_in_list(field: str, i: int) -> Edit:
    def edit(node: ast.AST) -> None:
        values = getattr(node, field)
        values[i] = SWAPPED[type(values[i])]()

    return edit


def _set_value(value: object) -> Edit:
    def edit(node: ast.AST) -> None:
        node.value = value  # type: ignore[attr-defined]

    return edit


def _set(field: str) -> Edit:
    def edit(node: ast.AST) -> None:
        setattr(node, field, None)

    return edit


def _drop(field: str, i: int) -> Edit:
    def edit(node: ast.AST) -> None:
        del getattr(node, field)[i]

    return edit


def _negate(field: str) -> Edit:
    def edit(node: ast.AST) -> None:
        setattr(node, field, ast.UnaryOp(op=ast.Not(), operand=getattr(node, field)))

    return edit


def _rename(name: str) -> Edit:
    def edit(node: ast.AST) -> None:
        node.func.id = name  # type: ignore[attr-defined]

    return edit


def _exchange(node: ast.AST) -> None:
    assert isinstance(node, ast.Call)
    node.args[0], node.args[1] = node.args[1], node.args[0]


def _pass(node: ast.AST) -> None:
    """The statement becomes `pass`, whatever it was."""
    node.__class__ = ast.Pass
    for field in list(vars(node)):
        if field not in ("lineno", "col_offset", "end_lineno", "end_col_offset"):
            delattr(node, field)
