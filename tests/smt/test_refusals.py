"""What is outside the subset is refused, with file, line and construct."""

# ruff: noqa: D103, RET503 - the name of each small function says what is refused

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from subset_forms import Box, Name, Point
from vosti.refinement.errors import RefinementError
from vosti.refinement.smt.compiler import Compiler
from vosti.refinement.smt.values import Refused, type_of
from vosti.spec import reference
from vosti.spec.reference import opaque, reference_run
from vosti.spec.state import Logits, PageId, Sampler, Token

LEVEL, IS_THERE, COUNT = 1.0, True, 1


def loop(p: Point, b: Box) -> bool:
    for _ in b.names:
        pass
    return True


def no_return(p: Point, b: Box) -> bool:  # type: ignore[return]
    if p.on:
        return True


def recursion(p: Point, b: Box) -> bool:
    return recursion(p, b)


def function_value(p: Point, b: Box) -> bool:
    return (lambda: True)()


def list_display(p: Point, b: Box) -> bool:
    return [p.x] == []


def text(p: Point, b: Box) -> bool:
    return p.name == "a"


def power(p: Point, b: Box) -> int:
    return p.x**2


def size_of_mapping(p: Point, b: Box) -> int:
    return len(b.counts)


def summed(p: Point, b: Box) -> int:
    return sum(b.counts.values())


def ordered(p: Point, b: Box) -> bool:
    return sorted(b.names) == []


def zipped(p: Point, b: Box) -> bool:
    return all(x == y for x, y in zip(p.path, p.path, strict=True))


def mixed(p: Point, b: Box) -> bool:
    return p.x == p.path  # type: ignore[comparison-overlap]


def other_identifier(p: Point, b: Box) -> bool:
    return p.text[0] in b.names  # type: ignore[comparison-overlap]


def arithmetic_on_identifiers(token: Token, page: PageId) -> bool:
    return token + 1 == 2


def identifiers_compared(token: Token, page: PageId) -> bool:
    return token < 3


def two_loops_in_a_tuple(p: Point, b: Box) -> tuple[int, ...]:
    return tuple(i for i in range(3) for j in range(3))


def filtered_tuple(p: Point, b: Box) -> tuple[int, ...]:
    return tuple(i for i in range(3) if i > 1)


def other_keys(p: Point, b: Box) -> bool:
    return {q.name: 1 for k, q in b.points.items()} == b.counts


def other_elements(p: Point, b: Box) -> bool:
    return frozenset(q.name for q in b.points.values()) == b.names


def step(p: Point, b: Box) -> bool:
    return p.path[::2] == ()


def no_field(p: Point, b: Box) -> Point:
    return replace(p, y=1)  # type: ignore[call-arg]


def missing_field(p: Point, b: Box) -> Point:
    return Point(x=1, name=p.name)  # type: ignore[call-arg]


def unknown_name(p: Point, b: Box) -> bool:
    return nowhere  # type: ignore[name-defined] # noqa: F821


def no_number(p: Point, b: Box) -> bool:
    return LEVEL == 1


def no_number_but_truth(p: Point, b: Box) -> bool:
    return IS_THERE == 1


def shadowed(p: Point, b: Box) -> int:
    if p.on:
        COUNT = p.x
        return COUNT + COUNT
    return COUNT


def keyword(p: Point, b: Box) -> bool:
    return two_loops_in_a_tuple(p, b=b) == ()


def assertion(p: Point, b: Box) -> bool:
    assert p.on
    return True


def two_targets(p: Point, b: Box) -> bool:
    x, y = p.x, p.x
    return x == y


def unequal_arms(p: Point, b: Box) -> bool:
    return (p.x if p.on else p.path) == p.x


def negated_number(p: Point, b: Box) -> bool:
    return not p.x


def pair_index(p: Point, b: Box) -> bool:
    return b.pair[p.x] == p.x


def nested_function(p: Point, b: Box) -> bool:
    def inside() -> bool:
        return True

    return inside()


def same_object(p: Point, b: Box) -> bool:
    return p.path is p.path


def two_names_for_one(p: Point, b: Box) -> bool:
    return all(k == p.name for k, count in b.names)


def without(mapping: object, keys: object) -> object:
    return mapping


def another_function_of_a_known_name(p: Point, b: Box) -> bool:
    return without(b.counts, p.path) == b.counts


REFUSED: tuple[Callable[..., Any], ...] = (
    loop,
    no_return,
    function_value,
    list_display,
    text,
    power,
    size_of_mapping,
    summed,
    ordered,
    zipped,
    mixed,
    other_identifier,
    arithmetic_on_identifiers,
    identifiers_compared,
    two_loops_in_a_tuple,
    filtered_tuple,
    other_keys,
    other_elements,
    step,
    no_field,
    missing_field,
    unknown_name,
    no_number,
    no_number_but_truth,
    shadowed,
    keyword,
    assertion,
    two_targets,
    unequal_arms,
    negated_number,
    pair_index,
    nested_function,
    same_object,
    two_names_for_one,
)


def compiled(f: Callable[..., Any]) -> Any:
    """f, of unknown arguments."""
    compiler = Compiler()
    return compiler.run(f, *(compiler.symbolic(ty, name) for name, ty in compiler.parameters(f)))


@pytest.mark.parametrize("f", REFUSED, ids=lambda f: str(f.__name__))
def test_what_is_outside_the_subset_is_refused(f: Callable[..., Any]) -> None:
    """The message names this file, a line of the function, and the construct."""
    with pytest.raises(Refused) as refused:
        compiled(f)
    first = f.__code__.co_firstlineno
    last = max(line for _, _, line in f.__code__.co_lines() if line is not None)
    file, line, *_ = str(refused.value).split(":")

    assert __file__ == file
    assert first <= int(line) <= last


def test_recursion_is_refused() -> None:
    """A function that calls itself has no translation."""
    with pytest.raises(Refused, match="recursive"):
        compiled(recursion)


def test_a_refusal_names_the_file_of_the_construct() -> None:
    """The message says where the construct stands, not who asked for it."""
    with pytest.raises(Refused, match=r"reference\.py:\d+: records: "):
        compiled(reference_run)


def unannotated(p, b) -> bool:  # type: ignore[no-untyped-def]
    return True


def keyword_only(p: Point, *, b: Box) -> bool:
    return True


def of_text(p: str, b: Box) -> bool:
    return True


def of_either(p: int | Name, b: Box) -> bool:
    return True


@pytest.mark.parametrize("f", [unannotated, keyword_only, of_text, of_either])
def test_what_has_no_types_is_refused(f: Callable[..., Any]) -> None:
    """Every parameter is positional, and of a type of the subset."""
    with pytest.raises(Refused):
        compiled(f)


def test_a_method_is_refused() -> None:
    """Functions at the top of a module have a translation, and no others."""

    @dataclass(frozen=True)
    class Inside:
        x: int

        def method(self) -> int:
            return self.x

    with pytest.raises(Refused, match="no function at the top of a module"):
        compiled(Inside.method)


def plain(p: Point, b: Box) -> int:
    return p.x


def test_wrong_arguments_are_refused() -> None:
    """Too few arguments, or one of another type."""
    compiler = Compiler()
    p, b = (compiler.symbolic(ty, name) for name, ty in compiler.parameters(plain))
    with pytest.raises(Refused, match="takes 2 arguments, not 1"):
        compiler.run(plain, p)
    with pytest.raises(Refused, match=r"where .* is expected"):
        compiler.run(plain, b, p)


def test_a_value_that_is_no_term_has_none() -> None:
    """A record is no single term."""
    with pytest.raises(Refused, match="no single term"):
        _ = compiled(no_change).term


def no_change(p: Point, b: Box) -> Point:
    return p


def test_a_text_can_be_replaced() -> None:
    """A mutant's text stands in the place of the function's own, wherever the function is called."""
    node = ast.parse("def plain(p, b):\n    return p.x + 1").body[0]
    assert isinstance(node, ast.FunctionDef)
    compiler = Compiler({f"{plain.__module__}.plain": node})
    arguments = [compiler.symbolic(type_of(ty), name) for name, ty in (("p", Point), ("b", Box))]

    assert "+" == compiler.run(plain, *arguments).term.op


def test_a_refusal_is_an_expected_error() -> None:
    """Whoever handles this part's errors handles refusals."""
    assert issubclass(Refused, RefinementError)


def test_a_known_name_is_known_by_what_it_stands_for() -> None:
    """A function that happens to be called like one that is known here is read as it stands, or refused."""
    with pytest.raises(Refused, match="object'> is no type of the subset"):
        compiled(another_function_of_a_known_name)


@opaque
def sampled_token(n: int) -> Token:
    return Token(n)


def two_unknowns(p: Point, text: tuple[Token, ...], s: Sampler, logits: Logits) -> bool:
    return sampled_token(p.x) == reference.sampled_token(logits, s, text, p.x)


def test_two_unknown_functions_of_one_name_are_told_apart() -> None:
    """Nothing that is assumed of the one is assumed of the other."""
    with pytest.raises(Refused, match="another unknown function is called sampled_token"):
        compiled(two_unknowns)
