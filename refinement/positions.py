"""What a checker knows of each request's cached positions, beside the state of the specification.

The state holds tokens and digests. Here stand, for each cached position, the number of the prefix that ends there
(what its value is a function of), and which values are not finite: so that neither has to be found anew from the
length of a history at every step.
"""

from __future__ import annotations

from collections.abc import Iterable

from vosti.refinement.observations import Prefixes
from vosti.spec.state import RequestId, Token


class Positions:
    """Prefix numbers and finiteness of the cached positions of live requests."""

    def __init__(self, prefixes: Prefixes) -> None:
        self._prefixes = prefixes
        self._numbers: dict[RequestId, list[int]] = {}
        self._non_finite: dict[RequestId, list[int]] = {}

    def start(self, r: RequestId) -> None:
        """The request has no cached position: it arrived, or was preempted."""
        self._numbers[r] = []
        self._non_finite.pop(r, None)

    def end(self, r: RequestId) -> None:
        """The request is gone."""
        del self._numbers[r]
        self._non_finite.pop(r, None)

    def attach(self, r: RequestId, tokens: Iterable[Token]) -> None:
        """Positions join that hold these tokens and finite values: those of a registered page."""
        numbers = self._numbers[r]
        number = numbers[-1] if numbers else Prefixes.EMPTY
        for token in tokens:
            number = self._prefixes.extended(number, token)
            numbers.append(number)

    def compute(self, r: RequestId, token: Token, finite: bool) -> int:
        """One position joins. Returns the number of the prefix that ends there."""
        numbers = self._numbers[r]
        number = self._prefixes.extended(numbers[-1] if numbers else Prefixes.EMPTY, token)
        if not finite:
            self._non_finite.setdefault(r, []).append(len(numbers))
        numbers.append(number)
        return number

    def retract(self, r: RequestId, kept: int) -> None:
        """Positions from `kept` on are dropped."""
        del self._numbers[r][kept:]
        if r in self._non_finite:
            self._non_finite[r] = [position for position in self._non_finite[r] if position < kept]

    def prefix(self, r: RequestId, position: int) -> int:
        """The number of the prefix that ends at a cached position."""
        return self._numbers[r][position]

    def non_finite(self, r: RequestId, below: int) -> int | None:
        """The first cached position below `below` whose value is not finite, or None."""
        return next((position for position in self._non_finite.get(r, ()) if position < below), None)
