"""Conditions as text in SMT-LIB, with what makes them up: each symbol and its range, each atom and its definition.

Every part's text is made once; a script is put together from those of its conditions. Each atom that is no symbol is
defined once in a script, so that what is shared stays shared. What has a definition that bounds it gets that one:
quotients by a constant, remainders, minima and maxima.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from vosti.kernels.verifier.integers import Atom, Cond, Int, floor, the_symbol

Part: TypeAlias = Atom | Cond
"""An atom, or a condition that is a symbol."""


class Scripts:
    """The scripts of one proof."""

    def __init__(self) -> None:
        self._parts: dict[Int | Cond | Atom, tuple[Part, ...]] = {}
        self._texts: dict[Int | Cond, str] = {}
        self._names: dict[Part, str] = {}
        self._definitions: dict[Part, tuple[str, ...]] = {}

    def parts(self, whole: Int | Cond | Atom) -> tuple[Part, ...]:
        """The atoms and the conditions that are symbols, each after those that it is made of."""
        if whole not in self._parts:
            found: dict[Part, None] = {}
            for inner in _inner(whole):
                found.update(dict.fromkeys(self.parts(inner)))
            if isinstance(whole, Atom) or (isinstance(whole, Cond) and whole.kind == "symbol"):
                found[whole] = None
            self._parts[whole] = tuple(found)
        return self._parts[whole]

    def script(self, conditions: Iterable[Cond]) -> tuple[str, Mapping[Atom, str]]:
        """The text that assumes the conditions, and what it calls each atom."""
        assumed = list(conditions)
        parts = dict.fromkeys(part for one in assumed for part in self.parts(one))
        lines = dict.fromkeys(line for part in parts for line in self._defined(part))
        lines.update((f"(assert {self._condition(one)})", None) for one in assumed)
        return "\n".join(lines), {part: self._names[part] for part in parts if isinstance(part, Atom)}

    # ------------------------------------------------------------ texts

    def _condition(self, one: Cond) -> str:
        if one not in self._texts:
            self._texts[one] = self._made(one)
        return self._texts[one]

    def _made(self, one: Cond) -> str:
        if one.value is not None:
            return one.kind
        if one.kind == "symbol":
            return self._names[one]
        if one.kind in ("le", "eq"):
            (value,) = one.parts
            assert isinstance(value, Int)
            return f"({'<=' if one.kind == 'le' else '='} {self._integer(value)} 0)"
        return f"({one.kind} {' '.join(self._condition(part) for part in one.parts)})"  # type: ignore[arg-type]

    def _integer(self, value: Int) -> str:
        if value not in self._texts:
            parts = []
            for monomial, coefficient in value.terms:
                factors = [self._names[atom] for atom in monomial]
                if coefficient != 1 or not factors:
                    factors.insert(0, _numeral(coefficient))
                parts.append(factors[0] if len(factors) == 1 else f"(* {' '.join(factors)})")
            self._texts[value] = "0" if not parts else parts[0] if len(parts) == 1 else f"(+ {' '.join(parts)})"
        return self._texts[value]

    def _defined(self, part: Part) -> tuple[str, ...]:
        """The lines that declare a part and say what it is; what it is made of is defined before."""
        if part not in self._definitions:
            symbolic = part.kind == "symbol"
            name = self._names[part] = f"|{part.parts[0]}|" if symbolic else f"t{len(self._names)}"
            declared = f"(declare-fun {name} () {'Int' if isinstance(part, Atom) else 'Bool'})"
            facts = (() if symbolic else self._facts(part, name)) if isinstance(part, Atom) else ()
            self._definitions[part] = (declared, *facts, *_range(part, name))
        return self._definitions[part]

    def _facts(self, atom: Atom, name: str) -> tuple[str, ...]:
        texts = [
            self._integer(one) if isinstance(one, Int) else self._condition(one)
            for one in atom.parts
            if isinstance(one, Int | Cond)
        ]
        if atom.kind == "element":
            return f"(declare-fun |{atom.name}| (Int) Int)", f"(assert (= {name} (|{atom.name}| {texts[0]})))"
        divisor = _constant_divisor(atom)
        if divisor and atom.kind == "mod":
            quotient = self._names[_quotient(atom)]
            return (f"(assert (= {name} (+ {texts[0]} (* {_numeral(-divisor)} {quotient}))))",)
        if divisor:
            least, most = f"(* {divisor} {name})", f"(+ {divisor - 1} (* {divisor} {name}))"
            return (f"(assert (<= {least} {texts[0]}))", f"(assert (<= {texts[0]} {most}))")
        order = _order(atom)
        if order:
            a, b = texts[1:]
            return (f"(assert (and ({order} {name} {a}) ({order} {name} {b}) (or (= {name} {a}) (= {name} {b}))))",)
        return (f"(assert (= {name} ({atom.kind} {' '.join(texts)})))",)


def _inner(whole: Int | Cond | Atom) -> Iterable[Int | Cond | Atom]:
    if isinstance(whole, Int):
        return whole.atoms()
    inner = [part for part in whole.parts if isinstance(part, Int | Cond)]
    if isinstance(whole, Atom) and whole.kind == "mod" and _constant_divisor(whole):
        return [*inner, _quotient(whole)]
    return inner


def _constant_divisor(atom: Atom) -> int:
    """By what it divides, if that is a number above 0; or 0."""
    if atom.kind not in ("div", "mod"):
        return 0
    _, divisor = atom.parts
    assert isinstance(divisor, Int)
    return max(divisor.constant or 0, 0)


def _quotient(remainder: Atom) -> Atom:
    """Of the same division."""
    value, divisor = remainder.parts
    assert isinstance(value, Int)
    assert isinstance(divisor, Int)
    return the_symbol(floor(value, divisor))


def _order(atom: Atom) -> str:
    """How a choice compares with both its sides, if it is a minimum or a maximum, as `choose` spells them."""
    one, a, b = atom.parts if atom.kind == "ite" else (None, None, None)
    if not (isinstance(a, Int) and isinstance(b, Int)):
        return ""
    return "<=" if one is (a <= b) else ">=" if one is (b <= a) else ""


def _range(part: Part, name: str) -> Iterable[str]:
    """The range of a symbol or an element; what else is defined has its range from that."""
    if isinstance(part, Atom) and part.kind in ("symbol", "element"):
        if part.low is not None:
            yield f"(assert (<= {_numeral(part.low)} {name}))"
        if part.high is not None:
            yield f"(assert (<= {name} {_numeral(part.high)}))"


def _numeral(value: int) -> str:
    return str(value) if value >= 0 else f"(- {-value})"
