"""Inv (section 4.2 of the paper), evaluated on what a step touched, and on everything now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from vosti.refinement.explain import explain
from vosti.refinement.observations import Observations
from vosti.refinement.touched import OBJECTS, Comparison, Touched
from vosti.refinement.violation import Place
from vosti.spec.invariants import CONJUNCTS, Conjunct, objects
from vosti.spec.state import State

Failing = tuple[Conjunct, tuple[Any, ...]]
"""A conjunct, and an object that it fails on."""


class Invariant:
    """Inv, its conjuncts about values interpreted by observations (`vosti.refinement.observations`)."""

    def __init__(self, s: State, observations: Observations) -> None:
        """Start from `s`, which has no requests and no pages, and in which Inv holds therefore."""
        self._comparison = Comparison(s)
        interpreted: dict[str, Callable[..., bool]] = {
            "values_are_canonical": observations.value_is_canonical,
            "registered_are_finite": observations.registered_is_finite,
        }
        self._conjuncts = [(conjunct, interpreted.get(conjunct.name, conjunct.local)) for conjunct in CONJUNCTS]

    def touch(self, s: State) -> Touched:
        """What differs between the state before and s, which becomes the state before."""
        return self._comparison.touched(s)

    def failing_touched(self, s: State, touched: Touched) -> Iterator[Failing]:
        """The touched objects of s that the first failing conjunct fails on.

        None, if Inv holds in s, provided that it held in the state before. Conjuncts after a failing one may rely
        on it, and are not evaluated.
        """
        for conjunct, local in self._conjuncts:
            failing = [x for x in OBJECTS[conjunct.name](touched) if not local(s, *x)]
            if failing:
                yield from ((conjunct, x) for x in failing)
                return

    def failing(self, s: State) -> Iterator[Failing]:
        """All objects of s that the first failing conjunct fails on; none if Inv holds in s."""
        for conjunct, local in self._conjuncts:
            failing = [x for x in objects(s, conjunct.kind) if not local(s, *x)]
            if failing:
                yield from ((conjunct, x) for x in failing)
                return

    def check(self, s: State, touched: Touched, place: Place, *, whole: bool) -> None:
        """Refute the run if Inv does not hold in s, the state after a step.

        Args:
            s: the state.
            touched: what differs between the state before, in which Inv holds, and s.
            place: where the run is.
            whole: whether to look at all objects, and not only at those that the step touched.
        """
        for conjunct, x in self.failing_touched(s, touched):
            self._refute(s, conjunct, x, place)
        if whole:
            for conjunct, x in self.failing(s):
                self._refute(s, conjunct, x, place)

    def _refute(self, s: State, conjunct: Conjunct, x: tuple[Any, ...], place: Place) -> NoReturn:
        request = page = position = None
        match conjunct.kind, x:
            case "request", (r,):
                request = r
            case "block", (r, block):
                request, page, position = r, s.requests[r].table[block], block * s.page_size
            case "page", (page_id,):
                page = page_id
            case "slot", (page_id, slot):
                page, position = page_id, len(s.pages[page_id].prefix) + slot
            case _:
                pass
        expected, actual = explain(dict(self._conjuncts)[conjunct], s, *x)
        place.refute(conjunct.name, expected=expected, actual=actual, request=request, page=page, position=position)
