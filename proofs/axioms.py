"""The axioms that the encoding rests on are theorems.

*Sequences.* A sequence is empty, or an append of a sequence and an element; the two are different, and an append
determines its parts. Length, element, slice and concatenation are defined by recursion on this. Each axiom of
`vosti.refinement.smt.theory.Sequences` that is not one of these definitions is proved by induction on its sequence h:

    axiom(empty)        and        (∀ other variables : axiom(c)) ⟹ axiom(append(c, e))

where each may use those before it. Extensionality is proved with g generalised; `difference` is then a name for an
index at which two sequences that are not equal differ.

*Products.* n · P, p // P and p % P are those of arithmetic: each axiom is proved with the solver's own operations.

*Finite sets.* A finite set is given by a list without duplicates, nil or cons(x, l) with x not in l; its cardinality is
the list's length. `some`, `other` and `another` name elements whose existence is what is proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vosti.proofs.book import Replaced
from vosti.proofs.definedness import ceiling
from vosti.refinement.smt import terms as T
from vosti.refinement.smt import theory
from vosti.refinement.smt.compiler import Compiler
from vosti.refinement.smt.obligation import Obligation
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
    exists,
    for_all,
    implies,
    integer,
    ite,
    minus,
    neg,
    plus,
    substitute,
    symbol,
    within,
)
from vosti.refinement.smt.values import integer_value

ELEMENT = "Element"


def plain(name: str, have: Iterable[Term], goal: Term) -> Obligation:
    """An obligation without the axioms: they are what is proved here."""
    return Obligation(f"axioms/{name}", T.script([*have, neg(goal)]))


def obligations(replaced: Replaced | None = None) -> list[Obligation]:
    """Sequences, products, finite sets. They depend on no text that could be replaced."""
    return [*sequences(), *products(), *finite_sets()]


# ---------------------------------------------------------------- sequences

BY_DEFINITION = ("len_empty", "len_append", "at_append", "slice_append", "concat_append", "same")
"""The axioms that define length, element, slice, concatenation and the equality predicate, beside those of the empty
sequence below."""

BY_INDUCTION = (
    "len_positive",
    "empty_unique",
    "len_slice",
    "slice_all",
    "at_slice",
    "slice_slice",
    "append_slice",
    "len_concat",
    "at_concat",
    "slice_concat_left",
    "slice_concat_right",
    "concat_empty",
    "concat_slices",
)
"""In an order in which each may use those before it."""


def sequences() -> list[Obligation]:
    """Every axiom of sequences."""
    seq = theory.Sequences(ELEMENT)
    axioms = {axiom.name: axiom for axiom in seq.axioms()}
    assert {*BY_DEFINITION, *BY_INDUCTION, "extensional"} == set(axioms)
    g, h, c = (symbol(name, seq.sort) for name in ("g!", "h!", "c"))
    t, e, a, b, i = symbol("t!", ELEMENT), symbol("e", ELEMENT), *(symbol(f"{name}!", INT) for name in "abi")
    init, last = apply("init", (h,), seq.sort), apply("last", (h,), ELEMENT)
    grown = seq.append(h, t)
    have = [
        for_all(
            [h, t],
            conj(
                equal(apply("init", (grown,), seq.sort), h),
                equal(apply("last", (grown,), ELEMENT), t),
                neg(equal(grown, seq.empty)),
            ),
            ((grown,),),
        ),
        for_all([h], disj(equal(h, seq.empty), equal(h, seq.append(init, last))), ((seq.length(h),),)),
        for_all([a, b], equal(seq.slice(seq.empty, a, b), seq.empty), ((seq.slice(seq.empty, a, b),),)),
        for_all([g], equal(seq.concat(g, seq.empty), g), ((seq.concat(g, seq.empty),),)),
        *(axioms[name].formula for name in BY_DEFINITION),
    ]
    found = []
    for name in BY_INDUCTION:
        axiom = axioms[name]
        others = [v for v in axiom.variables if v is not h]
        hypothesis = substitute(axiom.body, {h: c})
        pattern = tuple(substitute(p, {h: c}) for p in axiom.pattern)
        hypothesis = for_all(others, hypothesis, (pattern,)) if others else hypothesis
        found.append(plain(f"{name}: empty", have, substitute(axiom.body, {h: seq.empty})))
        found.append(plain(f"{name}: append", [*have, hypothesis], substitute(axiom.body, {h: seq.append(c, e)})))
        have.append(axiom.formula)

    def agree(g: Term, h: Term, pattern: Term) -> Term:
        elements = implies([within(i, seq.length(g))], equal(seq.at(g, i), seq.at(h, i)))
        return conj(equal(seq.length(g), seq.length(h)), for_all([i], elements, ((pattern,),)))

    before, grown = substitute(init, {h: g}), seq.append(c, e)
    instance = implies([agree(before, c, seq.at(c, i))], equal(before, c))
    last_index = equal(seq.at(g, seq.length(c)), seq.at(grown, seq.length(c)))
    found.append(plain("extensional: empty", [*have, agree(g, seq.empty, seq.at(g, i))], equal(g, seq.empty)))
    agreement = agree(g, grown, seq.at(c, i))
    same_last = [*have, agree(g, grown, seq.at(g, i)), mention(seq.at(g, seq.length(c)))]
    found.append(plain("extensional: last element", same_last, last_index))
    found.append(plain("extensional: append", [*have, instance, agreement, last_index], equal(g, grown)))
    index = symbol("w!", INT)
    stated = for_some(index, substitute(axioms["extensional"].body, {seq.difference(g, h): index}))
    lemma = implies([agree(g, h, seq.at(g, i))], equal(g, h))
    found.append(plain("extensional", [axioms["same"].formula, lemma], stated))
    return found


def for_some(w: Term, body: Term) -> Term:
    """∃ w : body, with the quantifier as far inside as it goes."""
    if w not in T.subterms([body]):
        return body
    if body.op == "or":
        return disj(*(for_some(w, part) for part in body.args))
    if body.op == "=>" and w not in T.subterms([body.args[0]]):
        return implies([body.args[0]], for_some(w, body.args[1]))
    return exists([w], body)


def mention(term: Term) -> Term:
    """A formula that says nothing, and makes the solver look at a term."""
    return apply(f"mentioned_{term.sort}", (term,), BOOL)


# ---------------------------------------------------------------- products

NATIVE = {"times": T.times, "div_by": T.divide, "mod_by": T.modulo}


def native(term: Term) -> Term:
    """The term with the solver's own product, quotient and remainder."""
    args = tuple(native(a) for a in term.args)
    if term.op == "symbol" and term.name in NATIVE:
        return NATIVE[term.name](*args)
    return T.make(term.op, term.sort, args, term.name)


def products() -> list[Obligation]:
    """Every axiom of products, and the lemma, in nonlinear arithmetic."""
    named = [(axiom.name, axiom.body) for axiom in theory.product_axioms()]
    n, size = (integer_value(symbol(name, INT)) for name in ("n", "P"))
    named.append(("ceiling", Compiler().run(ceiling, n, size).term))
    return [plain(name, [], native(body)) for name, body in named]


# ---------------------------------------------------------------- finite sets


class Lists:
    """Lists of elements: the finite sets, for the length of a proof."""

    sort = "List"
    nil = symbol("nil", "List")

    def cons(self, x: Term, xs: Term) -> Term:
        """One element more."""
        return apply("cons", (x, xs), self.sort)

    def member(self, x: Term, xs: Term) -> Term:
        """Whether x is in xs."""
        return apply("member", (x, xs), BOOL)

    def size(self, xs: Term) -> Term:
        """The length."""
        return apply("size", (xs,), INT)

    def distinct(self, xs: Term) -> Term:
        """No element stands in xs twice."""
        return apply("distinct_list", (xs,), BOOL)

    def remove(self, x: Term, xs: Term) -> Term:
        """xs without the first x."""
        return apply("remove", (x, xs), self.sort)


def finite_sets() -> list[Obligation]:
    """Every axiom of finite sets, of lists without duplicates."""
    lists = Lists()
    cons, member, size, distinct, remove = lists.cons, lists.member, lists.size, lists.distinct, lists.remove
    nil, zero, one = lists.nil, integer(0), integer(1)
    x, y, a = (symbol(f"{name}!", ELEMENT) for name in "xya")
    xs = symbol("xs!", lists.sort)
    k, u, e = symbol("k", lists.sort), symbol("u", lists.sort), symbol("e", ELEMENT)

    def of(variables: list[Term], body: Term, *pattern: Term) -> Term:
        return for_all(variables, body, (pattern,))

    definitions = [
        equal(size(nil), zero),
        distinct(nil),
        of([x], neg(member(x, nil)), member(x, nil)),
        of([x], equal(remove(x, nil), nil), remove(x, nil)),
        of([a, xs], equal(size(cons(a, xs)), plus(size(xs), one)), cons(a, xs)),
        of([a, xs], equal(distinct(cons(a, xs)), conj(distinct(xs), neg(member(a, xs)))), cons(a, xs)),
        of([x, a, xs], equal(member(x, cons(a, xs)), disj(equal(x, a), member(x, xs))), member(x, cons(a, xs))),
        of(
            [x, a, xs],
            equal(remove(x, cons(a, xs)), ite(equal(x, a), xs, cons(a, remove(x, xs)))),
            remove(x, cons(a, xs)),
        ),
    ]
    found: list[Obligation] = []

    def by_induction(name: str, statement: Callable[[Term], Term], have: list[Term]) -> None:
        found.append(plain(f"{name}: nil", [*definitions, *have], statement(nil)))
        found.append(plain(f"{name}: cons", [*definitions, *have, statement(k)], statement(cons(e, k))))

    by_induction("size is not negative", lambda xs: at_most(zero, size(xs)), [])
    positive = of([xs], at_most(zero, size(xs)), size(xs))

    def kept(xs: Term) -> Term:
        body = equal(member(y, remove(x, xs)), conj(member(y, xs), neg(equal(x, y))))
        return implies([distinct(xs)], of([x, y], body, member(y, remove(x, xs))))

    by_induction("remove: members", kept, [])
    members = of(
        [xs, x, y],
        implies([distinct(xs)], equal(member(y, remove(x, xs)), conj(member(y, xs), neg(equal(x, y))))),
        member(y, remove(x, xs)),
    )
    by_induction(
        "remove: distinct",
        lambda xs: implies([distinct(xs)], of([x], distinct(remove(x, xs)), remove(x, xs))),
        [members],
    )
    still_distinct = of([xs, x], implies([distinct(xs)], distinct(remove(x, xs))), remove(x, xs))

    def one_less(xs: Term) -> Term:
        body = implies([member(x, xs)], equal(size(remove(x, xs)), minus(size(xs), one)))
        return implies([distinct(xs)], of([x], body, remove(x, xs)))

    by_induction("remove: size", one_less, [members, still_distinct])
    smaller = of(
        [xs, x],
        implies([distinct(xs), member(x, xs)], equal(size(remove(x, xs)), minus(size(xs), one))),
        remove(x, xs),
    )

    def included(xs: Term, ys: Term, *patterns: Pattern) -> Term:
        return for_all([y], implies([member(y, xs)], member(y, ys)), patterns)

    def inclusion(xs: Term, ys: Term) -> Term:
        """xs ⊆ ys ⟹ |xs| ≤ |ys|."""
        return implies([distinct(xs), distinct(ys), included(xs, ys)], at_most(size(xs), size(ys)))

    found.append(plain("inclusion: nil", [*definitions, positive], inclusion(nil, u)))
    # The hypothesis for k and u without e; e is in u.
    hypothesis = inclusion(k, remove(e, u))
    premises = [distinct(cons(e, k)), distinct(u), included(cons(e, k), u, (member(y, cons(e, k)),))]
    seen = [member(e, cons(e, k)), of([y], implies([member(y, k)], member(y, cons(e, k))), member(y, k))]
    found += [
        plain(f"inclusion: cons, {number}", [*definitions, *premises], goal)
        for number, goal in enumerate((member(e, cons(e, k)), implies([member(y, k)], member(y, cons(e, k)))), start=1)
    ]
    found.append(
        plain(
            "inclusion: cons",
            [*definitions, positive, members, still_distinct, smaller, hypothesis, *premises, *seen],
            at_most(size(cons(e, k)), size(u)),
        )
    )
    by_induction("size 0 is empty", lambda xs: implies([equal(size(xs), zero)], neg(member(x, xs))), [positive])
    empty = of([xs, x], implies([equal(size(xs), zero)], neg(member(x, xs))), member(x, xs))
    c = cons(symbol("x!", ELEMENT), k)
    both = [distinct(k), distinct(u)]
    reasons = {
        "card_positive": [positive],
        "card_zero": [empty],
        "card_same": [inclusion(k, u), inclusion(u, k), *both],
        "card_step": [*definitions, inclusion(c, u), inclusion(u, c), *both],
    }
    for axiom in theory.FiniteSets(ELEMENT).axioms():
        goal = as_lists(axiom.body, lists, k, u)
        if axiom.name == "card_some":
            found.append(plain("card_some: nil", definitions, substitute(goal, {k: nil})))
            found.append(plain("card_some: head", definitions, member(e, cons(e, k))))
            found.append(plain("card_some: cons", [member(e, cons(e, k))], substitute(goal, {k: cons(e, k)})))
        else:
            found.append(plain(axiom.name, reasons[axiom.name], goal))
    return found


def as_lists(term: Term, lists: Lists, s: Term, t: Term) -> Term:
    """An axiom of finite sets, of the sets that two lists stand for; what it names, exists."""
    sets = theory.FiniteSets(ELEMENT)
    x = symbol("x!", ELEMENT)
    of_sets = {sets.card(symbol(f"{name}!", sets.sort)): lists.size(xs) for name, xs in (("s", s), ("t", t))}
    named = [part for part in T.subterms([term]) if part.name.startswith(("some_", "other_", "another_"))]
    elements = {part: symbol("w!", ELEMENT) for part in named}
    for element in (x, *named):
        for name, xs in (("s", s), ("t", t)):
            member = sets.member(element, symbol(f"{name}!", sets.sort))
            of_sets[member] = lists.member(elements.get(element, x), xs)
    return for_some(symbol("w!", ELEMENT), substitute(term, {**elements, **of_sets}))
