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
        "return T.less(x, y)",
        "return T.at_most(x, y)",
    ),
    Fault(
        "> is ≥",
        "greater",
        "operations",
        "return T.less(y, x)",
        "return T.at_most(y, x)",
    ),
    Fault(
        "≥ is ≤",
        "at_least",
        "operations",
        "return T.at_most(y, x)",
        "return T.at_most(x, y)",
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
        "the arms of a conditional change places",
        "conditional",
        "compiler",
        "                return self.ite(condition, yes, no)",
        "                return self.ite(condition, no, yes)",
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
        "            with self.given(condition):\n                value =",
        "            with self.given():\n                value =",
    ),
    Fault(
        "a comprehension needs nothing of its filter",
        "chosen_set_needs",
        "comprehensions",
        "            self.connected(True, node.generators[0].ifs, at(k))\n        return Set",
        "            pass\n        return Set",
    ),
    Fault(
        "enumerate begins at 1",
        "every_enumerated",
        "comprehensions",
        "(integer_value(i), self.item(of_value, i)) if indexed",
        "(integer_value(T.plus(i, T.integer(1))), self.item(of_value, i)) if indexed",
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
        "i = T.plus(length, i)",
        "i = T.integer(0)",
    ),
    Fault(
        "an index needs nothing",
        "item",
        "compiler",
        "self.need(T.within(i, length))",
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
        "self.need(conj(T.at_most(T.integer(0), lo), T.at_most(lo, hi), T.at_most(hi, length)))",
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
        "lambda i: v.at(T.plus(lo, i))",
        "lambda i: v.at(i)",
    ),
    Fault(
        "// needs nothing",
        "quotient",
        "operations",
        "case ast.FloorDiv():\n                self.need(T.less(T.integer(0), y))",
        "case ast.FloorDiv():\n                pass",
    ),
    Fault(
        "% is //",
        "remainder",
        "operations",
        "else theory.MODULO(x, y)",
        "else theory.DIVIDE(x, y)",
    ),
    Fault(
        "- is +",
        "added",
        "operations",
        "return T.minus(x, y)",
        "return T.plus(x, y)",
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
        "self.ite(equal(i, v.length), new, v.at(i))",
        "self.ite(equal(i, T.integer(0)), new, v.at(i))",
    ),
    Fault(
        "an append is no member",
        "grown_has",
        "operations",
        "disj(self.member(Scalar(item, y), v), self.equal(Scalar(item, y), new))",
        "self.member(Scalar(item, y), v)",
    ),
    Fault(
        "tuples are joined the other way round",
        "joined_texts",
        "operations",
        ".concat(a.term, tail.term)",
        ".concat(tail.term, a.term)",
    ),
    Fault(
        "a joined closure does not move",
        "joined",
        "operations",
        "second.at(T.minus(i, first.length))",
        "second.at(i)",
    ),
    Fault(
        "a joined closure has the first's members",
        "joined_has",
        "operations",
        "disj(self.member(Scalar(item, x), first), self.member(Scalar(item, x), second))",
        "self.member(Scalar(item, x), first)",
    ),
    Fault(
        "difference is intersection",
        "difference",
        "operations",
        "conj(a.has(k), neg(b.has(k)))",
        "conj(a.has(k), b.has(k))",
    ),
    Fault(
        "union is intersection",
        "union",
        "operations",
        "disj(a.has(k), b.has(k)), TRUE if",
        "conj(a.has(k), b.has(k)), TRUE if",
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
        "lambda x: disj(equal(x, k), m.has(x))",
        "m.has",
    ),
    Fault(
        "an updated mapping keeps the old value",
        "updated",
        "operations",
        "self.ite(equal(x, k), v, m.get(x))",
        "self.ite(m.has(x), m.get(x), v)",
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
        "compiler",
        "return self.ite(first.has(key), first.get(key), second.get(key))",
        "return self.ite(second.has(key), second.get(key), first.get(key))",
    ),
    Fault(
        "update adds no key",
        "persistent_update",
        "compiler",
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
        "return self.record(record.type, record.fields, keywords, env)",
        'return self.symbolic(record.type, "forgotten")',
    ),
    Fault(
        "an absent argument is passed as a value",
        "opaque_call",
        "symbols",
        "return (v.none, ite(v.none, nothing, some.term))",
        "return (T.FALSE, ite(v.none, nothing, some.term))",
    ),
    Fault(
        "all comprehended sets are one",
        "sizes_of_two_sets",
        "symbols",
        'name = f"set_{sets.element}!{_shape([body], (x, *free))}"',
        'name = f"set_{sets.element}!one"',
    ),
    Fault(
        "a comprehended set forgets what it depends on",
        "sizes_of_sets",
        "symbols",
        "free = tuple(p for p in T.parameters_of([body]) if p is not x)",
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
