"""Exact integers and conditions: polynomials over atoms, in one normal form each.

An `Int` is a polynomial with integer coefficients; its atoms are symbols (a lane, a program's number, a parameter),
elements of integer buffers, and what is no polynomial: ⌊a / d⌋, a mod d, and a choice between two. A `Cond` is a truth
value over them. Equal polynomials are one object, so that most addresses are compared without a solver. What is
simplified holds for all integers: division and remainder are those of floor division, and the bounds of a symbol are
part of it (every query states them, see `vosti.kernels.verifier.queries`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import count
from operator import mul
from typing import TypeAlias
from weakref import WeakValueDictionary


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Atom:
    """What polynomials are made of. `kind` says what `parts` are.

    symbol: name · element: buffer, index · div, mod: dividend, divisor · ite: condition, value if true, value if not.
    """

    kind: str
    parts: tuple[object, ...]
    low: int | None
    high: int | None
    number: int
    """Of creation: the order of atoms in a monomial."""

    @property
    def name(self) -> str:
        """Of a symbol, or the buffer of an element."""
        return str(self.parts[0])


Monomial = tuple[Atom, ...]


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Int:
    """Σ coefficient · monomial, the monomials in ascending order and the coefficients not 0."""

    terms: tuple[tuple[Monomial, int], ...]
    low: int | None
    high: int | None
    """The lowest and the highest value, as far as the atoms' own ranges tell."""

    @property
    def constant(self) -> int | None:
        """Its value, if it depends on nothing."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    def __add__(self, other: Int | int) -> Int:
        return _sum((self, integer(other)))

    __radd__ = __add__

    def __neg__(self) -> Int:
        return _made({monomial: -coefficient for monomial, coefficient in self.terms})

    def __sub__(self, other: Int | int) -> Int:
        total = dict(self.terms)
        for monomial, coefficient in integer(other).terms:
            total[monomial] = total.get(monomial, 0) - coefficient
        return _made(total)

    def __rsub__(self, other: Int | int) -> Int:
        return integer(other) - self

    def __mul__(self, other: Int | int) -> Int:
        product: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in integer(other).terms:
                monomial = tuple(sorted(left + right, key=_number)) if left and right else left or right
                product[monomial] = product.get(monomial, 0) + a * b
        return _made(product)

    __rmul__ = __mul__

    def __floordiv__(self, other: Int | int) -> Int:
        return _divided(self, integer(other))[0]

    def __rfloordiv__(self, other: int) -> Int:
        return _divided(integer(other), self)[0]

    def __mod__(self, other: Int | int) -> Int:
        return _divided(self, integer(other))[1]

    def __rmod__(self, other: int) -> Int:
        return _divided(integer(other), self)[1]

    def __le__(self, other: Int | int) -> Cond:
        return _compared("le", self - other)

    def __lt__(self, other: Int | int) -> Cond:
        return _compared("le", self - other + 1)

    def __ge__(self, other: Int | int) -> Cond:
        return _compared("le", integer(other) - self)

    def __gt__(self, other: Int | int) -> Cond:
        return _compared("le", integer(other) - self + 1)

    def atoms(self) -> Iterator[Atom]:
        """The atoms of its monomials."""
        for monomial, _ in self.terms:
            yield from monomial

    def __str__(self) -> str:
        return _shown(self)


class Symbolic:
    """A condition that a text must not branch by unseen: by `not`, `if` or a chain that nobody made terms of."""

    __slots__ = ()

    def __bool__(self) -> bool:
        raise TypeError("a text decides by a condition in a form that is not understood")


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Cond(Symbolic):
    """A condition. `kind` says what `parts` are.

    true, false · le, eq: a polynomial that is ≤ 0, = 0 · and, or: conditions · not: a condition · symbol: name.
    """

    kind: str
    parts: tuple[object, ...] = ()

    def __and__(self, other: Cond) -> Cond:
        return conj(self, other)

    def __or__(self, other: Cond) -> Cond:
        return disj(self, other)

    def __invert__(self) -> Cond:
        return neg(self)

    @property
    def value(self) -> bool | None:
        """Its truth value, if it depends on nothing."""
        return {"true": True, "false": False}.get(self.kind)

    def __str__(self) -> str:
        return _shown_condition(self)


# Hash consing, as in `vosti.refinement.smt.terms`: it holds nothing that nobody else holds.
_NUMBERS = count()
_ATOMS: WeakValueDictionary[tuple[object, ...], Atom] = WeakValueDictionary()
_INTS: WeakValueDictionary[frozenset[tuple[Monomial, int]], Int] = WeakValueDictionary()
_CONDS: WeakValueDictionary[tuple[object, ...], Cond] = WeakValueDictionary()


@contextmanager
def anew() -> Iterator[None]:
    """Within, atoms are made and numbered anew: a proof does not depend on what was proved before or is kept.

    (The order of monomials is that of their atoms' numbers.) What was made within is not to be mixed with the rest.
    """
    global _NUMBERS, _ATOMS, _INTS, _CONDS
    before = _NUMBERS, _ATOMS, _INTS, _CONDS
    numerals = {frozenset(value.terms): value for value in _INTS.values() if value.constant is not None}
    truths: dict[tuple[object, ...], Cond] = {(value.kind,): value for value in (TRUE, FALSE)}
    _NUMBERS, _ATOMS = count(), WeakValueDictionary()
    _INTS, _CONDS = WeakValueDictionary(numerals), WeakValueDictionary(truths)
    try:
        yield
    finally:
        _NUMBERS, _ATOMS, _INTS, _CONDS = before


def _number(atom: Atom) -> int:
    return atom.number


def _order(item: tuple[Monomial, int]) -> tuple[int, ...]:
    return tuple(atom.number for atom in item[0])


def _atom(kind: str, parts: tuple[object, ...], low: int | None, high: int | None) -> Int:
    key = (kind, *parts)
    atom = _ATOMS.get(key)
    if atom is None:
        atom = _ATOMS[key] = Atom(kind, parts, low, high, next(_NUMBERS))
    return _made({(atom,): 1})


def _made(terms: Mapping[Monomial, int]) -> Int:
    key = frozenset([item for item in terms.items() if item[1]])
    value = _INTS.get(key)
    if value is None:
        value = _INTS[key] = _undivided(terms) or Int(tuple(sorted(key, key=_order)), *_bounds(key))
    return value


def _undivided(terms: Mapping[Monomial, int]) -> Int | None:
    """d · ⌊a / d⌋ + a mod d = a, for d > 0; None if the terms have nothing of this form."""
    for monomial, coefficient in terms.items():
        if len(monomial) == 1 and monomial[0].kind == "mod" and coefficient:
            dividend, divisor = monomial[0].parts
            assert isinstance(dividend, Int)
            assert isinstance(divisor, Int)
            quotient = _ATOMS.get(("div", dividend, divisor))
            d = divisor.constant or 0
            if d > 0 and quotient is not None and terms.get((quotient,)) == d * coefficient:
                rest = {m: c for m, c in terms.items() if m not in (monomial, (quotient,))}
                return _sum((_made(rest), dividend * coefficient))
    return None


def _sum(values: Iterable[Int]) -> Int:
    total: dict[Monomial, int] = {}
    for value in values:
        for monomial, coefficient in value.terms:
            total[monomial] = total.get(monomial, 0) + coefficient
    return _made(total)


def _cond(kind: str, *parts: object) -> Cond:
    key = (kind, *parts)
    value = _CONDS.get(key)
    if value is None:
        value = _CONDS[key] = Cond(kind, parts)
    return value


TRUE, FALSE = _cond("true"), _cond("false")


def truth(value: bool) -> Cond:
    """A truth value."""
    return TRUE if value else FALSE


def integer(value: Int | int) -> Int:
    """A number as a polynomial."""
    return value if isinstance(value, Int) else _made({(): int(value)})


def symbol(name: str, low: int | None = None, high: int | None = None) -> Int:
    """A symbol, with the lowest and the highest value that it can have."""
    return _atom("symbol", (name, low, high), low, high)


def element(buffer: str, index: Int, low: int, high: int) -> Int:
    """An element of an integer buffer, with the range of its type."""
    return _atom("element", (buffer, index), low, high)


def alone(atom: Atom) -> Int:
    """An atom as a polynomial."""
    return _made({(atom,): 1})


def condition(name: str) -> Cond:
    """A truth value that is a symbol."""
    return _cond("symbol", name)


_Range = tuple[int | None, int | None]


def _bounds(terms: Iterable[tuple[Monomial, int]]) -> _Range:
    low: int | None = 0
    high: int | None = 0
    for monomial, coefficient in terms:
        span: _Range = (1, 1)
        for atom in monomial:
            span = _product(span, (atom.low, atom.high))
        below, above = span if coefficient > 0 else span[::-1]
        low = None if low is None or below is None else low + coefficient * below
        high = None if high is None or above is None else high + coefficient * above
    return low, high


def _product(left: _Range, right: _Range) -> _Range:
    if left[0] is None or right[0] is None or left[0] < 0 or right[0] < 0:
        if None in left or None in right:
            return None, None
        products = [a * b for a in left for b in right]  # type: ignore[operator]
        return min(products), max(products)
    return left[0] * right[0], None if left[1] is None or right[1] is None else left[1] * right[1]


def _fits(value: Int, length: int) -> bool:
    low, high = value.low, value.high
    return low is not None and high is not None and 0 <= low and high < length


def _divided(value: Int, divisor: Int) -> tuple[Int, Int]:
    """⌊value / divisor⌋ and the remainder."""
    d = divisor.constant
    if d is None or d <= 0:
        low, high = divisor.low, divisor.high
        most = None if high is None or low is None or low < 1 else high - 1
        quotient = _atom("div", (value, divisor), None, None)
        return quotient, _atom("mod", (value, divisor), None if most is None else 0, most)
    quotient = _made({monomial: coefficient // d for monomial, coefficient in value.terms})
    # Of each coefficient the remainder stays: value = d · quotient + rest.
    rest = _made({monomial: coefficient % d for monomial, coefficient in value.terms})
    if any(c % d and c // d for m, c in value.terms if m):
        # A coefficient such as 65 for d = 64 is not split: it would double the atoms.
        quotient = _made({m: c // d for m, c in value.terms if not m or c % d == 0})
        rest = value - d * quotient
    if _fits(rest, d):
        return quotient, rest
    for g in sorted({math.gcd(d, c) for m, c in rest.terms if m} - {1, d}, reverse=True):
        # ⌊(g · a + r) / (g · e)⌋ = ⌊a / e⌋ and (g · a + r) mod (g · e) = g · (a mod e) + r, for 0 ≤ r < g.
        coarse = _made({m: c // g for m, c in rest.terms if not m or c % g == 0})
        fine = rest - g * coarse
        if _fits(fine, g):
            inner, left = _divided(coarse, integer(d // g))
            return quotient + inner, g * left + fine
    return quotient + floor(rest, divisor), _atom("mod", (rest, divisor), 0, d - 1)


def floor(value: Int, divisor: Int) -> Int:
    """⌊value / divisor⌋ as one atom, for a constant divisor above 0."""
    d = divisor.constant
    assert d is not None
    lowest, highest = (None if bound is None else bound // d for bound in (value.low, value.high))
    return _atom("div", (value, divisor), lowest, highest)


def _compared(kind: str, value: Int) -> Cond:
    """value ≤ 0, or value = 0."""
    low, high = value.low, value.high
    if kind == "le":
        if high is not None and high <= 0:
            return TRUE
        if low is not None and low > 0:
            return FALSE
    elif low is not None and high is not None and (low > 0 or high < 0):
        return FALSE
    constant = dict(value.terms).get((), 0)
    factor = reduce(math.gcd, (c for m, c in value.terms if m), 0)
    if not factor:
        return truth(constant <= 0 if kind == "le" else constant == 0)
    if kind == "eq":
        if constant % factor:
            return FALSE
        if value.terms[-1][1] < 0:
            factor = -factor
        return _cond("eq", _made({m: c // factor for m, c in value.terms}))
    scaled = {m: c // factor for m, c in value.terms if m}
    return _cond("le", _made({**scaled, (): -(-constant // factor)}))


def equal(a: Int | int, b: Int | int) -> Cond:
    """a = b."""
    return _compared("eq", integer(a) - b)


def conj(*conditions: Cond) -> Cond:
    """And."""
    return _joined("and", TRUE, FALSE, conditions)


def disj(*conditions: Cond) -> Cond:
    """Or."""
    return _joined("or", FALSE, TRUE, conditions)


def _joined(kind: str, unit: Cond, zero: Cond, conditions: tuple[Cond, ...]) -> Cond:
    parts: dict[Cond, None] = {}
    for one in conditions:
        parts.update(dict.fromkeys(one.parts if one.kind == kind else (one,)))  # type: ignore[arg-type]
    parts.pop(unit, None)
    if zero in parts:
        return zero
    return unit if not parts else next(iter(parts)) if len(parts) == 1 else _cond(kind, *parts)


def neg(one: Cond) -> Cond:
    """Not."""
    if one.value is not None:
        return truth(not one.value)
    (part,) = one.parts if len(one.parts) == 1 else (None,)
    if one.kind == "not":
        assert isinstance(part, Cond)
        return part
    if one.kind == "le":
        assert isinstance(part, Int)
        return part > 0
    return _cond("not", one)


def choose(one: Cond, a: Int | int, b: Int | int) -> Int:
    """a where the condition is true, b elsewhere."""
    a, b = integer(a), integer(b)
    if one.value is not None or a is b:
        return a if one.value is not False else b
    for lowest in (True, False):
        if one in ((a <= b, a < b) if lowest else (b <= a, b < a)):
            # A minimum or maximum, however it is spelled: the operands in one order, and one of the two conditions.
            a, b = sorted((a, b), key=lambda value: [(_order(item), item[1]) for item in value.terms])
            one = a <= b if lowest else b <= a
            break
    low = None if a.low is None or b.low is None else min(a.low, b.low)
    high = None if a.high is None or b.high is None else max(a.high, b.high)
    return _atom("ite", (one, a, b), low, high)


def least(*values: Int | int) -> Int:
    """The lowest of the values."""
    return reduce(lambda a, b: choose(a <= b, a, b), map(integer, values))


def most(*values: Int | int) -> Int:
    """The highest of the values."""
    return reduce(lambda a, b: choose(a >= b, a, b), map(integer, values))


# ---------------------------------------------------------------- rewriting


Memo: TypeAlias = dict["Int | Cond | Atom", "Int | Cond"]
"""What parts became: of use to whoever rewrites more in the same way."""


def rewritten(
    part: Int | Cond,
    atoms: Callable[[Atom], Int | None],
    conditions: Callable[[Cond], Cond | None],
    memo: Memo,
) -> Int | Cond:
    """The same with atoms and conditions replaced, innermost last; None leaves one as it is, but for its parts."""
    if part in memo:
        return memo[part]
    result: Int | Cond
    if isinstance(part, Int):
        result = _rewritten_terms(part, atoms, conditions, memo)
    else:
        found = conditions(part)
        if found is not None:
            result = found
        elif part.kind in ("le", "eq"):
            inner = rewritten(part.parts[0], atoms, conditions, memo)  # type: ignore[arg-type]
            assert isinstance(inner, Int)
            result = part if inner is part.parts[0] else _compared(part.kind, inner)
        elif part.kind in ("and", "or", "not"):
            parts = tuple(rewritten(one, atoms, conditions, memo) for one in part.parts)  # type: ignore[arg-type]
            same = all(a is b for a, b in zip(parts, part.parts, strict=True))
            result = part if same else {"and": conj, "or": disj, "not": neg}[part.kind](*parts)  # type: ignore[operator]
        else:
            result = part
    memo[part] = result
    return result


def _rewritten_terms(
    part: Int, atoms: Callable[[Atom], Int | None], conditions: Callable[[Cond], Cond | None], memo: Memo
) -> Int:
    kept: dict[Monomial, int] = {}
    changed: list[Int] = []
    for monomial, coefficient in part.terms:
        factors = [_rewritten_atom(atom, atoms, conditions, memo) for atom in monomial]
        if all(factor is alone(atom) for factor, atom in zip(factors, monomial, strict=True)):
            kept[monomial] = coefficient
        else:
            changed.append(reduce(mul, factors, integer(coefficient)))
    return _sum((_made(kept), *changed)) if changed else part


def _rewritten_atom(
    atom: Atom, atoms: Callable[[Atom], Int | None], conditions: Callable[[Cond], Cond | None], memo: Memo
) -> Int:
    if atom in memo:
        known = memo[atom]
        assert isinstance(known, Int)
        return known
    found = atoms(atom)
    if found is None:
        parts = [
            rewritten(part, atoms, conditions, memo) if isinstance(part, Int | Cond) else part for part in atom.parts
        ]
        if all(a is b for a, b in zip(parts, atom.parts, strict=True)):
            found = alone(atom)
        elif atom.kind == "ite":
            found = choose(*parts)  # type: ignore[arg-type]
        elif atom.kind == "element":
            found = _atom("element", tuple(parts), atom.low, atom.high)
        else:
            found = _divided(*parts)[0 if atom.kind == "div" else 1]  # type: ignore[arg-type]
    memo[atom] = found
    return found


def fixed(part: Cond, atom: Atom, value: int, memo: Memo) -> Cond:
    """A condition where an atom has a value, also where it comes to stand when others are resolved."""
    known = integer(value)
    while True:
        result = rewritten(part, lambda one: known if one is atom else None, lambda _: None, memo)
        assert isinstance(result, Cond)
        if result is part:
            return result
        part = result


def substituted(part: Int | Cond, values: Mapping[Atom, Int]) -> Int | Cond:
    """The same with symbols replaced by values, all at once."""
    return rewritten(part, values.get, lambda _: None, {})


def the_symbol(value: Int) -> Atom:
    """The symbol that a polynomial consists of."""
    ((monomial, _),) = value.terms
    (atom,) = monomial
    return atom


# ---------------------------------------------------------------- text


def _shown(value: Int) -> str:
    parts = []
    for monomial, coefficient in value.terms:
        factors = [_shown_atom(atom) for atom in monomial]
        if coefficient != 1 or not monomial:
            factors.insert(0, str(coefficient))
        parts.append("·".join(factors))
    return " + ".join(reversed(parts)).replace("+ -", "− ") or "0"


def _shown_atom(atom: Atom) -> str:
    a, b = (*atom.parts, "", "")[:2]
    if atom.kind == "symbol":
        return atom.name.partition("!")[0]
    if atom.kind == "element":
        return f"{a}[{b}]"
    if atom.kind == "ite":
        return f"({b} if {a} else {atom.parts[2]})"
    return f"({a} {'//' if atom.kind == 'div' else '%'} {b})"


def _shown_condition(one: Cond) -> str:
    if one.kind in ("le", "eq"):
        value = one.parts[0]
        assert isinstance(value, Int)
        left = _made({m: c for m, c in value.terms if c > 0})
        return f"{left} {'≤' if one.kind == 'le' else '='} {left - value}"
    if one.kind in ("and", "or"):
        return "(" + f" {one.kind} ".join(map(str, one.parts)) + ")"
    if one.kind == "not":
        return f"not {one.parts[0]}"
    return str(one.parts[0]).partition("!")[0] if one.parts else one.kind
