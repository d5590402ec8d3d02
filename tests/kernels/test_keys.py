"""The key of a kernel in the compiler's cache: what is edited has another, and no order of questions matters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

import triton.language as tl
from triton.runtime.jit import JITFunction

from vosti.kernels.catalogue import KERNELS, SAMPLER
from vosti.kernels.launch import with_key

FUNCTIONS = {name: kernel.function for name, kernel in {**KERNELS, **SAMPLER}.items()}


def reached(function: Any) -> Iterator[JITFunction[Any]]:
    """A function, and all that it calls."""
    yield function
    for name in function.fn.__code__.co_names:
        called = function.fn.__globals__.get(name)
        if isinstance(called, JITFunction):
            yield from reached(called)


def constants(function: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """The constants that it or what it calls looks up: where, and their names."""
    for one in reached(function):
        for name in one.fn.__code__.co_names:
            if isinstance(one.fn.__globals__.get(name), tl.constexpr):
                yield one.fn.__globals__, name


def forget() -> None:
    """Have no function know its key."""
    for function in FUNCTIONS.values():
        for one in reached(function):
            one.hash, one.used_global_vals = None, {}


@pytest.fixture(autouse=True)
def keys() -> Iterator[dict[str, str]]:
    """The keys as they are; made anew afterwards."""
    yield {name: function.cache_key for name, function in FUNCTIONS.items()}
    forget()
    for function in FUNCTIONS.values():
        with_key(function)


@pytest.mark.parametrize("backwards", [False, True])
def test_the_order_does_not_matter(backwards: bool, keys: dict[str, str]) -> None:
    """In which keys are asked for; of Triton's own way to make them it does."""
    order = list(FUNCTIONS)[:: -1 if backwards else 1]
    forget()
    own = {name: FUNCTIONS[name].cache_key for name in order}
    forget()

    assert keys == {name: with_key(FUNCTIONS[name]).cache_key for name in order}
    assert keys != own


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_edited_constant_makes_another_key(name: str, keys: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that the kernel uses, or anything that it calls."""
    for place, constant in constants(FUNCTIONS[name]):
        with monkeypatch.context() as edit:
            edit.setitem(place, constant, tl.constexpr("another"))
            forget()
            other = with_key(FUNCTIONS[name]).cache_key
        assert keys[name] != other, constant


def test_there_are_constants_behind_calls() -> None:
    """Such as the levels of a norm's tree, and the coefficients of the exponential."""
    assert "MOST_LEVELS" in {name for _, name in constants(FUNCTIONS["rms_norm"])}
    assert "_COEFFICIENTS" in {name for _, name in constants(FUNCTIONS["weights"])}
