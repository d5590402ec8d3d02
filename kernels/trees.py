"""Sums in a fixed order.

`tl.sum` over a long axis adds in an order that depends on how the compiler lays the axis out among threads. Over an
axis of length 2 there is one order only (addition is commutative), so a tree of such sums has its order in the typed
IR, and so in the row program, whatever the layout.
"""

from __future__ import annotations

import triton
import triton.language as tl

MOST_LEVELS = tl.constexpr(20)
"""Of a tree: rows of up to 2^20 numbers."""


@triton.jit
def tree_sum(x):
    """[rows, n] → [rows, 1] for n a power of two: S(n, x) = S(n/2, i ↦ x(i) + x(i + n/2)), as `ops.tree_sum`."""
    for _ in tl.static_range(MOST_LEVELS):
        if x.shape[1] > 1:
            x = tl.sum(tl.reshape(x, (x.shape[0], 2, x.shape[1] // 2)), 1)
    return x
