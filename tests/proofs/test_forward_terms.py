"""The terms that the forward's proof compares: equal if they are made alike, and made of what fits only."""

import pytest

pytest.importorskip("triton", reason="contracts stand beside the kernels, which need Triton")

from vosti.impl.models.plan import Source
from vosti.proofs.forward_terms import EVERY, Array, Matrix, Refused, Terms, cut, joined, width
from vosti.proofs.forward_words import difference


def test_terms_are_equal_if_they_are_made_alike() -> None:
    """An operation's arguments have an order, and no sum is another in a different order."""
    terms = Terms()
    x, y, z = (Array((), (terms.vector(4, "stored", name),)) for name in "xyz")

    assert terms.add(x, y) == terms.add(x, y)
    assert terms.add(x, y) != terms.add(y, x)
    assert terms.add(terms.add(x, y), z) != terms.add(x, terms.add(y, z))
    assert "y stands where x belongs" == difference(terms, terms.add(y, x).flat, terms.add(x, y).flat)


def test_a_rounding_is_of_each_number_and_of_no_rounded_one() -> None:
    """Rounded columns are columns of what is rounded; rounding a second time is nothing; and rounding is something."""
    terms = Terms()
    x, y = (terms.vector(4, "stored", name) for name in "xy")
    both = joined(x, y)

    assert cut(terms.rounded(both), 2, 6) == terms.rounded(cut(both, 2, 6))
    assert terms.rounded(terms.rounded(both)) == terms.rounded(both)
    assert x != terms.rounded(x) != terms.rounded(y)


def test_heads_are_cut_and_joined() -> None:
    """Heads are neighbouring columns, and halves of them what is joined in the same order only."""
    terms = Terms()
    whole = terms.vector(12, "stored", "x")
    heads = Array.of(whole, (3, 4))
    first, second = terms.halves(heads)

    assert whole == heads.flat
    assert cut(whole, 4, 8) == heads[1, EVERY].flat
    assert cut(whole, 8, 10) == Array.of(whole, (3, 2, 2))[2, 0, EVERY].flat
    assert heads.flat == terms.join(first, second).flat
    assert heads.flat != terms.join(second, first).flat
    assert 12 == width(terms.negate(heads).flat)
    assert whole == joined(cut(whole, 0, 5), cut(whole, 5, 12))


def test_rows_of_weights_are_those_of_one_tensor() -> None:
    """Where two take turns; a weight whose rows stand one after the other has no such rows, and a sum no such order."""
    terms, sources = Terms(), (Source("gate", (6, 4)), Source("up", (6, 4)))
    turns, stacked = Matrix(terms, sources, in_turns=True), Matrix(terms, sources)
    x = Array((), (terms.vector(4, "stored", "x"),))

    assert terms.chain(x, turns[0::2, EVERY].T).flat == cut(terms.chain(x, stacked.T).flat, 0, 6)
    assert terms.chain(x, turns[1::2, EVERY].T).flat == cut(terms.chain(x, stacked.T).flat, 6, 12)
    for attempt in (
        lambda: stacked[0::2, EVERY],
        lambda: turns[0::3, EVERY],
        lambda: turns[-1::2, EVERY],
        lambda: turns[0::2, 0],
        lambda: terms.chain(x, turns.T),
        lambda: terms.chain(x, stacked),
        lambda: terms.chain(x, Matrix(terms, (Source("wide", (6, 5)),)).T),
    ):
        with pytest.raises(Refused):
            attempt()


def test_what_does_not_fit_is_refused() -> None:
    """Other widths, other numbers of heads, and an index that is none."""
    terms = Terms()
    x, y = (Array((), (terms.vector(n, "stored", f"of {n}"),)) for n in (4, 5))
    heads = Array.of(x.flat, (2, 2))

    for attempt in (
        lambda: terms.add(x, y),
        lambda: Array.of(x.flat, (3,)),
        lambda: x[0, 1],
        lambda: heads[2, EVERY],
        lambda: heads[-1, EVERY],
        lambda: heads[EVERY, 0],
        lambda: terms.add(heads, Array.of(terms.vector(6, "stored", "z"), (3, 2))),
    ):
        with pytest.raises(Refused):
            attempt()
