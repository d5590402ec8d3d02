"""The solvers. This module alone knows them; it is given scripts, and gives verdicts.

There are three answers. What a solver cannot prove is not thereby false: on quantified formulas it answers "unknown",
and a counterexample is found by running the specification. Limits are the solvers' own resource counts, with fixed
seeds and a fresh solver each time, so that a verdict depends neither on the load nor on what was asked before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import version

import z3


class Answer(Enum):
    """What came of an obligation."""

    PROVED = "proved"
    """The script is unsatisfiable."""

    NOT_PROVED = "not proved"
    """The solver came to an end without a proof."""

    GAVE_UP = "gave up"
    """The solver used up its resources."""


@dataclass(frozen=True)
class Verdict:
    """A solver's answer."""

    answer: Answer
    seconds: float
    """Of processor time, which decides nothing."""

    resources: int
    """What the solver counted, of the last set of options it was tried with."""

    detail: str
    """The solver's own words."""


@dataclass(frozen=True)
class Limits:
    """How much a solver may use for one obligation, in its own unit."""

    z3: int = 2_000_000
    cvc5: int = 600_000


LIMITS = Limits()
"""Three times what the hardest obligation of the project takes, and more."""


Z3_OPTIONS: Mapping[str, object] = {"auto_config": False, "smt.mbqi": False, "smt.random_seed": 0}
"""E-matching alone: a goal that is false is soon given back, instead of at the limit."""

CVC5_OPTIONS: tuple[Mapping[str, str], ...] = (
    {"user-pat": "strict", "nl-ext-tplanes-interleave": "true"},
    {"user-pat": "strict", "trigger-sel": "max"},
    {"user-pat": "strict", "full-saturate-quant": "true"},
)
"""Tried in order. "strict": where a formula has patterns, these and no others. "interleave": products get their bounds
before the resources are spent on the rest."""


def with_z3(script: str, limit: int) -> Verdict:
    """Z3's verdict on a script."""
    start = time.process_time()
    solver = z3.Solver(ctx=z3.Context())
    for option, value in Z3_OPTIONS.items():
        solver.set(option, value)
    solver.set("rlimit", limit)
    solver.from_string(script)
    result = solver.check()
    statistics = solver.statistics()
    resources = dict(statistics[i] for i in range(len(statistics))).get("rlimit count", 0)
    if result == z3.unsat:
        answer, detail = Answer.PROVED, "unsat"
    else:
        detail = "sat" if result == z3.sat else solver.reason_unknown()
        answer = Answer.GAVE_UP if "resource" in detail or "canceled" in detail else Answer.NOT_PROVED
    return Verdict(answer, time.process_time() - start, int(resources), detail)


def with_cvc5(script: str, limit: int) -> Verdict:
    """cvc5's verdict on a script: the first set of options that proves it, or the last."""
    import cvc5  # Z3 does without it

    start = time.process_time()
    answer, resources, detail = Answer.NOT_PROVED, 0, ""
    for options in CVC5_OPTIONS:
        solver = cvc5.Solver(cvc5.TermManager())
        solver.setOption("rlimit-per", str(limit))
        for option, value in options.items():
            solver.setOption(option, value)
        parser = cvc5.InputParser(solver)
        parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, f"(set-logic ALL)\n{script}\n", "obligation")
        symbols = parser.getSymbolManager()
        while not (command := parser.nextCommand()).isNull():
            command.invoke(solver, symbols)
        result = solver.checkSat()
        resources = int(solver.getStatistics()["resource::resourceUnitsUsed"]["value"])
        if result.isUnsat():
            return Verdict(Answer.PROVED, time.process_time() - start, resources, "unsat")
        detail = str(result)
        exhausted = result.isUnknown() and result.getUnknownExplanation() == cvc5.UnknownExplanation.RESOURCEOUT
        answer = Answer.GAVE_UP if exhausted else Answer.NOT_PROVED
    return Verdict(answer, time.process_time() - start, resources, detail)


class Refuter:
    """Z3 on many small scripts without quantifiers: one context for all of them, a fresh solver for each.

    What a context holds may change how long a search takes, so a verdict can depend on the scripts before it: whoever
    wants it repeated uses a new refuter for the same sequence of scripts.
    """

    def __init__(self) -> None:
        self._context = z3.Context()

    def refute(self, script: str, limit: int) -> tuple[Verdict, Mapping[str, str]]:
        """The verdict; if the script has a model, also its constants, by name."""
        start = time.process_time()
        solver = z3.SimpleSolver(ctx=self._context)
        solver.set("rlimit", limit)
        solver.from_string(script)
        result = solver.check()
        values: dict[str, str] = {}
        if result == z3.unsat:
            answer, detail = Answer.PROVED, "unsat"
        elif result == z3.sat:
            answer, detail = Answer.NOT_PROVED, "sat"
            found = solver.model()
            values = {symbol.name(): str(found[symbol]) for symbol in found.decls() if symbol.arity() == 0}
        else:
            answer, detail = Answer.GAVE_UP, solver.reason_unknown()
        return Verdict(answer, time.process_time() - start, 0, detail), values


@dataclass(frozen=True)
class Model:
    """What came of a propositional script."""

    answer: Answer
    """`NOT_PROVED` means here that there is a model."""

    true: frozenset[str]
    """The symbols that are true in the model."""

    resources: int
    """What the solver counted."""


def model(script: str, limit: int) -> Model:
    """Z3's model of a propositional script, or that it has none."""
    solver = z3.SolverFor("QF_FD", ctx=z3.Context())
    solver.set("rlimit", limit)
    solver.set("random_seed", 0)
    solver.from_string(script)
    result = solver.check()
    statistics = solver.statistics()
    resources = int(dict(statistics[i] for i in range(len(statistics))).get("rlimit count", 0))
    if result != z3.sat:
        return Model(Answer.PROVED if result == z3.unsat else Answer.GAVE_UP, frozenset(), resources)
    found = solver.model()
    true = frozenset(symbol.name() for symbol in found.decls() if z3.is_true(found[symbol]))
    return Model(Answer.NOT_PROVED, true, resources)


SOLVERS: Mapping[str, Callable[[str, int], Verdict]] = {"z3": with_z3, "cvc5": with_cvc5}


def solve(script: str, solver: str, limits: Limits = LIMITS) -> Verdict:
    """One solver's verdict on a script.

    Raises:
        ValueError: if there is no such solver.
    """
    if solver not in SOLVERS:
        raise ValueError(f"no solver is called {solver!r}: {' or '.join(SOLVERS)}")
    return SOLVERS[solver](script, {"z3": limits.z3, "cvc5": limits.cvc5}[solver])


def identity(solver: str, limits: Limits = LIMITS) -> str:
    """All that a verdict depends on besides the script: solver, version, options and limit."""
    package = {"z3": "z3-solver", "cvc5": "cvc5"}[solver]
    options = {"z3": Z3_OPTIONS, "cvc5": CVC5_OPTIONS}[solver]
    return f"{solver} {version(package)} {options} {limits}"


def exported(script: str, solver: str) -> str:
    """The script as a file for the solver's own command line, with the options it needs."""
    if solver == "z3":
        options = [f"(set-option :{name} {str(value).lower()})" for name, value in Z3_OPTIONS.items()]
    else:
        options = [f"(set-option :{name} {value})" for name, value in CVC5_OPTIONS[0].items()]
    return "\n".join([*options, "(set-logic ALL)", script, "(check-sat)", ""])
