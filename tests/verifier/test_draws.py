"""The sampler's draw from all tokens: what the contract defines is there, is the text's, and edits are refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import accumulate, product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from vosti.kernels.catalogue import FIXED, TARGETS
from vosti.kernels.contract import Contract
from vosti.kernels.sample import DRAW_FROM_ALL, DRAW_TILE
from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.parse import parse
from vosti.kernels.verifier.prove import Proof, prove
from vosti.spec import sampling

CONTRACT = DRAW_FROM_ALL.contract


class Row(list[int]):
    """The one row of a matrix: indexed by row and column."""

    def __getitem__(self, place: object) -> int:  # type: ignore[override]
        return list(self)[place[1] if isinstance(place, tuple) else 0]


def facts_hold(weights: list[int], bits: int, block: int) -> None:
    """Check each fact of the contract on a row, at all indices of its names: `drawn` is the token that is drawn."""
    width, reached = len(weights), [0, *accumulate(weights)]
    kept = [(token, share) for token, share in enumerate(weights) if share]
    blocks = -(-width // block)
    scope = {
        "weights": Row(weights),
        "reached": Row(reached),
        "sums": Row(sum(weights[b * block :][:block]) for b in range(blocks)),
        "drawn": Row([sampling.choose(kept, bits)]),
        "bits": Row([bits - (bits >> 63 << 64)]),
        "width": width,
        "BLOCK": block,
    }
    lengths = {"s": width + 1, "t": width + 1, "b": blocks, "i": 1}
    for fact in CONTRACT.facts:
        sizes = {name: width if name == "t" and "weights" in fact.at else lengths[name] for name in fact.names}
        for values in product(*map(range, sizes.values())):
            assert eval(fact.holds, {**scope, **dict(zip(sizes, values, strict=True))}), (fact.holds, values)
    for buffer in CONTRACT.context:
        low, high = (eval(text, scope) for text in buffer.within)  # type: ignore[union-attr]
        assert all(low <= value < high for value in list(scope[buffer.name]))  # type: ignore[call-overload]


@given(
    st.lists(st.integers(0, 2**24), min_size=1, max_size=9).filter(any),
    st.integers(0, 2**64 - 1),
    st.integers(1, 4),
)
@example([0, 2**24, 0], 2**64 - 1, 1)
@example([0, 0, 1], 0, 2)
@example([2**24, 0, 2**24], 2**63, 2)
@example([2**24, 0, 2**24], 2**63 - 1, 2)
def test_what_the_contract_defines_is_there(weights: list[int], bits: int, block: int) -> None:
    """For any weights that are not all 0: the facts are about something, and that is the token that the text chooses
    among those that have a weight."""
    facts_hold(weights, bits, block)


def test_it_is_there_for_all_small_rows() -> None:
    """Up to three tokens with weights up to 3, at all draws there are."""
    rows = [list(row) for length in (1, 2, 3) for row in product(range(4), repeat=length) if any(row)]
    for row in rows:
        for draw in range(sum(row)):
            bits = -(-(draw << 64) // sum(row))
            assert draw == bits * sum(row) >> 64
            facts_hold(row, bits, 2)


@cache
def text() -> str:
    """The typed IR."""
    (instance,) = [one for one in FIXED if one.kernel is DRAW_FROM_ALL]
    return instance.ttir(TARGETS["sm_90"])


def proved(old: str = "tt.return", new: str = "tt.return", contract: Contract = CONTRACT) -> Proof:
    """The proof of the kernel with an edit, or under another contract."""
    assert 1 == text().count(old)
    return prove(parse(text().replace(old, new)), contract, dict(DRAW_TILE.blocks))


def test_the_draw_is_proved() -> None:
    """By sums that the contract names alone: no rule about a GPU is used."""
    proof = proved()

    assert {"telescoped sum"} == set(proof.rules)
    assert 2 == proof.obligations["value"]


NO_SUM = "a sum of integers is not shown to be one that the contract names"


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        # A draw that is off by one: the sum may reach it, and need not exceed it.
        ("%18 = arith.cmpi sle", "%18 = arith.cmpi slt", NO_SUM),
        ("%44 = arith.cmpi sle", "%44 = arith.cmpi slt", NO_SUM),
        # The sum of the blocks before is left out, or another one's.
        ("%42 = arith.addi %41, %40", "%42 = arith.addi %40, %40", NO_SUM),
        ("arith.cmpi slt, %2, %23", "arith.cmpi sle, %2, %23", NO_SUM),
        ("%41 = tt.splat %26", "%41 = tt.splat %12", NO_SUM),
        # Lanes beyond the row are counted, or some within are not.
        ("arith.cmpi slt, %2, %3 ", "arith.cmpi sle, %2, %3 ", NO_SUM),
        ("arith.cmpi slt, %30, %31", "arith.cmpi sle, %30, %31", NO_SUM),
        ("%cst_0 = arith.constant dense<0>", "%cst_0 = arith.constant dense<1>", NO_SUM),
        ("%cst_1 = arith.constant dense<0>", "%cst_1 = arith.constant dense<1>", NO_SUM),
        # Another row's sums, or another share of them.
        ("tt.addptr %bits, %1", "tt.addptr %bits, %6", NO_SUM),
        ("tt.mulhiui %15, %12", "arith.muli %15, %12", NO_SUM),
        # The token is counted from another block, and is one too far.
        ("%47 = arith.addi %27, %46", "%47 = arith.addi %46, %46", "Two integers differ"),
        ("arith.minsi %20, %21", "arith.maxsi %20, %21", NO_SUM),
        # The other of the row's two results.
        ("arith.select %50, %c0_i32, %c2_i32", "arith.select %50, %c0_i32, %c1_i32", "Two integers differ"),
        ("tt.store %53, %54", "tt.store %53, %47", "computes something else than the row program"),
    ],
)
def test_an_edit_is_refused(old: str, new: str, finding: str) -> None:
    """Another comparison, sum, mask, bound or share: for its reason."""
    with pytest.raises(RefusedError, match=finding):
        proved(old, new)


@pytest.mark.parametrize("left_out", range(len(CONTRACT.facts)))
def test_each_fact_is_needed(left_out: int) -> None:
    """Without one, nothing is proved."""
    facts = tuple(fact for place, fact in enumerate(CONTRACT.facts) if place != left_out)

    with pytest.raises(RefusedError, match=NO_SUM):
        proved(contract=replace(CONTRACT, facts=facts))


@pytest.mark.parametrize("left_out", range(len(CONTRACT.sums)))
def test_each_sum_is_needed(left_out: int) -> None:
    """Without one that a sum comes to, that sum is not understood."""
    sums = tuple(one for place, one in enumerate(CONTRACT.sums) if place != left_out)

    with pytest.raises(RefusedError, match=NO_SUM):
        proved(contract=replace(CONTRACT, sums=sums))


@pytest.mark.parametrize(
    ("place", "old", "new"),
    [
        (0, "min(l * BLOCK, width)", "l * BLOCK"),
        (2, "min(l, drawn[x] // BLOCK)", "min(l, drawn[x] // BLOCK + 1)"),
        (4, "drawn[x] % BLOCK", "drawn[x] % BLOCK - 1"),
    ],
)
def test_nothing_rests_on_what_sums_are_said_to_be(place: int, old: str, new: str) -> None:
    """A wrong one is not shown, and is not used."""
    sums = list(CONTRACT.sums)
    assert old in sums[place]
    sums[place] = sums[place].replace(old, new)

    with pytest.raises(RefusedError, match=NO_SUM):
        proved(contract=replace(CONTRACT, sums=tuple(sums)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("weights[i, t]", "weights[i, 0]", "The sums are not those that the text makes"),
        ("reached[i, t]", "reached[i, t + 1]", "The sum for no candidate is not what the text begins with"),
        ("choice(width,", "choice(width - 1,", "Two integers differ"),
        ("bits[i])", "bits[0])", "Two integers differ"),
        ("refusal(best[i])", "refusal(best[0])", "reads another element of best"),
    ],
)
def test_a_contract_that_says_something_else_is_refused(old: str, new: str, finding: str) -> None:
    """Of other weights, sums, bits or results, or of a row that is one token shorter."""
    (output,) = CONTRACT.outputs
    assert old in output.value

    with pytest.raises(RefusedError, match=finding):
        proved(contract=replace(CONTRACT, outputs=(replace(output, value=output.value.replace(old, new)),)))
