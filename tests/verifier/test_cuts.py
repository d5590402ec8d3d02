"""The check of cuts: its words are the text's, both kernels are proved, and edits of either are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from math import inf
from operator import and_, eq, gt, or_

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from vosti.kernels.catalogue import TARGETS
from vosti.kernels.contract import Contract
from vosti.kernels.launch import Kernel
from vosti.kernels.sample_cuts import CHECK_CUTS, CUT_WEIGHTS
from vosti.kernels.tile import Tile
from vosti.kernels.verifier import reals
from vosti.kernels.verifier.draws import cut_ends
from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.integers import Cond, integer, symbol
from vosti.kernels.verifier.ir import float_bits
from vosti.kernels.verifier.parse import parse
from vosti.kernels.verifier.prove import Proof, prove
from vosti.kernels.verifier.reals import Real, share_through
from vosti.kernels.verifier.terms import Condition, Constant, Joined, Select, Term, Whole, number
from vosti.refinement.smt.solve import LIMITS, Answer, with_cvc5
from vosti.spec import sampling

TILES = {CUT_WEIGHTS: Tile((("BLOCK", 2048),), 4, 1), CHECK_CUTS: Tile((("BLOCKS", 256),), 4, 1)}


@cache
def text(kernel: Kernel) -> str:
    """The typed IR."""
    return kernel.ttir({}, TILES[kernel], TARGETS["sm_90"])


def proved(kernel: Kernel, old: str = "", new: str = "", contract: Contract | None = None) -> Proof:
    """The proof of a kernel with an edit, or under another contract."""
    assert not old or 1 == text(kernel).count(old)
    edited = text(kernel).replace(old, new) if old else text(kernel)
    return prove(parse(edited), contract or kernel.contract, dict(TILES[kernel].blocks))


def said(kernel: Kernel, output: int, old: str, new: str) -> Contract:
    """The kernel's contract, saying something else of an output."""
    outputs = list(kernel.contract.outputs)
    assert old in outputs[output].value
    outputs[output] = replace(outputs[output], value=outputs[output].value.replace(old, new))
    return replace(kernel.contract, outputs=tuple(outputs))


# ---------------------------------------------------------------- the words


def worth(one: Condition) -> bool:
    """Whether a condition on constants is true."""
    if isinstance(one, Cond):
        assert one.value is not None
        return one.value
    if isinstance(one, Joined):
        return {"or": or_, "and": and_}[one.name](*map(worth, one.parts))
    assert isinstance(one.left, Constant)
    assert isinstance(one.right, Constant)
    return bool({"ogt": gt, "oeq": eq}[one.predicate](number(one.left), number(one.right)))


def single(value: float) -> Term:
    """A float32 number."""
    return Constant(float_bits("f32", value), element="f32")


def test_a_share_is_worth_what_the_text_says() -> None:
    """Of all pairs of tokens with logits of few levels, both zeros, infinities and NaN among them."""
    for logit, other in product([-inf, -1.0, -0.0, 0.0, 1.0, inf, float("nan")], repeat=2):
        for token, end in product(range(3), repeat=2):
            term = share_through(single(logit), integer(token), single(other), integer(end), 7)
            assert isinstance(term, Select)
            assert isinstance(term.yes, Whole)
            assert isinstance(term.no, Whole)
            assert (7, 0) == (term.yes.value.constant, term.no.value.constant)
            assert sampling.through(logit, token, other, end) == worth(term.condition)


def unequal_first(logit: float, token: int, end_logit: float, end: int) -> bool:
    """A statement."""
    if logit != end_logit:
        return logit > end_logit
    return token <= end


def chained(logit: float, token: int, end_logit: float, end: int) -> bool:
    """A chain."""
    return logit > end_logit or (logit == end_logit and 0 <= token <= end)


def behind(logit: float, token: int, end_logit: float, end: int) -> bool:
    """A negation."""
    return not (logit == end_logit and token > end)


def one_token(logit: float, token: int, end_logit: float, end: int) -> bool:
    """Of two integers."""
    return logit > end_logit or (logit == end_logit and token == end)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (unequal_first, "decides in a statement"),
        (chained, "decides by a condition in a form that is not understood"),
        (behind, "decides by a condition in a form that is not understood"),
        (one_token, "decides whether two integers are one"),
    ],
)
def test_a_text_in_another_form_is_refused(text: Callable[..., bool], error: str) -> None:
    """Where Python itself would decide, to which each condition is true, and no two integers are one."""
    logits = [Real(Constant(0, element="f64"), single(value)) for value in (1.0, 2.0)]

    with pytest.raises(TypeError, match=error):
        reals._compiled(text)(logits[0], symbol("token"), logits[1], symbol("end"))


def test_the_check_is_the_text() -> None:
    """Of exact integers: all small ones, about a unit of top-p."""
    unit = sampling.P_UNIT
    for numbers in product((1, 2), (0, 1, 2, 3), (1, unit // 2, unit), (2, 3), (1, 2), (1, 2), (0, 1, 2, 3), (0, 1, 2)):
        found = cut_ends(*map(integer, numbers))
        assert isinstance(found, Cond)
        assert sampling.cut_ends(*numbers) == found.value


# ---------------------------------------------------------------- the proofs


@pytest.mark.parametrize(
    ("kernel", "rules", "values"),
    [(CUT_WEIGHTS, {"selection", "wrapping sum"}, 4), (CHECK_CUTS, {"telescoped sum"}, 1)],
    ids=["cut_weights", "check_cuts"],
)
def test_they_are_proved(kernel: Kernel, rules: set[str], values: int) -> None:
    """By both solvers; no rule about a GPU is used."""
    proof = proved(kernel)

    assert rules == set(proof.rules)
    assert values == proof.obligations["value"]
    assert {Answer.PROVED} == {with_cvc5(script, LIMITS.cvc5).answer for script in proof.tally.scripts}


CONDITIONS = "Two conditions differ"
SUM = "a sum of integers is not shown to be one that the contract names"
INTEGERS = "Two integers differ"
LEAVES = "An integer leaves its type"
"""Also where nothing is known of a weight: no token has it."""


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        # Another place in the ranking: level logits all count, or none; by ids alone; in the other order of ids.
        ("%43 = arith.cmpf ogt", "%43 = arith.cmpf oge", CONDITIONS),
        ("%34 = arith.cmpf ogt", "%34 = arith.cmpf oge", CONDITIONS),
        ("%44 = arith.cmpf oeq", "%44 = arith.cmpf ole", CONDITIONS),
        ("%46 = arith.cmpi sle", "%46 = arith.cmpi slt", CONDITIONS),
        ("%37 = arith.cmpi sle", "%37 = arith.cmpi sge", CONDITIONS),
        ("%48 = arith.ori %43, %47", "%48 = arith.andi %43, %47", CONDITIONS),
        ("%47 = arith.andi %44, %46", "%47 = arith.ori %44, %46", CONDITIONS),
        # NaN would pass.
        ("%43 = arith.cmpf ogt", "%43 = arith.cmpf ugt", CONDITIONS),
        # The other hint, or its logit; another row's.
        ("tt.addptr %11, %30", "tt.addptr %11, %25", "reads another element of logits"),
        ("tt.splat %30", "tt.splat %25", CONDITIONS),
        ("%26 = arith.addi %20, %c1_i64", "%26 = arith.addi %20, %c2_i64", "access to ends is out of bounds"),
        ("%20 = arith.muli %1, %c2_i64", "%20 = arith.muli %1, %c1_i64", "reads another element of logits"),
        # A hint is believed to be a token.
        ("%29 = arith.maxsi %28, %c0_i32", "%29 = arith.maxsi %28, %28", "access to logits is out of bounds"),
        ("%30 = arith.minsi %29, %24", "%30 = arith.minsi %29, %29", "access to logits is out of bounds"),
        ("%25 = arith.minsi %23, %24", "%25 = arith.minsi %23, %width", "access to logits is out of bounds"),
        # What is kept is not what is stored, added up or counted; what lies beyond the row is.
        ("%58 = arith.trunci %49", "%58 = arith.trunci %19", "computes something else than the row program"),
        (
            "%60 = arith.select %8, %49",
            "%60 = arith.select %8, %19",
            "a reduction of integers by addi is not understood",
        ),
        ("%68 = arith.select %8, %67", "%68 = arith.select %8, %49", "reads another element of logits"),
        ("%63 = arith.select %39, %cst", "%63 = arith.select %39, %19", INTEGERS),
        ("%63 = arith.select %39, %cst", "%63 = arith.select %48, %cst", "reads another element of logits"),
        ("%64 = arith.select %8, %63", "%64 = arith.select %39, %63", "computes something else than the row program"),
        ("tt.store %57, %58, %8", "tt.store %57, %58", "out of bounds"),
        # The sums of another block.
        ("%54 = arith.addi %52, %53", "%54 = arith.addi %52, %1", "access to cut_sums is out of bounds"),
    ],
)
def test_an_edit_of_the_cut_is_refused(old: str, new: str, finding: str) -> None:
    """Another comparison, end, bound, mask or sum: for its reason."""
    with pytest.raises(RefusedError, match=finding):
        proved(CUT_WEIGHTS, old, new)


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        # Of top-k: it always cuts; at the whole row; with fewer tokens, or more.
        ("%42 = arith.cmpi sgt", "%42 = arith.cmpi sge", INTEGERS),
        ("%43 = arith.cmpi slt", "%43 = arith.cmpi sle", INTEGERS),
        ("%58 = arith.cmpi eq", "%58 = arith.cmpi sle", INTEGERS),
        ("%59 = arith.ori %57, %58", "%59 = arith.andi %57, %58", INTEGERS),
        ("arith.select %44, %21, %11", "arith.select %44, %11, %21", INTEGERS),
        # Of top-p: reached before the last, or not by it; in other units; with the last's own weight, or without.
        ("%51 = arith.cmpi slt", "%51 = arith.cmpi sle", INTEGERS),
        ("%53 = arith.cmpi sle", "%53 = arith.cmpi slt", INTEGERS),
        ("%52 = arith.muli %26, %c1048576_i64", "%52 = arith.muli %26, %c1_i64", INTEGERS),
        ("%50 = arith.muli %49, %c1048576_i64", "%50 = arith.muli %49, %c1_i64", INTEGERS),
        ("%50 = arith.muli %49", "%50 = arith.muli %26", INTEGERS),
        ("%52 = arith.muli %26", "%52 = arith.muli %49", INTEGERS),
        ("%48 = arith.muli %46, %47", "%48 = arith.muli %46, %46", INTEGERS),
        ("%54 = arith.andi", "%54 = arith.ori", INTEGERS),
        # Sums of another buffer, row, or of fewer blocks.
        ("tt.addptr %cut_sums", "tt.addptr %sums", INTEGERS),
        ("tt.addptr %shares", "tt.addptr %sums", INTEGERS),
        ("tt.addptr %counts", "tt.addptr %shares", INTEGERS),
        ("%6 = arith.muli %1, %5", "%6 = arith.muli %5, %5", SUM),
        ("arith.cmpi slt, %2, %3", "arith.cmpi sle, %2, %3", SUM),
        # Another token's weight: of no token of the row, or the kth.
        ("%36 = arith.minsi %34, %35", "%36 = arith.minsi %34, %34", LEAVES),
        ("%34 = arith.maxsi %33, %c0_i32", "%34 = arith.maxsi %33, %33", LEAVES),
        ("%31 = arith.addi %30, %c1_i64", "%31 = arith.muli %30, %c1_i64", INTEGERS),
        # The opposite.
        ("%61 = arith.xori %60, %true", "%61 = arith.andi %60, %true", INTEGERS),
    ],
)
def test_an_edit_of_the_check_is_refused(old: str, new: str, finding: str) -> None:
    """Another comparison, sum, share or end: for its reason."""
    with pytest.raises(RefusedError, match=finding):
        proved(CHECK_CUTS, old, new)


@pytest.mark.parametrize(
    ("kernel", "output", "old", "new", "finding"),
    [
        (CUT_WEIGHTS, 0, "ends[i, 1]", "ends[i, 0]", "reads another element of logits"),
        (CUT_WEIGHTS, 0, "weights[i, t]", "weights[i, 0]", INTEGERS),
        (CUT_WEIGHTS, 1, "total(BLOCK", "total(BLOCK - 1", "computes something else than the row program"),
        (CUT_WEIGHTS, 2, "1)))", "2)))", INTEGERS),
        (CUT_WEIGHTS, 3, "ends[i, 0]", "ends[0, 0]", "reads another element of logits"),
        (CHECK_CUTS, 0, "sums_to[i, blocks]", "sums_to[i, blocks - 1]", INTEGERS),
        (CHECK_CUTS, 0, "top_ps[i]", "top_ps[0]", INTEGERS),
        (CHECK_CUTS, 0, "cut_ends(width", "cut_ends(width + 1", INTEGERS),
        (CHECK_CUTS, 0, "0 if", "2 if", INTEGERS),
    ],
)
def test_a_contract_that_says_something_else_is_refused(
    kernel: Kernel, output: int, old: str, new: str, finding: str
) -> None:
    """Of another end, row, token, block or result."""
    with pytest.raises(RefusedError, match=finding):
        proved(kernel, contract=said(kernel, output, old, new))


@pytest.mark.parametrize("left_out", range(len(CHECK_CUTS.contract.facts)))
def test_each_fact_is_needed(left_out: int) -> None:
    """Without one, a sum is not shown."""
    facts = tuple(fact for place, fact in enumerate(CHECK_CUTS.contract.facts) if place != left_out)

    with pytest.raises(RefusedError, match=SUM):
        proved(CHECK_CUTS, contract=replace(CHECK_CUTS.contract, facts=facts))
