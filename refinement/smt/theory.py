"""Sequences, products and finite sets, each given by a few axioms with explicit patterns.

The axioms are theorems: `vosti.proofs.axioms` proves each of them by induction, or in nonlinear arithmetic. They stand
here, and in this form, because solvers find proofs with them quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vosti.refinement.smt.terms import (
    BOOL,
    INT,
    Pattern,
    Term,
    apply,
    at_most,
    conj,
    disj,
    equal,
    for_all,
    implies,
    integer,
    ite,
    less,
    minus,
    neg,
    plus,
    symbol,
    within,
)


@dataclass(frozen=True)
class Axiom:
    """A formula that holds for all values of its variables, and when a solver is to use it."""

    name: str
    variables: tuple[Term, ...]
    body: Term
    pattern: Pattern

    @property
    def formula(self) -> Term:
        """The closed formula."""
        return for_all(self.variables, self.body, (self.pattern,) if self.pattern else ())


class Sequences:
    """Finite sequences of one sort of elements, as terms of one sort."""

    def __init__(self, element: str):
        self.element = element
        self.sort = f"Seq_{element}"
        self.empty = symbol(f"empty_{element}", self.sort)

    def length(self, h: Term) -> Term:
        """The number of elements."""
        return apply(f"len_{self.element}", (h,), INT)

    def at(self, h: Term, i: Term) -> Term:
        """The element at index i; unknown unless 0 ≤ i < length."""
        return apply(f"at_{self.element}", (h, i), self.element)

    def slice(self, h: Term, a: Term, b: Term) -> Term:
        """h[a:b]; unknown unless 0 ≤ a ≤ b ≤ length."""
        return apply(f"slice_{self.element}", (h, a, b), self.sort)

    def append(self, h: Term, t: Term) -> Term:
        """The sequence, and one element more."""
        return apply(f"append_{self.element}", (h, t), self.sort)

    def concat(self, g: Term, h: Term) -> Term:
        """One sequence after the other."""
        return apply(f"concat_{self.element}", (g, h), self.sort)

    def same(self, g: Term, h: Term) -> Term:
        """Equality, as a predicate that extensionality can be attached to."""
        return apply(f"eq_{self.element}", (g, h), BOOL)

    def difference(self, g: Term, h: Term) -> Term:
        """An index at which two sequences of one length differ, if they do."""
        return apply(f"diff_{self.element}", (g, h), INT)

    def axioms(self) -> tuple[Axiom, ...]:
        """What is known of them."""
        g, h = symbol("g!", self.sort), symbol("h!", self.sort)
        t = symbol("t!", self.element)
        a, b, c, d, i = (symbol(f"{n}!", INT) for n in "abcdi")
        ln, at, sl, app, cat, same = self.length, self.at, self.slice, self.append, self.concat, self.same
        zero, one = integer(0), integer(1)

        def inside(h: Term, a: Term, b: Term) -> Term:
            return conj(at_most(zero, a), at_most(a, b), at_most(b, ln(h)))

        end = ln(h)
        grown = app(h, t)
        w = self.difference(g, h)
        return (
            Axiom("len_positive", (h,), at_most(zero, end), (end,)),
            Axiom("len_empty", (), equal(ln(self.empty), zero), ()),
            Axiom("empty_unique", (h,), implies([equal(end, zero)], equal(h, self.empty)), (end,)),
            Axiom(
                "len_slice",
                (h, a, b),
                implies([inside(h, a, b)], equal(ln(sl(h, a, b)), minus(b, a))),
                (sl(h, a, b),),
            ),
            Axiom(
                "at_slice",
                (h, a, b, i),
                implies([inside(h, a, b), within(i, minus(b, a))], equal(at(sl(h, a, b), i), at(h, plus(a, i)))),
                (at(sl(h, a, b), i),),
            ),
            Axiom(
                "slice_slice",
                (h, a, b, c, d),
                implies(
                    [inside(h, a, b), at_most(zero, c), at_most(c, d), at_most(d, minus(b, a))],
                    equal(sl(sl(h, a, b), c, d), sl(h, plus(a, c), plus(a, d))),
                ),
                (sl(sl(h, a, b), c, d),),
            ),
            Axiom(
                "slice_all",
                (h, a, b),
                implies([equal(a, zero), equal(b, end)], equal(sl(h, a, b), h)),
                (sl(h, a, b),),
            ),
            Axiom("len_append", (h, t), equal(ln(grown), plus(end, one)), (grown,)),
            Axiom(
                "at_append",
                (h, t, i),
                implies([at_most(zero, i), at_most(i, end)], equal(at(grown, i), ite(equal(i, end), t, at(h, i)))),
                (at(grown, i),),
            ),
            Axiom(
                "slice_append",
                (h, t, a, b),
                implies(
                    [at_most(zero, a), at_most(a, b), at_most(b, plus(end, one))],
                    equal(
                        sl(grown, a, b),
                        ite(at_most(b, end), sl(h, a, b), ite(at_most(a, end), app(sl(h, a, end), t), self.empty)),
                    ),
                ),
                (sl(grown, a, b),),
            ),
            Axiom(
                "append_slice",
                (h, a, b, t),
                implies(
                    [at_most(zero, a), at_most(a, b), less(b, end), equal(t, at(h, b))],
                    equal(app(sl(h, a, b), t), sl(h, a, plus(b, one))),
                ),
                (app(sl(h, a, b), t),),
            ),
            Axiom("len_concat", (g, h), equal(ln(cat(g, h)), plus(ln(g), end)), (cat(g, h),)),
            Axiom(
                "at_concat",
                (g, h, i),
                implies(
                    [within(i, plus(ln(g), end))],
                    equal(at(cat(g, h), i), ite(less(i, ln(g)), at(g, i), at(h, minus(i, ln(g))))),
                ),
                (at(cat(g, h), i),),
            ),
            Axiom(
                "concat_slices",
                (h, a, b, c, d),
                implies(
                    [equal(b, c), inside(h, a, b), inside(h, c, d)],
                    equal(cat(sl(h, a, b), sl(h, c, d)), sl(h, a, d)),
                ),
                (cat(sl(h, a, b), sl(h, c, d)),),
            ),
            Axiom(
                "slice_concat_left",
                (g, h, a, b),
                implies([inside(g, a, b)], equal(sl(cat(g, h), a, b), sl(g, a, b))),
                (sl(cat(g, h), a, b),),
            ),
            Axiom(
                "slice_concat_right",
                (g, h, a, b),
                implies(
                    [at_most(ln(g), a), at_most(a, b), at_most(b, plus(ln(g), end))],
                    equal(sl(cat(g, h), a, b), sl(h, minus(a, ln(g)), minus(b, ln(g)))),
                ),
                (sl(cat(g, h), a, b),),
            ),
            Axiom(
                "concat_empty",
                (g, h),
                conj(
                    implies([equal(end, zero)], equal(cat(g, h), g)),
                    implies([equal(ln(g), zero)], equal(cat(g, h), h)),
                ),
                (cat(g, h),),
            ),
            Axiom("concat_append", (g, h, t), equal(cat(g, grown), app(cat(g, h), t)), (cat(g, grown),)),
            Axiom("same", (g, h), equal(same(g, h), equal(g, h)), (same(g, h),)),
            Axiom(
                "extensional",
                (g, h),
                disj(
                    same(g, h),
                    neg(equal(ln(g), end)),
                    conj(within(w, ln(g)), neg(equal(at(g, w), at(h, w)))),
                ),
                (same(g, h),),
            ),
        )


class FiniteSets:
    """Finite sets of one sort of elements, made by comprehension: membership and cardinality."""

    def __init__(self, element: str):
        self.element = element
        self.sort = f"Set_{element}"

    def member(self, x: Term, s: Term) -> Term:
        """Whether x is an element."""
        return apply(f"member_{self.element}", (x, s), BOOL)

    def card(self, s: Term) -> Term:
        """The number of elements."""
        return apply(f"card_{self.element}", (s,), INT)

    def focus(self, x: Term) -> Term:
        """Marks an element by which sets may have grown: `card_step` is used for marked elements only."""
        return apply(f"focus_{self.element}", (x,), BOOL)

    def axioms(self) -> tuple[Axiom, ...]:
        """What is known of them."""
        s, t, x = symbol("s!", self.sort), symbol("t!", self.sort), symbol("x!", self.element)
        member, card = self.member, self.card
        some = apply(f"some_{self.element}", (s,), self.element)
        other = apply(f"other_{self.element}", (s, t), self.element)
        another = apply(f"another_{self.element}", (s, t, x), self.element)

        def differ(w: Term) -> Term:
            return neg(equal(member(w, s), member(w, t)))

        return (
            Axiom("card_positive", (s,), at_most(integer(0), card(s)), (card(s),)),
            Axiom(
                "card_zero", (s, x), implies([equal(card(s), integer(0))], neg(member(x, s))), (card(s), member(x, s))
            ),
            Axiom("card_some", (s,), disj(equal(card(s), integer(0)), member(some, s)), (card(s),)),
            Axiom("card_same", (s, t), disj(equal(card(s), card(t)), differ(other)), (card(s), card(t))),
            Axiom(
                "card_step",
                (s, t, x),
                implies(
                    [member(x, t), neg(member(x, s))],
                    disj(equal(card(t), plus(card(s), integer(1))), conj(neg(equal(another, x)), differ(another))),
                ),
                (card(s), card(t), self.focus(x)),
            ),
        )


def _product(name: str) -> Callable[[Term, Term], Term]:
    return lambda a, b: apply(name, (a, b), INT)


MULTIPLY, DIVIDE, MODULO = _product("times"), _product("div_by"), _product("mod_by")
"""n · P, p // P and p % P for an unknown P: with the axioms below, what remains is linear."""

PRODUCTS = ("times", "div_by", "mod_by")


def product_axioms() -> tuple[Axiom, ...]:
    """What is needed of products, quotients and remainders by an unknown P ≥ 1."""
    n, m, p, size = (symbol(f"{x}!", INT) for x in ("n", "m", "p", "P"))
    zero, one = integer(0), integer(1)
    start = MULTIPLY(DIVIDE(p, size), size)
    product, quotient = MULTIPLY(n, size), DIVIDE(p, size)
    positive = at_most(one, size)
    division = implies(
        [positive],
        conj(at_most(start, p), less(p, plus(start, size)), equal(MODULO(p, size), minus(p, start))),
    )
    pair = (product, MULTIPLY(m, size))
    return (
        Axiom(
            "times_sign",
            (n, size),
            conj(
                implies([equal(n, zero)], equal(product, zero)),
                implies([at_most(zero, n), at_most(zero, size)], at_most(zero, product)),
            ),
            (product,),
        ),
        Axiom(
            "times_order",
            (n, m, size),
            implies([positive, less(n, m)], at_most(plus(product, size), MULTIPLY(m, size))),
            pair,
        ),
        Axiom(
            "times_next",
            (n, m, size),
            implies([equal(m, plus(n, one))], equal(MULTIPLY(m, size), plus(product, size))),
            pair,
        ),
        Axiom("quotient", (p, size), division, (quotient,)),
        Axiom("remainder", (p, size), division, (MODULO(p, size),)),
        Axiom(
            "quotient_unique",
            (n, p, size),
            implies([positive, at_most(product, p), less(p, plus(product, size))], equal(quotient, n)),
            (product, quotient),
        ),
        Axiom("quotient_sign", (p, size), implies([positive, at_most(zero, p)], at_most(zero, quotient)), (quotient,)),
    )
