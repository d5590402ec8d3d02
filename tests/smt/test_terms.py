"""Terms are made once, simplified where it is evident, and written so that solvers read them."""

import pytest

from vosti.refinement.smt import terms as T
from vosti.refinement.smt.terms import FALSE, TRUE, Term

P, Q, R = (T.symbol(name, T.BOOL) for name in "pqr")
A, B = (T.symbol(name, T.INT) for name in "ab")
X = T.symbol("x!0", T.INT)


def positive(i: Term) -> Term:
    """0 < i."""
    return T.less(T.integer(0), i)


@pytest.mark.parametrize(
    ("expected", "term"),
    [
        (TRUE, T.conj()),
        (FALSE, T.disj()),
        (FALSE, T.conj(P, FALSE)),
        (TRUE, T.disj(P, TRUE)),
        (P, T.conj(TRUE, P, P)),
        (P, T.disj(FALSE, P, P)),
        (T.conj(P, Q, R), T.conj(P, T.conj(Q, R))),
        (P, T.neg(T.neg(P))),
        (FALSE, T.neg(TRUE)),
        (P, T.implies([TRUE], P)),
        (TRUE, T.implies([FALSE], P)),
        (TRUE, T.implies([P], TRUE)),
        (A, T.ite(TRUE, A, B)),
        (B, T.ite(FALSE, A, B)),
        (A, T.ite(P, A, A)),
        (TRUE, T.equal(A, A)),
        (FALSE, T.equal(T.integer(1), T.integer(2))),
        (A, T.plus(A, T.integer(0))),
        (A, T.plus(T.integer(0), A)),
        (A, T.minus(A, T.integer(0))),
        (T.integer(5), T.plus(T.integer(2), T.integer(3))),
        (T.integer(-1), T.minus(T.integer(2), T.integer(3))),
        (T.integer(6), T.times(T.integer(2), T.integer(3))),
        (FALSE, T.less(T.integer(2), T.integer(2))),
        (TRUE, T.at_most(A, A)),
        (TRUE, T.for_all([X], TRUE)),
        (P, T.for_all([], P)),
        (FALSE, T.exists([X], FALSE)),
    ],
)
def test_what_is_evident_is_simplified(expected: Term, term: Term) -> None:
    """Constants, repetitions and nested conjunctions disappear."""
    assert expected is term


def test_equal_terms_are_one_object() -> None:
    """Equality is identity."""
    assert T.plus(A, B) is T.plus(A, B)
    assert T.plus(A, B) is not T.plus(B, A)


def test_terms_of_two_sorts_are_not_compared() -> None:
    """A comparison of different sorts is a fault of the caller."""
    with pytest.raises(AssertionError):
        T.equal(A, P)


def test_substitution_reaches_bodies_and_patterns() -> None:
    """A free symbol is replaced wherever it occurs."""
    f = T.apply("f", (X, A), T.INT)
    term = T.for_all([X], T.less(f, A), ((f,),))
    g = T.apply("f", (X, B), T.INT)

    assert T.for_all([X], T.less(g, B), ((g,),)) is T.substitute(term, {A: B})


def test_parameters_are_free_generated_symbols() -> None:
    """Bound symbols, functions and named symbols are no parameters."""
    y = T.symbol("y!7", T.INT)
    term = T.conj(T.for_all([X], T.less(X, y)), T.less(A, T.apply("f!3", (y,), T.INT)))

    assert (y,) == T.parameters_of([term])
    assert (X, y) == T.parameters_of([T.less(X, y), term])


def test_text_names_bound_symbols_by_their_order() -> None:
    """Two formulas that say the same have the same text, whatever their bound symbols are called."""
    z = T.symbol("x!99", T.INT)

    assert T.text(T.for_all([X], positive(X))) == T.text(T.for_all([z], positive(z)))
    assert "(forall ((x!0 Int)) (< 0 x!0))" == T.text(T.for_all([X], positive(X)))


def test_text_of_numbers_and_patterns() -> None:
    """Negative numerals are applications; patterns follow the body."""
    f = T.apply("f", (X,), T.INT)

    assert "(< a (- 3))" == T.text(T.less(A, T.integer(-3)))
    assert "(forall ((x!0 Int)) (! (< 0 (f x!0)) :pattern ((f x!0))))" == T.text(T.for_all([X], positive(f), ((f,),)))


def test_repeated_parts_are_written_once() -> None:
    """A part that occurs twice is bound by `let`, so that a text is no longer than its term."""
    term, depth = A, 40
    for _ in range(depth):
        term = T.make("+", T.INT, (term, term))

    assert len(T.text(positive(term))) < 60 * depth


def test_a_script_declares_what_it_uses() -> None:
    """Sorts, then functions, then assertions."""
    x = T.symbol("x!1", "Name")
    f = T.apply("f", (x, A), T.BOOL)

    assert [
        "(declare-sort Name 0)",
        "(declare-fun a () Int)",
        "(declare-fun f (Name Int) Bool)",
        "(assert (forall ((x!0 Name)) (f x!0 a)))",
    ] == T.script([T.for_all([x], f)]).splitlines()


def test_a_name_has_one_sort() -> None:
    """Two symbols of one name and different sorts are an error, not an overloading."""
    with pytest.raises(ValueError, match="a names symbols of different sorts"):
        T.script([P, positive(A), T.symbol("a", T.BOOL)])
