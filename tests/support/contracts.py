"""Contracts of the control plane's pure functions, as CrossHair reads them: assertions.

The first assertions of a contract are what its arguments must satisfy; those after the first other statement are what
then holds. Where the specification has a function for it, that is what is compared with. Types are plain: CrossHair
makes symbolic integers and tuples of them, and looks for arguments for which an assertion is false.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from immutables import Map

from vosti.impl.checking import difference
from vosti.impl.drafting import Script, ScriptedDrafter
from vosti.impl.options import SamplingParams
from vosti.impl.outputs import RequestOutput
from vosti.impl.planning import Chunk, chunk_counts, eviction_order, page_order, pages_needed
from vosti.impl.pool_state import PageMeta, Pool, empty
from vosti.impl.settling import LiveRecord, stop_reason
from vosti.spec.determinism import is_prefix, prefix_comparable
from vosti.spec.rows import Row, pages_read
from vosti.spec.sampling import choose, sampler_state, weight
from vosti.spec.state import Domain, PageId, RequestId, Token, initial

EMPTY = initial(frozenset(), 1)

# ---------------------------------------------------------------- page arithmetic


def pages_hold_the_positions(length: int, page_size: int) -> None:
    """The least number of pages that hold so many positions."""
    assert 0 <= length <= 10**6
    assert 1 <= page_size <= 64
    pages = pages_needed(length, page_size)
    assert length <= pages * page_size < length + page_size


def pages_needed_are_pages_read(length: int, page_size: int) -> None:
    """As many pages as the specification's row of that length reads."""
    assert 0 <= length <= 8
    assert 1 <= page_size <= 4
    table = tuple(PageId(page) for page in range(8))
    row = Row(RequestId("r"), Token(0), 0, None, table, length, logits=False)
    state = replace(EMPTY, page_size=page_size)
    assert len(pages_read(state, row)) == pages_needed(length, page_size)


def counts_are_of_each_request(counts: Sequence[int]) -> None:
    """A forward writes, for each request, what its chunk counts."""
    assert len(counts) <= 3
    assert all(1 <= count <= 64 for count in counts)
    chunks = [Chunk(RequestId(f"r{i}"), 0, count, ()) for i, count in enumerate(counts)]
    found = chunk_counts(chunks)
    assert len(found) == len(counts)
    assert sum(found.values()) == sum(counts)


# ---------------------------------------------------------------- which page


def page_order_is_a_permutation(seed: int, first: int, second: int) -> None:
    """No two pages have the same place, and every place is one of 64 bits; without a seed it is the page's number."""
    assert 0 <= seed < 4
    assert 0 <= first < 2**16
    assert 0 <= second < 2**16
    place = page_order(seed)
    assert (place(PageId(first)) == place(PageId(second))) == (first == second)
    assert 0 <= place(PageId(first)) < 2**64
    assert seed != 0 or place(PageId(first)) == first


def idle_pool(clocks: Sequence[int]) -> Pool:
    """A pool in which a chain of registered pages is idle, page i at depth i, since clock clocks[i]."""
    pool = empty(frozenset(map(PageId, range(len(clocks)))), 1)
    pages = {
        PageId(i): PageMeta(0, int(i + 1 < len(clocks)), True, (Token(0),), PageId(i - 1) if i else None, Domain(""), i)
        for i in range(len(clocks))
    }
    idle = Map({PageId(i): clock for i, clock in enumerate(clocks)})
    return replace(pool, pages=Map(pages), free=Map(), idle=idle)


def children_go_before_parents(clocks: Sequence[int]) -> None:
    """Each idle page has one turn, and a page that became idle no later than its parent goes before it."""
    assert 1 <= len(clocks) <= 3
    assert all(0 <= clock <= 3 for clock in clocks)
    assert all(child <= parent for parent, child in zip(clocks, clocks[1:]))  # noqa: B905, RUF007 - neighbours
    order = eviction_order(idle_pool(clocks))
    assert sorted(order) == list(range(len(clocks)))
    assert order == list(reversed(range(len(clocks))))


# ---------------------------------------------------------------- when a request ends


def record_of(output: tuple[int, ...], stop_token: int, max_tokens: int) -> LiveRecord:
    """A request that has emitted this."""
    params = SamplingParams(max_tokens=10**6, temperature=0)
    object.__setattr__(params, "max_tokens", max_tokens)
    return LiveRecord(
        prompt=(Token(0),),
        output=cast(tuple[Token, ...], output),
        draft=(),
        sampler=sampler_state(seed=0),
        domain=Domain(""),
        arrival=0,
        params=params,
        stop_tokens=frozenset({Token(stop_token)}),
    )


def stops_when_it_should(output: tuple[int, ...], stop_token: int, max_tokens: int) -> None:
    """At a stop token or at the last token that was asked for, and at no other."""
    assert 1 <= len(output) <= max_tokens <= 4
    assert 0 <= stop_token <= 2
    assert all(0 <= token <= 2 for token in output)
    reason = stop_reason(record_of(output, stop_token, max_tokens))
    assert (reason == "stop") == (output[-1] == stop_token)
    assert (reason == "length") == (len(output) == max_tokens and output[-1] != stop_token)


def output_of(tokens: tuple[int, ...], reason: str | None) -> RequestOutput:
    """What a caller got."""
    return RequestOutput("r", (0,), (), tokens, reason, (), (), 0, 0, "")


def differences_are_of_views(first: list[int], second: list[int], cancelled: bool) -> None:
    """Two runs' outputs differ where the specification's views are not comparable, the one alone the longer."""
    assert len(first) <= 2
    assert len(second) <= 2
    together, alone = tuple(first), tuple(second)
    found = difference(output_of(together, "cancelled" if cancelled else "length"), output_of(alone, "length"))
    views = cast(tuple[tuple[()], tuple[()]], (together, alone))
    if cancelled:
        assert (found is None) == is_prefix(*views)
    else:
        assert (found is None) == (together == alone)
    assert found is not None or prefix_comparable(*views)


# ---------------------------------------------------------------- drafts and sampling


def drafts_are_right_as_far_as_told(expected: tuple[int, ...], done: int, length: int, right: int) -> None:
    """A scripted draft is right for so many tokens, and then wrong; it never reaches beyond the script."""
    assert len(expected) <= 3
    assert all(0 <= token < 5 for token in expected)
    assert 0 <= done <= 3
    assert 0 <= right <= length <= 3
    drafter = ScriptedDrafter({RequestId("r"): Script(cast(tuple[Token, ...], expected), length, right)}, 5)
    draft = drafter.propose(RequestId("r"), (), cast(tuple[Token, ...], (0,) * done))
    assert len(draft) == max(0, min(length, len(expected) - done))
    assert all((token == expected[done + i]) == (i < right) for i, token in enumerate(draft))


def the_drawn_token_has_weight(weights: Sequence[int], bits: int) -> None:
    """The draw is one of the candidates, and its share of the weights holds the draw."""
    assert 1 <= len(weights) <= 2
    assert all(1 <= weight <= 4 for weight in weights)
    assert 0 <= bits < 2**64
    candidates = [(i, weight) for i, weight in enumerate(weights)]
    token = choose(candidates, bits)
    before = sum(weights[:token])
    assert before << 64 <= bits * sum(weights) < (before + weights[token]) << 64


def heavier_is_more_probable(lower: int, higher: int) -> None:
    """Weights grow with the logit; the most probable token has 2²⁴, and what is far below has none."""
    assert -20 <= lower <= higher <= 0
    light, heavy = weight(float(lower)), weight(float(higher))
    assert 0 <= light <= heavy <= 2**24
    assert (heavy == 2**24) == (higher == 0)
    assert (light == 0) == (lower <= -17)


CONTRACTS: tuple[Callable[..., None], ...] = (
    pages_hold_the_positions,
    pages_needed_are_pages_read,
    counts_are_of_each_request,
    page_order_is_a_permutation,
    children_go_before_parents,
    stops_when_it_should,
    differences_are_of_views,
    drafts_are_right_as_far_as_told,
    the_drawn_token_has_weight,
    heavier_is_more_probable,
)
"""All of them."""
