"""The text of functions: found by the function object, parsed once, and replaceable for experiments."""

from __future__ import annotations

import ast
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vosti.refinement.smt.values import Refused, Type, type_of


@dataclass(frozen=True)
class Function:
    """A function of the project, as text."""

    module: types.ModuleType
    node: ast.FunctionDef
    parameters: tuple[tuple[str, Type], ...]
    result: Type
    opaque: bool
    """Whether proofs know its type alone."""


class Sources:
    """Functions by object. `replaced` holds other texts, by qualified name ("vosti.spec.actions.evict")."""

    def __init__(self, replaced: Mapping[str, ast.FunctionDef] | None = None):
        self.replaced = dict(replaced or {})
        self.trees: dict[str, dict[str, ast.FunctionDef]] = {}
        self.functions: dict[Callable[..., object], Function] = {}

    def function(self, f: Callable[..., object]) -> Function:
        """The text of a function.

        Raises:
            Refused: if it is no function at the top of a module, or not annotated throughout.
        """
        if f not in self.functions:
            name = f"{f.__module__}.{f.__qualname__}"
            module = sys.modules[f.__module__]
            if f.__module__ not in self.trees:
                tree = ast.parse(inspect.getsource(module))
                self.trees[f.__module__] = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
            node = self.replaced.get(name) or self.trees[f.__module__].get(f.__name__)
            if node is None or f.__qualname__ != f.__name__:
                raise Refused(f"{name} is no function at the top of a module")
            hints = typing.get_type_hints(f)
            unknown = [a.arg for a in node.args.args if a.arg not in hints]
            if unknown or "return" not in hints or node.args.kwonlyargs or node.args.vararg or node.args.kwarg:
                raise Refused(f"{name}: every parameter is positional and annotated, and so is the result")
            parameters = tuple((a.arg, type_of(hints[a.arg])) for a in node.args.args)
            opaque = any(isinstance(d, ast.Name) and d.id == "opaque" for d in node.decorator_list)
            self.functions[f] = Function(module, node, parameters, type_of(hints["return"]), opaque)
        return self.functions[f]

    def resolve(self, module: types.ModuleType, node: ast.expr) -> object:
        """What a name, or a name of an imported module, stands for in a module; None if it is neither."""
        if isinstance(node, ast.Name):
            return vars(module).get(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = vars(module).get(node.value.id)
            return vars(owner).get(node.attr) if isinstance(owner, types.ModuleType) else None
        return None
