"""CrossHair looks for arguments that break a contract, and finds them where a fault is seeded.

It runs a function on symbolic arguments, path by path. How many paths are tried is bounded, not for how long:
"confirmed" means that there are no others, "not confirmed" that nothing is wrong on those that were tried.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from crosshair.core_and_libs import AnalysisMessage, MessageType, analyze_function, run_checkables
from crosshair.options import AnalysisKind, AnalysisOptionSet

import contracts
from vosti.impl.drafting import ScriptedDrafter
from vosti.impl.outputs import RequestOutput
from vosti.impl.planning import Chunk
from vosti.impl.pool_state import Pool
from vosti.impl.settling import LiveRecord
from vosti.spec.state import PageId, RequestId, Token

PATHS = 40
"""How many paths are tried for one contract."""

FEWER = {"heavier_is_more_probable": 12}
"""Where a path takes seconds: floating-point numbers are expensive."""

CONFIRMED = {
    "pages_hold_the_positions",
    "pages_needed_are_pages_read",
    "counts_are_of_each_request",
    "page_order_is_a_permutation",
    "children_go_before_parents",
    "differences_are_of_views",
    "the_drawn_token_has_weight",
}
"""The contracts of which every path is tried."""


def looked_at(contract: Callable[..., None]) -> list[AnalysisMessage]:
    """What CrossHair says of a contract."""
    options = AnalysisOptionSet(
        analysis_kind=[AnalysisKind.asserts],
        max_iterations=FEWER.get(contract.__name__, PATHS),
        max_uninteresting_iterations=sys.maxsize,
        # Never reached, on a busy machine either, though half of the second is the solver's own: paths are counted.
        per_condition_timeout=1000.0,
        per_path_timeout=1000.0,
        report_all=True,
    )
    return run_checkables(analyze_function(contract, options))


@pytest.mark.parametrize("contract", contracts.CONTRACTS, ids=lambda contract: contract.__name__)
def test_no_arguments_break_a_contract(contract: Callable[..., None]) -> None:
    """CrossHair finds no counterexample, and says of those contracts that are listed that there is none."""
    (message,) = looked_at(contract)
    assert message.state in (MessageType.CONFIRMED, MessageType.CANNOT_CONFIRM), message.message
    assert contract.__name__ not in CONFIRMED or MessageType.CONFIRMED == message.state


# ---------------------------------------------------------------- seeded faults


def one_page_more(length: int, page_size: int) -> int:
    """A page too many where the last one is full."""
    return length // page_size + 1


def one_slot_each(chunks: Sequence[Chunk]) -> dict[RequestId, int]:
    """As if every chunk were a decoded token."""
    return {chunk.request: 1 for chunk in chunks}


def places_that_collide(seed: int) -> Callable[[PageId], int]:
    """A multiplier that is even, modulo the size of a small pool."""
    return lambda page: (page * (2 * seed + 2)) % 2**16 if seed else page


def parents_first(pool: Pool) -> list[PageId]:
    """Of pages that became idle together, the shallowest first."""
    return sorted(pool.idle, key=lambda page: (pool.idle[page], pool.pages[page].depth, page))


def one_token_late(record: LiveRecord) -> str | None:
    """The last token that was asked for is not the last."""
    if record.output[-1] in record.stop_tokens:
        return "stop"
    return "length" if len(record.output) > record.params.max_tokens else None


def first_token_only(together: RequestOutput, alone: RequestOutput) -> str | None:
    """Only the first token is compared."""
    return "different" if together.token_ids[:1] != alone.token_ids[:1] else None


def too_far(candidates: Sequence[tuple[int, int]], bits: int) -> int:
    """A draw on the boundary goes to the token before it."""
    draw = bits * sum(share for _, share in candidates) >> 64
    reached = 0
    for token, share in candidates:
        reached += share
        if reached >= draw:
            return token
    raise ValueError("There are no candidates.")


class RightOnceTooOften(ScriptedDrafter):
    """A draft that is right for a token more than it should be."""

    def propose(self, request: RequestId, prompt: Sequence[Token], output: Sequence[Token]) -> tuple[Token, ...]:
        """As if the script had been right for one more."""
        scripts = {name: replace(script, right=script.right + 1) for name, script in self.scripts.items()}
        return ScriptedDrafter(scripts, self.vocab_size).propose(request, prompt, output)


FAULTS: tuple[tuple[Callable[..., None], str, object], ...] = (
    (contracts.pages_hold_the_positions, "pages_needed", one_page_more),
    (contracts.pages_needed_are_pages_read, "pages_needed", one_page_more),
    (contracts.counts_are_of_each_request, "chunk_counts", one_slot_each),
    (contracts.page_order_is_a_permutation, "page_order", places_that_collide),
    (contracts.children_go_before_parents, "eviction_order", parents_first),
    (contracts.stops_when_it_should, "stop_reason", one_token_late),
    (contracts.differences_are_of_views, "difference", first_token_only),
    (contracts.drafts_are_right_as_far_as_told, "ScriptedDrafter", RightOnceTooOften),
    (contracts.the_drawn_token_has_weight, "choose", too_far),
)


@pytest.mark.parametrize(("contract", "name", "faulty"), FAULTS, ids=[f"{c.__name__}-{n}" for c, n, _ in FAULTS])
def test_a_seeded_fault_is_found(
    contract: Callable[..., None], name: str, faulty: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a fault in the function, CrossHair gives arguments for which an assertion is false."""
    monkeypatch.setattr(contracts, name, faulty)
    (message,) = looked_at(contract)
    assert message.state in (MessageType.POST_FAIL, MessageType.EXEC_ERR), message.message
    assert "AssertionError" in message.message
    assert contract.__name__ in message.message
