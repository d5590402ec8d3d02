"""Mutants of the kernels' typed IR are refused, or change nothing for a reason that is known.

A fixed sample is tried with every run of the tests, and many behind `-m slow` (`docs/measurements/ttir-mutants.md`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from kernel_mutants.campaign import OBLIGATIONS, REASONS, campaign, reasons, tried
from kernel_mutants.forms import FORMS, Form
from kernel_mutants.operators import NEIGHBOURS, Mutant
from kernel_mutants.places import Place
from kernel_mutants.runs import Runs
from launches import Launch
from vosti.kernels.catalogue import KERNELS, SAMPLER
from vosti.kernels.verifier import match
from vosti.kernels.verifier.entries import unproved
from vosti.kernels.verifier.legal import FORMS as LEGAL
from vosti.kernels.verifier.terms import Load

FEW = 2
"""How many mutants of each form are tried in every run; of attention's forms, one less."""

MANY = (80, 30)
"""How many mutants of each form are tried behind `-m slow`, and of each of attention's."""

KNOWN = reasons(REASONS)
KINDS = {"attribute", "axis", "comparison", "constant", "conversion", "exchange", "initial", "left out"} | {
    *("loop", "mask", "masked value", "operand", "operation", "range", "store")
}
"""What is changed."""


def form(name: str) -> Form:
    """The form of that name."""
    return next(one for one in FORMS if one.name == name)


def mutant(of: Form, name: str) -> Mutant:
    """The one mutant whose name has this in it."""
    (found,) = [one for one in of.mutants if name in one.name]
    return found


# ---------------------------------------------------------------- the mutants


def test_every_kernel_is_mutated() -> None:
    """Everything that something is proved of."""
    assert {*KERNELS, *SAMPLER} - set(unproved()) == {one.kernel for one in FORMS}
    assert len(FORMS) == len({one.name for one in FORMS})


def test_every_kind_of_change_occurs() -> None:
    """Among those of a few forms; names are unique, and the order is fixed."""
    found: Counter[str] = Counter()
    for name in ("linear", "norm", "merge", "split attention"):
        of = form(name)
        found.update(one.kind for one in of.mutants)
        assert len(of.mutants) == len({one.name for one in of.mutants}) > 100
        assert [one.name for one in of.mutants] == [one.name for one in replace(of).mutants]

    assert found.keys() == KINDS


def test_neighbours_are_legal() -> None:
    """An operation is replaced by one that the table knows, of the same number of operands."""
    for name, others in NEIGHBOURS.items():
        assert all(LEGAL[name].middle.count("%") == LEGAL[other].middle.count("%") for other in others)


# ---------------------------------------------------------------- what is made of them


def sample() -> Iterator[tuple[Form, Mutant]]:
    """Of each form, those of least rank."""
    for of in FORMS:
        yield from ((of, one) for one in of.mutants[: FEW - of.kernel.startswith("attention")])


def test_a_sample_is_refused_or_explained() -> None:
    """Some of every form; a finding names the mutated line, or one that uses what it gives."""
    outcomes = [tried(of, one, KNOWN) for of, one in sample()]

    assert [] == [str(one) for one in outcomes if one.kind not in ("refused", "equivalent")]
    assert [] == [str(one) for one in outcomes if one.kind == "refused" and one.obligation not in OBLIGATIONS]
    assert [] == [str(one) for one in outcomes if one.obligation == "value" and one.place is Place.ELSEWHERE]
    assert sum(one.kind == "refused" for one in outcomes) > 0.8 * len(outcomes)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_mutants_are_refused_or_explained() -> None:
    """Many of every form; what is proved leaves the same bits in every launch, for one reason."""
    report = campaign(*MANY, progress=print)
    print(*report.lines(), sep="\n")

    assert [] == list(map(str, report.of("unexplained", "wrong", "error")))
    assert [] == [str(one) for one in report.of("refused") if one.obligation not in OBLIGATIONS]
    assert [] == [
        str(one) for one in report.of("refused") if one.obligation == "value" and one.place is Place.ELSEWHERE
    ]
    assert [] == [str(one) for one in report.of("equivalent") if len(one.reasons) > 1]


def test_reasons_say_something() -> None:
    """Each is a sentence, about a kind of change that there is."""
    assert all(len(one.words.split()) >= 4 and one.kind in KINDS for one in KNOWN)


def test_a_reduction_that_does_not_yield_what_it_combines_is_refused() -> None:
    """Whatever its block computes besides."""
    of = form("norm")
    changed = next(one for one in of.mutants if one.op.name == "tt.reduce.return" and one.kind == "operand")
    outcome = tried(of, changed, KNOWN)

    assert "refused" == outcome.kind
    assert "a reduction is not one operation of the two lanes" in str(outcome.finding)


# ---------------------------------------------------------------- a verifier with a hole is found out


def lookups() -> Launch:
    """A launch of embedding, as `tests/verifier/recorded.py` records them."""
    numbers = np.arange(120, dtype=np.float32)
    return Launch(
        kernel="embedding",
        module="vosti.kernels.embedding",
        constants={"WIDTH": 40, "SCALED": 0},
        blocks=(("BLOCK", 32),),
        grid=(3, 2, 1),
        numbers={"rows": 3, "scale": 1.0},
        pointers={"tokens": "tokens", "table": "table", "out": "out"},
        descriptors={},
        before={"tokens": np.array([2, 0, 1], np.int32), "table": numbers, "out": np.zeros(120, np.float32)},
        after={},
    )


def test_a_mutant_that_a_verifier_with_a_hole_proves_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no reason, and a launch shows that its bits are others."""
    of = form("embedding")
    changed = mutant(of, "%value_8 = arith.muli: operand 0, %token_6, instead")
    launches = of.launches([lookups()])
    runs = Runs(of, launches)
    assert "same" == runs.of(of.ir)
    assert ("refused", "differs") == (tried(of, changed, KNOWN, runs).kind, tried(of, changed, KNOWN, runs).runs)

    monkeypatch.setitem(match._MATCHES, Load, lambda *_: None)

    assert "unexplained" == tried(of, changed, KNOWN).kind
    assert "wrong" == tried(of, changed, KNOWN, runs).kind


def test_what_is_undefined_in_a_launch_is_not_the_same() -> None:
    """An access that leaves its buffer."""
    of = form("embedding")
    changed = mutant(of, "tt.store: no mask")

    assert ("refused", "undefined") == (
        tried(of, changed, KNOWN, Runs(of, of.launches([lookups()]))).kind,
        tried(of, changed, KNOWN, Runs(of, of.launches([lookups()]))).runs,
    )
