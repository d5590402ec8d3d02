"""A pair passes only if it compares something: schedules that differ, finite numbers, every bit."""

from dataclasses import replace

import numpy as np
import pytest

from vosti.impl.determinism.cases import Pair
from vosti.impl.determinism.protocol import Answer, Piece, Schedule, Settings
from vosti.impl.determinism.results import Done, Header, compare
from vosti.impl.determinism.schedules import contiguous, differences
from vosti.impl.determinism.summary import summarize

ROW = np.array([1.0, 2.0], "<f4").tobytes()
OTHER = np.array([1.0, 2.5], "<f4").tobytes()
NAN = np.array([1.0, np.nan], "<f4").tobytes()
EQUAL = Pair("axis/a/0", "a", 4, ROW, ROW, differs=("cuts",), left_token=1, right_token=1)


def test_equal_rows_match() -> None:
    """If the schedules differed."""
    assert "match" == compare(EQUAL).state


def test_a_pair_that_compares_nothing_is_invalid() -> None:
    """Equal rows do not help it."""
    found = compare(replace(EQUAL, invalid="the two schedules did not differ"))

    assert ("invalid", "the two schedules did not differ") == (found.state, found.why)


def test_rows_that_differ_are_a_mismatch_whatever_the_schedules() -> None:
    """A witness that fails does not excuse it."""
    found = compare(replace(EQUAL, left=OTHER, invalid="the two schedules did not differ"))

    assert "mismatch" == found.state
    assert found.divergence is not None
    assert (1, "40200000", "40000000") == (
        found.divergence.token,
        found.divergence.left_bits,
        found.divergence.right_bits,
    )


def test_equal_rows_that_are_not_finite_are_invalid() -> None:
    """NaN equals NaN in bits and proves nothing."""
    assert "invalid" == compare(replace(EQUAL, left=NAN, right=NAN)).state
    assert "mismatch" == compare(replace(EQUAL, left=NAN)).state


def test_rows_of_one_number_are_invalid() -> None:
    """A model that says nothing passes nothing."""
    flat = np.array([2.0, 2.0], "<f4").tobytes()

    assert "invalid" == compare(replace(EQUAL, left=flat, right=flat)).state


def test_requests_that_all_have_one_row_are_invalid() -> None:
    """Logits that do not depend on the prompt pass nothing, even if they are equal."""
    pairs = tuple(compare(replace(EQUAL, name=name, request=name)) for name in "ab")
    head = Header("", "quick", "", "", "", {}, {}, 1, {"case": 2}, {"case": "batch"})
    (cell,) = summarize(head, [Done("case", 0.0, pairs)]).cells

    assert (2, 2, 1, "invalid") == (cell.matched, cell.requests, cell.distinct, cell.verdict)


def test_tokens_are_compared_too() -> None:
    """Equal logits and another token are a fault of the sampler."""
    assert ("mismatch", "equal logits gave the tokens 0 and 1") == (
        compare(replace(EQUAL, left_token=0)).state,
        compare(replace(EQUAL, left_token=0)).why,
    )


def test_other_histories_are_a_mismatch_without_a_divergence() -> None:
    """What follows another token cannot be compared bit by bit."""
    found = compare(replace(EQUAL, left=OTHER, same_history=False))

    assert ("mismatch", None) == (found.state, found.divergence)


SETTINGS = Settings(token_budget=8, max_seqs=4, page_size=4, pages=16)
PIECES = (Piece(0, 3, company=0, live=3, rows=4), Piece(3, 4, company=0, live=1, rows=4))
ANSWER = Answer(
    tokens=(5, 6),
    rows=(ROW, ROW),
    hit_tokens=0,
    ended="length",
    schedule=Schedule(SETTINGS, "1", ("a",), pieces=PIECES, taken=(1, 2), pages=(0,)),
)


def changed(**fields: object) -> Answer:
    """The answer under another schedule."""
    return replace(ANSWER, schedule=replace(ANSWER.schedule, **fields))  # type: ignore[arg-type]


def test_equal_schedules_do_not_differ() -> None:
    """Nothing is made up."""
    assert () == differences(ANSWER, changed(), 0) == differences(ANSWER, changed(), None)


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (changed(process="2"), "process"),
        (changed(pages=(3,)), "pages"),
        (changed(settings=replace(SETTINGS, page_size=8)), "page size"),
        (changed(settings=replace(SETTINGS, variant="tile-1")), "variant"),
        (replace(ANSWER, hit_tokens=4), "hits"),
        (changed(pieces=(Piece(0, 2, 0, 2, 4), Piece(2, 3, 0, 1, 4), PIECES[1]), taken=(2, 3)), "cuts"),
        (changed(pieces=(replace(PIECES[0], company=1), PIECES[1])), "company"),
        (changed(pieces=(replace(PIECES[0], live=4), PIECES[1])), "packed rows"),
        (changed(pieces=(replace(PIECES[0], rows=8), PIECES[1])), "padding"),
        (changed(pieces=(replace(PIECES[0], draft=1), PIECES[1])), "drafts"),
    ],
)
def test_each_difference_is_found(other: Answer, word: str) -> None:
    """By its word."""
    assert word in differences(other, ANSWER, 0)
    assert word in differences(ANSWER, other, None)


def test_what_comes_after_a_row_does_not_count() -> None:
    """Company in the second step is no difference of the first row, only of the second."""
    later = changed(pieces=(PIECES[0], replace(PIECES[1], company=2)))

    assert () == differences(later, ANSWER, 0)
    assert ("company",) == differences(later, ANSWER, 1)


def test_a_longer_page_table_is_no_difference() -> None:
    """It belongs to a request that got further, after the row in question."""
    assert () == differences(changed(pages=(0, 1)), ANSWER, 0)


def test_an_engine_that_shows_nothing_is_taken_at_its_settings() -> None:
    """The words say that they are what was asked for."""
    asked = changed(pieces=None, pages=None, asked_with=("a", "b"))

    assert ("company, as asked",) == differences(asked, changed(pieces=None, pages=None), 0)


@pytest.mark.parametrize(
    ("pieces", "good"),
    [
        (PIECES, True),
        (PIECES[::-1], False),
        ((PIECES[0], Piece(4, 5, 0, 1, 1)), False),
        ((Piece(0, 9, 0, 9, 9),), False),
    ],
)
def test_pieces_must_be_contiguous_and_within_the_budget(pieces: tuple[Piece, ...], good: bool) -> None:
    """A gap, an overlap and a piece that is too long are refused."""
    assert good == contiguous(pieces, 8)
