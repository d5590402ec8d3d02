"""The solvers' three answers, on scripts that are exported as they stand."""

import subprocess
import sys
from pathlib import Path

import pytest

from subset_forms import Mark, Point, unknown
from vosti.refinement.smt import solve, theory
from vosti.refinement.smt import terms as T
from vosti.refinement.smt.compiler import Compiler
from vosti.refinement.smt.obligation import Obligation, axioms_for, obligation
from vosti.refinement.smt.solve import SOLVERS, Answer, Limits
from vosti.refinement.smt.values import type_of

X = T.symbol("x!0", "Name")


def loves(x: T.Term, y: T.Term) -> T.Term:
    """An unknown relation."""
    return T.apply("loves", (x, y), T.BOOL)


ANN, BOB = T.symbol("ann", "Name"), T.symbol("bob", "Name")
TRUE_GOAL = obligation("true", [T.for_all([X], loves(X, BOB))], loves(ANN, BOB), {})
FALSE_GOAL = obligation("false", [T.for_all([X], loves(X, BOB))], loves(BOB, ANN), {})


def hard() -> Obligation:
    """The pigeons: true, and beyond a small limit."""
    holes = 8

    def sits(pigeon: int, hole: int) -> T.Term:
        return T.symbol(f"sits_{pigeon}_{hole}", T.BOOL)

    housed = [T.disj(*(sits(p, h) for h in range(holes))) for p in range(holes + 1)]
    alone = [T.neg(T.conj(sits(p, h), sits(q, h))) for h in range(holes) for p in range(holes + 1) for q in range(p)]
    return obligation("hard", [*housed, *alone], T.FALSE, {})


@pytest.mark.parametrize("solver", SOLVERS)
def test_three_answers(solver: str) -> None:
    """What follows is proved, what does not is not, and what takes too long is given up."""
    few = Limits(z3=20_000, cvc5=2_000)

    assert Answer.PROVED is solve.solve(TRUE_GOAL.script, solver).answer
    assert Answer.NOT_PROVED is solve.solve(FALSE_GOAL.script, solver).answer
    assert Answer.GAVE_UP is solve.solve(hard().script, solver, few).answer


@pytest.mark.parametrize("solver", SOLVERS)
def test_what_a_solver_uses_does_not_depend_on_what_came_before(solver: str) -> None:
    """The count of resources is the same each time, and it is more than nothing."""
    first = solve.solve(TRUE_GOAL.script, solver).resources
    solve.solve(FALSE_GOAL.script, solver)

    assert first == solve.solve(TRUE_GOAL.script, solver).resources
    assert first > 0


def test_an_unknown_solver_is_refused() -> None:
    """The message lists those that there are."""
    with pytest.raises(ValueError, match="z3 or cvc5"):
        solve.solve(TRUE_GOAL.script, "yices")


def test_identity_names_version_options_and_limits() -> None:
    """A cached proof is for one solver, one version, one set of options and one limit."""
    assert solve.identity("z3") != solve.identity("cvc5")
    assert solve.identity("z3") != solve.identity("z3", Limits(z3=1))
    assert "mbqi" in solve.identity("z3")
    assert "user-pat" in solve.identity("cvc5")


@pytest.mark.parametrize(("solver", "option"), [("z3", "smt.mbqi false"), ("cvc5", "user-pat strict")])
def test_an_exported_file_says_how_it_is_to_be_read(solver: str, option: str, tmp_path: Path) -> None:
    """It begins with the solver's options, and the solver's own command line agrees with the verdict."""
    path = tmp_path / "obligation.smt2"
    path.write_text(solve.exported(TRUE_GOAL.script, solver))

    assert f"(set-option :{option})" in path.read_text()
    assert path.read_text().endswith("(check-sat)\n")
    if solver == "z3":
        binary = Path(sys.executable).with_name("z3")
        run = subprocess.run([binary, path], capture_output=True, text=True, check=True)
        assert "unsat" == run.stdout.strip()


def test_an_obligation_has_the_axioms_of_what_it_mentions() -> None:
    """Sequences, products and sets bring theirs; what is not mentioned brings none."""
    token = theory.Sequences("Token")
    length = token.length(T.symbol("h", token.sort))
    product = theory.MULTIPLY(T.symbol("n", T.INT), T.symbol("m", T.INT))

    assert [] == axioms_for([loves(ANN, BOB)])
    assert len(token.axioms()) == len(axioms_for([T.at_most(T.integer(0), length)]))
    assert len(theory.product_axioms()) == len(axioms_for([T.at_most(T.integer(0), product)]))


def test_definitions_come_with_what_they_mention() -> None:
    """Those of symbols that a definition brings are added too, and no others."""
    a, b, c = (T.symbol(name, T.BOOL) for name in "abc")
    definitions = {"a": (T.implies([b], a),), "b": (b,), "c": (c,)}

    assert Answer.PROVED is solve.solve(obligation("chain", [], a, definitions).script, "z3").answer
    assert "c" not in obligation("chain", [], a, definitions).script.split()


def test_a_digest_is_of_the_script() -> None:
    """It tells two obligations apart, and not two names."""
    assert TRUE_GOAL.digest != FALSE_GOAL.digest
    assert TRUE_GOAL.digest == Obligation("another name", TRUE_GOAL.script).digest


def slice_of_unknown_bounds(p: Point, n: int) -> Mark:
    """A tuple as an argument of an unknown function, outside its bounds for most n."""
    return unknown(n, p.text, p.path[n:1], None)


def test_what_is_not_defined_is_no_contradiction() -> None:
    """A slice that ends before it begins has no negative length: false does not follow from its being mentioned."""
    compiler = Compiler()
    arguments = [compiler.symbolic(type_of(ty), name) for name, ty in (("p", Point), ("n", int))]
    mentioned = compiler.run(slice_of_unknown_bounds, *arguments)
    backwards = T.less(T.integer(1), compiler.int_term(arguments[1]))
    assumed = [backwards, T.equal(mentioned.term, mentioned.term), T.apply("seen", (mentioned.term,), T.BOOL)]

    assert len(mentioned.needs) == 1
    assert (
        Answer.PROVED is not solve.solve(obligation("no", assumed, T.FALSE, compiler.definitions).script, "z3").answer
    )
