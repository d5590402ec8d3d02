"""A page pool with a fault is not proved: one line changed, and the obligation that says why fails."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from vosti.impl import pool as engine
from vosti.proofs import pool_matches, pool_rows
from vosti.proofs.book import Replaced
from vosti.proofs.pool_composites import advances, advances_each, attaches
from vosti.proofs.pool_refinement import SIMULATIONS, PoolBook, simulates
from vosti.refinement.smt.obligation import Obligation
from vosti.refinement.smt.solve import Answer, Limits, solve
from vosti.spec.rows import ROW_CONJUNCTS


@dataclass(frozen=True)
class Fault:
    """A change of one function's text, and the obligation that it breaks."""

    function: Callable[..., object]
    old: str
    new: str
    breaks: str
    """The obligation's name, without its theorem; a number of a part may follow."""

    @property
    def replaced(self) -> Replaced:
        """The function's text with the fault.

        Raises:
            ValueError: if there is not exactly one place to change.
        """
        source = textwrap.dedent(inspect.getsource(self.function))
        if source.count(self.old) != 1:
            raise ValueError(f"{self.function.__name__} contains {self.old!r} {source.count(self.old)} times, not once")
        (node,) = ast.parse(source.replace(self.old, self.new)).body
        assert isinstance(node, ast.FunctionDef)
        return {f"{self.function.__module__}.{self.function.__qualname__}": node}


FAULTS = {
    "a live identifier is admitted again": Fault(
        engine.admit_guard, "r not in pool.requests", "True", "admit: refcounts_count"
    ),
    "a new request has a position cached": Fault(engine.admit, "cached=0", "cached=1", "admit: tables_cover_cached"),
    "a match by key only: tokens not compared": Fault(
        engine.is_block, "and page.tokens == tokens", "", "attach: allowed"
    ),
    "a match after any parent": Fault(engine.is_block, "and page.parent == parent", "", "attach: allowed"),
    "a match of another domain's page": Fault(engine.is_block, "and page.domain == domain", "", "attach: allowed"),
    "a page attached that is still written": Fault(
        engine.is_block, "page.registered", "True", "attach: used_for_something"
    ),
    "the last token attached too": Fault(
        engine.attach_guard, "+ pool.page_size < length", "+ pool.page_size <= length", "attach: allowed"
    ),
    "a holder not counted": Fault(engine.one_more_holder, "+ 1", "+ 0", "attach: refcounts_count"),
    "a held page stays idle": Fault(
        engine.attach,
        "pool.idle.delete(page_id) if page.refcount == 0 else pool.idle",
        "pool.idle",
        "attach: idle_exact",
    ),
    "a page in use allocated": Fault(engine.allocate_guard, "and page_id in pool.free", "", "allocate: allowed"),
    "an allocated page stays free": Fault(
        engine.allocate, "pool.free.delete(page_id)", "pool.free", "allocate: free_or_used"
    ),
    "an allocated page at depth 0": Fault(
        engine.allocate, "depth=len(holding.table)", "depth=0", "allocate: depths_in_tables"
    ),
    "a compute without a slot": Fault(
        engine.compute_guard,
        "and holding.cached < len(holding.table) * pool.page_size",
        "",
        "compute: tables_cover_cached",
    ),
    "a compute without a token": Fault(engine.compute_guard, "holding.cached < length and", "", "compute: allowed"),
    "a registered page retracted": Fault(
        engine.retract_guard,
        "not pool.pages[holding.table[length // pool.page_size]].registered",
        "True",
        "retract: registered_full",
    ),
    "a draft's slots kept": Fault(
        engine.retract, "cached=min(holding.cached, length)", "cached=holding.cached", "retract: requests_agree"
    ),
    "published before computed": Fault(
        engine.publish_guard, "and (block + 1) * pool.page_size <= holding.cached", "", "publish: allowed"
    ),
    "a draft published": Fault(
        engine.publish_guard, "and (block + 1) * pool.page_size <= length", "", "publish: allowed"
    ),
    "published after a private page": Fault(
        engine.publish_guard,
        "and (block == 0 or pool.pages[holding.table[block - 1]].registered)",
        "",
        "publish: parents_registered",
    ),
    "published twice": Fault(
        engine.publish_guard, "and not pool.pages[holding.table[block]].registered", "", "publish: allowed"
    ),
    "a child not counted": Fault(engine.one_more_child, "+ 1", "+ 0", "publish: children_count"),
    "a parent evicted before its child": Fault(
        engine.evict_guard, "and pool.pages[page_id].children == 0", "", "evict: allowed"
    ),
    "a held page evicted": Fault(engine.evict_guard, "page_id in pool.idle", "page_id in pool.pages", "evict: allowed"),
    "an index entry kept after eviction": Fault(
        engine.evict,
        "pool.index.delete(key) if pool.index.get(key) == page_id else pool.index",
        "pool.index",
        "evict: index_sound",
    ),
    "an evicted page lost": Fault(
        engine.evict, "pool.free.set(page_id, pool.clock)", "pool.free", "evict: free_or_used"
    ),
    "an evicted child still counted": Fault(engine.one_less_child, "- 1", "- 0", "evict: children_count"),
    "shared pages freed with their holder": Fault(
        engine.released,
        "for page_id in table if not pages[page_id].registered}",
        "for page_id in table}",
        "preempt: tables_in_pages",
    ),
    "a holder gone but counted": Fault(engine.released, "].refcount - 1", "].refcount", "remove: refcounts_count"),
    "a page that nobody holds not idle": Fault(
        engine.released,
        "pool.idle.update({page_id: pool.clock for page_id, page in shared.items() if page.refcount == 0})",
        "pool.idle",
        "remove: idle_exact",
    ),
    "a preempted request keeps its positions": Fault(
        engine.preempt, "table=(), cached=0", "table=()", "preempt: tables_cover_cached"
    ),
    "a removed request stays": Fault(
        engine.remove, "pool.requests.delete(r)", "pool.requests", "cancel: requests_agree"
    ),
    "a chunk one short": Fault(
        engine.advance, "further(pool.requests[r], n)", "further(pool.requests[r], n - 1)", "advance: nothing"
    ),
    "a chunk of less than nothing": Fault(engine.advance_guard, "n >= 0 and", "", "advance: from 0"),
    "a batch one of whom may not advance": Fault(
        engine.advance_each_guard, "advance_guard(pool, r, n, lengths[r])", "n >= 0", "advance_each: guard"
    ),
    "a chain hung from one page": Fault(
        engine.extends, "page_ids[i - 1] if i > 0 else before", "before", "attach_prefix: guard"
    ),
    "a chain's pages stay idle": Fault(
        engine.attach_prefix, "without(pool.idle, page_ids)", "pool.idle", "attach_prefix: effect"
    ),
    "a candidate not looked at": Fault(
        engine.match_next,
        "page_id if is_block(pool.pages[page_id], domain, parent, depth, tokens) else None",
        "page_id",
        "match_is_attachable",
    ),
    "a parent that is gone": Fault(
        engine.match_next, "if parent is not None and parent not in pool.pages:", "if False:", "match_next is defined"
    ),
    "a row that does not read itself": Fault(
        pool_rows.packed_row, "readable=position + 1", "readable=position", "row_reads_its_prefix"
    ),
    "two rows on one slot": Fault(
        pool_rows.packed_row,
        "position % pool.page_size",
        "0",
        "row_writes_alone",
    ),
}


LIMITS = Limits(z3=900_000)
"""Three times what the hardest of these takes where there is no fault."""


ROWS = {conjunct.__name__ for conjunct in ROW_CONJUNCTS}
COMPOSITES = {"advance": advances, "advance_each": advances_each, "attach_prefix": attaches}


def obligations(fault: Fault) -> list[Obligation]:
    """Those of the theorem, or of the transition, that the fault is to break."""
    subject = fault.breaks.partition(":")[0].partition(" (")[0]
    book = PoolBook("fault", fault.replaced)
    for simulation in SIMULATIONS:
        if subject in (simulation.transition, simulation.action):
            simulates(book, simulation)
    if subject in COMPOSITES:
        COMPOSITES[subject](book)
    if book.obligations:
        return book.obligations
    return (pool_rows if subject in ROWS else pool_matches).obligations(fault.replaced)


def named(fault: Fault) -> list[Obligation]:
    """The obligation that the fault is to break, in all its parts."""
    part = re.compile(r"[^/]*/" + re.escape(fault.breaks) + r"(, \d+)?( \(\d+ of \d+\))?")
    return [o for o in obligations(fault) if part.fullmatch(o.name)]


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_not_proved(name: str) -> None:
    """The fault breaks the obligation that speaks of it."""
    broken = named(FAULTS[name])
    assert broken
    assert not all(solve(o.script, "z3", LIMITS).answer is Answer.PROVED for o in broken)
