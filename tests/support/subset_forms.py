"""One small function for each form of the subset of Python that can be translated to logic."""

# ruff: noqa: D103, SIM401 - the name of each function says which form it is, and is to be that very form

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NewType
from zlib import crc32

from immutables import Map

from vosti.impl.persistent import without
from vosti.spec.reference import opaque
from vosti.spec.state import Token

Name = NewType("Name", str)
Mark = NewType("Mark", int)

LIMIT = 3
"""A number of this module."""


@dataclass(frozen=True)
class Point:
    """A record."""

    x: int
    name: Name
    on: bool
    path: tuple[Name, ...]
    text: tuple[Token, ...]
    link: Name | None


@dataclass(frozen=True)
class Box:
    """A record of mappings, sets and pairs."""

    points: Map[Name, Point]
    counts: Map[Name, int]
    names: frozenset[Name]
    others: frozenset[Name]
    pair: tuple[Name, int]
    maybe: tuple[Name, int] | None
    extra: int | None


@opaque
def unknown(n: int, text: tuple[Token, ...], path: tuple[Name, ...], link: Name | None) -> Mark:
    """A function known by its type. What it gives is the same in every process, as hashes of names are not."""
    return Mark(crc32(repr((n, text, path, link)).encode()) % 3)


def constant(p: Point) -> int:
    return 3


def module_constant(p: Point) -> int:
    return p.x * LIMIT + LIMIT


def constants_compared(p: Point) -> int:
    return p.x if 2 < 2 or 3 <= 2 else 0


def truth(p: Point) -> bool:
    return True


def negative(p: Point) -> int:
    return -p.x


def added(p: Point) -> int:
    return p.x + 2 - p.x * 2


def product(p: Point, n: int) -> int:
    return p.x * n


def quotient(p: Point) -> int:
    return p.x // len(p.path)


def remainder(p: Point) -> int:
    return p.x % len(p.path)


def quotient_by_number(p: Point) -> tuple[int, int]:
    return (p.x // 3, p.x % 3)


def smaller(p: Point, n: int) -> bool:
    return p.x < n


def at_most(p: Point, n: int) -> bool:
    return p.x <= n


def greater(p: Point, n: int) -> bool:
    return p.x > n


def at_least(p: Point, n: int) -> bool:
    return p.x >= n


def chained(p: Point, n: int) -> bool:
    return 0 <= n < p.x


def chained_guard(p: Point, n: int) -> bool:
    return 0 <= n < len(p.path) == len(p.path[:n]) + 1


def unequal(p: Point, n: int) -> bool:
    return p.x != n


def both(p: Point, b: Box) -> bool:
    return p.on and p.name in b.points and b.points[p.name].on


def either(p: Point, b: Box) -> bool:
    return not p.on or p.name not in b.points or b.points[p.name].on


def unguarded(p: Point, b: Box) -> bool:
    return b.points[p.name].on and p.name in b.points


def conditional(p: Point, b: Box) -> int:
    return b.counts[p.name] if p.name in b.counts else p.x


def conditional_record(p: Point, q: Point) -> Point:
    return p if p.on else q


def conditional_mapping(b: Box, c: Box, n: int) -> Mapping[Name, int]:
    return b.counts if n > 0 else c.counts


def conditional_set(b: Box, c: Box, n: int) -> frozenset[Name]:
    return b.names if n > 0 else c.names


def conditional_tuple(p: Point, q: Point) -> tuple[Name, ...]:
    return p.path if p.on else q.path + (p.name,)


def conditional_tuple_has(p: Point, q: Point) -> bool:
    return q.name in (p.path if p.on else q.path + (p.name,))


def conditional_empty(p: Point) -> tuple[Token, ...]:
    return p.text[1:] if p.text else ()


def conditional_none(p: Point) -> Name | None:
    return p.name if p.on else None


def none_first(p: Point, q: Point) -> Name | None:
    return None if p.on else q.link


def is_none(p: Point) -> bool:
    return p.link is None


def is_not_none(p: Point) -> bool:
    return p.link is not None


def equal_options(p: Point, q: Point) -> bool:
    return p.link == q.link


def option_and_value(p: Point) -> bool:
    return p.link == p.name


def option_as_key(p: Point, b: Box) -> int:
    return 0 if p.link is None else b.counts[p.link]


def option_in(p: Point, b: Box) -> bool:
    return p.link in b.counts


def option_unguarded(p: Point, b: Box) -> int:
    return b.counts[p.link]  # type: ignore[index]


def option_unchecked(b: Box) -> int:
    return b.extra + 1  # type: ignore[operator]


def option_checked(b: Box) -> int:
    return 0 if b.extra is None else b.extra + 1


def equal_records(p: Point, q: Point) -> bool:
    return p == q


def equal_texts(p: Point, q: Point) -> bool:
    return p.text == q.text


def equal_paths(p: Point, q: Point) -> bool:
    return p.path == q.path


def equal_sets(b: Box) -> bool:
    return b.names == b.others


def equal_mappings(b: Box, c: Box) -> bool:
    return b.counts == c.counts


def equal_pairs(b: Box) -> bool:
    return b.maybe == b.pair


def empty_text(p: Point) -> bool:
    return p.text == ()


def empty_set(b: Box) -> bool:
    return b.names != frozenset()


def not_set(b: Box) -> bool:
    return not b.names


def not_path(p: Point) -> bool:
    return not p.path


def member_of_set(p: Point, b: Box) -> bool:
    return p.name in b.names


def member_of_path(p: Point) -> bool:
    return p.name in p.path


def member_of_text(p: Point, q: Point) -> bool:
    return len(q.text) > 0 and q.text[0] in p.text


def not_member(p: Point, b: Box) -> bool:
    return p.name not in b.counts


def looked_up(p: Point, b: Box) -> int:
    return b.counts[p.name]


def item(p: Point, n: int) -> Name:
    return p.path[n]


def item_of_text(p: Point, n: int) -> Token:
    return p.text[n]


def last(p: Point) -> Name:
    return p.path[-1]


def last_of_text(p: Point) -> Token:
    return p.text[-1]


def part_of_pair(b: Box) -> int:
    return b.pair[1]


def part_of_option(b: Box) -> int:
    return 0 if b.maybe is None else b.maybe[1]


def new_pair(p: Point) -> tuple[Name, int]:
    return (p.name, p.x)


def sliced(p: Point, n: int) -> tuple[Name, ...]:
    return p.path[n : n + 2]


def sliced_text(p: Point, n: int) -> tuple[Token, ...]:
    return p.text[n : n + 2]


def sliced_open(p: Point, n: int) -> tuple[Token, ...]:
    return p.text[n:] + p.text[:n]


def grown(p: Point) -> tuple[Name, ...]:
    return p.path + (p.name, p.name)


def grown_has(p: Point, q: Point) -> bool:
    return q.name in p.path + (p.name,)


def grown_text(p: Point, q: Point) -> tuple[Token, ...]:
    return p.text + (q.text[0],)


def joined(p: Point, q: Point) -> tuple[Name, ...]:
    return p.path + q.path


def joined_has(p: Point, q: Point) -> bool:
    return q.name in p.path + q.path


def joined_texts(p: Point, q: Point) -> tuple[Token, ...]:
    return p.text + q.text


def counted(p: Point, q: Point) -> int:
    return len(p.text) + len(q.path + (p.name,))


def tuple_from_range(p: Point, n: int) -> tuple[int, ...]:
    return tuple(p.x + i for i in range(n))


def length_of_tuple_from_range(p: Point, n: int) -> int:
    return len(tuple(p.x for i in range(n)))


def tuple_from_range_needs(p: Point, n: int) -> tuple[Name, ...]:
    return tuple(p.path[i] for i in range(n))


def single(p: Point) -> frozenset[Name]:
    return frozenset({p.name})


def single_is_not_empty(p: Point) -> bool:
    return not frozenset({p.name})


def single_is_used(p: Point, b: Box) -> bool:
    return (b.names | {p.name}) != frozenset()


def union(b: Box, p: Point) -> frozenset[Name]:
    return b.names | {p.name}


def intersection(b: Box) -> frozenset[Name]:
    return b.names & b.others


def difference(b: Box) -> frozenset[Name]:
    return b.names - b.others


def chosen_set(b: Box, n: int) -> frozenset[Name]:
    return frozenset(k for k, count in b.counts.items() if count > n)


def chosen_set_needs(b: Box) -> frozenset[Name]:
    return frozenset(k for k in b.names if b.counts[k] > 0)


def chosen_from_path(p: Point, b: Box) -> frozenset[Name]:
    return frozenset(k for k in p.path if k in b.names)


def size_of_set(b: Box, n: int) -> int:
    return len(frozenset(k for k, count in b.counts.items() if count > n))


def sizes_of_two_sets(b: Box, n: int) -> int:
    return len(frozenset(k for k, count in b.counts.items() if count > n)) - len(frozenset(k for k in b.names))


def sizes_of_sets(b: Box) -> bool:
    return all(len(frozenset(k for k, c in b.counts.items() if c == n)) >= 1 for n in b.counts.values())


def updated(b: Box, p: Point, n: int) -> Mapping[Name, int]:
    return {**b.counts, p.name: n}


def updated_twice(b: Box, p: Point, q: Point) -> Mapping[Name, int]:
    return {**b.counts, p.name: 1, q.name: 2}


def comprehended(b: Box, n: int) -> Mapping[Name, int]:
    return {k: count + n for k, count in b.counts.items() if count != n}


def comprehended_needs(b: Box) -> Mapping[Name, int]:
    return {k: b.counts[k] for k in b.names}


def comprehended_conditional(b: Box) -> Mapping[Name, Point]:
    return {k: replace(p, x=0) if p.on else p for k, p in b.points.items()}


def comprehended_from_path(p: Point, b: Box) -> Mapping[Name, int]:
    return {k: b.counts[k] for k in p.path if k in b.counts}


def persistent_set(b: Box, p: Point, n: int) -> Mapping[Name, int]:
    return b.counts.set(p.name, n)


def persistent_delete(b: Box, p: Point) -> Mapping[Name, int]:
    return b.counts.delete(p.name)


def persistent_get(b: Box, p: Point) -> bool:
    return b.counts.get(p.name) is None


def persistent_get_value(b: Box, p: Point, n: int) -> bool:
    return b.counts.get(p.name) == n


def persistent_update(b: Box, c: Box) -> Mapping[Name, int]:
    return b.counts.update(c.counts)


def persistent_without(b: Box, p: Point) -> Mapping[Name, int]:
    return without(b.counts, p.path)


def persistent_without_keys(b: Box, c: Box) -> Mapping[Name, int]:
    return without(b.counts, c.counts)


def replaced(p: Point, n: int) -> Point:
    return replace(p, x=n, link=None, text=())


def constructed(p: Point, b: Box) -> Point:
    return Point(x=1, name=p.name, on=False, path=(), text=p.text, link=p.name)


def nested(b: Box, p: Point) -> Mapping[Name, Point]:
    return {**b.points, p.name: replace(b.points[p.name], x=b.points[p.name].x + 1)}


def every_key(b: Box) -> bool:
    return all(k in b.points for k in b.counts)


def every_value(b: Box, n: int) -> bool:
    return all(count > n for count in b.counts.values())


def every_item(b: Box, n: int) -> bool:
    return all(count > n for k, count in b.counts.items() if k in b.names)


def every_member(b: Box) -> bool:
    return all(k in b.others for k in b.names)


def every_element(p: Point, b: Box) -> bool:
    return all(k in b.names for k in p.path)


def every_index(p: Point) -> bool:
    return all(p.path[i] != p.path[i + 1] for i in range(len(p.path) - 1))


def every_index_needs(p: Point) -> bool:
    return all(p.path[i] != p.path[i + 1] for i in range(len(p.path)))


def every_second(p: Point, n: int) -> bool:
    return all(p.text[i] != p.text[0] for i in range(1, n))


def every_enumerated(p: Point, n: int) -> bool:
    return all(i < n or k == p.name for i, k in enumerate(p.path))


def every_pair(b: Box) -> bool:
    return all(k != p.name for k in b.names for p in b.points.values() if p.on)


def some_key(b: Box) -> bool:
    return any(k in b.points for k in b.counts)


def some_index(p: Point, n: int) -> bool:
    return any(p.text[i] == p.text[0] for i in range(1, n))


def least(p: Point, n: int) -> int:
    return min(p.x, n) - max(0, n)


def called(p: Point, q: Point) -> bool:
    return least(p, q.x) > 0 and conditional_none(q) is None


def early(p: Point, b: Box) -> int:
    if p.name not in b.counts:
        return -1
    count = b.counts[p.name]
    if count > 2:
        return count
    else:
        return p.x


def opaque_call(p: Point, n: int) -> Mark:
    return unknown(n, p.text, p.path, p.link)


def opaque_of_comprehension(p: Point, n: int) -> Mark:
    return unknown(n, p.text, tuple(p.path[i] for i in range(n)), None)


FORMS = tuple(
    f
    for name, f in list(globals().items())
    if getattr(f, "__module__", None) == __name__ and hasattr(f, "__code__") and name != "unknown"
)
"""All of them."""
