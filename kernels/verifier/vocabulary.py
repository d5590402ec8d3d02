"""The words in which a contract says what a cell holds, beside the row programs themselves.

A buffer's name is the array that it holds before the launch, an integer buffer's elements are integers, a real
parameter's name is that number. Row programs are called by name, without their first argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import ModuleType

from vosti.kernels.verifier.canonical import Array, Cache, Range, Terms, Unbounded, constant, not_finite, the_load
from vosti.kernels.verifier.draws import choice, cut_ends
from vosti.kernels.verifier.integers import Cond, Int, integer, least, most
from vosti.kernels.verifier.integers import element as element_of
from vosti.kernels.verifier.ir import FLOAT_WIDTHS, INTEGER_WIDTHS
from vosti.kernels.verifier.reals import WORDS as OF_SAMPLING
from vosti.kernels.verifier.tensors import as_term, flat
from vosti.kernels.verifier.terms import Apply, Reduce, Select, Term, Test, Truth, Whole
from vosti.kernels.verifier.words import WORDS as OF_DIGESTS
from vosti.spec.numerics import activations, attention, norms, projections, rotary

MODULES: tuple[ModuleType, ...] = (projections, norms, rotary, activations)
"""Of the row programs whose text has no loop."""


class Vocabulary:
    """The words, for one proof."""

    def __init__(self, ops: Terms, programs: Iterable[Callable[..., object]] = ()) -> None:
        self.ops = ops
        self.unbounded = Unbounded()
        compiled = self.unbounded.compiled
        over_split = compiled(attention.over_split, {})
        self._visible_tiles = compiled(attention.visible_tiles, {"range": _bounds, "max": most})
        self.words: Mapping[str, object] = {
            **{name: partial(one, ops) for module in MODULES for name, one in _programs(module)},
            **{one.__name__: partial(one, ops) for one in programs},
            **OF_DIGESTS,
            **OF_SAMPLING,
            "attention": partial(compiled(attention.attention, {"over_split": over_split}), ops),
            "over_split": lambda query, cache, split, scale, head_dim: over_split(
                ops, query, cache, split, scale, attention.empty(ops, query, head_dim)
            ),
            "choice": partial(choice, ops.prover),
            "cut_ends": cut_ends,
            "join": ops.join,
            "cache": self._cache,
            "visible_splits": self._splits,
            "split_of": self._split_of,
            "grouped": _grouped,
            "not_finite": not_finite,
            "flag": _flag,
            "either": _either,
            "over": _over,
            "within": _within,
        }

    def _cache(self, keys: BufferArray, values: BufferArray) -> Cache:
        """The cache in two buffers, [slots, kv heads, d] each."""
        _, heads, width = keys.shape

        def stored(array: BufferArray) -> Callable[[Int, Int, Int], Term]:
            return lambda slot, head, column: array.term((slot, head, column))

        def place(slot: Int, head: Int, column: Int) -> tuple[str, Int]:
            return values.name, (slot * heads + head) * width + column

        return Cache(stored(keys), stored(values), heads, width, place)

    def _splits(self, position: Int, window: int, slot: Callable[[Int], Int], length: Int) -> Range:
        """The splits of the key tiles that a row sees: what `attention` visits, in the order that it says.

        `slot` is where the key of a position is stored, `length` the number of positions that are.
        """
        low, high = self._visible_tiles(position, int(window) or None)
        each = attention.SPLIT_TILES
        return Range(
            "split", low // each, (high - 1) // each + 1, lambda s: self._split_of(s, position, window, slot, length)
        )

    def _split_of(self, split: Int, position: Int, window: int, slot: Callable[[Int], Int], length: Int) -> Range:
        """The key tiles of one split that a row sees."""
        low, high = self._visible_tiles(position, int(window) or None)
        each, width = attention.SPLIT_TILES, attention.KEY_TILE
        seen_from = int(window) or None

        def lanes(tile: Int) -> attention.Lanes[Array]:
            def at(lane: Int) -> Int:
                return tile * width + lane

            slots = Array((width,), lambda p: slot(at(p[0])), cached=lambda p: (at(p[0]) >= 0) & (at(p[0]) < length))
            live = Array((1, 1, width), lambda p: attention.visible(position, at(p[2]), seen_from))
            return attention.Lanes(slots, live)

        return Range("tile", most(split * each, low), least((split + 1) * each, high), lanes)


def _programs(module: ModuleType) -> list[tuple[str, Callable[..., object]]]:
    return [
        (name, one)
        for name, one in vars(module).items()
        if callable(one) and getattr(one, "__module__", None) == module.__name__ and not name.startswith("_")
    ]


def _bounds(low: Int | int, high: Int | int) -> tuple[Int, Int]:
    return integer(low), integer(high)


def _grouped(x: Array, groups: int) -> Array:
    """[heads, d] → [groups, heads / groups, d]."""
    heads, width = x.shape
    each = heads // int(groups)
    return Array((int(groups), each, width), lambda p: x.at((p[0] * each + p[1], p[2])))


def _flag(one: Cond | Test) -> Truth:
    """A condition as a flag: 0 or 1."""
    return Truth(one, element="i32")


def _either(*flags: Int | Term) -> Term:
    """A flag that is raised if any of these is."""
    terms = [as_term(one, "i32") for one in flags]
    found = terms[-1]
    for one in reversed(terms[:-1]):
        found = Apply("ori", (one, found), element="i32")
    return found


def _over(count: int, flag: Callable[[Int], Term]) -> Term:
    """A flag that is raised if one of those for k < count is."""
    return flag(integer(0)) if int(count) == 1 else Reduce("maxsi", int(count), flag, element="i32")


def _within(one: Cond, x: Term) -> Term:
    """The number where the condition holds, +0 elsewhere."""
    zero = constant(0.0, x.element) if x.element in FLOAT_WIDTHS else Whole(integer(0), element=x.element)
    return Select(one, x, zero, element=x.element)


class BufferArray(Array):
    """A buffer, whose first axes may be of any length."""

    name: str
    lengths: tuple[Int, ...]
    integers: bool
    """Whether its elements are exact."""

    def __init__(self, name: str, element: str, lengths: tuple[Int, ...], integers: bool) -> None:
        load, half = the_load(name, element), 1 << INTEGER_WIDTHS.get(element, 1) - 1

        def at(place: tuple[Int, ...]) -> Term | Int:
            offset = flat(place, lengths)
            return element_of(name, offset, -half, half - 1) if integers else load(offset)

        # A length that is not known is not needed: such an axis is always indexed.
        super().__init__(tuple(-1 if n.constant is None else n.constant for n in lengths), at)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "lengths", lengths)
        object.__setattr__(self, "integers", integers)
