"""First-order terms with sorts, and their text in SMT-LIB 2.

Terms are immutable and made once: two terms are equal exactly if they are the same object. The constructors simplify
what is evident (constants, repetitions, nested conjunctions), and nothing else.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from weakref import WeakValueDictionary

BOOL = "Bool"
INT = "Int"

Pattern = tuple["Term", ...]
"""Terms that together make a solver use a quantified formula."""


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Term:
    """A term: an operator over arguments.

    `op` is SMT-LIB's name of the operator; "symbol" for a constant or an uninterpreted function, which `name` names;
    "literal" for a number or a truth value; "forall" or "exists", which bind the symbols of `bound` in `args[0]`.
    """

    op: str
    sort: str
    args: tuple[Term, ...] = ()
    name: str = ""
    bound: tuple[Term, ...] = ()
    patterns: tuple[Pattern, ...] = ()


# Hash consing: it makes equality of terms identity, and holds no term that nobody else holds.
_INTERNED: WeakValueDictionary[tuple[object, ...], Term] = WeakValueDictionary()


def make(
    op: str,
    sort: str,
    args: tuple[Term, ...] = (),
    name: str = "",
    bound: tuple[Term, ...] = (),
    patterns: tuple[Pattern, ...] = (),
) -> Term:
    """The one term with these parts, not simplified."""
    key = (op, sort, args, name, bound, patterns)
    term = _INTERNED.get(key)
    if term is None:
        term = _INTERNED[key] = Term(op, sort, args, name, bound, patterns)
    return term


TRUE = make("literal", BOOL, name="true")
FALSE = make("literal", BOOL, name="false")


def integer(n: int) -> Term:
    """A numeral."""
    return make("literal", INT, name=str(n))


def boolean(value: bool) -> Term:
    """A truth value."""
    return TRUE if value else FALSE


def symbol(name: str, sort: str) -> Term:
    """An uninterpreted constant."""
    return make("symbol", sort, name=name)


def apply(name: str, args: tuple[Term, ...], sort: str) -> Term:
    """An uninterpreted function of some arguments; of none, a constant."""
    return make("symbol", sort, args, name)


def is_number(term: Term) -> bool:
    """Whether it is a numeral."""
    return term.op == "literal" and term.sort == INT


def conjuncts(terms: Iterable[Term]) -> Iterator[Term]:
    """The parts of nested conjunctions, in order."""
    for term in terms:
        if term.op == "and":
            yield from conjuncts(term.args)
        elif term is not TRUE:
            yield term


def conj(*terms: Term) -> Term:
    """And."""
    parts = tuple(dict.fromkeys(conjuncts(terms)))
    if FALSE in parts:
        return FALSE
    return TRUE if not parts else parts[0] if len(parts) == 1 else make("and", BOOL, parts)


def disj(*terms: Term) -> Term:
    """Or."""
    parts = tuple(dict.fromkeys(p for t in terms for p in (t.args if t.op == "or" else (t,)) if p is not FALSE))
    if TRUE in parts:
        return TRUE
    return FALSE if not parts else parts[0] if len(parts) == 1 else make("or", BOOL, parts)


def neg(term: Term) -> Term:
    """Not."""
    if term.op == "literal":
        return boolean(term is FALSE)
    return term.args[0] if term.op == "not" else make("not", BOOL, (term,))


def implies(premises: Iterable[Term], conclusion: Term) -> Term:
    """All premises imply the conclusion."""
    premise = conj(*premises)
    if premise is TRUE or conclusion is TRUE:
        return conclusion
    return TRUE if premise is FALSE else make("=>", BOOL, (premise, conclusion))


def ite(condition: Term, yes: Term, no: Term) -> Term:
    """`yes` if the condition holds, else `no`."""
    if condition.op == "literal":
        return yes if condition is TRUE else no
    return yes if yes is no else make("ite", yes.sort, (condition, yes, no))


def equal(a: Term, b: Term) -> Term:
    """Equality of terms of one sort."""
    assert a.sort == b.sort, f"{a.sort} is compared with {b.sort}"
    if a is b:
        return TRUE
    return FALSE if a.op == b.op == "literal" else make("=", BOOL, (a, b))


def _number(op: str, a: Term, b: Term) -> Term:
    if is_number(a) and is_number(b):
        x, y = int(a.name), int(b.name)
        known = {"+": x + y, "-": x - y, "*": x * y, "<": x < y, "<=": x <= y}[op]
        return boolean(known) if isinstance(known, bool) else integer(known)
    return make(op, BOOL if op in ("<", "<=") else INT, (a, b))


def plus(a: Term, b: Term) -> Term:
    """a + b, of numbers."""
    return b if a is integer(0) else a if b is integer(0) else _number("+", a, b)


def minus(a: Term, b: Term) -> Term:
    """a - b, of numbers."""
    return a if b is integer(0) else _number("-", a, b)


def times(a: Term, b: Term) -> Term:
    """a · b, of numbers."""
    return _number("*", a, b)


def divide(a: Term, b: Term) -> Term:
    """a // b, of numbers with b > 0."""
    return make("div", INT, (a, b))


def modulo(a: Term, b: Term) -> Term:
    """a % b, of numbers with b > 0."""
    return make("mod", INT, (a, b))


def less(a: Term, b: Term) -> Term:
    """a < b, of numbers."""
    return _number("<", a, b)


def at_most(a: Term, b: Term) -> Term:
    """a ≤ b, of numbers."""
    return TRUE if a is b else _number("<=", a, b)


def within(i: Term, n: Term) -> Term:
    """0 ≤ i < n."""
    return conj(at_most(integer(0), i), less(i, n))


def not_negative(n: Term) -> Term:
    """n, or 0 if it is below."""
    if n.op == "ite" and n is make("ite", INT, (at_most(integer(0), n.args[1]), n.args[1], integer(0))):
        return n
    return ite(at_most(integer(0), n), n, integer(0))


def for_all(bound: Iterable[Term], body: Term, patterns: tuple[Pattern, ...] = ()) -> Term:
    """The body holds for all values of the bound symbols."""
    bound = tuple(bound)
    return body if not bound or body.op == "literal" else make("forall", BOOL, (body,), "", bound, patterns)


def exists(bound: Iterable[Term], body: Term) -> Term:
    """The body holds for some values of the bound symbols."""
    bound = tuple(bound)
    return body if not bound or body.op == "literal" else make("exists", BOOL, (body,), "", bound)


def subterms(terms: Iterable[Term]) -> Iterator[Term]:
    """Every term inside these, each once, patterns left out."""
    seen: set[Term] = set()
    pending = list(terms)
    while pending:
        term = pending.pop()
        if term not in seen:
            seen.add(term)
            yield term
            pending += term.args


def parameters_of(terms: Iterable[Term]) -> tuple[Term, ...]:
    """The generated symbols ("x!17") that some of these terms depend on, without those that they bind."""
    known: dict[Term, tuple[Term, ...]] = {}

    def free(t: Term) -> tuple[Term, ...]:
        if t not in known:
            generated = t.op == "symbol" and not t.args and t.name.rpartition("!")[2].isdigit()
            inside = dict.fromkeys(p for a in t.args for p in free(a) if p not in t.bound)
            known[t] = (t,) if generated else tuple(inside)
        return known[t]

    return tuple(dict.fromkeys(p for term in terms for p in free(term)))


def substitute(term: Term, mapping: Mapping[Term, Term]) -> Term:
    """The term with symbols replaced. No replacement may mention a symbol that the term binds."""
    done: dict[Term, Term] = dict(mapping)

    def go(t: Term) -> Term:
        if t not in done:
            args = tuple(go(a) for a in t.args)
            patterns = tuple(tuple(go(p) for p in pattern) for pattern in t.patterns)
            same = args == t.args and patterns == t.patterns
            done[t] = t if same else make(t.op, t.sort, args, t.name, t.bound, patterns)
        return done[t]

    return go(term)


# ---------------------------------------------------------------- SMT-LIB


@lru_cache(maxsize=2**14)
def text(formula: Term) -> str:
    """The formula in SMT-LIB. Parts that occur more than once are bound by `let`.

    Bound symbols are named by the order in which they appear, so that the text depends on what it says alone.
    """
    names: dict[Term, str] = {}
    lets = itertools.count()

    def scope(term: Term) -> str:
        uses, order = Counter[Term](), list[Term]()

        def count(t: Term) -> None:
            uses[t] += 1
            if uses[t] == 1:
                if not t.bound:
                    for a in t.args:
                        count(a)
                order.append(t)

        count(term)
        opened, bindings = list[Term](), list[str]()
        for t in order:
            if uses[t] > 1 and t.args and t is not term and t not in names:
                content = plain(t)
                names[t] = f"let!{next(lets)}"
                opened.append(t)
                bindings.append(f"(let (({names[t]} {content})) ")
        result = "".join(bindings) + plain(term) + ")" * len(bindings)
        for t in opened:
            del names[t]
        return result

    def plain(t: Term) -> str:
        if t in names:
            return names[t]
        if t.op == "literal":
            return f"(- {t.name[1:]})" if t.name.startswith("-") else t.name
        if t.bound:
            for v in t.bound:
                names[v] = f"{v.name.partition('!')[0]}!{next(lets)}"
            variables = " ".join(f"({names[v]} {v.sort})" for v in t.bound)
            # What is bound by `let` outside may stand for these very terms in a pattern, but a pattern is read alone.
            marks = "".join(f" :pattern ({' '.join(map(pattern, p))})" for p in t.patterns)
            body = scope(t.args[0])
            return f"({t.op} ({variables}) (! {body}{marks}))" if marks else f"({t.op} ({variables}) {body})"
        head = t.name if t.op == "symbol" else t.op
        return f"({head} {' '.join(map(plain, t.args))})" if t.args else head

    def pattern(t: Term) -> str:
        if not t.args:
            return plain(t)
        return f"({t.name if t.op == 'symbol' else t.op} {' '.join(map(pattern, t.args))})"

    return scope(formula)


@lru_cache(maxsize=2**14)
def declarations(formula: Term) -> frozenset[str]:
    """What the formula needs declared: its sorts, and its free symbols."""
    parts = list(subterms([formula]))
    parts = list(subterms([*parts, *(p for t in parts for pattern in t.patterns for p in pattern)]))
    bound = {v for t in parts for v in t.bound}
    sorts = {s for t in (*parts, *bound) for s in (t.sort, *(a.sort for a in t.args)) if s not in (BOOL, INT)}
    functions = {
        f"(declare-fun {t.name} ({' '.join(a.sort for a in t.args)}) {t.sort})"
        for t in parts
        if t.op == "symbol" and t not in bound
    }
    return frozenset({f"(declare-sort {s} 0)" for s in sorts} | functions)


def script(assertions: Iterable[Term]) -> str:
    """Declarations and assertions, in order.

    Raises:
        ValueError: if two symbols of different sorts have one name.
    """
    assertions = list(assertions)
    needed = sorted(frozenset[str]().union(*map(declarations, assertions)), key=lambda d: ("sort" not in d[:14], d))
    names = Counter(d.split()[1] for d in needed)
    if len(names) < len(needed):
        raise ValueError(f"{names.most_common(1)[0][0]} names symbols of different sorts")
    return "\n".join([*needed, *(f"(assert {text(t)})" for t in assertions)])
