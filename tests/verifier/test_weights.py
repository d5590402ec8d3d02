"""The sampler's weights: terms are worth what `vosti.spec.sampling` computes, and edits of the kernel are refused."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from vosti.kernels.catalogue import FIXED, TARGETS
from vosti.kernels.contract import Contract
from vosti.kernels.sample_weights import WEIGHTS
from vosti.kernels.verifier import terms
from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.integers import integer
from vosti.kernels.verifier.ir import float_value
from vosti.kernels.verifier.parse import parse
from vosti.kernels.verifier.prove import Proof, prove
from vosti.kernels.verifier.reals import kept_weight
from vosti.kernels.verifier.terms import Apply, Argument, Condition, Constant, Select, Term, Whole
from vosti.spec import sampling

single = st.floats(width=32, allow_nan=False)

OPERATIONS = {
    "addf": lambda x, y: x + y,
    "subf": lambda x, y: x - y,
    "mulf": lambda x, y: x * y,
    "divf": lambda x, y: x / y,
    "addi": lambda x, y: x + y,
    "subi": lambda x, y: x - y,
    "muli": lambda x, y: x * y,
    "shli": lambda x, y: x << y,
    "extf": lambda x: x,
    "floor": lambda x: float(math.floor(x)),
    "fptosi:i64": int,
    "bitcast": lambda x: struct.unpack("<d", struct.pack("<q", x))[0],
}
"""What the operations of the typed IR compute, on Python's numbers."""


def worth(term: Term, arguments: dict[str, float]) -> float:
    """The number of a term."""
    if isinstance(term, Constant):
        return float_value(term.element, term.bits)
    if isinstance(term, Argument):
        return arguments[term.name]
    if isinstance(term, Whole):
        assert term.value.constant is not None
        return term.value.constant
    if isinstance(term, Select):
        return worth(term.yes if holds(term.condition, arguments) else term.no, arguments)
    assert isinstance(term, Apply)
    return OPERATIONS[term.name](*(worth(one, arguments) for one in term.arguments))


def holds(one: Condition, arguments: dict[str, float]) -> bool:
    """Whether a comparison is true."""
    assert isinstance(one, terms.Test)
    left, right = worth(one.left, arguments), worth(one.right, arguments)
    return {"oeq": left == right, "olt": left < right, "sge": left >= right}[one.predicate]


@given(single, single, st.floats(2.0**-64, 2.0**64), st.integers(0, 2**20))
@example(1.0, 1.0, 1.0, 2**20)
@example(-math.inf, 0.0, 1.0, 0)
@example(math.inf, math.inf, 1.0, 0)
@example(0.0, 11.78, 1.0, 0)
def test_a_weight_is_worth_what_the_text_computes(a: float, b: float, temperature: float, min_p: int) -> None:
    """Of any logit and the row's largest; also where the logit is infinite."""
    logit, best = sorted((a, b))
    if best == -math.inf:
        return
    names = {"logit": logit, "best": best, "temperature": temperature}
    logit_term, best_term = (Argument(name, element="f32") for name in ("logit", "best"))
    term = kept_weight(logit_term, best_term, Argument("temperature", element="f64"), integer(min_p))
    weight = sampling.weight(sampling.exponent(logit, best, temperature))

    assert (weight if sampling.probable(weight, min_p) else 0) == worth(term, names)


@cache
def text() -> str:
    """The typed IR."""
    (instance,) = [one for one in FIXED if one.kernel is WEIGHTS]
    return instance.ttir(TARGETS["sm_90"])


def proved(old: str, new: str, contract: Contract = WEIGHTS.contract) -> Proof:
    """The proof of the kernel with an edit, or under another contract."""
    assert 1 == text().count(old)
    return prove(parse(text().replace(old, new)), contract, dict(FIXED[0].tile.blocks))


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("dense<1.6059043836821613E-10>", "dense<1.6059043836821616E-10>", "Two constants differ"),
        ("dense<-1.700000e+01>", "dense<-1.800000e+01>", "Two constants differ"),
        ("dense<1023>", "dense<1022>", "Two integers differ"),
        ("dense<16777216>", "dense<16777215>", "Two integers differ"),
        ("arith.cmpi sge", "arith.cmpi sgt", "Two conditions differ"),
        ("arith.cmpf oeq", "arith.cmpf oge", "Two conditions differ"),
        ("arith.addf %39, %40", "arith.addf %40, %39", "has mulf where the row program has addf"),
        ("arith.divf %27", "arith.mulf %27", "has mulf where the row program has divf"),
        ("%37 = math.floor", "%37 = math.ceil", "has ceil where the row program has floor"),
        ("arith.select %33, %cst, %32", "arith.select %33, %32, %cst", "computes something else"),
        ("arith.select %8, %83, %cst_22", "arith.select %8, %78, %cst_22", "Two conditions differ"),
        ('"tt.reduce"(%93)', '"tt.reduce"(%83)', "computes something else than the row program"),
        ("dense<52>", "dense<64>", "An integer leaves its type"),
    ],
)
def test_an_edit_is_refused(old: str, new: str, finding: str) -> None:
    """Another coefficient, bound, comparison, order of additions, rounding, or sum: for its reason."""
    with pytest.raises(RefusedError, match=finding):
        proved(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("arith.select %33, %cst, %32", "arith.select %33, %cst_7, %32"),
        ("arith.select %33, %cst, %32", "arith.select %33, %cst_5, %32"),
        ("dense<0xFF800000>", "dense<0x00000000>"),
    ],
)
def test_what_is_never_chosen_may_be_anything(old: str, new: str) -> None:
    """The exponent of a token that is too improbable to be drawn is replaced, and its weight is 0; so is what lies
    beyond a row."""
    assert 2 == proved(old, new).obligations["value"]


@pytest.mark.parametrize(
    ("output", "old", "new", "finding"),
    [
        (0, "best[i]", "best[0]", "reads another element of best"),
        (0, "logits[i, t]", "logits[i, 0]", "reads another element of logits"),
        (1, "total(BLOCK", "total(BLOCK - 1", "computes something else than the row program"),
        (1, "b * BLOCK + l < width", "b * BLOCK + l <= width", "computes something else than the row program"),
    ],
)
def test_a_contract_that_says_something_else_is_refused(output: int, old: str, new: str, finding: str) -> None:
    """Of another row, token, block or end of the row."""
    outputs = list(WEIGHTS.contract.outputs)
    assert old in outputs[output].value
    outputs[output] = replace(outputs[output], value=outputs[output].value.replace(old, new))

    with pytest.raises(RefusedError, match=finding):
        proved("tt.return", "tt.return", replace(WEIGHTS.contract, outputs=tuple(outputs)))
