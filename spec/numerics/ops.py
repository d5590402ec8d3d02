"""The primitives that row programs are written in.

An array has a shape of which the last axes are named in each docstring and the leading ones ("...") broadcast as in
NumPy; batch axes are leading axes. All numbers are IEEE binary32, rounded to nearest even, subnormals kept; integers
and booleans appear only as indices and conditions. A Python float given as an operand stands for the binary32 number
nearest to it.

Two kinds of primitives:

- **exact** ones have one possible result, the correctly rounded one: `add`, `sub`, `mul`, `div`, `rsqrt` (two
  roundings), `maximum`, `lane_max`, `select`, `tree_sum`, and those that only move numbers. All instances agree on
  their bits (but for the sign of a zero that is a maximum: it ends in an exponential, where it makes no difference).
- **opaque** ones are fixed by the configuration W, and by nothing else: `chain`, `scores`, `weighted_sum`,
  `lane_sum`, `exp`, `tanh`. Their docstrings give the real function that they approximate; their bits are those of
  the instance, and an output element is a function of its own operands alone, not of its place in an array.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

A = TypeVar("A")
"""An array of an instance: a tensor, a list of numbers with a shape, a term."""

Cache = TypeVar("Cache", contravariant=True)
"""Where keys and values are stored, as an instance holds it."""


class Ops(Protocol[A, Cache]):
    """The primitives of one instance."""

    # ------------------------------------------------------------ exact arithmetic, element by element

    def add(self, x: A, y: A | float) -> A:
        """x + y."""

    def sub(self, x: A, y: A) -> A:
        """x − y."""

    def mul(self, x: A, y: A | float) -> A:
        """x · y."""

    def div(self, x: A, y: A | float) -> A:
        """x / y."""

    def negate(self, x: A) -> A:
        """−x: the sign flipped, also of zeros."""

    def rsqrt(self, x: A) -> A:
        """1 / √x, the root and the quotient each rounded."""

    def maximum(self, x: A, y: A) -> A:
        """The larger of the two, and of zeros of both signs either; NaN if one is."""

    # ------------------------------------------------------------ opaque functions, element by element

    def exp(self, x: A) -> A:
        """eˣ; exp(−∞) = 0 and exp(0) = 1 exactly."""

    def tanh(self, x: A) -> A:
        """tanh x."""

    # ------------------------------------------------------------ conditions

    def is_zero(self, x: A) -> A:
        """Whether each element is zero, of either sign; NaN is not."""

    def any_lane(self, condition: A) -> A:
        """[..., n] → [..., 1]: whether any element of the last axis is true."""

    def select(self, condition: A, x: A | float, y: A | float) -> A:
        """x where the condition is true, y elsewhere; the operand not taken does not matter, were it NaN."""

    # ------------------------------------------------------------ sums and products

    def tree_sum(self, x: A) -> A:
        """[..., n] → [..., 1]: the sum of the last axis by halving, exact in its order.

        With m the smallest power of two ≥ n, and x(i) = +0 for n ≤ i < m:

            S(1, x) = x(0),    S(m, x) = S(m/2, i ↦ x(i) + x(i + m/2))
        """

    def chain(self, x: A, weight: A) -> A:
        """[..., k], [k, n] → [..., n]: Σₖ x(k) · weight(k, j), one chain per output in ascending k."""

    def scores(self, query: A, keys: A) -> A:
        """[..., g, d], [..., t, d] → [..., g, t]: Σ_d query(i, d) · keys(j, d), one chain per output."""

    def weighted_sum(self, weights: A, values: A, start: A) -> A:
        """[..., g, t], [..., t, d], [..., g, d] → [..., g, d]: start(i, j) + Σ_t weights(i, t) · values(t, j).

        One operation per output: on tensor cores the chain goes on from `start`, elsewhere it is added to the sum.
        """

    def lane_sum(self, x: A, start: A) -> A:
        """[..., t], [..., 1] → [..., 1]: start + Σ_t x(t) over one key tile, one operation like `weighted_sum`."""

    def lane_max(self, x: A) -> A:
        """[..., t] → [..., 1]: `maximum` over the last axis, in any order."""

    # ------------------------------------------------------------ moving numbers

    def fill(self, like: A, width: int, value: float) -> A:
        """[..., n] → [..., width]: an array with the leading axes of `like`, every element `value`."""

    def take(self, table: A, index: A) -> A:
        """[n, d], [...] → [..., d]: the table's rows at the given indices."""

    def halves(self, x: A) -> tuple[A, A]:
        """[..., 2n] → [..., n] twice: the first and the second half of the last axis."""

    def join(self, x: A, y: A) -> A:
        """[..., n] twice → [..., 2n]: the inverse of `halves`."""

    def load(self, cache: Cache, slots: A, live: A) -> tuple[A, A]:
        """[..., t] slots, [..., 1, 1, t] live → keys and values [..., kv heads, t, d] of one key tile.

        A lane that is not live holds 0 in both, whatever its slot: its slot is not read.
        """
