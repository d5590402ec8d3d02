"""A report names the part of a predicate that is false, and the values on both sides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from vosti.refinement.explain import explain, first_sentence


def both(a: int, b: int) -> bool:
    """Both are small. More is not asked."""
    return a < 5 and b < 5


def early(a: int, limits: dict[int, int]) -> bool:
    """There is a limit, and a keeps it."""
    if a not in limits or not limits[a]:
        return False
    limit = limits[a]
    return a + 1 < limit if a > 0 else limit == 0


def nobody(values: tuple[int, ...]) -> bool:
    """No value is large."""
    return not any(value > 5 for value in values)


def either(a: int, b: int) -> bool:
    """One of them is small."""
    return a < 5 or b < 5


def looping(a: int) -> bool:
    """The function lies outside the subset."""
    for _ in range(a):
        pass
    return False


CASES: list[tuple[Callable[..., bool], tuple[object, ...], str, str]] = [
    (both, (7, 1), "a < 5", "a is 7"),
    (both, (1, 7), "b < 5", "b is 7"),
    (early, (3, {}), "a in limits", "a is 3, limits is {}"),
    (early, (3, {3: 0}), "limits[a]", "limits[a] is 0"),
    (early, (3, {3: 2}), "a + 1 < limit", "a + 1 is 4, limit is 2"),
    (early, (-1, {-1: 2}), "limit == 0", "limit is 2"),
    (
        nobody,
        ((1, 9),),
        "not (any((value > 5 for value in values)))",
        "any((value > 5 for value in values)) is True",
    ),
    (either, (7, 8), "a < 5 or b < 5", "a is 7; b is 8"),
    (looping, (1,), "The function lies outside the subset", "it does not hold"),
    (eval("lambda: False"), (), "<lambda>", "it does not hold"),
]


@pytest.mark.parametrize(("predicate", "args", "expected", "actual"), CASES)
def test_the_false_part_is_named(
    predicate: Callable[..., bool], args: tuple[object, ...], expected: str, actual: str
) -> None:
    """The part that is to blame is shown as it stands in the source."""
    assert not predicate(*args)
    assert (expected, actual) == explain(predicate, *args)


def test_the_first_sentence_is_one_line() -> None:
    """A docstring's first sentence, however it is broken into lines."""
    assert "Both are small" == first_sentence(both)
