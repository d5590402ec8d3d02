"""Proving, reporting, exporting, and keeping proofs."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from vosti.proofs.prove import Report, Result, concerns, export, obligations, prove
from vosti.refinement.smt.obligation import Obligation
from vosti.refinement.smt.solve import SOLVERS, Answer, Limits, Verdict, solve

PROVED = Verdict(Answer.PROVED, 0.5, 10, "unsat")
GAVE_UP = Verdict(Answer.GAVE_UP, 1.5, 20, "canceled")
O1, O2 = Obligation("theorem/action: conjunct", "(assert false)"), Obligation("theorem/other", "(assert true)")


def test_a_report_is_proved_if_everything_is() -> None:
    """By every solver that was asked; an empty report proves nothing."""
    assert Report((Result(O1, {"z3": PROVED, "cvc5": PROVED}),)).proved
    assert not Report((Result(O1, {"z3": PROVED, "cvc5": GAVE_UP}),)).proved
    assert not Report(()).proved
    assert not Report((Result(O1, {}),)).proved


def test_a_report_lists_failures_and_times() -> None:
    """What is not proved, and what each solver took."""
    report = Report((Result(O1, {"z3": PROVED}), Result(O2, {"z3": GAVE_UP})))

    assert (O2,) == tuple(result.obligation for result in report.failures)
    assert 2.0 == report.seconds("z3")
    assert 0 == report.seconds("cvc5")


def test_a_report_in_json() -> None:
    """An object for each obligation and solver."""
    rows = json.loads(Report((Result(O1, {"z3": PROVED}, frozenset({"z3"})), Result(O2, {"cvc5": GAVE_UP}))).json())

    assert {
        "obligation": "theorem/action: conjunct",
        "solver": "z3",
        "answer": "proved",
        "seconds": 0.5,
        "resources": 10,
        "detail": "unsat",
        "cached": True,
    } == rows[0]
    assert ("theorem/other", "gave up", False) == (rows[1]["obligation"], rows[1]["answer"], rows[1]["cached"])


def test_a_report_as_junit() -> None:
    """A test case for each obligation and solver; what is not proved is a failure."""
    suite = ElementTree.fromstring(Report((Result(O1, {"z3": PROVED}), Result(O2, {"cvc5": GAVE_UP}))).junit())

    assert [("theorem.z3", "action: conjunct"), ("theorem.cvc5", "other")] == [
        (case.get("classname"), case.get("name")) for case in suite
    ]
    assert ["gave up"] == [failure.get("message") for failure in suite.iter("failure")]


def test_obligations_are_chosen_by_action_and_conjunct() -> None:
    """Each alone, both together, and none."""
    assert concerns(O1, None, None)
    assert concerns(O1, "action", "conjunct")
    assert not concerns(O1, "other", None)
    assert not concerns(O1, "action", "other")
    assert concerns(O2, None, "other")
    assert 2 == len(prove(["axioms"], conjunct="len_slice", solvers=("z3",)).results)


def test_one_obligation_is_proved_alone() -> None:
    """The one about an action and a conjunct."""
    report = prove(["inductive"], action="evict", conjunct="parents_precede", solvers=("z3",))
    assert ["inductive/evict: parents_precede"] == [r.obligation.name for r in report.results]
    assert report.proved


def test_unknown_theorems_and_solvers_are_refused() -> None:
    """Before anything is proved."""
    with pytest.raises(ValueError, match="no theorem is called 'nothing': axioms"):
        prove(["nothing"])
    with pytest.raises(ValueError, match="no solver is called 'yices': z3, cvc5"):
        prove(["axioms"], solvers=("yices",))


def test_a_limit_that_is_too_low_is_no_proof() -> None:
    """The solver gives up, and the report is not proved."""
    report = prove(
        ["inductive"], action="compute", conjunct="values_are_canonical", solvers=("z3",), limits=Limits(z3=1000)
    )

    assert [Answer.GAVE_UP] == [r.verdicts["z3"].answer for r in report.results]
    assert not report.proved


def test_proofs_are_kept_and_found_again(tmp_path: Path) -> None:
    """A second run asks no solver; another limit is another proof; progress hears of every result."""
    cache, heard = tmp_path / "proofs", list[Result]()
    for expected in (frozenset[str](), frozenset({"z3"})):
        report = prove(["axioms"], conjunct="slice_slice", solvers=("z3",), cache=cache, progress=heard.append)
        assert report.proved
        assert {expected} == {r.cached for r in report.results}
    other = prove(["axioms"], conjunct="slice_slice", solvers=("z3",), cache=cache, limits=Limits(z3=10**6))

    assert {frozenset()} == {r.cached for r in other.results}
    assert 4 == len(heard)


def test_what_is_not_proved_is_not_kept(tmp_path: Path) -> None:
    """A failure is tried again."""
    for _ in range(2):
        report = prove(
            ["inductive"],
            action="compute",
            conjunct="values_are_canonical",
            solvers=("z3",),
            limits=Limits(z3=1000),
            cache=tmp_path,
        )
        assert not report.proved
    assert [] == list(tmp_path.iterdir())


def test_exported_files_are_what_was_proved(tmp_path: Path) -> None:
    """One file for each solver and obligation, with the script in it."""
    chosen = obligations(["canonical_output"])[:3]
    paths = export(tmp_path, chosen)

    assert len(chosen) * len(SOLVERS) == len(set(paths))
    for path, script in zip(paths, (o.script for o in chosen for _ in SOLVERS), strict=True):
        assert script in path.read_text()


def test_scripts_do_not_depend_on_the_run() -> None:
    """The same obligations, built again, are the same texts."""
    first, second = obligations(["canonical_output"]), obligations(["canonical_output"])

    assert [o.digest for o in first] == [o.digest for o in second]


def test_workers_say_what_one_process_says() -> None:
    """The number of processes changes no verdict and no order."""
    alone = prove(["axioms"], conjunct="quotient", solvers=("z3",))
    together = prove(["axioms"], conjunct="quotient", solvers=("z3",), jobs=2)

    def said(report: Report) -> list[tuple[str, str]]:
        return [(r.obligation.name, r.verdicts["z3"].answer.value) for r in report.results]

    assert said(alone) == said(together)


def test_a_proof_is_of_its_script() -> None:
    """An obligation whose assumptions contradict each other would be proved; one without any is not."""
    assert Answer.PROVED is solve(O1.script, "z3").answer
    assert Answer.NOT_PROVED is solve(O2.script, "z3").answer
