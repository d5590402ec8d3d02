"""Mutants of the kernels' typed IR are refused, or change nothing for a reason that is known.

A fixed sample is tried with every run of the tests, and many behind `-m slow` (`docs/measurements/ttir-mutants.md`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from kernel_mutants import inputs
from kernel_mutants.campaign import campaign
from kernel_mutants.forms import FORMS, Form
from kernel_mutants.inputs import Inputs, OtherCodeError, digest, prepared
from kernel_mutants.kept import Kept, line
from kernel_mutants.operators import NEIGHBOURS, Mutant
from kernel_mutants.outcomes import REASONS, explained, reasons
from kernel_mutants.report import Report, replaced, section
from kernel_mutants.runs import Runs
from kernel_mutants.trial import tried
from launches import Launch
from vosti.kernels.catalogue import KERNELS, SAMPLER
from vosti.kernels.verifier.legal import FORMS as LEGAL
from vosti.kernels.verifier.match import Matcher

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
    """All there are."""
    assert {*KERNELS, *SAMPLER} == {one.kernel for one in FORMS}
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

    assert [] == [str(one) for one in outcomes if one.is_fault]
    assert sum(one.kind == "refused" for one in outcomes) > 0.8 * len(outcomes)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_mutants_are_refused_or_explained(tmp_path: Path) -> None:
    """Many of every form; what is proved leaves the same bits in every launch, for one reason."""
    path = tmp_path / "inputs"
    report = Report(campaign(path, Kept(prepared(path), None), *MANY, progress=print))
    print(*report.lines(), sep="\n")

    assert [] == list(map(str, report.faults))


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


def test_no_mutant_has_two_reasons() -> None:
    """Of forms that have few reasons in common."""
    for name in ("embedding", "norm of a sum", "linear", "attention, window", "split attention"):
        of = form(name)
        assert [] == [one.name for one in of.mutants if len(explained(KNOWN, of, one)) > 1]


# ---------------------------------------------------------------- what is kept, and reported


def few(path: Path, monkeypatch: pytest.MonkeyPatch) -> Inputs:
    """Inputs without launches, in a file."""
    monkeypatch.setattr(inputs, "record", list)
    return prepared(path)


def test_a_campaign_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is not tried again, but for a line that was cut off; two processes find the same."""
    source, path = tmp_path / "inputs", tmp_path / "kept"
    given = few(source, monkeypatch)
    norm, tried_now = re.compile("norm|linear"), Counter[str]()

    def again(most: int, kept: Path | None, jobs: int) -> list[tuple[str, str | None, str]]:
        tried_now.clear()
        outcomes = campaign(source, Kept(given, kept), most, 0, norm, lambda one: tried_now.update([one.form]), jobs)
        return [(one.mutant.name, one.finding, one.kind) for one in outcomes]

    first = again(2, path, 1)
    assert {"norm": 2, "linear": 2} == tried_now
    path.write_text(path.read_text()[:-1])
    second = again(3, path, 2)
    assert {"norm": 1, "linear": 2} == tried_now
    assert first == [second[number] for number in (0, 1, 3, 4)]
    assert second == again(3, None, 1)
    assert {"norm": 3, "linear": 3} == tried_now
    assert {"refused", "equivalent"} == {kind for _, _, kind in second}


def test_an_error_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outcome that is no finding is a fault, and the next campaign does not take it for granted."""
    given, of = few(tmp_path / "inputs", monkeypatch), form("norm")
    broken = replace(tried(of, of.mutants[0], KNOWN), finding=None, error="MemoryError: ")
    assert broken.is_fault
    first = Kept(given, tmp_path / "kept")
    first.add(line(broken))

    found = first.outcome(of, of.mutants[0], KNOWN)
    assert found is not None
    assert "error" == found.kind
    assert Kept(given, tmp_path / "kept").outcome(of, of.mutants[0], KNOWN) is None


def test_what_is_kept_of_other_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outcome of one verifier says nothing of another; nor do inputs."""
    given = few(tmp_path / "inputs", monkeypatch)
    Kept(given, tmp_path / "kept")
    with pytest.raises(OtherCodeError, match="kept is of other code: delete it"):
        Kept(replace(given, triton="1.0"), tmp_path / "kept")

    monkeypatch.setattr(inputs, "digest", lambda: "another")
    assert digest() == given.digest
    with pytest.raises(OtherCodeError, match="inputs is of other code: delete it"):
        prepared(tmp_path / "inputs")


def test_the_page_s_section_is_replaced() -> None:
    """From its heading to the next; it counts every mutant, and what is not explained is a fault."""
    of = form("norm")
    outcomes = tuple(tried(of, one, []) for one in of.mutants[:3])
    lines = section(Report(outcomes), Inputs("d" * 64, "3.7.1", {}, {}), 3, 2, 60.0)
    page = replaced("# Page\n\n## What came of them\n\nold\n\n## More\n", lines)

    assert page.startswith("# Page\n\n## What came of them\n\n2")
    assert page.endswith("\n\n## More\n")
    assert "old" not in page
    assert "(code dddddddddddd)" in page
    assert "| norm | 3 |" in page
    assert "3 mutants of 1 forms, all in one go, in 1 min by 2 processes." in page
    assert ["unexplained"] == [one.kind for one in Report(outcomes).faults]
    with pytest.raises(ValueError, match="no section"):
        replaced("# Page\n", lines)


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

    monkeypatch.setattr(Matcher, "integers", lambda *_: None)

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
