"""The primitives of the row programs as torch calls on the CPU.

Row programs run on tiles of a fixed number of rows, so that every call that does arithmetic has a shape that the
model fixes. Where an opaque primitive's bits could depend on an element's place (a matrix product blocks its rows, a
vectorised function has a tail), the tests show, shape by shape, that they do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import torch
from torch import Tensor

EVERYWHERE = torch.ones((), dtype=torch.bool)
"""The condition that holds at every place. Selecting by it takes no call, since it yields what it is given."""


@contextmanager
def fixed_arithmetic() -> Iterator[None]:
    """Run torch with the process-wide settings that values depend on, and put the caller's back afterwards.

    One thread, full float32 products, no gradients. Subnormals are kept: torch cannot tell what was set before, so
    that setting stays.
    """
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_flush_denormal(False)
    if threads != 1:
        torch.set_num_threads(1)
    if precision != "highest":
        torch.set_float32_matmul_precision("highest")
    try:
        with torch.inference_mode():
            yield
    finally:
        if threads != 1:
            torch.set_num_threads(threads)
        if precision != "highest":
            torch.set_float32_matmul_precision(precision)


class TorchOps:
    """The instance of `vosti.spec.numerics.ops.Ops` over float32 tensors.

    A cache is one layer's keys and values as [rows, d]; `slots` hold, for each of the two, each row of the tile, each
    head and each lane, the row of the cache to read: the row of zeros for a lane that is not live.

    Constants and work space are kept between calls, since making them costs as much as using them. What `load`
    returns lies in that space, and holds until the next `load`.
    """

    def __init__(self) -> None:
        self._constants: dict[float, Tensor] = {}
        self._trees: dict[torch.Size, _Tree] = {}
        self._loaded: dict[tuple[int, ...], Tensor] = {}

    def _constant(self, value: Tensor | float) -> Tensor:
        """A number as a tensor without axes; a tensor as it is."""
        if isinstance(value, Tensor):
            return value
        if value not in self._constants:
            self._constants[value] = torch.tensor(value, dtype=torch.float32)
        return self._constants[value]

    def add(self, x: Tensor, y: Tensor | float) -> Tensor:
        """x + y."""
        return torch.add(x, self._constant(y))

    def sub(self, x: Tensor, y: Tensor) -> Tensor:
        """x − y."""
        return torch.sub(x, y)

    def mul(self, x: Tensor, y: Tensor | float) -> Tensor:
        """x · y."""
        return torch.mul(x, self._constant(y))

    def div(self, x: Tensor, y: Tensor | float) -> Tensor:
        """x / y."""
        return torch.div(x, self._constant(y))

    def negate(self, x: Tensor) -> Tensor:
        """−x."""
        return torch.neg(x)

    def rsqrt(self, x: Tensor) -> Tensor:
        """1 / √x; not through torch.sqrt, whose float32 results are not all correctly rounded."""
        return torch.rsqrt(x)

    def maximum(self, x: Tensor, y: Tensor) -> Tensor:
        """The larger of the two."""
        return torch.maximum(x, y)

    def exp(self, x: Tensor) -> Tensor:
        """eˣ."""
        return torch.exp(x)

    def tanh(self, x: Tensor) -> Tensor:
        """tanh x."""
        return torch.tanh(x)

    def is_zero(self, x: Tensor) -> Tensor:
        """Whether each element is zero."""
        return torch.eq(x, 0.0)

    def any_lane(self, condition: Tensor) -> Tensor:
        """Whether any element of the last axis is true."""
        return condition if condition is EVERYWHERE else torch.any(condition, -1, keepdim=True)

    def select(self, condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
        """x where the condition is true, y elsewhere."""
        if condition is EVERYWHERE:
            return self._constant(x)
        return torch.where(condition, self._constant(x), self._constant(y))

    def tree_sum(self, x: Tensor) -> Tensor:
        """The sum of the last axis by halving, padded with +0 to a power of two."""
        if x.shape not in self._trees:
            self._trees[x.shape] = _Tree(x.shape)
        return self._trees[x.shape].total(x)

    def chain(self, x: Tensor, weight: Tensor) -> Tensor:
        """x · weight, one matrix product for the whole tile."""
        return torch.mm(x, weight)

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """query · keysᵀ, one product of each row and each key/value head."""
        products = torch.bmm(_matrices(query), _matrices(keys).transpose(1, 2))
        return products.view(*query.shape[:-1], keys.shape[-2])

    def weighted_sum(self, weights: Tensor, values: Tensor, start: Tensor) -> Tensor:
        """start + weights · values, one product of each row and each key/value head."""
        products = torch.bmm(_matrices(weights), _matrices(values))
        return start + products.view(*weights.shape[:-1], values.shape[-1])

    def lane_sum(self, x: Tensor, start: Tensor) -> Tensor:
        """start + the sum of the last axis."""
        return start + torch.sum(x, -1, keepdim=True)

    def lane_max(self, x: Tensor) -> Tensor:
        """The largest element of the last axis."""
        return torch.amax(x, -1, keepdim=True)

    def fill(self, like: Tensor, width: int, value: float) -> Tensor:
        """`value` everywhere."""
        return self._constant(value).expand(*like.shape[:-1], width)

    def take(self, table: Tensor, index: Tensor) -> Tensor:
        """The table's rows at the given indices."""
        return table.index_select(0, index)

    def halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The first and the second half of the last axis."""
        first, second = x.chunk(2, -1)
        return first, second

    def join(self, x: Tensor, y: Tensor) -> Tensor:
        """The last axes of both, one behind the other."""
        return torch.cat((x, y), -1)

    def load(self, cache: Tensor, slots: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of one key tile, 0 where not live."""
        shape = (*slots.shape, cache.shape[-1])
        if shape not in self._loaded:
            self._loaded[shape] = torch.empty(slots.numel(), cache.shape[-1])
        loaded = torch.index_select(cache, 0, slots.view(-1), out=self._loaded[shape])
        keys, values = loaded.view(shape)
        return keys, values


class _Tree:
    """The sum by halving of arrays of one shape, with the halves of each level laid out once."""

    def __init__(self, shape: torch.Size) -> None:
        width = shape[-1]
        whole = 1 << (width - 1).bit_length()
        self._padding = whole - width
        self._levels: list[tuple[Tensor, Tensor, Tensor]] = []
        """(left half, right half, where their sum goes) of each level but the first and the last."""

        self._first = torch.empty(*shape[:-1], max(whole // 2, 1))
        below = self._first
        while below.shape[-1] > 2:
            left, right = below.chunk(2, -1)
            below = torch.empty(*shape[:-1], left.shape[-1])
            self._levels.append((left, right, below))
        self._last = below.chunk(2, -1)

    def total(self, x: Tensor) -> Tensor:
        """[..., width] → [..., 1], newly made."""
        if x.shape[-1] == 1:
            return x
        if self._padding:
            x = torch.nn.functional.pad(x, (0, self._padding))
        left, right = x.chunk(2, -1)
        if len(self._last) == 1:
            return torch.add(left, right)
        torch.add(left, right, out=self._first)
        for left, right, below in self._levels:
            torch.add(left, right, out=below)
        return torch.add(*self._last)


def _matrices(x: Tensor) -> Tensor:
    """[..., m, n] → [product, m, n]."""
    return x.reshape(prod(x.shape[:-2]), *x.shape[-2:])
