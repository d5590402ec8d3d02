"""Faults seeded into the compiler, one at a time: what its tests must find."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

PACKAGE = "vosti.refinement.smt"
MODULES = ("terms", "theory", "values", "source", "symbols", "operations", "comprehensions", "compiler")
"""The compiler's modules, each after those that it imports."""


@dataclass(frozen=True)
class Fault:
    """One place of the text, made wrong."""

    what: str
    found_by: str
    """A function of `subset_forms` that shows it."""

    module: str
    right: str
    wrong: str


FAULTS = (
    Fault(
        "< is ≤",
        "smaller",
        "operations",
        "ast.Lt: T.less",
        "ast.Lt: T.at_most",
    ),
    Fault(
        "> is ≥",
        "greater",
        "operations",
        "ast.Gt: lambda x, y: T.less(y, x)",
        "ast.Gt: lambda x, y: T.at_most(y, x)",
    ),
    Fault(
        "≥ is ≤",
        "at_least",
        "operations",
        "ast.GtE: lambda x, y: T.at_most(y, x)",
        "ast.GtE: lambda x, y: T.at_most(x, y)",
    ),
    Fault(
        "numerals compared with ≤",
        "constants_compared",
        "terms",
        '"<": x < y',
        '"<": x <= y',
    ),
    Fault(
        "and is or",
        "both",
        "comprehensions",
        "return conj(*found) if conjunction else disj(*found)",
        "return disj(*found) if conjunction else conj(*found)",
    ),
    Fault(
        "what follows and needs nothing of it",
        "both",
        "comprehensions",
        "with self.given(*(found if conjunction else map(neg, found))):",
        "with self.given():",
    ),
    Fault(
        "a chain of comparisons is its last link",
        "chained",
        "compiler",
        "            a = b\n        return conj(*found)",
        "            a = b\n        return found[-1]",
    ),
    Fault(
        "a link needs nothing of those before it",
        "chained_guard",
        "compiler",
        "            with self.given(*found):\n",
        "            with self.given():\n",
    ),
    Fault(
        "a number of the module is another",
        "module_constant",
        "compiler",
        "T.integer(self.constant(node))",
        "T.integer(self.constant(node) + 1)",
    ),
    Fault(
        "the arms of a conditional change places",
        "conditional",
        "compiler",
        "return self.ite(condition, first, second)",
        "return self.ite(condition, second, first)",
    ),
    Fault(
        "an early return is ignored",
        "early",
        "compiler",
        "return self.ite(condition, first, second)",
        "return second",
    ),
    Fault(
        "range ends late",
        "every_index",
        "comprehensions",
        "(T.at_most(lo, i), T.less(i, hi))",
        "(T.at_most(lo, i), T.at_most(i, hi))",
    ),
    Fault(
        "range begins at 0",
        "every_second",
        "comprehensions",
        "(T.at_most(lo, i), T.less(i, hi))",
        "(T.at_most(T.integer(0), i), T.less(i, hi))",
    ),
    Fault(
        "all is any",
        "every_key",
        "comprehensions",
        "if universal:",
        "if not universal:",
    ),
    Fault(
        "a quantifier has no domain",
        "every_key",
        "comprehensions",
        "T.implies(domain, value), self.counters",
        "value, self.counters",
    ),
    Fault(
        "what an element needs is forgotten",
        "every_index_needs",
        "symbols",
        "for need in inner:",
        "for need in ():",
    ),
    Fault(
        "a filter is ignored",
        "comprehended",
        "comprehensions",
        "conj(domain.has(k), self.connected(True, g.ifs, at(k)))",
        "domain.has(k)",
    ),
    Fault(
        "a filter protects nothing",
        "comprehended_from_path",
        "comprehensions",
        "            with self.given(condition):\n                values =",
        "            with self.given():\n                values =",
    ),
    Fault(
        "a comprehension needs nothing of its filter",
        "chosen_set_needs",
        "comprehensions",
        "condition = self.connected(True, g.ifs, at(k))",
        "condition = T.TRUE",
    ),
    Fault(
        "enumerate begins at 1",
        "every_enumerated",
        "comprehensions",
        "(integer_value(i), t.at(i)) if view",
        "(integer_value(T.plus(i, T.integer(1))), t.at(i)) if view",
    ),
    Fault(
        "tuple(range) is one longer",
        "tuple_from_range",
        "comprehensions",
        "T.not_negative(n)",
        "T.plus(T.not_negative(n), T.integer(1))",
    ),
    Fault(
        "tuple(range) of a negative number",
        "length_of_tuple_from_range",
        "comprehensions",
        "T.not_negative(n)",
        "n",
    ),
    Fault(
        "t[-1] is t[0]",
        "last",
        "compiler",
        "i = T.plus(t.length, i)",
        "i = T.integer(0)",
    ),
    Fault(
        "an index needs nothing",
        "item",
        "compiler",
        "self.need(T.within(i, t.length))",
        "pass",
    ),
    Fault(
        "a key needs nothing",
        "looked_up",
        "compiler",
        "self.need(of.has(key))",
        "pass",
    ),
    Fault(
        "a slice needs nothing",
        "sliced",
        "compiler",
        "self.need(conj(T.at_most(T.integer(0), lo), T.at_most(lo, hi), T.at_most(hi, whole.length)))",
        "pass",
    ),
    Fault(
        "a slice begins at 0",
        "sliced",
        "compiler",
        "return self.slice(whole, lo, hi)",
        "return self.slice(whole, T.integer(0), hi)",
    ),
    Fault(
        "a slice of a closure does not move",
        "sliced",
        "operations",
        "lambda i: t.at(T.plus(lo, i))",
        "lambda i: t.at(i)",
    ),
    Fault(
        "// needs nothing",
        "quotient",
        "operations",
        "isinstance(op, ast.FloorDiv | ast.Mod)",
        "isinstance(op, ast.Mod)",
    ),
    Fault(
        "% is //",
        "remainder",
        "operations",
        "ast.Mod: theory.MODULO",
        "ast.Mod: theory.DIVIDE",
    ),
    Fault(
        "- is +",
        "added",
        "operations",
        "ast.Sub: T.minus",
        "ast.Sub: T.plus",
    ),
    Fault(
        "min is max",
        "least",
        "compiler",
        '(a, b) if name == "min" else (b, a)',
        '(b, a) if name == "min" else (a, b)',
    ),
    Fault(
        "not in is in",
        "not_member",
        "operations",
        "return neg(self.member(a, b))",
        "return self.member(a, b)",
    ),
    Fault(
        "!= is ==",
        "unequal",
        "operations",
        "return neg(self.equal(a, b))",
        "return self.equal(a, b)",
    ),
    Fault(
        "None is in every mapping",
        "option_in",
        "operations",
        "return conj(neg(x.none), self.member(x.some, of))",
        "return disj(x.none, self.member(x.some, of))",
    ),
    Fault(
        "None equals any value",
        "equal_options",
        "operations",
        "disj(conj(a.none, b.none), conj(neg(a.none), neg(b.none), self.equal(a.some, b.some)))",
        "disj(a.none, b.none, self.equal(a.some, b.some))",
    ),
    Fault(
        "None as a key needs nothing",
        "option_unchecked",
        "operations",
        "self.need(neg(v.none))",
        "pass",
    ),
    Fault(
        "records are equal in one field",
        "equal_records",
        "operations",
        "self.equal(a.fields[f], b.fields[f]) for f in a.fields",
        "self.equal(a.fields[f], b.fields[f]) for f in list(a.fields)[:1]",
    ),
    Fault(
        "tuples are equal in length",
        "equal_paths",
        "operations",
        "return conj(equal(a.length, b.length), T.for_all([i], same))",
        "return equal(a.length, b.length)",
    ),
    Fault(
        "mappings are equal in their keys",
        "equal_mappings",
        "operations",
        "T.for_all([k], entries))",
        "T.TRUE)",
    ),
    Fault(
        "sets are equal if one contains the other",
        "equal_sets",
        "operations",
        "return T.for_all([k], equal(a.has(k), b.has(k)))",
        "return T.for_all([k], T.implies([a.has(k)], b.has(k)))",
    ),
    Fault(
        "an append goes to the front",
        "grown",
        "operations",
        "self.ite(equal(i, t.length), new, t.at(i))",
        "self.ite(equal(i, T.integer(0)), new, t.at(i))",
    ),
    Fault(
        "an append is no member",
        "grown_has",
        "operations",
        "disj(self.contains(t, y), self.equal(self.scalar(t.type.item, y), new))",
        "self.contains(t, y)",
    ),
    Fault(
        "tuples are joined the other way round",
        "joined_texts",
        "operations",
        ".concat(a.term, b.term)",
        ".concat(b.term, a.term)",
    ),
    Fault(
        "a joined closure does not move",
        "joined",
        "operations",
        "b.at(T.minus(i, a.length))",
        "b.at(i)",
    ),
    Fault(
        "a joined closure has the first's members",
        "joined_has",
        "operations",
        "disj(self.contains(a, x), self.contains(b, x))",
        "self.contains(a, x)",
    ),
    Fault(
        "difference is intersection",
        "difference",
        "operations",
        "ast.Sub: lambda a, b: conj(a, neg(b))",
        "ast.Sub: conj",
    ),
    Fault(
        "union is intersection",
        "union",
        "operations",
        "ast.BitOr: disj",
        "ast.BitOr: conj",
    ),
    Fault(
        "a set with one element is empty",
        "single_is_not_empty",
        "compiler",
        "T.equal(x, term), T.TRUE)",
        "T.equal(x, term), T.FALSE)",
    ),
    Fault(
        "an updated mapping has no new key",
        "updated",
        "operations",
        "self.overlaid(m, Map(m.type, lambda x: equal(x, k), lambda x: v))",
        "Map(m.type, m.has, lambda x: self.ite(equal(x, k), v, m.get(x)))",
    ),
    Fault(
        "an updated mapping keeps the old value",
        "updated",
        "operations",
        "self.overlaid(m, Map(m.type, lambda x: equal(x, k), lambda x: v))",
        "self.overlaid(Map(m.type, lambda x: equal(x, k), lambda x: v), m)",
    ),
    Fault(
        "delete removes nothing",
        "persistent_delete",
        "compiler",
        "lambda x: conj(neg(T.equal(x, k)), m.has(x))",
        "m.has",
    ),
    Fault(
        "delete needs nothing",
        "persistent_delete",
        "compiler",
        "self.need(m.has(k))",
        "pass",
    ),
    Fault(
        "get never gives None",
        "persistent_get",
        "compiler",
        "Option(OptionType(m.type.value), neg(m.has(k)), m.get(k))",
        "Option(OptionType(m.type.value), T.FALSE, m.get(k))",
    ),
    Fault(
        "update prefers the old value",
        "persistent_update",
        "operations",
        "self.ite(new.has(x), new.get(x), m.get(x))",
        "self.ite(m.has(x), m.get(x), new.get(x))",
    ),
    Fault(
        "update adds no key",
        "persistent_update",
        "operations",
        "lambda x: disj(new.has(x), m.has(x))",
        "m.has",
    ),
    Fault(
        "without removes nothing",
        "persistent_without",
        "operations",
        "conj(m.has(k), neg(self.member(Scalar(m.type.key, k), keys)))",
        "m.has(k)",
    ),
    Fault(
        "replace forgets what it does not replace",
        "replaced",
        "compiler",
        'return self.record(expect(RecordType, record.type, "no names"), record.fields, keywords, env)',
        'return self.symbolic(record.type, "forgotten")',
    ),
    Fault(
        "an absent argument is passed as a value",
        "opaque_call",
        "symbols",
        "return (v.none, ite(",
        "return (T.FALSE, ite(",
    ),
    Fault(
        "all comprehended sets are one",
        "sizes_of_two_sets",
        "symbols",
        "!h{hashlib.sha256(said.encode()).hexdigest()[:12]}",
        "!one",
    ),
    Fault(
        "a comprehended set forgets what it depends on",
        "sizes_of_sets",
        "symbols",
        "free = tuple(p for p in T.parameters_of(parts) if p is not x)",
        "free = ()",
    ),
)


@cache
def _code(text: str, path: str) -> types.CodeType:
    return compile(text, path, "exec")


@contextmanager
def seeded(fault: Fault) -> Iterator[tuple[types.ModuleType, types.ModuleType]]:
    """The modules `compiler` and `values`, with one fault somewhere in the compiler; the sound ones come back."""
    sound = {f"{PACKAGE}.{name}": import_module(f"{PACKAGE}.{name}") for name in MODULES}
    package = import_module(PACKAGE)
    try:
        for name in MODULES:
            qualified = f"{PACKAGE}.{name}"
            path = Path(str(sound[qualified].__file__))
            text = path.read_text()
            if name == fault.module:
                if text.count(fault.right) != 1:
                    raise ValueError(f"{fault.what}: its place occurs {text.count(fault.right)} times in {name}")
                text = text.replace(fault.right, fault.wrong)
            module = types.ModuleType(qualified)
            module.__file__ = str(path)
            sys.modules[qualified] = module
            setattr(package, name, module)
            exec(_code(text, str(path)), vars(module))
        yield sys.modules[f"{PACKAGE}.compiler"], sys.modules[f"{PACKAGE}.values"]
    finally:
        sys.modules.update(sound)
        for qualified, module in sound.items():
            setattr(package, qualified.rpartition(".")[2], module)
