"""What differs between two rows of logits is told bit by bit."""

import numpy as np
import pytest

from vosti.impl.determinism.bits import argmax, divergence, is_finite, row_digest


def row(*numbers: float) -> bytes:
    """A row of logits."""
    return np.array(numbers, "<f4").tobytes()


def test_the_first_token_that_differs_is_named() -> None:
    """Its two bit patterns, and how many float32 numbers lie between them."""
    found = divergence(row(0.5, 1.0, 3.0), row(0.5, np.nextafter(np.float32(1), np.float32(2)), 3.0))

    assert (1, "3f800000", "3f800001", 1) == (found.token, found.left_bits, found.right_bits, found.ulps)
    assert (1, True, None) == (found.differing, found.same_argmax, found.rank)


def test_ulps_are_counted_across_zero() -> None:
    """From the smallest number below zero to the smallest above it are two steps; both zeros are one number."""
    tiny = 1.401298464324817e-45

    assert 2 == divergence(row(-tiny, 1), row(tiny, 1)).ulps
    assert 0 == divergence(row(-0.0, 1), row(0.0, 1)).ulps


def test_zeros_of_different_sign_differ() -> None:
    """Equality is that of bits, not of numbers."""
    found = divergence(row(1.0, -0.0), row(1.0, 0.0))

    assert (1, "80000000", "00000000", 1) == (found.token, found.left_bits, found.right_bits, found.differing)


def test_margin_argmax_and_rank_are_of_the_reference() -> None:
    """The margin is the reference's; another largest token shows as rank 0, an exchange below it as a later rank."""
    other_top = divergence(row(1.0, 2.0, 0.0), row(2.0, 1.5, 0.0))
    other_rest = divergence(row(4.0, 1.0, 2.0), row(4.0, 2.5, 2.0))

    assert (0.5, False, 0) == (other_top.margin, other_top.same_argmax, other_top.rank)
    assert (1.5, True, 1) == (other_rest.margin, other_rest.same_argmax, other_rest.rank)
    assert 1.5 == other_rest.largest


def test_ties_go_to_the_lowest_token() -> None:
    """As the sampler has it."""
    assert 1 == argmax(row(0.0, 7.0, 7.0))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_seen(number: float) -> None:
    """One number is enough, and it makes the largest difference infinite."""
    assert is_finite(row(1.0, 2.0))
    assert not is_finite(row(1.0, number))
    assert float("inf") == divergence(row(1.0, number), row(1.0, 2.0)).largest


def test_digests_are_of_the_bytes() -> None:
    """Equal rows have one digest, rows that differ in a bit have two."""
    assert row_digest(row(0.0)) == row_digest(row(0.0)) != row_digest(row(-0.0))
