"""`without` and `replace` give what plain Python gives, and leave alone what they are given."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from vosti.impl import persistent

KEYS = st.integers(0, 20)
MAPPINGS = st.dictionaries(KEYS, st.integers())
FIELDS = st.fixed_dictionaries(
    {}, optional={"a": st.integers(), "b": st.text(max_size=3), "c": st.tuples(st.integers())}
)

Without = Callable[[Map[int, int], Any], Map[int, int]]
Replace = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Sample:
    """Three fields, two with defaults."""

    a: int
    b: str = "b"
    c: tuple[int, ...] = ()


def check_without(without: Without, mapping: dict[int, int], keys: list[int]) -> None:
    """Compare `without` with a dict comprehension, for each kind of collection that it is given."""
    before = Map(mapping)
    for collection in (keys, tuple(keys), frozenset(keys), dict.fromkeys(keys)):
        assert {k: v for k, v in mapping.items() if k not in keys} == dict(without(before, collection))
        assert mapping == dict(before)


def check_replace(replace: Replace, a: int, changes: dict[str, Any]) -> None:
    """Compare `replace` with `dataclasses.replace`."""
    before = Sample(a)
    expected, got = dataclasses.replace(before, **changes), replace(before, **changes)
    assert (expected, hash(expected), repr(expected)) == (got, hash(got), repr(got))
    assert type(expected) is type(got)
    assert Sample(a) == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        got.a = 0  # type: ignore[misc]


@given(MAPPINGS, st.lists(KEYS))
def test_without_is_a_filtered_mapping(mapping: dict[int, int], keys: list[int]) -> None:
    """`without` drops exactly the given keys, passes over absent ones, and leaves its argument as it was."""
    check_without(persistent.without, mapping, keys)


@given(st.integers(), FIELDS)
def test_replace_is_that_of_dataclasses(a: int, changes: dict[str, Any]) -> None:
    """`replace` gives the same frozen instance as `dataclasses.replace`, and leaves its argument as it was."""
    check_replace(persistent.replace, a, changes)


def test_replace_refuses_unknown_fields() -> None:
    """A misspelt field is an error that names the class and the field."""
    with pytest.raises(TypeError, match="Sample has no field d, e"):
        persistent.replace(Sample(1), e=1, a=2, d=3)


def test_without_nothing_is_the_mapping_itself() -> None:
    """With no keys nothing is copied."""
    mapping = Map({1: 1})

    assert mapping is persistent.without(mapping, ())


def raises_on_absent(mapping: Map[int, int], keys: Any) -> Map[int, int]:
    """A faulty `without` that deletes one by one."""
    for key in keys:
        mapping = mapping.delete(key)
    return mapping


def keeps_last(mapping: Map[int, int], keys: Any) -> Map[int, int]:
    """A faulty `without` that overlooks the last key."""
    return persistent.without(mapping, list(keys)[:-1])


@pytest.mark.parametrize("faulty", [raises_on_absent, keeps_last])
def test_a_faulty_without_is_found(faulty: Without) -> None:
    """The comparison refuses what is not a filtered mapping."""
    with pytest.raises((AssertionError, KeyError)):
        check_without(faulty, {1: 1, 2: 2}, [3, 2])


def in_place(instance: Sample, **changes: Any) -> Sample:
    """A faulty `replace` that changes what it is given."""
    instance.__dict__.update(changes)
    return instance


def forgets(instance: Sample, **changes: Any) -> Sample:
    """A faulty `replace` that falls back to defaults."""
    return Sample(**{"a": instance.a, **dict(list(changes.items())[:1])})


@pytest.mark.parametrize("faulty", [in_place, forgets])
def test_a_faulty_replace_is_found(faulty: Replace) -> None:
    """The comparison refuses what is not `dataclasses.replace`."""
    with pytest.raises(AssertionError):
        check_replace(faulty, 1, {"a": 2, "b": "x"})
