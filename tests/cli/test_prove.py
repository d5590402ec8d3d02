"""`vosti prove`: what is asked for is proved, by whom, how it is told, and what is kept."""

import json
import os
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from command_line import Ended, vosti, vosti_without
from vosti.impl.cli.outcome import table
from vosti.proofs import explore_report, mutant_runs, mutants, prove
from vosti.proofs.explore import Exploration, explore
from vosti.proofs.explore_bounds import DEFAULT
from vosti.proofs.explore_progress import ENGINES
from vosti.refinement.smt.obligation import Obligation
from vosti.refinement.smt.solve import Limits
from vosti.spec.state import State
from vosti.spec.step import Action

ONE = ("prove", "spec", "--action", "evict", "--conjunct", "parents_precede", "--jobs", "1")
"""The one obligation that a page is no leaf for: `inductive/evict: parents_precede`."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Proofs are kept in a folder of the test's own."""
    monkeypatch.setenv("VOSTI_CACHE", str(tmp_path / "proofs"))
    return tmp_path / "proofs"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two obligations that are soon proved, in two theorems."""
    known = [Obligation("axioms/sum", "(assert (not (= (+ 1 1) 2)))"), Obligation("reuse/evict: x", "(assert false)")]
    monkeypatch.setattr(prove, "obligations", lambda theorems: known)


def die(task: object) -> None:
    """What a worker does that is killed."""
    os._exit(9)


def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One obligation that is proved, and one that is false."""
    known = [Obligation("axioms/sum", "(assert false)"), Obligation("reuse/evict: x", "(assert true)")]
    monkeypatch.setattr(prove, "obligations", lambda theorems: known)


def last(ended: Ended) -> str:
    """What it comes to."""
    return ended.out.splitlines()[-1]


def test_one_obligation_is_proved_by_both_solvers(tmp_path: Path) -> None:
    """The table has a column for each; so have the files."""
    found, verdicts = tmp_path / "x.json", tmp_path / "x.xml"
    ended = vosti(*ONE, "-v", "--json", found, "--junit", verdicts)
    told = json.loads(found.read_text())

    assert (0, "") == (ended.code, ended.err)
    assert ["theorem", "obligations", "z3", "seconds", "cvc5", "seconds"] == ended.out.splitlines()[0].split()
    assert "  evict: parents_precede" in ended.out
    assert "Proved: 1 obligation, each by z3 and by cvc5." == last(ended)
    assert told["proved"]
    assert [("inductive/evict: parents_precede", solver, "proved") for solver in ("z3", "cvc5")] == [
        (one["obligation"], one["solver"], one["answer"]) for one in told["obligations"]
    ]
    assert ["inductive.z3", "inductive.cvc5"] == [
        case.get("classname") for case in ElementTree.parse(verdicts).iter("testcase")
    ]


def test_a_proof_is_kept_and_not_searched_for_again(few: None, cache: Path) -> None:
    """It is found again, and said to be; --fresh proves it anew and keeps nothing; another folder knows nothing."""
    first, second, fresh = (vosti("prove", "spec", "--jobs", "1", *more) for more in ((), (), ("--fresh",)))
    elsewhere = vosti("prove", "spec", "--jobs", "1", "--cache", cache / "other")

    assert "Proved: 2 obligations, each by z3 and by cvc5." == last(first) == last(fresh) == last(elsewhere)
    assert last(second).endswith("4 of the proofs were found before and kept; --fresh makes them anew.")
    assert 4 == len([path for path in cache.iterdir() if path.is_file()])


def test_nothing_is_kept_of_a_fresh_proof(few: None, cache: Path) -> None:
    """Nor is a folder made for it."""
    vosti("prove", "spec", "--jobs", "1", "--fresh")

    assert not cache.exists()


def test_a_kept_proof_that_is_damaged_is_no_proof(few: None, cache: Path) -> None:
    """A file that was cut off counts for nothing."""
    vosti("prove", "spec", "--jobs", "1")
    for path in cache.iterdir():
        path.write_text("")

    assert "Proved: 2 obligations, each by z3 and by cvc5." == last(vosti("prove", "spec", "--jobs", "1"))


def test_what_is_not_proved_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the solver's own words, exit code 1, and a failure in the JUnit file; nothing of it is kept."""
    failing(monkeypatch)
    monkeypatch.setattr(mutant_runs, "refutation", lambda replaced: "1. evict(page=0)")
    verdicts = tmp_path / "x.xml"
    ended = vosti("prove", "spec", "--solver", "z3", "--jobs", "1", "--junit", verdicts)
    again = vosti("prove", "spec", "--solver", "z3", "--jobs", "1")

    assert (1, 1) == (ended.code, again.code)
    assert "not proved: reuse/evict: x: z3 says sat" in ended.out
    assert "Refuted by a run of the specification:\n1. evict(page=0)" in ended.out
    assert "Not proved: 1 of 2 obligations." == last(ended)
    assert 1 == len(list(ElementTree.parse(verdicts).iter("failure")))


def test_to_give_up_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """An obligation at which a solver's resources end is named as such, and is a failure."""
    script = "(declare-fun f (Int Int Int) Int) (assert (forall ((x Int) (y Int)) (= (f x y 0) (* x (f y (+ x 1) 0)))))"
    endless = f"{script} (assert (> (f 1 2 0) (* (f 2 1 0) (f 3 5 0))))"
    monkeypatch.setattr(prove, "obligations", lambda theorems: [Obligation("reuse/endless", endless)])
    monkeypatch.setattr(mutant_runs, "refutation", lambda replaced: None)
    monkeypatch.setattr(prove, "discharge", lambda chosen, **how: honest(chosen, **{**how, "limits": Limits(9, 9)}))
    ended = vosti("prove", "spec", "--solver", "z3", "--jobs", "1")

    assert 1 == ended.code
    assert "gave up: reuse/endless: z3 says " in ended.out


honest = prove.discharge


def test_obligations_are_exported_for_both_solvers(tmp_path: Path, few: None) -> None:
    """A file for each obligation and solver, in a folder that was empty."""
    ended = vosti("prove", "spec", "--export", tmp_path / "scripts", "--jobs", "1")
    names = {path.relative_to(tmp_path / "scripts").as_posix() for path in (tmp_path / "scripts").rglob("*.smt2")}

    assert 0 == ended.code
    assert {f"{solver}/{name}.smt2" for solver in ("z3", "cvc5") for name in ("axioms_sum", "reuse_evict__x")} == names
    assert 2 == vosti("prove", "spec", "--export", tmp_path / "scripts").code


def test_statistics_are_of_this_run(few: None, tmp_path: Path) -> None:
    """Lines of code, times and the machine; nothing is taken from earlier runs."""
    vosti("prove", "spec", "--jobs", "1")
    ended = vosti("prove", "spec", "--jobs", "1", "--stats", "--json", tmp_path / "x.json")
    told = json.loads((tmp_path / "x.json").read_text())

    assert "engine and model execution" in ended.out
    assert "z3-solver " in ended.out
    assert "Proved: 2 obligations, each by z3 and by cvc5." == last(ended)
    assert 500 < told["lines"]["engine and model execution"]["specification"] < 2000


def test_a_mutant_is_not_proved_and_is_refuted(tmp_path: Path) -> None:
    """The two are counted apart."""
    found, verdicts = tmp_path / "x.json", tmp_path / "x.xml"
    asked = ("prove", "spec", "--mutants", "--action", "observe", "--jobs", "1", "-v")
    ended = vosti(*asked, "--json", found, "--junit", verdicts)
    told = json.loads(found.read_text())["mutants"]

    assert 0 == ended.code, ended.out
    assert ["mutants", "not", "proved", "refuted", "by", "a", "run", "implied", "survivors"] == (
        ended.out.splitlines()[0].split()
    )
    assert "not proved: spec, observe: without " in ended.out
    assert "; refuted by a run: " in ended.out
    assert len(told) == len(list(ElementTree.parse(verdicts).iter("testcase")))


def tried(monkeypatch: pytest.MonkeyPatch, verdict: str) -> Ended:
    """A trial in which one mutant, of the page pool's eviction, comes to this."""
    (mutant,) = (
        mutant for _, mutant in mutants.listed(["pool"]) if mutant.name == "evict: another page's index entry goes too"
    )
    report = mutants.Report((mutants.Result("pool", mutant, verdict, "", None, None),))
    monkeypatch.setattr(mutants, "mutants", lambda subjects, **how: report)
    return vosti("prove", "refinement", "--mutants", "-v")


def test_a_mutant_that_changes_nothing_is_shown_with_its_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """The obligations that say that it is no other text."""
    ended = tried(monkeypatch, mutants.IMPLIED)

    assert 0 == ended.code
    assert "changes nothing: pool, evict: another page's index entry goes too: proved by 10 obligations\n" in ended.out
    assert "\n  implied/evict_guard\n" in ended.out


def test_a_mutant_that_survives_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither refuted, nor not proved, nor proved to change nothing."""
    ended = tried(monkeypatch, mutants.OPEN)

    assert 1 == ended.code
    assert "survivor: pool, evict: another page's index entry goes too" in ended.out
    assert "1 mutants survive" not in ended.out
    assert last(ended).startswith("1 mutant survives: ")


def test_small_worlds_are_explored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """States, transitions and depth of each, and of all together."""
    world = replace(DEFAULT[0], name="tiny", requests=1, pages=2)
    engine = replace(ENGINES[0], name="tiny engine", requests=1)
    monkeypatch.setattr("vosti.proofs.explore_report.explore_all.__defaults__", ((world,), (engine,), 1, None))
    ended = vosti("prove", "explore", "--jobs", "1", "--json", tmp_path / "x.json")
    told = json.loads((tmp_path / "x.json").read_text())["explorations"]

    assert (0, "") == (ended.code, ended.err)
    assert "tiny: " in ended.out
    assert "nothing left out, nothing wrong" in last(ended)
    assert ["tiny", "tiny engine"] == [one["name"] for one in told]
    assert all(one["exhausted"] and one["states"] > 1 for one in told)


def anything(s: State, action: Action) -> bool:
    """A guard that holds always."""
    return True


@pytest.mark.parametrize(
    ("exploration", "sentence", "wrong"),
    [
        (explore(replace(DEFAULT[0], requests=1), guard=anything), "Found: 1 counterexample.", "1. "),
        (explore(DEFAULT[0], most=9), "Not explored: something within the bounds was left out.", "not exhausted"),
    ],
    ids=["a counterexample", "something left out"],
)
def test_an_exploration_that_found_something_or_stopped_is_a_failure(
    exploration: Exploration, sentence: str, wrong: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Exit code 1, a sentence, and a failure in the JUnit file that says how to get there."""
    report = explore_report.Report((exploration,), (), None)
    monkeypatch.setattr(explore_report, "explore_all", lambda **how: report)
    ended = vosti("prove", "explore", "--junit", tmp_path / "x.xml")
    (failure,) = ElementTree.parse(tmp_path / "x.xml").iter("failure")

    assert 1 == ended.code
    assert sentence == last(ended)
    assert wrong in str(failure.text)


def test_a_counterexample_is_written_as_a_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its audit stops at the action that the specification refuses, as the exploration did at what it led to."""
    found = explore(replace(DEFAULT[0], requests=1), guard=anything)
    monkeypatch.setattr(explore_report, "explore_all", lambda **how: explore_report.Report((found,), (), None))
    ended = vosti("prove", "explore", "--export", tmp_path / "found")
    (trace,) = (tmp_path / "found").iterdir()

    assert 1 == ended.code
    assert f"is written to {trace}." in ended.out
    assert 1 == vosti("audit", trace).code


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["prove", "everything"], "'everything' is not one of 'spec', 'refinement', 'explore', 'kernels'."),
        (["prove", "spec", "--action", "fly"], "No obligation of spec is about action fly: the actions are cancel,"),
        (["prove", "spec", "--mutants", "--action", "fly"], "No mutant of spec concerns fly."),
        (["prove", "--solver", "yices"], "'yices' is not one of 'z3', 'cvc5', 'both'."),
        (["prove", "explore", "--action", "evict"], "An exploration has no obligations and no mutants"),
        (["prove", "--mutants", "--solver", "both"], "Mutants are tried with one solver"),
        (["prove", "--jobs", "0"], "0 is not in the range 1<=x<=1024."),
        (["prove", "--export", __file__], "is not an empty folder"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], sentence: str) -> None:
    """With one sentence and exit code 2."""
    ended = vosti(*arguments)

    assert (2, "") == (ended.code, ended.out)
    assert sentence in ended.err
    assert 1 == ended.err.count("\n")


@pytest.mark.parametrize(
    ("work", "arguments"),
    [((prove, "_result"), ["--fresh"]), ((mutants, "_task"), ["--mutants"])],
    ids=["obligations", "mutants"],
)
def test_a_worker_that_dies_ends_the_command(
    work: tuple[ModuleType, str], arguments: list[str], few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for a process that was killed."""
    monkeypatch.setattr(*work, die)
    ended = vosti("prove", "spec", "--jobs", "2", *arguments)

    assert 2 == ended.code
    assert "vosti: A process died at work, perhaps for want of memory: try again with --jobs 1.\n" == ended.err


@pytest.mark.parametrize("package", ["z3", "cvc5"])
def test_the_solvers_are_an_extra(package: str, tmp_path: Path) -> None:
    """Where they are not installed, and no proof was kept, a sentence says what to do."""
    ended = vosti_without((package,), "prove", "spec", "--jobs", "1", "--cache", tmp_path)

    assert 2 == ended.code
    assert f"vosti: This command needs the solvers, and {package} is not installed: pip install 'vosti[proofs]'.\n" == (
        ended.err
    )


def test_columns_are_aligned() -> None:
    """The first to the left, the others to the right."""
    assert "a    bb\nccc   d" == table([["a", "bb"], ["ccc", "d"]])
